// What pipelines know of a device: its last values, their history, and its alerts.
import { Alert, Button, Card, CardBody, CardTitle, Grid, GridItem, MenuSearch, MenuSearchInput, MenuToggle, SearchInput, Select, SelectList, SelectOption, Spinner, Switch } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement, useEffect, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import { query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet, useLatest } from "../api/live";
import { ask, literal, type PipelineRow, quoted, type QueryResult } from "../api/pipelines";
import { useRights } from "../api/rights";
import type { AddressRow, RowList } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { Teach } from "../parts/empty";
import { Figures } from "../parts/facts";
import { ago, dateTime, number, plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { DrawnResult, drawingOf } from "./sql-results";

const STORED = new Set(["stream", "queue", "subscription", "deadletter"]);
const MAX_DEVICES = 2000;
const MAX_POINTS = 5000;
const MAX_ALERTS = 50;
const AGAIN_MS = 10_000;

/** Relations of what is known of devices, by what built-in pipelines write. */
interface Known {
  last?: string;
  windows?: string;
  readings?: string;
  alertTables: string[];
  alertAddresses: string[];
}

function knownOf(rows: PipelineRow[], addresses: AddressRow[]): Known {
  const of = (name: string) => rows.filter((row) => row.builtin === name);
  const alerting = [...of("anomalies"), ...of("heartbeat")];
  const stored = new Set(addresses.filter((row) => STORED.has(row.type)).map((row) => row.address));
  return {
    last: of("last-value").flatMap((row) => row.tables)[0],
    windows: of("windows").flatMap((row) => row.tables)[0],
    readings: of("lake").flatMap((row) => row.tables.slice(1))[0],
    alertTables: alerting.flatMap((row) => row.tables),
    alertAddresses: [...new Set(alerting.flatMap((row) => row.sinks.filter((sink) => !row.tables.includes(sink) && stored.has(sink))))],
  };
}

/** The devices, with when they were heard. */
function devicesSql(known: Known): string {
  const [table, time] = known.last ? [known.last, "time"] : known.readings ? [known.readings, "time"] : [known.windows!, "window_end"];
  return `SELECT device, max(${time}) AS heard FROM ${quoted(table)} GROUP BY device ORDER BY device`;
}

function lastSql(known: Known, device: string): string {
  const where = `WHERE device = ${literal(device)}`;
  if (known.last) return `SELECT metric, value, time FROM ${quoted(known.last)} ${where} ORDER BY metric`;
  if (known.readings) return `SELECT metric, max_by(value, time) AS value, max(time) AS time FROM ${quoted(known.readings)} ${where} GROUP BY metric ORDER BY metric`;
  return `SELECT metric, max_by(mean, window_end) AS value, max(window_end) AS time FROM ${quoted(known.windows!)} ${where} GROUP BY metric ORDER BY metric`;
}

function historySql(known: Known, device: string, metric: string): string | undefined {
  const where = `WHERE device = ${literal(device)} AND metric = ${literal(metric)}`;
  if (known.windows) return `SELECT window_start AS at, mean, min, max FROM ${quoted(known.windows)} ${where} ORDER BY at DESC`;
  if (known.readings) return `SELECT time AS at, value FROM ${quoted(known.readings)} ${where} ORDER BY at DESC`;
  return undefined;
}

/** Alerts of all relations that have some; those of addresses are JSON. */
function alertsSql(known: Known, device: string): string | undefined {
  const field = (name: string) => `get_json_object(CAST(value AS STRING), '$.${name}')`;
  const parts = [
    ...known.alertTables.map((table) => `SELECT CAST(time AS STRING) AS time, state, text FROM ${quoted(table)} WHERE device = ${literal(device)}`),
    ...known.alertAddresses.map((address) => `SELECT ${field("time")} AS time, ${field("state")} AS state, ${field("text")} AS text FROM ${quoted(address)} WHERE ${field("device")} = ${literal(device)}`),
  ];
  return parts.length ? `SELECT time, state, text FROM (${parts.join(" UNION ALL ")}) ORDER BY time DESC LIMIT ${MAX_ALERTS}` : undefined;
}

// Spark answers few queries at a time, and those of pipelines come first: this page asks one after the other.
let latest: Promise<unknown> = Promise.resolve();

function askInTurn(space: Space, sql: string, limit: number, signal: AbortSignal): Promise<QueryResult> {
  const mine = latest.then(() => {
    signal.throwIfAborted();
    return ask(space.api, sql, limit, signal);
  });
  latest = mine.catch(() => undefined);
  return mine;
}

/** The answer to a query, and while `isLive` again some time after each; what was there before stays until then. */
function useAnswer(space: Space, sql: string | undefined, isLive: boolean, limit: number): { data?: QueryResult; error?: ApiError; isNew: boolean } {
  const [state, setState] = useState<{ sql?: string; data?: QueryResult; error?: ApiError }>({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (sql === undefined) return;
    const stop = new AbortController();
    askInTurn(space, sql, limit, stop.signal).then(
      (data) => setState({ sql, data }),
      (error: unknown) => stop.signal.aborted || setState((before) => ({ sql, data: before.sql === sql ? before.data : undefined, error: asApiError(error) })),
    );
    return () => stop.abort();
    // A space is made anew each time that it is shown; its path says which one it is.
    // eslint-disable-next-line
  }, [space.api, sql, turn, limit]);
  useEffect(() => {
    if (!isLive || sql === undefined || state.sql !== sql) return;
    const timer = setInterval(() => {
      if (document.hidden) return;
      clearInterval(timer);
      setTurn((before) => before + 1);
    }, AGAIN_MS);
    return () => clearInterval(timer);
  }, [isLive, sql, state]);
  const current = state.sql === sql && sql !== undefined;
  return { data: current ? state.data : undefined, error: current ? state.error : undefined, isNew: sql !== undefined && !current };
}

export default function ReadingsPage(): ReactElement {
  const space = useSpace();
  const navigate = useNavigate();
  const rights = useRights(space.namespace);
  const pipelines = useLatest<RowList<PipelineRow>>(query(`${space.api}/rows/pipelines`, { limit: 500 }));
  const addresses = useGet<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, { limit: 500 }));
  const error = pipelines.error ?? addresses.error;
  const known = pipelines.data && addresses.data ? knownOf(pipelines.data.items, addresses.data.items) : undefined;
  const has = known && (known.last ?? known.windows ?? known.readings);
  const make = (builtin: string, label: string, primary = false) => (
    <Button variant={primary ? "primary" : "secondary"} onClick={() => void navigate(query(`${space.to}/new-pipeline`, { builtin }))}>
      {label}
    </Button>
  );
  return (
    <PageFrame title="Readings" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]} about="What the built-in pipelines know of each device.">
      {error && <Refusal error={error} />}
      {rights.known && !rights.may("create", "addressspaces/query") && <Alert isInline variant="info" title="You may not query this space" className="em-health">What is known of devices is in its tables.</Alert>}
      {known && !has && (
        <Teach
          title="Nothing is known of devices yet"
          actions={
            <>
              {make("last-value", "Keep last values", true)}
              {make("windows", "Keep a history")}
              {make("anomalies", "Raise alerts")}
            </>
          }
        >
          Have devices send JSON such as <code>{'{"device": "boiler-1", "temperature": 21.5}'}</code> to a stream, and let built-in pipelines read it:{" "}
          <b>last-value</b> keeps what each device said last, <b>windows</b> a history, <b>anomalies</b> and <b>heartbeat</b> raise alerts. They appear here.
        </Teach>
      )}
      {known && has && <Devices space={space} known={known} make={make} />}
    </PageFrame>
  );
}

