import { Alert, Button, Card, CardBody, CardTitle, Checkbox, Label, Tab, Tabs, TabTitleText } from "@patternfly/react-core";
import { type ReactElement, useEffect, useRef, useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { fetchSignedIn, path, query } from "../api/client";
import type { ApiError } from "../api/errors";
import { keepReading, useGet, useLatest, useObject, useSeries } from "../api/live";
import { type Pipeline, type PipelineRow, type QueryResult, tablesOf } from "../api/pipelines";
import { useRights } from "../api/rights";
import type { AddressSpace, Condition, RowList } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { Chart } from "../parts/chart";
import { download } from "../parts/code";
import { EditObject } from "../parts/edit";
import { Teach } from "../parts/empty";
import { Facts, Figures } from "../parts/facts";
import { ago, count, dateTime, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal, Words } from "../parts/problem";
import { Status } from "../parts/status";
import { ActionsMenu } from "../parts/table";
import { shortName, usePipelineActions } from "./pipeline-actions";
import { PipelineGraph } from "./pipeline-graph";
import { DataQuality, driftOf } from "./pipeline-quality";
import { JoinedTables, Queries } from "./pipeline-queries";

export default function PipelinePage(): ReactElement {
  const space = useSpace();
  const { name = "" } = useParams();
  const navigate = useNavigate();
  const [search, setSearch] = useSearchParams();
  const rights = useRights(space.namespace);
  const [failure, setFailure] = useState<ApiError>();
  const { data: pipeline, error } = useObject<Pipeline>(`${space.inNamespace}/pipelines`, name);
  const rows = useLatest<RowList<PipelineRow>>(pipeline ? query(`${space.api}/rows/pipelines`, { search: name, limit: 50 }) : null);
  const row = rows.data?.items.find((item) => item.name === name);
  const actions = usePipelineActions(space, rights, setFailure);
  const { data: declared } = useGet<AddressSpace>(rights.may("get", "pipelines/ui") ? space.api : null);
  const all = `${space.to}/pipelines`;
  const trail = [
    { title: "Spaces", to: "/spaces" },
    { title: space.name, to: `${space.to}/addresses` },
    { title: "Pipelines", to: all },
  ];
  const title = shortName(name);
  if (error && !pipeline) return <PageFrame title={title} trail={trail}><Refusal error={error} /></PageFrame>;
  if (pipeline === null) {
    return (
      <PageFrame title={title} trail={trail}>
        <Teach title="There is no such pipeline" actions={<Link to={all}>All pipelines</Link>}>It may have been deleted meanwhile.</Teach>
      </PageFrame>
    );
  }
  if (!pipeline) return <PageFrame title={title} trail={trail}>{null}</PageFrame>;
  const { spec, status } = pipeline;
  const behindSink = status?.conditions?.some(({ reason }) => reason === "RestoredBehindSink");
  const subject = { name, tables: row?.tables ?? [], paused: spec.paused, behindSink };
  const tab = search.get("tab") ?? "now";
  const table = row?.tables[0];
  return (
    <PageFrame
      title={title}
      trail={trail}
      beside={
        <>
          <Label isCompact color="purple">{spec.builtin ? `built in: ${spec.builtin.name}` : "declared"}</Label> <Status phase={status?.phase ?? "Pending"} ready={status?.isReady} messages={status?.messages} />
        </>
      }
      actions={
        <>
          {declared?.spec.spark?.ui && status?.phase === "Running" && (
            <Button variant="secondary" className="em-beside" component="a" href={`${path(`${space.inNamespace}/pipelines`, name)}/ui`} target="_blank" rel="noreferrer">
              Spark's pages
            </Button>
          )}
          {table && (
            <Button variant="secondary" className="em-beside" onClick={() => void navigate(query(`${space.to}/sql`, { table }))}>
              Ask its table
            </Button>
          )}
          <ActionsMenu actions={actions.of(subject, () => void navigate(all)).map((action) => ({ ...action, run: () => action.run([subject], () => undefined) }))} />
        </>
      }
    >
      {failure && <Refusal error={failure} />}
      <Tabs activeKey={tab} onSelect={(_, key) => setSearch(key === "now" ? {} : { tab: String(key) }, { replace: true })} aria-label="About the pipeline">
        <Tab eventKey="now" tabContentId="pipeline-panel" title={<TabTitleText>Now</TabTitleText>} />
        <Tab eventKey="quality" tabContentId="pipeline-panel" title={<TabTitleText>Data quality</TabTitleText>} />
        <Tab eventKey="log" tabContentId="pipeline-panel" title={<TabTitleText>Log</TabTitleText>} />
        <Tab eventKey="settings" tabContentId="pipeline-panel" title={<TabTitleText>Settings</TabTitleText>} />
      </Tabs>
      <div className="em-above" id="pipeline-panel" role="tabpanel" aria-label="About the pipeline">
        {tab === "now" && <Now space={space} pipeline={pipeline} row={row} />}
        {tab === "quality" && <DataQuality pipeline={pipeline} />}
        {tab === "log" && <Log url={`${path(`${space.inNamespace}/pipelines`, name)}/log`} name={name} />}
        {tab === "settings" && (
          <EditObject
            object={pipeline}
            url={path(`${space.inNamespace}/pipelines`, name)}
            fields={[
              { path: "spec.trigger", label: "Reads every", kind: "text", none: "1s", help: "A duration between two micro-batches, or availableNow: read what is there and end." },
              { path: "spec.credentialsSecret", label: "Runs as the user of the Secret", kind: "text", none: "Nobody in particular", help: "With username and password; needed where the space lets users in alone." },
              { path: "spec.paused", label: "It rests", kind: "flag", help: "It keeps its place." },
            ]}
            refused={rights.may("update", "pipelines") ? undefined : "You may look at the settings, and not change them."}
          />
        )}
      </div>
      {actions.dialog}
    </PageFrame>
  );
}

/** How to mend what a condition says is not so. */
const REMEDIES: Record<string, string> = {
  SpaceFound: "Create the space; it begins as soon as it is there.",
  AddressMissing: "Create the address, or name another one in the settings; it begins by itself.",
  AddressesFound: "Create the address, or name another one in the settings; it begins by itself.",
  CredentialsNeeded: "Create a user and a Secret with its username and password, and name the Secret in the settings.",
  SecretMissing: "Create the Secret with username and password, or name another one in the settings.",
  SecretIncomplete: "Put username and password into the Secret.",
  CodeFound: "Put the module into the ConfigMap as NAME.py.",
  SparkAvailable: "Somebody with access to the machine has to install it; it is looked for again every 30 s.",
  PythonAllowed: "Compute with SQL instead, or ask the operator: `docs/reference/pipeline-host.md` says when Python runs.",
  QuotaExceeded: "Pause another pipeline with a session of its own, or ask for a larger quota; it begins by itself.",
  TooLarge: "Ask for less memory or fewer cores in the settings.",
  ClusterAllowed: "Leave the cluster out in the settings, or ask the operator to list its masters.",
  InEffect: "Take it out of the settings: it does nothing.",
  CheckpointMisfit: "Restart it from another point than where it stopped, or take the change back.",
  RestoredBehindSink: "Or choose Restart … among the actions here, and a moment or from now on. Until then it rests, so nothing is written twice.",
  QueryFailed: "It is tried again by itself, with growing pauses. The log says more.",
  CannotRun: "Mend what is said in the settings.",
  RunnerEnded: "It is started again by itself. The log says more.",
  Starting: "Spark takes some ten seconds to start.",
};

function Conditions({ conditions }: { conditions: Condition[] }): ReactElement | null {
  const open = conditions.filter((condition) => condition.status !== "True");
  // What others say is not said again by Ready.
  const told = open.length > 1 ? open.filter((condition) => condition.type !== "Ready" || !open.some((other) => other !== condition && other.reason === condition.reason)) : open;
  if (told.length === 0) return null;
  return (
    <>
      {told
        .filter((condition) => condition.reason !== "Paused" && condition.reason !== "Finished")
        .map((condition) => {
          const remedy = REMEDIES[condition.reason] ?? REMEDIES[condition.type];
          const calm = condition.reason === "Starting" || condition.type === "InEffect";
          return (
            <Alert key={condition.type} isInline variant={calm ? "info" : "warning"} title={<Words text={condition.message || `${condition.type}: ${condition.reason}`} />} className="em-health">
              {remedy && <Words text={remedy} />}
            </Alert>
          );
        })}
    </>
  );
}

function Now({ space, pipeline, row }: { space: Space; pipeline: Pipeline; row: PipelineRow | undefined }): ReactElement {
  const { spec, status } = pipeline;
  const { data, error } = useSeries(query(`${space.api}/series`, { pipeline: pipeline.metadata.name, minutes: 60 }));
  const rights = useRights(space.namespace);
  const joins = spec.sources?.some((source) => source.table && !source.stream);
  // Spark is not started for it: a pipeline that runs, or waits for a table, has it.
  const hasSpark = status?.phase === "Running" || status?.conditions?.some((condition) => condition.reason === "TableEmpty");
  const lake = useGet<QueryResult>(joins && hasSpark && rights.may("get", "addressspaces/tables") ? `${space.api}/tables` : null);
  const versions = (status?.queries ?? []).flatMap(({ tables }) => tables ?? []).map(({ version }) => version).join();
  const { again } = lake;
  useEffect(() => {
    if (versions) again();
    // A version that is joined is news of the tables.
    // eslint-disable-next-line
  }, [versions]);
  const misfits = driftOf(pipeline).reduce((sum, { count }) => sum + count, 0);
  const charts: [string, string][] = [
    ["Rows a second", "rate"],
    ["Rows read", "rows"],
    ["Lag: rows not read yet", "lag"],
  ];
  return (
    <>
      <Conditions conditions={status?.conditions ?? []} />
      {(status?.warnings ?? []).map((warning) => <Alert key={warning} isInline isPlain variant="info" title={warning} className="em-health" />)}
      <Figures
        figures={[
          { title: "Rows", value: count(status?.rows ?? 0), below: "since its runner started" },
          { title: "Rate", value: rate(status?.rate), below: "rows a second" },
          { title: "Lag", value: count(status?.lag), below: "rows not read yet" },
          { title: "Watermark", value: row?.watermark ? ago(row.watermark) : "–", below: row?.watermark ? dateTime(row.watermark) : "no query has one" },
          ...(spec.schedule || status?.nextRun ? [{ title: "Next run", value: status?.nextRun ? ago(status.nextRun) : "–", below: status?.nextRun ? dateTime(status.nextRun) : spec.paused ? "it is paused" : "not known yet" }] : []),
          ...(misfits ? [{ title: "Do not fit", value: count(misfits), below: <Link to="?tab=quality">see which, and why</Link> }] : []),
          ...(row?.badRecords && !misfits ? [{ title: "Bad records", value: count(row.badRecords), below: "could not be decoded" }] : []),
        ]}
      />
      <Card isCompact className="em-figures">
        <CardTitle component="h2">What it does</CardTitle>
        <CardBody>
          <PipelineGraph pipeline={pipeline} row={row} />
        </CardBody>
      </Card>
      {error && <Refusal error={error} />}
      {data && data.times.length > 1 && (
        <div className="em-charts em-charts-three em-figures">
          {charts.map(([title, key], index) => (
            <Card key={key} isCompact>
              <CardBody>
                <Chart title={title} times={data.times} lines={[{ label: key, values: data.series[key] ?? [], color: index }]} sync={pipeline.metadata.name} />
              </CardBody>
            </Card>
          ))}
        </div>
      )}
      <Queries pipeline={pipeline} />
      <JoinedTables space={space} pipeline={pipeline} known={tablesOf(lake.data)} />
      <Card isCompact>
        <CardBody>
          <Facts
            facts={[
              ["Reads every", spec.trigger === "availableNow" ? undefined : (spec.trigger ?? "1s")],
              ["Runs", spec.trigger === "availableNow" && !spec.schedule && !spec.after?.length ? "once: reads what is there, and ends" : undefined],
              ["Schedule, in UTC", spec.schedule && <code>{spec.schedule}</code>],
              ["Runs after", spec.after?.length ? <After space={space} names={spec.after} /> : undefined],
              ["Ran last", status?.lastRun && `${dateTime(status.lastRun)}, ${ago(status.lastRun)}`],
              ["Runs next", status?.nextRun && dateTime(status.nextRun)],
              ["Runs as", spec.credentialsSecret ? `the user of the Secret ${spec.credentialsSecret}` : "nobody in particular"],
              ["Restarted last", spec.restart ? dateTime(spec.restart.at) + (spec.restart.from ? `, from ${spec.restart.from}` : "") : undefined],
              ["Created", dateTime(pipeline.metadata.creationTimestamp)],
              ["Last error", status?.lastError],
              ["Object", pipeline.metadata.name],
              ...Object.entries(spec.builtin?.parameters ?? {}).map(([key, value]): [string, string] => [key, typeof value === "string" ? value : JSON.stringify(value)]),
            ]}
          />
        </CardBody>
      </Card>
    </>
  );
}

/** The pipelines that one waits for, by their short names. */
function After({ space, names }: { space: Space; names: string[] }): ReactElement {
  return (
    <>
      {names.map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <Link to={path(`${space.to}/pipelines`, `${space.name}.${shortName(name)}`)}>{shortName(name)}</Link>
        </span>
      ))}
    </>
  );
}

