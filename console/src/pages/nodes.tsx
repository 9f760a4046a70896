import { Label, List, ListItem } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement } from "react";
import { V1 } from "../api/client";
import { useLatest } from "../api/live";
import type { Overview } from "../api/types";
import { bytes, count, duration, UNKNOWN } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Teach } from "../parts/empty";

export default function NodesPage(): ReactElement {
  const { data, error } = useLatest<Overview>(`${V1}/overview`);
  const nodes = data?.nodes;
  return (
    <PageFrame title="Nodes" about="The processes that carry messages. Each serves on while the API is away.">
      {error && <Refusal error={error} />}
      {data && !nodes && <Teach title="You may not see the nodes">They are the operators' matter: ask for the role service-admin.</Teach>}
      {nodes && (
        <Table aria-label="Nodes" variant="compact" gridBreakPoint="grid-md">
          <Thead>
            <Tr>
              <Th>Node</Th>
              <Th>State</Th>
              <Th className="em-number">Processor</Th>
              <Th className="em-number">Memory</Th>
              <Th className="em-number">Free disk</Th>
              <Th className="em-number">Connections</Th>
              <Th className="em-number">Links</Th>
              <Th className="em-number">Addresses</Th>
              <Th className="em-number">Up for</Th>
              <Th>Version</Th>
            </Tr>
          </Thead>
          <Tbody>
            {nodes.map((node) => (
              <Tr key={node.name}>
                <Td dataLabel="Node">
                  {node.name}
                  {node.problems && node.problems.length > 0 && (
                    <List className="em-figure-below">
                      {node.problems.map((problem) => (
                        <ListItem key={problem}>{problem}</ListItem>
                      ))}
                    </List>
                  )}
                </Td>
                <Td dataLabel="State">
                  <Label isCompact color={node.ready ? "green" : "red"}>{node.ready ? "ready" : node.up ? "not ready" : "down"}</Label>
                </Td>
                <Td dataLabel="Processor" className="em-number">{node.cpu === undefined ? UNKNOWN : `${Math.round(100 * node.cpu)} %`}</Td>
                <Td dataLabel="Memory" className="em-number">{bytes(node.memory)}</Td>
                <Td dataLabel="Free disk" className="em-number">{bytes(node.diskFree)}</Td>
                <Td dataLabel="Connections" className="em-number">{count(node.connections)}</Td>
                <Td dataLabel="Links" className="em-number">{count(node.links)}</Td>
                <Td dataLabel="Addresses" className="em-number">{count(node.addresses)}</Td>
                <Td dataLabel="Up for" className="em-number">{duration(node.uptime === undefined ? undefined : node.uptime / 1000)}</Td>
                <Td dataLabel="Version">{node.version}</Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
    </PageFrame>
  );
}
