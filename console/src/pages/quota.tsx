import { Button, Card, CardBody, CardTitle, Content } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement } from "react";
import { useNavigate } from "react-router";
import { CORE, path, query, remove, V1 } from "../api/client";
import { useGet, useLatest, useObject } from "../api/live";
import { useRights } from "../api/rights";
import type { AddressSpace, AddressSpaceSchema, Objects, Resource, RowList, SpaceRow } from "../api/types";
import { useSpace } from "../app/space";
import { useConfirm } from "../parts/confirm";
import { EditObject } from "../parts/edit";
import { Facts, Used } from "../parts/facts";
import type { Field } from "../parts/fields";
import { bytes, IN_BYTES, limit, plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";

const LIMITS: [string, string][] = [
  ["connections", "Connections"],
  ["devices", "Devices"],
  ["links", "Links"],
  ["addresses", "Addresses"],
  ["users", "Users"],
  ["messageRate", "Messages a second"],
  ["byteRate", "Bytes a second"],
  ["maxBytes", "Stored bytes"],
  ["messageSize", "Bytes of a message"],
  ["sessions", "Sessions"],
  ["sessionBytes", "Bytes that wait in a session"],
  ["subscriptions", "Subscriptions"],
  ["subscriptionBytes", "Memory of sessions and subscriptions"],
];

interface Quota extends Resource {
  status?: { hard?: Record<string, string>; used?: Record<string, string> };
}

export default function QuotaPage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const { data: object, error } = useObject<AddressSpace>(`${space.inNamespace}/addressspaces`, space.name);
  const row = useLatest<RowList<SpaceRow & { bytes?: number }>>(query(`${V1}/rows/addressspaces`, { namespace: space.namespace, search: space.name, limit: 100 })).data?.items.find((item) => item.name === space.name);
  const users = useGet<RowList<unknown>>(query(`${space.api}/rows/users`, { limit: 1 })).data;
  const schemas = useGet<Objects<AddressSpaceSchema>>(`${V1}/addressspaceschemas`).data;
  const quotas = useGet<Objects<Quota>>(rights.may("list", "resourcequotas") ? path(`${CORE}/namespaces`, space.namespace, "resourcequotas") : null).data;
  const type = object?.spec.type ?? "standard";
  const schema = schemas?.items.find((item) => item.metadata.name === type);
  const limits = { ...(object?.status?.limits ?? {}) };
  const used: Record<string, number | undefined> = {
    addresses: row?.addresses,
    connections: row?.connections,
    users: users?.total,
    messageRate: row?.messagesIn,
    maxBytes: row?.bytes,
    sessions: row?.sessions,
    subscriptions: row?.subscriptions,
    subscriptionBytes: row?.subscriptionBytes,
  };
  const fields: Field[] = [
    { path: "spec.plan", label: "Plan", kind: "choice", none: "The smallest", options: schema?.spec.plans?.map((plan) => ({ value: plan.name, label: plan.displayName ?? plan.name })) ?? [] },
    { path: "spec.authenticationService.name", label: "Who comes in", kind: "choice", none: "As its type says", options: schema?.spec.authenticationServices?.map((value) => ({ value })) ?? [] },
    ...LIMITS.map(([name, label]): Field => ({ path: `spec.limits.${name}`, label: `${label} at most`, kind: "number", help: "Left out: as the plan says." })),
  ];
  const deletion = () =>
    confirm({
      title: `Delete the space ${space.name}?`,
      loses: `${plural(row?.addresses ?? 0, "address", "addresses")} and ${plural(row?.stored ?? 0, "stored message")} are deleted with it, and its users; clients are disconnected. This cannot be undone.`,
      action: "Delete",
      type: space.name,
      run: async () => {
        await remove(space.api);
        void navigate("/spaces");
      },
    });
  const mayDelete = rights.may("delete", "addressspaces");
  return (
    <PageFrame
      title="Plan and quota"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      beside={object && <Status phase={object.status?.phase} ready={object.status?.isReady} messages={object.status?.messages} />}
      actions={
        <Button variant="danger" isAriaDisabled={!mayDelete} title={mayDelete ? undefined : "You may not delete spaces"} onClick={deletion}>
          Delete the space
        </Button>
      }
    >
      {error && <Refusal error={error} />}
      {object && (
        <>
          <Card isCompact>
            <CardTitle component="h2">Used of its limits</CardTitle>
            <CardBody>
              {Object.keys(limits).length === 0 && (
                <Content component="p">The plan {object.spec.plan ?? ""} has no limits; what is used now: {plural(row?.addresses ?? 0, "address", "addresses")}, {plural(row?.connections ?? 0, "connection")}, {plural(row?.sessions ?? 0, "session")}, {plural(row?.subscriptions ?? 0, "subscription")} ({bytes(row?.subscriptionBytes ?? 0)} of memory), {bytes(row?.bytes ?? 0)} stored.</Content>
              )}
              <div className="em-charts">
                {LIMITS.filter(([name]) => typeof limits[name] === "number" && used[name] !== undefined).map(([name, label]) => (
                  <Used key={name} title={label} fill={{ used: used[name]!, limit: limits[name] as number }} isBytes={IN_BYTES.has(name)} />
                ))}
              </div>
              <Facts
                facts={Object.entries(limits)
                  .filter(([name]) => used[name] === undefined || !LIMITS.some(([known]) => known === name))
                  .map(([name, value]): [string, string] => [LIMITS.find(([known]) => known === name)?.[1] ?? name, limit(name, value)])}
              />
            </CardBody>
          </Card>
          {quotas && quotas.items.length > 0 && (
            <Card isCompact className="em-above">
              <CardTitle component="h2">What the namespace {space.namespace} may have</CardTitle>
              <CardBody>
                <Table aria-label="Quotas of the namespace" variant="compact" gridBreakPoint="grid-md">
                  <Thead>
                    <Tr>
                      <Th>Quota</Th>
                      <Th>Of what</Th>
                      <Th>Used</Th>
                      <Th>At most</Th>
                    </Tr>
                  </Thead>
                  <Tbody>
                    {quotas.items.flatMap((quota) =>
                      Object.entries(quota.status?.hard ?? {}).map(([name, most]) => (
                        <Tr key={`${quota.metadata.name}/${name}`}>
                          <Td dataLabel="Quota">{quota.metadata.name}</Td>
                          <Td dataLabel="Of what">{name}</Td>
                          <Td dataLabel="Used">{quota.status?.used?.[name] ?? "–"}</Td>
                          <Td dataLabel="At most">{most}</Td>
                        </Tr>
                      )),
                    )}
                  </Tbody>
                </Table>
              </CardBody>
            </Card>
          )}
          <Card className="em-above">
            <CardTitle component="h2">Settings</CardTitle>
            <CardBody>
              <Content component="p">Check says whether a change would be accepted, and changes nothing.</Content>
              <EditObject object={object} url={space.api} fields={fields} refused={rights.may("update", "addressspaces") ? undefined : "You may look at the settings, and not change them."} />
            </CardBody>
          </Card>
        </>
      )}
    </PageFrame>
  );
}