const TAIL = 200;
const KEPT_LINES = 2000;

/** The last lines, and those that come. */
function Log({ url, name }: { url: string; name: string }): ReactElement {
  const [lines, setLines] = useState<string[]>([]);
  const [error, setError] = useState<ApiError>();
  const [following, setFollowing] = useState(true);
  const [known, setKnown] = useState(false);
  const end = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const stop = new AbortController();
    const read = async (signal: AbortSignal, received: () => void) => {
      const response = await fetchSignedIn(query(url, { tail: TAIL, follow: following || undefined }), { signal, accept: "text/plain" });
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      setLines([]);
      setKnown(true);
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        received();
        setError(undefined);
        const parts = (rest + value).split("\n");
        rest = parts.pop()!;
        if (parts.length) setLines((before) => [...before, ...parts].slice(-KEPT_LINES));
      }
    };
    if (following) void keepReading(read, stop.signal, setError);
    else void read(stop.signal, () => undefined).catch((caught: unknown) => stop.signal.aborted || setError(caught as ApiError));
    return () => stop.abort();
  }, [url, following]);
  useEffect(() => {
    const element = end.current;
    if (element && following) element.scrollTop = element.scrollHeight;
  }, [lines, following]);
  return (
    <>
      <div className="em-log-bar">
        <Checkbox id="log-follow" label="Follow what comes" isChecked={following} onChange={(_, on) => setFollowing(on)} />
        <Button variant="link" isInline isDisabled={lines.length === 0} onClick={() => download(`${name}.log`, `${lines.join("\n")}\n`)}>
          Download these lines
        </Button>
      </div>
      {error && <Refusal error={error} />}
      {lines.length === 0 ? (
        <p className="em-total" role="status">{known ? "It has said nothing yet: its runner writes here when it starts, restarts or fails." : "Reading …"}</p>
      ) : (
        <pre className="em-log" ref={end} tabIndex={0} role="log" aria-label="Log">{lines.join("\n")}</pre>
      )}
    </>
  );
}