function Devices({ space, known, make }: { space: Space; known: Known; make: (builtin: string, label: string) => ReactElement }): ReactElement {
  const [search, setSearch] = useSearchParams();
  const [live, setLive] = useState(true);
  const found = useAnswer(space, devicesSql(known), live, MAX_DEVICES);
  const devices = (found.data?.rows ?? []).map(([name, heard]) => ({ name: String(name), heard: String(heard ?? "") }));
  const chosen = search.get("device") ?? devices[0]?.name;
  const choose = (changes: Record<string, string>) => setSearch((before) => ({ ...Object.fromEntries(before), ...changes }), { replace: true });
  const heard = devices.find((device) => device.name === chosen)?.heard;
  return (
    <>
      <div className="em-sql-bar">
        <DeviceChoice devices={devices} chosen={chosen} choose={(device) => choose({ device })} />
        <span className="em-figure-below">{found.data ? plural(devices.length, "device") : ""}{heard && <>; heard <span title={dateTime(heard)}>{ago(heard)}</span></>}</span>
        <Switch id="devices-live" label="Look again every 10 s" isChecked={live} onChange={(_, on) => setLive(on)} />
      </div>
      {found.isNew && <p className="em-total" role="status"><Spinner size="md" aria-label="Asking" /> Asking. The first query of a space waits for Spark, ten seconds or so.</p>}
      {found.error && <Refusal error={found.error} title="The tables cannot be asked now" />}
      {found.data && devices.length === 0 && <Teach title="No device yet">The tables are there and empty: rows come with the first messages that say their <code>device</code>.</Teach>}
      {chosen !== undefined && (found.data || search.get("device")) && <Device key={chosen} space={space} known={known} device={chosen} live={live} metric={search.get("metric") ?? undefined} choose={(metric) => choose({ metric })} make={make} />}
    </>
  );
}

