import { Button, Card, CardBody, Label, Tab, Tabs, TabTitleText } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { path, query } from "../api/client";
import { useGet, useLatest, useObject, useSeries } from "../api/live";
import { useRights } from "../api/rights";
import type { Address, AddressRow, LinkRow, RowList, SubscriptionRow } from "../api/types";
import { pages, SPACE } from "../app/pages";
import { type Space, useSpace } from "../app/space";
import { useTourShows } from "../app/tour";
import { Chart, type Line } from "../parts/chart";
import { useConfirm } from "../parts/confirm";
import { EditObject } from "../parts/edit";
import { Teach } from "../parts/empty";
import { Facts, Figures, Used } from "../parts/facts";
import { ago, bytes, count, dateTime, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";
import { ActionsMenu, type Column, LiveTable } from "../parts/table";
import { addressFields } from "./address-fields";
import { Picture, TYPES } from "./address-pictures";
import { counted, deletionOf, purgeOf } from "./addresses";

const STORES = new Set(["queue", "subscription", "deadletter"]);
const BELOW = `${SPACE}/addresses/:name/`;

export default function AddressPage(): ReactElement {
  const space = useSpace();
  const { name = "" } = useParams();
  const navigate = useNavigate();
  const [search, setSearch] = useSearchParams();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const collection = `${space.inNamespace}/addresses`;
  const { data: address, error } = useObject<Address>(collection, name);
  const spec = address?.spec;
  useTourShows(spec?.type);
  const rows = useLatest<RowList<AddressRow>>(spec ? query(`${space.api}/rows/addresses`, { address: spec.address, limit: 1 }) : null);
  const row = rows.data?.items[0];
  const trail = [
    { title: "Spaces", to: "/spaces" },
    { title: space.name, to: `${space.to}/addresses` },
    { title: "Addresses", to: `${space.to}/addresses` },
  ];
  if (error && !address) return <PageFrame title={name} trail={trail}><Refusal error={error} /></PageFrame>;
  if (address === null) {
    return (
      <PageFrame title={name} trail={trail}>
        <Teach title="There is no such address" actions={<Link to={`${space.to}/addresses`}>All addresses</Link>}>
          It may have been deleted meanwhile.
        </Teach>
      </PageFrame>
    );
  }
  if (!address || !spec) return <PageFrame title={name} trail={trail}>{null}</PageFrame>;

  const subject = [{ name, address: spec.address, type: spec.type, stored: row?.stored }];
  const related = pages.filter((page) => page.path.startsWith(BELOW) && !page.path.slice(BELOW.length).includes(":"));
  const actions = [
    ...(spec.type === "topic" ? [{ title: "Add a subscription", run: () => void navigate(query(`${space.to}/new-address`, { type: "subscription", topic: spec.address })) }] : []),
    { title: "How clients connect", run: () => void navigate(query(`${space.to}/endpoints`, { address: spec.address })) },
    ...(STORES.has(spec.type) ? [{ title: "Purge", refused: rights.may("create", "addresses/purge") ? undefined : "You may not purge addresses", run: () => void counted(space, subject).then((found) => confirm(purgeOf(space, found))) }] : []),
    {
      title: "Delete",
      danger: true,
      refused: rights.may("delete", "addresses") ? undefined : "You may not delete addresses",
      run: () => void counted(space, subject).then((found) => confirm(deletionOf(space, found, () => void navigate(`${space.to}/addresses`)))),
    },
  ];
  const tab = search.get("tab") ?? "now";
  const content: Record<string, () => ReactElement> = {
    now: () => <Now space={space} address={address} row={row} />,
    links: () => <Links space={space} address={spec.address} />,
    subscriptions: () => <Subscriptions space={space} topic={spec.address} />,
    retained: () => <Retained space={space} address={spec.address} />,
    settings: () => <Settings space={space} address={address} mayEdit={rights.may("update", "addresses")} />,
  };
  const tabs: [string, string][] = [
    ["now", "Now"],
    ["links", "Links"],
    ...(spec.type === "topic" ? ([["subscriptions", "Subscriptions"]] as [string, string][]) : []),
    ...(spec.type === "topic" || spec.type === "multicast" ? ([["retained", "Retained values"]] as [string, string][]) : []),
    ["settings", "Settings"],
  ];
  return (
    <PageFrame
      title={spec.address}
      trail={trail}
      beside={
        <>
          <Label isCompact color="blue">{TYPES[spec.type].title}</Label> <Status phase={address.status?.phase} ready={address.status?.isReady} messages={address.status?.messages} />
        </>
      }
      actions={
        <>
          {related.map((page) => (
            <Button key={page.path} variant="secondary" className="em-beside" data-tour={page.path.slice(BELOW.length)} onClick={() => void navigate(path(`${space.to}/addresses`, name, page.path.slice(BELOW.length)))}>
              {page.title}
            </Button>
          ))}
          <ActionsMenu actions={actions} />
        </>
      }
    >
      <Tabs activeKey={tab} onSelect={(_, key) => setSearch(key === "now" ? {} : { tab: String(key) }, { replace: true })} aria-label="About the address">
        {tabs.map(([key, title]) => (
          <Tab key={key} eventKey={key} title={<TabTitleText>{title}</TabTitleText>}>
            <div className="em-above">{tab === key && content[key]?.()}</div>
          </Tab>
        ))}
      </Tabs>
    </PageFrame>
  );
}

function Now({ space, address, row }: { space: Space; address: Address; row: AddressRow | undefined }): ReactElement {
  const { spec, status } = address;
  const { data, error } = useSeries(query(`${space.api}/series`, { address: address.metadata.name, minutes: 60 }));
  const values = data?.series ?? {};
  const lines = (...names: [string, string][]): Line[] => names.flatMap(([name, label]) => (values[name] ? [{ label, values: values[name] }] : []));
  const charts: { title: string; lines: Line[] }[] = [
    { title: "Messages a second", lines: lines(["messagesIn", "in"], ["messagesOut", "out"]) },
    ...(spec.type === "anycast" || spec.type === "multicast" ? [] : [{ title: "Backlog: stored messages", lines: lines(["stored", "stored"]) }]),
    { title: "Credit and links", lines: lines(["credit", "credit of senders"], ["senders", "senders"], ["receivers", "receivers"]) },
    { title: "Outcomes a second", lines: lines(["accepted", "accepted"], ["rejected", "rejected"], ["released", "released"], ["modified", "modified"]) },
  ];
  return (
    <>
      <Figures
        figures={[
          { title: "In", value: rate(row?.messagesIn), below: "messages a second" },
          { title: "Out", value: rate(row?.messagesOut), below: "messages a second" },
          { title: "Stored", tour: "stored", value: count(row?.stored), below: row?.bytes === undefined ? undefined : bytes(row.bytes) },
          { title: "Senders", value: count(row?.senders) },
          { title: "Receivers", value: count(row?.receivers) },
        ]}
      />
      {row?.fill && Object.keys(row.fill).length > 0 && (
        <Card isCompact className="em-figures">
          <CardBody className="em-charts">
            {Object.entries(row.fill).map(([name, fill]) => (
              <Used key={name} title={name} fill={fill} isBytes={name === "bytes"} />
            ))}
          </CardBody>
        </Card>
      )}
      {error && <Refusal error={error} />}
      {data && data.times.length > 1 && (
        <div className="em-charts">
          {charts
            .filter((chart) => chart.lines.length > 0)
            .map((chart) => (
              <Card key={chart.title} isCompact>
                <CardBody>
                  <Chart title={chart.title} times={data.times} lines={chart.lines} sync={address.metadata.name} />
                </CardBody>
              </Card>
            ))}
        </div>
      )}
      <Card isCompact className="em-above">
        <CardBody>
          <div className="em-about">
            <Picture type={spec.type} />
            <Facts
              facts={[
                ["What it does", TYPES[spec.type].does],
                ["Plan", status?.planStatus?.name ?? spec.plan],
                ["Topic", spec.topic],
                ["Dead letters go to", spec.deadletter],
                ["Created", dateTime(address.metadata.creationTimestamp)],
                ["Object", address.metadata.name],
              ]}
            />
          </div>
        </CardBody>
      </Card>
    </>
  );
}

export function linkColumns(space: Space, of: "address" | "connection"): Column<LinkRow>[] {
  return [
    {
      key: "name",
      title: "Link",
      cell: (row) => (
        <>
          <span className="em-wrap">{row.name}</span>
          <div className="em-figure-below">{row.role}</div>
        </>
      ),
    },
    of === "address"
      ? {
          key: "containerId",
          title: "Client",
          cell: (row) => (
            <>
              <bdi className="em-wrap">{row.containerId}</bdi>
              <div className="em-figure-below">
                <Link to={path(`${space.to}/connections`, row.connection)}>connection {row.connection}</Link>
              </div>
            </>
          ),
        }
      : { key: "address", title: "Address", cell: (row) => <bdi className="em-wrap">{row.address ?? "(named by each message)"}</bdi> },
    { key: "rate", title: "Rate/s", number: true, cell: (row) => rate(row.rate) },
    { key: "credit", title: "Credit", number: true, cell: (row) => count(row.credit) },
    { key: "unsettled", title: "Unsettled", number: true, cell: (row) => count(row.unsettled) },
    { key: "deliveries", title: "Deliveries", number: true, cell: (row) => count(row.deliveries) },
    ...(["accepted", "rejected", "released", "modified"] as const).map((name) => ({
      key: name,
      title: name[0]!.toUpperCase() + name.slice(1),
      number: true,
      cell: (row: LinkRow) => count(row[name]),
    })),
    { key: "presettled", title: "Presettled", number: true, brief: true, cell: (row) => count(row.presettled) },
    { key: "backlog", title: "Backlog", number: true, cell: (row) => count(row.backlog) },
  ];
}

function Links({ space, address }: { space: Space; address: string }): ReactElement {
  return (
    <LiveTable<LinkRow>
      label="Links"
      noun="link"
      url={query(`${space.api}/rows/links`, { address })}
      columns={linkColumns(space, "address")}
      sort="name"
      rowKey={(row) => `${row.connection}/${row.role}/${row.name}`}
      empty={
        <Teach title="Nobody uses it at the moment" actions={<Link to={query(`${space.to}/endpoints`, { address })}>How clients connect</Link>}>
          Each sender and receiver that a client attaches to this address is a link; they appear here while they last.
        </Teach>
      }
    />
  );
}

function Subscriptions({ space, topic }: { space: Space; topic: string }): ReactElement {
  const columns: Column<SubscriptionRow & { subscription?: string }>[] = [
    { key: "name", title: "Subscription", cell: (row) => <Link to={path(`${space.to}/addresses`, row.name)}><bdi>{row.subscription ?? row.name}</bdi></Link> },
    { key: "stored", title: "Stored", number: true, cell: (row) => count(row.stored) },
    { key: "receivers", title: "Receivers", number: true, cell: (row) => count(row.receivers) },
  ];
  const to = query(`${space.to}/new-address`, { type: "subscription", topic });
  return (
    <LiveTable
      label="Subscriptions"
      declared
      noun="subscription"
      url={query(`${space.api}/rows/subscriptions`, { address: topic })}
      columns={columns}
      rowKey={(row) => row.name}
      empty={
        <Teach title="No declared subscription" actions={<Link to={to}>Add a subscription</Link>}>
          A subscription keeps what the topic is sent while its receivers are away. Clients may make some of their own, too.
        </Teach>
      }
    />
  );
}

interface RetainedValue {
  name: string;
  bytes?: number;
  durable?: boolean;
  time?: string;
  expires?: string;
}

function Retained({ space, address }: { space: Space; address: string }): ReactElement {
  const { data, error } = useGet<{ items: RetainedValue[]; metadata: { continue?: string } }>(query(`${space.api}/retained`, { filter: `${address}/#` }));
  if (error) return <Refusal error={error} />;
  if (data?.items.length === 0) {
    return <Teach title="No retained values">The last value that was published with the flag &quot;retain&quot; to each name below this address appears here.</Teach>;
  }
  return (
    <>
      <Table aria-label="Retained values" variant="compact" gridBreakPoint="grid-md">
        <Thead>
          <Tr>
            <Th>Name</Th>
            <Th>Bytes</Th>
            <Th>Since</Th>
            <Th>Expires</Th>
          </Tr>
        </Thead>
        <Tbody>
          {data?.items.map((value) => (
            <Tr key={value.name}>
              <Td dataLabel="Name"><bdi className="em-wrap">{value.name}</bdi></Td>
              <Td dataLabel="Bytes">{bytes(value.bytes)}</Td>
              <Td dataLabel="Since">{ago(value.time)}</Td>
              <Td dataLabel="Expires">{value.expires ? dateTime(value.expires) : "never"}</Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
      {data?.metadata.continue && <p className="em-total">The first {data.items.length}; <code>enmasse retained</code> lists all.</p>}
    </>
  );
}

function Settings({ space, address, mayEdit }: { space: Space; address: Address; mayEdit: boolean }): ReactElement {
  const others = useGet<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, { limit: 500 }));
  return (
    <EditObject
      object={address}
      url={path(`${space.inNamespace}/addresses`, address.metadata.name)}
      fields={[{ path: "spec.plan", label: "Plan", kind: "text", none: "The smallest" }, ...addressFields(address.spec.type, others.data?.items ?? [], false)]}
      refused={mayEdit ? undefined : "You may look at the settings, and not change them."}
    />
  );
}
