import { Button, ToolbarItem } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type ReactElement, useMemo } from "react";
import { Link, useNavigate } from "react-router";
import { create, each, path, query, remove } from "../api/client";
import type { Status as Answer } from "../api/errors";
import { useObject } from "../api/live";
import { useRights } from "../api/rights";
import type { AddressRow, AddressSpace } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { Sparkline } from "../parts/chart";
import { Listed, type Question, useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { Fullest } from "../parts/facts";
import { ago, count, dateTime, plural, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Status } from "../parts/status";
import { type Action, type Column, LiveTable } from "../parts/table";
import { TYPES } from "./address-pictures";

const STORES = new Set(["queue", "subscription", "deadletter"]);

function columns(to: string): Column<AddressRow>[] {
  return [
    {
      key: "address",
      title: "Address",
      cell: (row) => (
        <Link to={path(`${to}/addresses`, row.name)} className="em-wrap em-short" title={row.address}>
          <bdi>{row.address}</bdi>
        </Link>
      ),
    },
    {
      key: "type",
      title: "Type / plan",
      cell: (row) => (
        <>
          {TYPES[row.type]?.title ?? row.type}
          <div className="em-figure-below">{row.plan}</div>
        </>
      ),
    },
    { key: "phase", title: "Status", cell: (row) => <Status {...row} /> },
    {
      key: "messagesIn",
      title: "In/s",
      number: true,
      cell: (row) => (
        <>
          <Sparkline values={row.spark?.in} label={`in, lately; now ${rate(row.messagesIn)} a second`} />
          {rate(row.messagesIn)}
        </>
      ),
    },
    {
      key: "messagesOut",
      title: "Out/s",
      number: true,
      cell: (row) => (
        <>
          <Sparkline values={row.spark?.out} color={1} label={`out, lately; now ${rate(row.messagesOut)} a second`} />
          {rate(row.messagesOut)}
        </>
      ),
    },
    { key: "stored", title: "Stored", number: true, cell: (row) => count(row.stored) },
    { key: "senders", title: "Senders", number: true, cell: (row) => count(row.senders) },
    { key: "receivers", title: "Receivers", number: true, cell: (row) => count(row.receivers) },
    { key: "partitions", title: "Partitions", number: true, cell: (row) => (row.type === "stream" ? count(row.partitions) : "") },
    { key: "fill", title: "Limits", sortable: false, info: "The limit that is closest to being reached", cell: (row) => <Fullest fills={row.fill} /> },
    { key: "created", title: "Created", cell: (row) => <span title={dateTime(row.created)}>{ago(row.created)}</span> },
  ];
}

type Named = Pick<AddressRow, "name" | "address" | "type" | "stored">;

const MAX_COUNTED = 20;

/** The same with what is stored at this moment: figures of tables are some seconds old. */
export async function counted(space: Space, rows: Named[]): Promise<Named[]> {
  if (rows.length > MAX_COUNTED) return rows;
  return Promise.all(
    rows.map(async (row) => {
      if (!STORES.has(row.type)) return row;
      const url = query(`${path(`${space.inNamespace}/addresses`, row.name)}/purge`, { dryRun: "All" });
      return create<Answer>(url, {}).then(
        ({ details }) => ({ ...row, stored: details?.count ?? row.stored }),
        () => row,
      );
    }),
  );
}

/** The question before addresses are deleted. */
export function deletionOf(space: Space, rows: Named[], after?: () => void): Question {
  const stored = rows.reduce((sum, row) => sum + (row.stored ?? 0), 0);
  return {
    title: rows.length === 1 ? <>Delete the address <bdi>{rows[0]!.address}</bdi>?</> : `Delete ${rows.length} addresses?`,
    loses: (
      <>
        {plural(stored, "stored message")} {stored === 1 ? "is" : "are"} deleted, and clients that use {rows.length === 1 ? "it" : "them"} are
        detached. This cannot be undone.
        {rows.length > 1 && <p className="em-wrap"><Listed names={rows.map((row) => row.address)} /></p>}
      </>
    ),
    action: "Delete",
    type: rows.length === 1 && stored > 0 ? rows[0]!.address : undefined,
    run: async () => {
      await each(rows, (row) => remove(path(`${space.inNamespace}/addresses`, row.name)));
      after?.();
    },
  };
}

/** The question before stored messages are deleted. */
export function purgeOf(space: Space, rows: Named[], after?: () => void): Question {
  const stored = rows.reduce((sum, row) => sum + (row.stored ?? 0), 0);
  return {
    title: rows.length === 1 ? <>Purge <bdi>{rows[0]!.address}</bdi>?</> : `Purge ${rows.length} addresses?`,
    loses: `${plural(stored, "stored message")} ${stored === 1 ? "is" : "are"} deleted, except what receivers hold unsettled. This cannot be undone.`,
    action: "Purge",
    run: async () => {
      await each(rows, (row) => create(`${path(`${space.inNamespace}/addresses`, row.name)}/purge`, {}));
      after?.();
    },
  };
}

export default function AddressesPage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const object = useObject<AddressSpace>(`${space.inNamespace}/addressspaces`, space.name).data;
  const mayCreate = rights.may("create", "addresses");
  const mayPurge = rights.may("create", "addresses/purge") ? undefined : "You may not purge addresses";
  const mayDelete = rights.may("delete", "addresses") ? undefined : "You may not delete addresses";

  const shown = useMemo(() => columns(space.to), [space.to]);

  const deletion: Action<AddressRow> = { title: "Delete", danger: true, refused: mayDelete, run: (rows, done) => void counted(space, rows).then((found) => confirm(deletionOf(space, found, done))) };
  const purge: Action<AddressRow> = {
    title: "Purge",
    refused: mayPurge,
    run: (rows, done) => {
      const storing = rows.filter((row) => STORES.has(row.type));
      if (storing.length) void counted(space, storing).then((found) => confirm(purgeOf(space, found, done)));
    },
  };
  const creation = (
    <Button
      data-tour="new-address"
      icon={<PlusCircleIcon />}
      onClick={() => void navigate(`${space.to}/new-address`)}
      isAriaDisabled={!mayCreate}
      title={mayCreate ? undefined : "You may not create addresses here"}
    >
      Create an address
    </Button>
  );
  return (
    <PageFrame
      title="Addresses"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      beside={object && object.status?.phase !== "Active" ? <Status phase={object.status?.phase} ready={object.status?.isReady} messages={object.status?.messages} /> : undefined}
    >
      <LiveTable<AddressRow>
        label="Addresses"
        declared
        noun="address"
        nouns="addresses"
        url={`${space.api}/rows/addresses`}
        columns={shown}
        rowKey={(row) => row.name}
        filters={[
          { key: "type", title: "Type", options: Object.keys(TYPES) },
          { key: "status", title: "Status", options: ["Active", "Configuring", "Pending", "Failed", "Terminating"] },
        ]}
        rowActions={(row) => [
          { title: "Edit", run: () => void navigate(`${path(`${space.to}/addresses`, row.name)}?tab=settings`) },
          ...(STORES.has(row.type) ? [purge] : []),
          deletion,
        ]}
        bulkActions={[purge, deletion]}
        toolbar={<ToolbarItem>{creation}</ToolbarItem>}
        empty={
          <Teach
            title="No address yet"
            actions={
              <>
                {creation}
                <Button variant="link" onClick={() => void navigate(`${space.to}/endpoints`)}>
                  How clients connect
                </Button>
              </>
            }
          >
            An address is what applications send to and receive from. Its type says whether messages are stored, and who gets
            them: a <b>queue</b> shares out work, a <b>topic</b> tells everybody, a <b>stream</b> can be read again.
          </Teach>
        }
      />
    </PageFrame>
  );
}