/** What a device said last, where a pipeline keeps it; nothing where none does. */
export function LastReadings({ space, device }: { space: Space; device: string }): ReactElement | null {
  const rights = useRights(space.namespace);
  const may = rights.may("create", "addressspaces/query");
  const pipelines = useGet<RowList<PipelineRow>>(may ? query(`${space.api}/rows/pipelines`, { limit: 500 }) : null);
  const known = pipelines.data && knownOf(pipelines.data.items, []);
  const has = known && (known.last ?? known.windows ?? known.readings) !== undefined;
  const last = useAnswer(space, has ? lastSql(known, device) : undefined, true, 200);
  if (!has) return null;
  return (
    <>
      {last.isNew && <p className="em-total" role="status"><Spinner size="md" aria-label="Asking" /> Asking for the last readings.</p>}
      {last.error && <Refusal error={last.error} title="The last readings cannot be asked for now" />}
      {last.data && <LastFigures rows={last.data.rows} />}
      <p className="em-total"><Link to={query(`${space.to}/readings`, { device })}>{last.data?.rows.length === 0 ? "No readings yet" : "History and alerts"}</Link></p>
    </>
  );
}

function LastFigures({ rows }: { rows: unknown[][] }): ReactElement {
  return <Figures figures={rows.map(([name, value, time]) => ({ title: String(name), value: number(value as number | null), below: <span title={dateTime(String(time))}>{ago(String(time))}</span> }))} />;
}

function DeviceChoice({ devices, chosen, choose }: { devices: { name: string; heard: string }[]; chosen: string | undefined; choose: (device: string) => void }): ReactElement {
  const [open, setOpen] = useState(false);
  const [text, setText] = useState("");
  const shown = devices.filter((device) => device.name.toLowerCase().includes(text.toLowerCase())).slice(0, 200);
  return (
    <Select
      isOpen={open}
      isScrollable
      maxMenuHeight="20rem"
      onOpenChange={setOpen}
      selected={chosen}
      onSelect={(_, value) => {
        choose(String(value));
        setOpen(false);
      }}
      toggle={(ref) => (
        <MenuToggle ref={ref} isExpanded={open} onClick={() => setOpen(!open)} isDisabled={devices.length === 0}>
          {chosen === undefined ? "Device" : <>Device: <bdi>{chosen}</bdi></>}
        </MenuToggle>
      )}
    >
      <MenuSearch>
        <MenuSearchInput>
          <SearchInput aria-label="Find a device" placeholder="Find" value={text} onChange={(_, value) => setText(value)} onClear={() => setText("")} />
        </MenuSearchInput>
      </MenuSearch>
      <SelectList aria-label="Devices">
        {shown.map((device) => (
          <SelectOption key={device.name} value={device.name} description={ago(device.heard)}>
            <bdi>{device.name}</bdi>
          </SelectOption>
        ))}
        {shown.length === 0 && <SelectOption isDisabled>None of that name</SelectOption>}
      </SelectList>
    </Select>
  );
}

