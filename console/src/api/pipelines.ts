// Pipelines at the API, and what their tables and addresses answer to SQL.
import { path, query, sendSignedIn, write } from "./client";
import type { ReadyStatus, Resource } from "./types";

export interface PipelineRow {
  name: string;
  phase?: string;
  ready?: boolean;
  messages?: string[];
  created?: string;
  rows?: number;
  rate?: number;
  lag?: number;
  watermark?: string;
  lastError?: string;
  builtin?: string;
  /** What it reads and writes: addresses and tables; `tables` are those of the sinks that are tables. */
  sources: string[];
  sinks: string[];
  tables: string[];
  queries: { name: string; state?: string }[];
  restarts?: number;
  badRecords?: number;
  paused?: boolean;
  /** It was restored behind its sink, and where it stopped is no place for it to go on from. */
  behindSink?: boolean;
  /** The rate, lately. */
  spark?: { rate: number[] };
}

export interface Expectation {
  name: string;
  condition: string;
  /** Left out: keep. */
  action?: string;
}

export interface Database {
  host: string;
  table: string;
}

export interface Source {
  name: string;
  address?: string;
  addresses?: string[];
  addressPattern?: string;
  table?: string;
  /** Of a table: read as a stream, not joined. */
  stream?: boolean;
  refresh?: string;
  whenEmpty?: string;
  files?: { path: string; format: string };
  onDrift?: string;
  badRecords?: string;
  expectations?: Expectation[];
  database?: Database;
}

export interface Step {
  name: string;
  sql?: string;
  function?: string;
  dropDuplicates?: string[];
  perBatch?: boolean;
  input?: string;
  inputs?: string[];
  stateBy?: string;
  badRecords?: string;
  expectations?: Expectation[];
}

export interface Sink {
  input?: string;
  address?: string;
  table?: string;
  trigger?: string;
  database?: Database;
}

export interface PipelineSpec {
  credentialsSecret?: string;
  sources?: Source[];
  steps?: Step[];
  sinks?: Sink[];
  builtin?: { name: string; parameters?: Record<string, unknown> };
  trigger?: string;
  schedule?: string;
  after?: string[];
  paused?: boolean;
  restart?: { at: string; from?: string };
}

export interface SourceStatus {
  name: string;
  rows?: number;
  inputRowsPerSecond?: number;
  lag?: number;
}

export interface DriftedField {
  source: string;
  /** The column; empty: the message as a whole. */
  field: string;
  count: number;
  example?: string;
}

export interface ExpectationStatus {
  relation: string;
  name: string;
  rows: number;
  failed: number;
}

/** Rows of a relation that an expression failed for. */
export interface FailedRows {
  relation: string;
  count: number;
  example?: string;
}

export interface JoinedTable {
  name: string;
  version: string;
  at: string;
}

export interface QueryStatus {
  name: string;
  state?: string;
  batch?: number;
  rows?: number;
  inputRowsPerSecond?: number;
  batchDurationMs?: number;
  lastProgress?: string;
  watermark?: string;
  watermarkDelayMs?: number;
  stateRows?: number;
  stateBytes?: number;
  lateRows?: number;
  lag?: number;
  badRecords?: number;
  restarts?: number;
  error?: string;
  sources?: SourceStatus[];
  drift?: DriftedField[];
  expectations?: ExpectationStatus[];
  failedRows?: FailedRows[];
  tables?: JoinedTable[];
}

export interface Pipeline extends Resource {
  spec: PipelineSpec;
  status?: ReadyStatus & { queries?: QueryStatus[]; rows?: number; rate?: number; lag?: number; lastError?: string; lastRun?: string; nextRun?: string; warnings?: string[] };
}

export interface Parameter {
  type?: "string" | "integer" | "number" | "boolean" | "array" | "object";
  description?: string;
  default?: string | number | boolean;
  enum?: string[];
  pattern?: string;
  minimum?: number;
}

export interface BuiltinPipeline {
  name: string;
  does: string;
  schema: { description?: string; properties: Record<string, Parameter>; required?: string[] };
}

export interface TableColumn {
  name: string;
  type: string;
}

export interface QueryResult {
  columns: TableColumn[];
  rows: unknown[][];
  truncated?: boolean;
  /** Columns with moments that few programs hold, and how many there are. */
  warnings?: string[];
}

/** Asks the tables and addresses of a space; `space` is its path at the API. */
export async function ask(space: string, sql: string, limit: number, signal?: AbortSignal): Promise<QueryResult> {
  return (await write<QueryResult>("POST", `${space}/query`, { body: { sql, limit }, signal })).value;
}

export async function askForParquet(space: string, sql: string, limit: number): Promise<Blob> {
  const answer = await sendSignedIn("POST", `${space}/query`, { body: { sql, limit }, accept: "application/vnd.apache.parquet" });
  return answer.blob();
}

/** A table of the lake; one that is damaged has no columns. */
export interface LakeTable {
  name: string;
  columns?: TableColumn[];
  rows?: number;
  bytes?: number;
  format?: "delta" | "parquet";
  files?: number;
}

export function tablesOf(result: QueryResult | undefined): LakeTable[] {
  return (result?.rows ?? []).map(([name, columns, rows, bytes, format, files]) => ({
    name: name as string,
    columns: (columns as TableColumn[] | null) ?? undefined,
    rows: (rows as number | null) ?? undefined,
    bytes: (bytes as number | null) ?? undefined,
    format: (format as LakeTable["format"] | null) ?? undefined,
    files: (files as number | null) ?? undefined,
  }));
}

/** The name of a relation as SQL writes it. */
export function quoted(name: string): string {
  return /^[a-z_][a-z0-9_]*$/i.test(name) ? name : `\`${name.replaceAll("`", "``")}\``;
}

/** A text as SQL writes it. */
export function literal(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}

export async function change(namespace: string, name: string, spec: Record<string, unknown>, dryRun = false): Promise<void> {
  const url = path(`${namespace}/pipelines`, name);
  await write("PATCH", dryRun ? query(url, { dryRun: "All" }) : url, { body: { spec }, contentType: "application/merge-patch+json" });
}
