import { Button, ToolbarItem } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type ReactElement } from "react";
import { Link, useNavigate } from "react-router";
import { CORE, each, get, path, remove, V1 } from "../api/client";
import { useGet } from "../api/live";
import { useRights } from "../api/rights";
import type { AddressSpace, Objects, Resource, SpaceRow } from "../api/types";
import { spaceOf } from "../app/space";
import { download } from "../parts/code";
import { Listed, useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, plural, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Status } from "../parts/status";
import { type Action, type Column, LiveTable } from "../parts/table";

const COLUMNS: Column<SpaceRow>[] = [
  {
    key: "name",
    title: "Name",
    cell: (row) => (
      <>
        <Link to={`${spaceOf(row.namespace, row.name).to}/addresses`}>{row.name}</Link>
        <div className="em-figure-below">{row.namespace}</div>
      </>
    ),
  },
  {
    key: "type",
    title: "Type / plan",
    cell: (row) => (
      <>
        {row.type}
        <div className="em-figure-below">{row.plan}</div>
      </>
    ),
  },
  { key: "phase", title: "Status", cell: (row) => <Status {...row} /> },
  { key: "addresses", title: "Addresses", number: true, cell: (row) => count(row.addresses) },
  { key: "connections", title: "Connections", number: true, cell: (row) => count(row.connections) },
  { key: "messagesIn", title: "In/s", number: true, cell: (row) => rate(row.messagesIn) },
  { key: "messagesOut", title: "Out/s", number: true, cell: (row) => rate(row.messagesOut) },
  { key: "stored", title: "Stored", number: true, cell: (row) => count(row.stored) },
  { key: "created", title: "Created", brief: true, cell: (row) => <span title={dateTime(row.created)}>{ago(row.created)}</span> },
];

export function spacePath(row: { namespace: string; name: string }): string {
  return spaceOf(row.namespace, row.name).api;
}

export default function SpacesPage(): ReactElement {
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights();
  const namespaces = useGet<Objects<Resource>>(rights.may("list", "namespaces") ? `${CORE}/namespaces` : null).data?.items.map((item) => item.metadata.name) ?? [];

  const deletion: Action<SpaceRow> = {
    title: "Delete",
    danger: true,
    run: (rows, done) => {
      const addresses = rows.reduce((sum, row) => sum + (row.addresses ?? 0), 0);
      const stored = rows.reduce((sum, row) => sum + (row.stored ?? 0), 0);
      confirm({
        title: rows.length === 1 ? `Delete the space ${rows[0]!.name}?` : `Delete ${rows.length} spaces?`,
        loses: (
          <>
            {plural(addresses, "address", "addresses")} and {plural(stored, "stored message")} are deleted with it, and its users;
            clients are disconnected. This cannot be undone.
            {rows.length > 1 && <p className="em-wrap"><Listed names={rows.map((row) => `${row.namespace}/${row.name}`)} /></p>}
          </>
        ),
        action: "Delete",
        type: rows.length === 1 ? rows[0]!.name : undefined,
        run: async () => {
          await each(rows, (row) => remove(spacePath(row)));
          done();
        },
      });
    },
  };
  const certificate: Action<SpaceRow> = {
    title: "Download the certificate",
    run: ([row]) => {
      if (!row) return;
      void get<AddressSpace>(path(spacePath(row))).then((space) => download(`${row.name}-ca.crt`, space.status?.caCert ?? "", "application/x-pem-file"));
    },
  };
  const create = (
    <Button data-tour="new-space" icon={<PlusCircleIcon />} onClick={() => void navigate("/new-space")}>
      Create a space
    </Button>
  );
  return (
    <PageFrame title="Spaces" about="Rooms for the addresses of one team or application. Clients connect to a space.">
      <LiveTable<SpaceRow>
        label="Spaces"
        declared
        noun="space"
        url={`${V1}/rows/addressspaces`}
        columns={COLUMNS}
        rowKey={(row) => `${row.namespace}/${row.name}`}
        filters={[
          ...(namespaces.length > 1 ? [{ key: "namespace", title: "Namespace", options: namespaces }] : []),
          { key: "type", title: "Type", options: ["standard", "brokered"] },
          { key: "status", title: "Status", options: ["Active", "Configuring", "Pending", "Failed", "Terminating"] },
        ]}
        rowActions={(row) => [
          { title: "Edit", run: () => void navigate(`${spaceOf(row.namespace, row.name).to}/quota`) },
          { title: "Endpoints", run: () => void navigate(`${spaceOf(row.namespace, row.name).to}/endpoints`) },
          certificate,
          deletion,
        ]}
        bulkActions={[deletion]}
        toolbar={<ToolbarItem>{create}</ToolbarItem>}
        empty={
          <Teach title="No space yet" actions={create}>
            A space is a room for the addresses of one team or application. Create one, then declare an address in it.
          </Teach>
        }
      />
    </PageFrame>
  );
}
