// Hooks for what the API pushes. A stream ends while nobody looks at the page: a browser opens few connections to one
// server, and all its tabs share them.
import { useEffect, useRef, useState } from "react";
import { get, lines, query } from "./client";
import { type ApiError, asApiError } from "./errors";
import { isBack, presentReach, setReach, useReach } from "./state";
import type { Objects, Resource, Series, WatchEvent } from "./types";

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

function visible(signal: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (!document.hidden) {
        document.removeEventListener("visibilitychange", look);
        resolve();
      }
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", () => document.removeEventListener("visibilitychange", look));
  });
}

/** Waits; where the API was away, until it is back and no longer. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const end = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", end);
    if (!presentReach().here) isBack(signal).then(end, end);
  });
}

/** What is still shown beside an error: nothing that the person may no longer see. */
function kept<D>(before: { url: string | null; data?: D }, url: string, error: ApiError): D | undefined {
  return before.url === url && error.code !== 403 && error.code !== 404 ? before.data : undefined;
}

/** Runs a stream until `signal` says so: again when it has ended, with growing pauses while it fails. */
export async function keepReading(
  read: (signal: AbortSignal, received: () => void) => Promise<void>,
  signal: AbortSignal,
  failed: (error: ApiError) => void,
): Promise<void> {
  let delay = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    await visible(signal);
    const turn = new AbortController();
    const stop = () => turn.abort();
    const hide = () => document.hidden && stop();
    signal.addEventListener("abort", stop);
    document.addEventListener("visibilitychange", hide);
    try {
      await read(turn.signal, () => {
        delay = FIRST_PAUSE_MS;
      });
    } catch (caught) {
      if (!turn.signal.aborted) {
        const error = asApiError(caught);
        if (error.away) setReach({ here: false });
        failed(error);
        // What is refused will be refused again, until rights change: there is no hurry.
        if (error.code >= 400 && error.code < 500 && error.code !== 429 && error.code !== 410) delay = LONGEST_PAUSE_MS;
      }
    } finally {
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", hide);
    }
    if (!signal.aborted && !document.hidden) await pause(delay, signal);
    delay = Math.min(delay * 2, LONGEST_PAUSE_MS);
  }
}

export interface Live<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** What is shown belongs to an earlier question. */
  stale: boolean;
}

/** The latest line of a stream whose every line is the whole answer; `url` without `watch`. Null reads nothing. */
export function useLatest<T>(url: string | null, merge?: (before: T | undefined, line: T) => T): Live<T> {
  const [state, setState] = useState<{ url: string | null; data?: T; error?: ApiError }>({ url: null });
  const merging = useRef(merge);
  merging.current = merge;
  useEffect(() => {
    if (url === null) return;
    const stop = new AbortController();
    void keepReading(
      async (signal, received) => {
        let first = true;
        for await (const line of lines<T>(query(url, { watch: true }), signal)) {
          received();
          const fresh = first;
          first = false;
          setState((before) => ({
            url,
            data: merging.current ? merging.current(fresh ? undefined : before.data, line) : line,
          }));
        }
      },
      stop.signal,
      (error) => setState((before) => ({ url, data: kept(before, url, error), error })),
    );
    return () => stop.abort();
  }, [url]);
  return { data: state.data, error: state.url === url ? state.error : undefined, stale: state.url !== url };
}

/** All objects of a collection, kept current by a watch. */
export function useObjects<T extends Resource>(url: string | null): Live<T[]> {
  const [state, setState] = useState<{ url: string | null; data?: T[]; error?: ApiError }>({ url: null });
  useEffect(() => {
    if (url === null) return;
    const stop = new AbortController();
    void keepReading(
      async (signal, received) => {
        const list = await get<Objects<T>>(url, signal);
        const objects = new Map(list.items.map((item) => [item.metadata.uid ?? item.metadata.name, item]));
        const show = () => setState({ url, data: [...objects.values()] });
        show();
        received();
        let drawn = 0;
        const from = { watch: true, resourceVersion: list.metadata.resourceVersion, timeoutSeconds: 3000 };
        for await (const { type, object } of lines<WatchEvent<T>>(query(url, from), signal)) {
          received();
          if (type === "ERROR") return;
          if (type === "BOOKMARK") continue;
          const key = object.metadata.uid ?? object.metadata.name;
          if (type === "DELETED") objects.delete(key);
          else objects.set(key, object);
          // A flood of changes is drawn once a frame.
          drawn ||= requestAnimationFrame(() => {
            drawn = 0;
            if (!stop.signal.aborted) show();
          });
        }
      },
      stop.signal,
      (error) => setState((before) => ({ url, data: kept(before, url, error), error })),
    );
    return () => stop.abort();
  }, [url]);
  const current = state.url === url;
  return { data: current ? state.data : undefined, error: current ? state.error : undefined, stale: !current };
}

/** One object by its collection and name, kept current; null where there is none (any more). */
export function useObject<T extends Resource>(collection: string, name: string): Live<T | null> {
  const { data, error, stale } = useObjects<T>(query(collection, { fieldSelector: `metadata.name=${name}` }));
  return { data: data === undefined ? undefined : (data[0] ?? null), error, stale };
}

/** What a request answers, once, and again where the API was away meanwhile; `again` asks anew. */
export function useGet<T>(url: string | null): Live<T> & { again: () => void } {
  const [state, setState] = useState<{ url: string | null; data?: T; error?: ApiError }>({ url: null });
  const [turn, setTurn] = useState(0);
  const { here } = useReach();
  const away = state.url === url && state.error?.away === true;
  useEffect(() => {
    if (here && away) setTurn((before) => before + 1);
  }, [here, away]);
  useEffect(() => {
    if (url === null) return;
    const stop = new AbortController();
    get<T>(url, stop.signal).then(
      (data) => setState({ url, data }),
      (error: unknown) => {
        if (!stop.signal.aborted) setState({ url, error: asApiError(error) });
      },
    );
    return () => stop.abort();
  }, [url, turn]);
  const current = state.url === url;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    stale: !current,
    again: () => setTurn(turn + 1),
  };
}

const KEPT_POINTS = 2000;

/** The last hour of something: the first line has all of it, later ones what is new. */
export function useSeries(url: string | null): Live<Series> {
  return useLatest<Series>(url, (before, line) => {
    if (!before) return line;
    const names = new Set([...Object.keys(before.series), ...Object.keys(line.series)]);
    const empty = (length: number): null[] => Array.from({ length }, () => null);
    const series = Object.fromEntries(
      [...names].map((name) => {
        const former = before.series[name] ?? empty(before.times.length);
        const fresh = line.series[name] ?? empty(line.times.length);
        return [name, [...former, ...fresh].slice(-KEPT_POINTS)];
      }),
    );
    return { ...line, times: [...before.times, ...line.times].slice(-KEPT_POINTS), series };
  });
}
