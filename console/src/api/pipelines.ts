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
  /** The rate, lately. */
  spark?: { rate: number[] };
}

export interface Database {
  host: string;
  table: string;
}

export interface Source {
  name: string;
  address?: string;
  table?: string;
  database?: Database;
}

export interface Step {
  name: string;
  sql?: string;
  function?: string;
  input?: string;
}

export interface Sink {
  input?: string;
  address?: string;
  table?: string;
  database?: Database;
}

export interface PipelineSpec {
  credentialsSecret?: string;
  sources?: Source[];
  steps?: Step[];
  sinks?: Sink[];
  builtin?: { name: string; parameters?: Record<string, unknown> };
  trigger?: string;
  paused?: boolean;
  restart?: { at: string; from?: string };
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
}

export interface Pipeline extends Resource {
  spec: PipelineSpec;
  status?: ReadyStatus & { queries?: QueryStatus[]; rows?: number; rate?: number; lag?: number; lastError?: string; warnings?: string[] };
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
}

export function tablesOf(result: QueryResult | undefined): LakeTable[] {
  return (result?.rows ?? []).map(([name, columns, rows, bytes]) => ({
    name: name as string,
    columns: (columns as TableColumn[] | null) ?? undefined,
    rows: (rows as number | null) ?? undefined,
    bytes: (bytes as number | null) ?? undefined,
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
