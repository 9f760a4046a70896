// What pages about a space's tables and models share: Spark answers them, and is started for them by a person alone.
import { Button, Spinner } from "@patternfly/react-core";
import { type ReactElement, type ReactNode, useEffect, useState } from "react";
import { path, query, write } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useLatest } from "../api/live";
import { ask, type PipelineRow, type QueryResult } from "../api/pipelines";
import type { Rights } from "../api/rights";
import type { RowList } from "../api/types";
import type { Space } from "../app/space";
import { Teach } from "../parts/empty";

export interface SparkOfSpace {
  /** Whether it is asked: it runs, somebody wanted it to start, or it does not start for who asks. */
  runs: boolean;
  /** Whether that is known. */
  known: boolean;
  start: () => void;
  pipelines: PipelineRow[];
}

/** Spaces whose Spark somebody has started from here, by their paths at the API. */
const startedSpaces = new Set<string>();

/** Whether the Spark of a space runs, as its pipelines tell; and they. */
export function useSpark(space: Space, rights: Rights): SparkOfSpace {
  const { data, error } = useLatest<RowList<PipelineRow>>(query(`${space.api}/rows/pipelines`, { limit: 500 }));
  const [started, setStarted] = useState(startedSpaces.has(space.api));
  const pipelines = data?.items ?? [];
  const start = () => {
    startedSpaces.add(space.api);
    setStarted(true);
  };
  // For who may not query, none is started.
  const mayStart = !rights.known || rights.may("create", "addressspaces/query");
  return { runs: started || !mayStart || pipelines.some((row) => row.phase === "Running"), known: data !== undefined || error !== undefined, start, pipelines };
}

/** What stands where Spark would have to be started first. */
export function StartSpark({ spark, children }: { spark: SparkOfSpace; children: ReactNode }): ReactElement {
  return (
    <Teach title="Spark does not run" actions={<Button onClick={spark.start}>Start it and look</Button>}>
      {children}
    </Teach>
  );
}

/** What stands there meanwhile. */
export function Asking(): ReactElement {
  return <p className="em-total" role="status"><Spinner size="md" aria-label="Asking" /> Asking. The first question to a space waits for Spark, ten seconds or so.</p>;
}

export interface Answer {
  result?: QueryResult;
  error?: ApiError;
  again: () => void;
}

/** What Spark answers to a query of SQL; null asks nothing. What is left is not waited for. */
export function useAnswer(space: Space, sql: string | null, limit = 1000): Answer {
  const [state, setState] = useState<{ sql: string | null; result?: QueryResult; error?: ApiError }>({ sql: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (sql === null) return;
    const stop = new AbortController();
    ask(space.api, sql, limit, stop.signal).then(
      (result) => setState({ sql, result }),
      (error: unknown) => stop.signal.aborted || setState({ sql, error: asApiError(error) }),
    );
    return () => stop.abort();
  }, [space.api, sql, limit, turn]);
  const current = state.sql === sql;
  return { result: current ? state.result : undefined, error: current ? state.error : undefined, again: () => setTurn((before) => before + 1) };
}

/** The rows of an answer as objects by the names of its columns. */
export function recordsOf<R>(result: QueryResult | undefined): R[] {
  return (result?.rows ?? []).map((row) => Object.fromEntries(result!.columns.map((column, index) => [column.name, row[index]])) as R);
}

/** Has something be done to a table or a model, perhaps with a file, and returns what was done, in words. */
export async function act(space: Space, kind: "tables" | "models", name: string, action: string, body: Record<string, unknown> | File): Promise<string> {
  const options = body instanceof File ? { body, contentType: "application/octet-stream" } : { body };
  const { value } = await write<QueryResult>("POST", `${path(`${space.api}/${kind}`, name)}/${action}`, options);
  return String(value.rows[0]?.[0] ?? "");
}

/** Why a person may not change tables or models; undefined: they may. */
export function refusedChange(rights: Rights, kind: "tables" | "models"): string | undefined {
  return rights.may("create", `addressspaces/${kind}`) && rights.may("update", "pipelines") ? undefined : `You may not change ${kind} here`;
}
