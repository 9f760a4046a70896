// The queries of a pipeline, what they read, and the tables that their batches join.
import { Card, CardBody, CardTitle } from "@patternfly/react-core";
import { type ReactElement, useRef } from "react";
import { Link } from "react-router";
import { path } from "../api/client";
import type { JoinedTable, LakeTable, Pipeline, QueryStatus, Source, SourceStatus } from "../api/pipelines";
import type { Space } from "../app/space";
import { Sparkline } from "../parts/chart";
import { ago, bytes, count, dateTime, duration, rate, UNKNOWN } from "../parts/format";
import { Rows } from "../parts/rows";
import { Status } from "../parts/status";
import { triggerOf } from "./pipeline-flow";

/** Batches of which a line is drawn. */
const RECENT = 30;

/** How long the batches of each query took since the page was opened. */
function useDurations(queries: QueryStatus[]): Map<string, number[]> {
  const kept = useRef(new Map<string, { batch: number; values: number[] }>());
  for (const { name, batch, batchDurationMs } of queries) {
    const known = kept.current.get(name);
    if (batch === undefined || batchDurationMs === undefined || known?.batch === batch) continue;
    kept.current.set(name, { batch, values: [...(known?.values ?? []), batchDurationMs].slice(-RECENT) });
  }
  return new Map([...kept.current].map(([name, { values }]) => [name, values]));
}

function took(ms: number | undefined): string {
  if (ms === undefined) return UNKNOWN;
  return ms < 10_000 ? `${count(ms)} ms` : duration(ms / 1000);
}

function every(trigger: string): string {
  return trigger === "availableNow" ? "reads what is there, and ends" : `every ${trigger}`;
}

export function Queries({ pipeline }: { pipeline: Pipeline }): ReactElement {
  const queries = pipeline.status?.queries ?? [];
  const durations = useDurations(queries);
  const read = queries.filter((query) => (query.sources?.length ?? 0) > 1).flatMap((query) => query.sources!.map((source) => ({ query: query.name, source })));
  return (
    <Card isCompact className="em-figures">
      <CardTitle component="h2">Queries</CardTitle>
      <CardBody>
        <Rows<QueryStatus>
          label="Queries"
          rows={queries}
          rowKey={(query) => query.name}
          none="They are listed once its runner has begun them."
          heads={[
            {
              title: "Query",
              cell: (query) => (
                <>
                  {query.name}
                  <div className="em-figure-below">{every(triggerOf(pipeline, query.name))}</div>
                  {query.error && <div className="em-last-error em-wrap" title={query.error}>{query.error}</div>}
                </>
              ),
            },
            { title: "State", cell: (query) => <Status phase={query.state} /> },
            { title: "Batch", number: true, cell: (query) => count(query.batch) },
            {
              title: "Took",
              number: true,
              cell: (query) => (
                <>
                  {took(query.batchDurationMs)}
                  <div><Sparkline values={durations.get(query.name)} label="how long the last batches took" color={2} /></div>
                </>
              ),
            },
            { title: "Rows", number: true, cell: (query) => count(query.rows) },
            { title: "Rows/s", number: true, cell: (query) => rate(query.inputRowsPerSecond) },
            { title: "Lag", number: true, cell: (query) => count(query.lag) },
            {
              title: "Watermark",
              number: true,
              cell: (query) => (query.watermarkDelayMs === undefined ? UNKNOWN : <span title={dateTime(query.watermark)}>{duration(query.watermarkDelayMs / 1000)} behind</span>),
            },
            {
              title: "State kept",
              number: true,
              cell: (query) =>
                query.stateRows === undefined ? (
                  UNKNOWN
                ) : (
                  <>
                    {count(query.stateRows)} rows
                    <div className="em-figure-below">{bytes(query.stateBytes)}</div>
                  </>
                ),
            },
            { title: "Late", number: true, cell: (query) => count(query.lateRows) },
            { title: "Bad", number: true, cell: (query) => count(query.badRecords) },
            { title: "Restarts", number: true, cell: (query) => count(query.restarts) },
          ]}
        />
        {read.length > 0 && (
          <div className="em-above">
            <Rows<{ query: string; source: SourceStatus }>
              label="What queries read"
              rows={read}
              rowKey={({ query, source }) => `${query} ${source.name}`}
              none=""
              heads={[
                { title: "Read", cell: ({ source }) => <bdi>{source.name}</bdi> },
                { title: "By", cell: ({ query }) => query },
                { title: "Rows", number: true, cell: ({ source }) => count(source.rows) },
                { title: "Rows/s", number: true, cell: ({ source }) => rate(source.inputRowsPerSecond) },
                { title: "Lag", number: true, cell: ({ source }) => count(source.lag) },
              ]}
            />
          </div>
        )}
      </CardBody>
    </Card>
  );
}

interface Joined {
  name: string;
  query?: string;
  as?: JoinedTable;
  source?: Source;
}

const REFRESHED: Record<string, string> = { batch: "with each batch", onStart: "when it starts" };

/** The tables that a pipeline joins; nothing where it joins none. `known` is what the lake says of its tables. */
export function JoinedTables({ space, pipeline, known }: { space: Space; pipeline: Pipeline; known: LakeTable[] }): ReactElement | null {
  const sources = (pipeline.spec.sources ?? []).filter((source) => source.table && !source.stream);
  const joined = (pipeline.status?.queries ?? []).flatMap((query) => (query.tables ?? []).map((as): Joined => ({ name: as.name, query: query.name, as, source: sources.find((source) => source.table === as.name) })));
  const waiting = sources.filter((source) => !joined.some((table) => table.name === source.table)).map((source): Joined => ({ name: source.table!, source }));
  const rows = [...joined, ...waiting];
  if (rows.length === 0) return null;
  const content = (name: string) => {
    const found = known.find((table) => table.name === name);
    if (found?.rows === undefined) return UNKNOWN;
    return found.rows === 0 ? <span className="em-phase em-phase-waits">empty</span> : count(found.rows);
  };
  return (
    <Card isCompact className="em-figures">
      <CardTitle component="h2">Tables joined</CardTitle>
      <CardBody>
        <Rows<Joined>
          label="Tables joined"
          rows={rows}
          rowKey={({ name, query }) => `${name} ${query}`}
          none=""
          heads={[
            { title: "Table", cell: ({ name }) => <Link to={path(`${space.to}/tables`, name)}>{name}</Link> },
            { title: "By", cell: ({ query }) => query ?? <span className="em-figure-below">no batch yet</span> },
            { title: "Version joined", number: true, cell: ({ as }) => as?.version ?? UNKNOWN },
            { title: "Looked for", cell: ({ as }) => (as ? <span title={dateTime(as.at)}>{ago(as.at)}</span> : UNKNOWN) },
            { title: "Refreshed", cell: ({ source }) => { const refresh = source?.refresh ?? "batch"; return REFRESHED[refresh] ?? `every ${refresh}`; } },
            { title: "Rows now", number: true, cell: ({ name }) => content(name) },
            { title: "While empty", cell: ({ source }) => (source?.whenEmpty === "warn" ? "goes on, and warns" : "waits") },
          ]}
        />
      </CardBody>
    </Card>
  );
}
