import { Button, Card, CardBody, CardTitle, Content, Flex, FormGroup, Label, Switch, TextInput } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement, useState } from "react";
import { useSearchParams } from "react-router";
import { query } from "../api/client";
import { useGet, useObject } from "../api/live";
import type { AddressRow, AddressSpace, EndpointStatus, RowList } from "../api/types";
import { useSpace } from "../app/space";
import { CodeTabs, download } from "../parts/code";
import { Teach } from "../parts/empty";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { SNIPPETS } from "./snippets";

const PORTS: [string, string][] = [
  ["amqp", "AMQP"],
  ["amqps", "AMQPS"],
  ["amqp-ws", "AMQP-WS"],
  ["amqp-wss", "AMQP-WSS"],
  ["http", "HTTP"],
  ["https", "HTTPS"],
];

// What the programs send to and receive from as it stands; the first is the one that most have.
const TYPES = ["queue", "anycast", "topic", "multicast"];

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || host.startsWith("127.");
}

function exposed(space: AddressSpace, endpoint: EndpointStatus): string {
  const found = (space.spec.endpoints ?? []).find((item) => item.name === endpoint.name) as { expose?: { type?: string } } | undefined;
  return found?.expose?.type ?? "installation";
}

export default function EndpointsPage(): ReactElement {
  const space = useSpace();
  const [search, setSearch] = useSearchParams();
  const { data, error } = useObject<AddressSpace>(`${space.inNamespace}/addressspaces`, space.name);
  const { data: rows } = useGet<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, { limit: 100 }));
  const known = TYPES.map((type) => rows?.items.find((row) => row.type === type)).find((row) => row !== undefined);
  const address = search.get("address") ?? known?.address ?? "orders";
  const endpoints = data?.status?.endpointStatuses ?? [];
  const external = endpoints.find((endpoint) => endpoint.externalHost);
  // The installation's ports are on the machine that served this page.
  const serving = external?.externalHost ?? window.location.hostname.replace(/^\[|\]$/g, "");
  const service = data?.spec.authenticationService;
  const open = service?.type === "none" || service?.name?.startsWith("none") === true;
  const [chosen, setTls] = useState<boolean>();
  // Passwords are refused in the clear.
  const tls = chosen ?? (!open || !isLoopback(serving) || external !== undefined);
  // Certificates have it, and some clients compare no IP addresses.
  const host = tls && isLoopback(serving) ? "localhost" : serving;
  const ports = external?.externalPorts ?? endpoints[0]?.servicePorts ?? {};
  // Whatever a port is listed as: all protocols are spoken at it.
  const port = (tls ? ports.amqps : ports.amqp) ?? Object.values(ports)[0];
  const place = {
    host,
    port: port ?? 0,
    tls,
    space: `${space.name}.${space.namespace}`,
    address,
    // Its realm names the space to every client, also to those that name no other host at login.
    user: open ? null : `USER@${space.name}.${space.namespace}`,
  };
  const ca = data?.status?.caCert;
  return (
    <PageFrame
      title="Endpoints"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      actions={
        ca && (
          <Button variant="secondary" onClick={() => download("ca.crt", ca, "application/x-pem-file")}>
            Download ca.crt
          </Button>
        )
      }
      about="Where clients connect. Every port speaks AMQP, MQTT, STOMP, HTTP and WebSocket, in the clear and over TLS."
    >
      {error && <Refusal error={error} />}
      {data && endpoints.length === 0 && <Teach title="No endpoint yet">The space is being configured; its endpoints appear here as soon as it is ready.</Teach>}
      {data && endpoints.length > 0 && (
        <>
          <Table aria-label="Endpoints" variant="compact" gridBreakPoint="grid-md">
            <Thead>
              <Tr>
                <Th>Name</Th>
                <Th>Type</Th>
                <Th>Host</Th>
                {PORTS.map(([, title]) => (
                  <Th key={title}>{title}</Th>
                ))}
              </Tr>
            </Thead>
            <Tbody>
              {endpoints.flatMap((endpoint) =>
                [
                  { name: endpoint.name, type: "installation", host: endpoint.serviceHost, ports: endpoint.servicePorts },
                  ...(endpoint.externalHost ? [{ name: endpoint.name, type: exposed(data, endpoint), host: endpoint.externalHost, ports: endpoint.externalPorts }] : []),
                ].map((row) => (
                  <Tr key={`${row.name}/${row.type}`}>
                    <Td dataLabel="Name">{row.name}</Td>
                    <Td dataLabel="Type">
                      <Label isCompact>{row.type}</Label>
                    </Td>
                    <Td dataLabel="Host" className="em-wrap">{row.host}</Td>
                    {PORTS.map(([key, title]) => (
                      <Td key={key} dataLabel={title}>{row.ports?.[key] ?? "–"}</Td>
                    ))}
                  </Tr>
                )),
              )}
            </Tbody>
          </Table>
          <Card className="em-above">
            <CardTitle component="h2">Send and receive a message</CardTitle>
            <CardBody>
              <Flex alignItems={{ default: "alignItemsFlexEnd" }} columnGap={{ default: "columnGapXl" }} className="em-figures">
                <FormGroup label="Address" fieldId="snippet-address">
                  <TextInput id="snippet-address" value={address} onChange={(_, value) => setSearch({ address: value }, { replace: true })} autoComplete="off" />
                </FormGroup>
                <Switch id="snippet-tls" label="TLS" isChecked={tls} onChange={(_, value) => setTls(value)} />
              </Flex>
              <CodeTabs
                label="Language"
                tabs={SNIPPETS.map((snippet) => ({
                  name: snippet.language,
                  text: snippet.text(place),
                  file: snippet.file,
                  note: (
                    <Content component="p" className="em-above">
                      First: <code>{snippet.install}</code>
                      {tls && ca && " and download ca.crt beside it"}
                      {open ? "" : ". Put a user of the space in the place of USER and PASSWORD"}.
                      {!open && !tls && " In the clear only clients on the node's machine are let in, and those that log in by SCRAM, unless the node was started with --allow-insecure-plain."}
                    </Content>
                  ),
                }))}
              />
            </CardBody>
          </Card>
        </>
      )}
    </PageFrame>
  );
}
