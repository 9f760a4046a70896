import { Tooltip } from "@patternfly/react-core";
import LockIcon from "@patternfly/react-icons/dist/esm/icons/lock-icon";
import LockOpenIcon from "@patternfly/react-icons/dist/esm/icons/lock-open-icon";
import { type ReactElement } from "react";
import { Link } from "react-router";
import { each, path, remove } from "../api/client";
import { useRights } from "../api/rights";
import type { ConnectionRow } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { type Question, useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, plural, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { type Action, type Column, LiveTable } from "../parts/table";

export function Protocol({ row }: { row: ConnectionRow }): ReactElement {
  if (row.tls === undefined) return <>{row.protocol}</>;
  return (
    <span className="em-nowrap">
      {row.protocol}{" "}
      <Tooltip content={row.tls ? `Encrypted: ${row.tls}` : "In the clear"}>
        <span tabIndex={0} role="img" aria-label={row.tls ? `encrypted: ${row.tls}` : "in the clear"}>
          {row.tls ? <LockIcon /> : <LockOpenIcon />} {row.tls.split(" ")[0]}
        </span>
      </Tooltip>
    </span>
  );
}

/** What the client's program calls itself. */
function programOf(row: ConnectionRow): string {
  return [row.properties?.product, row.properties?.version].filter(Boolean).join(" ");
}

export function closingOf(space: Space, rows: ConnectionRow[], after?: () => void): Question {
  const links = rows.reduce((sum, row) => sum + (row.senders ?? 0) + (row.receivers ?? 0), 0);
  return {
    title: `Close ${plural(rows.length, "connection")}?`,
    loses: `${plural(links, "link")} end with it. Messages that a receiver holds unsettled are delivered again. Most clients connect again by themselves.`,
    action: "Close",
    run: async () => {
      await each(rows, (row) => remove(path(`${space.api}/connections`, row.name)));
      after?.();
    },
  };
}

export default function ConnectionsPage(): ReactElement {
  const space = useSpace();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const close: Action<ConnectionRow> = {
    title: "Close",
    danger: true,
    refused: rights.may("delete", "addressspaces/connections") ? undefined : "You may not close connections",
    run: (rows, done) => confirm(closingOf(space, rows, done)),
  };
  const columns: Column<ConnectionRow>[] = [
    {
      key: "containerId",
      title: "Client",
      cell: (row) => (
        <>
          <Link to={path(`${space.to}/connections`, row.name)} className="em-wrap">
            <bdi>{row.containerId || row.name}</bdi>
          </Link>
          <div className="em-figure-below">{[row.host, programOf(row), row.notRead && `not read: ${row.notRead}`].filter(Boolean).join(" · ")}</div>
        </>
      ),
    },
    { key: "user", title: "User", brief: true, cell: (row) => <span className="em-wrap">{row.user}</span> },
    { key: "protocol", title: "Protocol", cell: (row) => <Protocol row={row} /> },
    { key: "messagesIn", title: "In/s", number: true, cell: (row) => rate(row.messagesIn) },
    { key: "messagesOut", title: "Out/s", number: true, cell: (row) => rate(row.messagesOut) },
    { key: "senders", title: "Senders", number: true, cell: (row) => count(row.senders) },
    { key: "receivers", title: "Receivers", number: true, cell: (row) => count(row.receivers) },
    { key: "opened", title: "Opened", brief: true, cell: (row) => <span title={dateTime(row.opened)}>{ago(row.opened)}</span> },
  ];
  return (
    <PageFrame title="Connections" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}>
      <LiveTable<ConnectionRow>
        label="Connections"
        noun="connection"
        url={`${space.api}/rows/connections`}
        columns={columns}
        rowKey={(row) => row.name}
        rowActions={() => [close]}
        bulkActions={[close]}
        empty={
          <Teach title="Nobody is connected" actions={<Link to={`${space.to}/endpoints`}>How clients connect</Link>}>
            Clients of every protocol appear here as long as they are connected, with what they send and receive.
          </Teach>
        }
      />
    </PageFrame>
  );
}
