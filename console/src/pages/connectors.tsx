import { Content } from "@patternfly/react-core";
import { type ReactElement } from "react";
import type { ConnectorRow } from "../api/types";
import { useSpace } from "../app/space";
import { Teach } from "../parts/empty";
import { bytes, count, duration, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Status } from "../parts/status";
import { type Column, LiveTable } from "../parts/table";

/** A figure and what belongs to it, which is not known before it is. */
function withBelow(shown: string, below: string | undefined): ReactElement {
  return (
    <>
      {shown}
      {below && <div className="em-figure-below">{below}</div>}
    </>
  );
}

function told(value: number | undefined, words: (value: number) => string): string | undefined {
  return value === undefined ? undefined : words(value);
}

const COLUMNS: Column<ConnectorRow>[] = [
  {
    key: "name",
    title: "Name",
    cell: (row) => (
      <div className="em-servers em-wrap">
        {row.name}
        <div className="em-figure-below">{[row.hosts.join(", "), row.tls].filter(Boolean).join(" · ")}</div>
        {row.messages?.map((message) => <div key={message}>{message}</div>)}
      </div>
    ),
  },
  { key: "ready", title: "State", brief: true, cell: (row) => <Status phase={row.ready ? "Ready" : "Failed"} ready={row.ready} /> },
  { key: "messagesIn", title: "Sent/s", number: true, info: "Messages of clients to the other service, and bytes since the connector began", cell: (row) => withBelow(rate(row.messagesIn), told(row.bytesSent, bytes)) },
  { key: "messagesOut", title: "Received/s", number: true, info: "Messages of the other service to clients, and bytes since the connector began", cell: (row) => withBelow(rate(row.messagesOut), told(row.bytesReceived, bytes)) },
  { key: "senders", title: "Senders", number: true, cell: (row) => withBelow(count(row.senders), told(row.creditGranted, (credit) => `${count(credit)} credit`)) },
  { key: "receivers", title: "Receivers", number: true, cell: (row) => withBelow(count(row.receivers), told(row.creditAsked, (credit) => `${count(credit)} credit`)) },
  { key: "unsettled", title: "Unsettled", number: true, cell: (row) => count(row.unsettled) },
  {
    key: "connections",
    title: "Connections",
    number: true,
    info: "Made when a client needs one, and closed after a minute without; those that were lost with links, and the time since anything came",
    cell: (row) => withBelow(count(row.connections), [told(row.reconnects, (lost) => `${count(lost)} lost`), told(row.silence, (silence) => `${duration(silence)} silent`)].filter(Boolean).join(", ")),
  },
];

export default function ConnectorsPage(): ReactElement {
  const space = useSpace();
  return (
    <PageFrame
      title="Connectors"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      about="Other messaging services that the space reaches: an address of one of them is NAME/ADDRESS here."
    >
      <LiveTable<ConnectorRow>
        label="Connectors"
        noun="connector"
        url={`${space.api}/rows/connectors`}
        columns={COLUMNS}
        rowKey={(row) => row.name}
        empty={
          <Teach title="No connector">
            <Content component="p">
              A space whose <code>spec.connectors</code> name another broker passes links on to it. <code>enmasse connector test</code> shows how far the node comes.
            </Content>
          </Teach>
        }
        declared
      />
    </PageFrame>
  );
}
