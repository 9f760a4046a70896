import { Card, CardBody, CardTitle, Content, Label } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement, useEffect, useState } from "react";
import { fetchSignedIn, V1 } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useObjects } from "../api/live";
import type { AddressSpace } from "../api/types";
import { useRights } from "../api/rights";
import { Code, shell } from "../parts/code";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";

interface Catalog {
  services: { id: string; name: string; description: string; bindable?: boolean; plans: { id: string; name: string; description: string; free?: boolean }[] }[];
}

/** The catalog, which a service broker gives to those alone who say the version of its specification. */
function useCatalog(): { data?: Catalog; error?: ApiError } {
  const [state, setState] = useState<{ data?: Catalog; error?: ApiError }>({});
  useEffect(() => {
    const stop = new AbortController();
    fetchSignedIn("/osbapi/v2/catalog", { signal: stop.signal, headers: { "X-Broker-API-Version": "2.17" } })
      .then(async (answer) => setState({ data: (await answer.json()) as Catalog }))
      .catch((error: unknown) => !stop.signal.aborted && setState({ error: asApiError(error) }));
    return () => stop.abort();
  }, []);
  return state;
}

const INSTANCE = "enmasse.io/service-instance-id";

export default function BrokerPage(): ReactElement {
  const { data, error } = useCatalog();
  const rights = useRights();
  const spaces = useObjects<AddressSpace>(rights.may("list", "addressspaces") ? `${V1}/addressspaces` : null);
  const ordered = (spaces.data ?? []).filter((space) => space.metadata.annotations?.[INSTANCE]);
  const url = `${window.location.origin}/osbapi`;
  return (
    <PageFrame title="Service broker" about="Platforms that speak the Open Service Broker API order spaces and users by themselves; their developers never see EnMasse.">
      <Card>
        <CardTitle component="h2">Register it</CardTitle>
        <CardBody>
          <Content component="p">Give the platform an account with the rights of a tenant, then register the broker with its name and password:</Content>
          <Code text={`enmasse account add platform\nenmasse account grant platform tenant-edit --namespace default\ncf create-service-broker enmasse platform PASSWORD ${shell(url)}\n`} />
        </CardBody>
      </Card>
      <Card className="em-above">
        <CardTitle component="h2">What can be ordered</CardTitle>
        <CardBody>
          {error && <Refusal error={error} />}
          {data && (
            <Table aria-label="Catalog" variant="compact" gridBreakPoint="grid-md">
              <Thead>
                <Tr>
                  <Th>Service</Th>
                  <Th>Plan</Th>
                  <Th>Description</Th>
                  <Th>Id of the plan</Th>
                </Tr>
              </Thead>
              <Tbody>
                {data.services.flatMap((service) =>
                  service.plans.map((plan) => (
                    <Tr key={plan.id}>
                      <Td dataLabel="Service">{service.name}</Td>
                      <Td dataLabel="Plan">
                        {plan.name} {plan.free && <Label isCompact color="green">free</Label>}
                      </Td>
                      <Td dataLabel="Description">{plan.description}</Td>
                      <Td dataLabel="Id of the plan" className="em-wrap"><code>{plan.id}</code></Td>
                    </Tr>
                  )),
                )}
              </Tbody>
            </Table>
          )}
        </CardBody>
      </Card>
      {ordered.length > 0 && (
        <Card className="em-above">
          <CardTitle component="h2">What was ordered</CardTitle>
          <CardBody>
            <Table aria-label="Ordered spaces" variant="compact" gridBreakPoint="grid-md">
              <Tbody>
                {ordered.map((space) => (
                  <Tr key={space.metadata.uid}>
                    <Td>{space.metadata.namespace}/{space.metadata.name}</Td>
                    <Td>{space.metadata.annotations?.[INSTANCE]}</Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          </CardBody>
        </Card>
      )}
    </PageFrame>
  );
}