function Device(props: { space: Space; known: Known; device: string; live: boolean; metric: string | undefined; choose: (metric: string) => void; make: (builtin: string, label: string) => ReactElement }): ReactElement {
  const { space, known, device, live } = props;
  const last = useAnswer(space, lastSql(known, device), live, 200);
  const metrics = (last.data?.rows ?? []).map(([metric]) => String(metric));
  const metric = props.metric && metrics.includes(props.metric) ? props.metric : metrics[0];
  const history = useAnswer(space, metric === undefined ? undefined : historySql(known, device, metric), live, MAX_POINTS);
  const alerts = useAnswer(space, alertsSql(known, device), live, MAX_ALERTS);
  const drawing = history.data && drawingOf(history.data);
  return (
    <>
      {last.error && <Refusal error={last.error} />}
      {last.isNew && <p className="em-total" role="status"><Spinner size="md" aria-label="Asking" /></p>}
      <LastFigures rows={last.data?.rows ?? []} />
      <Grid hasGutter>
        <GridItem xl={7}>
          <Card isCompact isFullHeight>
            <CardTitle component="h2">History</CardTitle>
            <CardBody>
              {metrics.length > 1 && historySql(known, device, "") && (
                <p className="em-figures">
                  {metrics.map((name) => (
                    <Button key={name} size="sm" variant={name === metric ? "primary" : "secondary"} className="em-beside" aria-pressed={name === metric} onClick={() => props.choose(name)}>
                      {name}
                    </Button>
                  ))}
                </p>
              )}
              {history.error && <Refusal error={history.error} />}
              {drawing && <DrawnResult drawing={drawing} title={metric ?? ""} height={260} />}
              {history.data && !drawing && <p className="em-total">No window has ended yet.</p>}
              {!known.windows && !known.readings && <Teach title="No history is kept" actions={props.make("windows", "Keep a history")}>The built-in pipeline <b>windows</b> keeps mean, least and greatest of each device.</Teach>}
            </CardBody>
          </Card>
        </GridItem>
        <GridItem xl={5}>
          <Card isCompact isFullHeight>
            <CardTitle component="h2">Alerts</CardTitle>
            <CardBody>
              {alerts.error && <Refusal error={alerts.error} />}
              {alertsSql(known, device) === undefined ? (
                <Teach title="No alerts are kept" actions={props.make("anomalies", "Raise alerts")}>
                  <b>anomalies</b> tells of readings outside of their band, <b>heartbeat</b> of devices that fall silent. They appear here from a table, a
                  stream or a queue.
                </Teach>
              ) : alerts.data?.rows.length === 0 ? (
                <p className="em-total">None: all is as it should be.</p>
              ) : (
                alerts.data && <Alerts rows={alerts.data.rows} />
              )}
            </CardBody>
          </Card>
        </GridItem>
      </Grid>
      {!known.last && !known.readings && <p className="em-total">The figures are means of the newest windows; the built-in pipeline last-value keeps the readings themselves.</p>}
      <p className="em-total"><Link to={query(`${space.to}/sql`, { sql: lastSql(known, device) })}>Ask more with SQL</Link></p>
    </>
  );
}

function Alerts({ rows }: { rows: unknown[][] }): ReactElement {
  return (
    <Table aria-label="Alerts" variant="compact" gridBreakPoint="grid-md">
      <Thead>
        <Tr>
          <Th>Time</Th>
          <Th>State</Th>
          <Th>What</Th>
        </Tr>
      </Thead>
      <Tbody>
        {rows.map(([time, state, text], index) => (
          <Tr key={index}>
            <Td dataLabel="Time" className="em-nowrap">{dateTime(String(time))}</Td>
            <Td dataLabel="State">{String(state ?? "")}</Td>
            <Td dataLabel="What" className="em-wrap"><bdi>{String(text ?? "")}</bdi></Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}
