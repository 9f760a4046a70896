// Queries that a person asked or saved, kept by the browser: of each space a bounded number.

export interface Asked {
  sql: string;
  at: string;
  /** Rows of the answer; undefined: it was refused. */
  rows?: number;
}

export interface Saved {
  name: string;
  sql: string;
}

export interface Memory {
  history: Asked[];
  saved: Saved[];
}

const MOST = 50;

function key(space: string): string {
  return `enmasse.sql.${space}`;
}

export function recall(space: string): Memory {
  try {
    const { history, saved } = JSON.parse(localStorage.getItem(key(space)) ?? "{}") as Partial<Memory>;
    return { history: Array.isArray(history) ? history : [], saved: Array.isArray(saved) ? saved : [] };
  } catch {
    return { history: [], saved: [] };
  }
}

/** Keeps what fits; a browser that keeps nothing is no reason to refuse a query. */
function keep(space: string, memory: Memory): Memory {
  const bounded = { history: memory.history.slice(0, MOST), saved: memory.saved.slice(0, MOST) };
  try {
    localStorage.setItem(key(space), JSON.stringify(bounded));
  } catch {
    return bounded;
  }
  return bounded;
}

export function remember(space: string, asked: Asked): Memory {
  const before = recall(space);
  return keep(space, { ...before, history: [asked, ...before.history.filter((item) => item.sql !== asked.sql)] });
}

export function save(space: string, saved: Saved): Memory {
  const before = recall(space);
  return keep(space, { ...before, saved: [saved, ...before.saved.filter((item) => item.name !== saved.name)] });
}

export function forget(space: string, what: { saved?: string; history?: true }): Memory {
  const before = recall(space);
  return keep(space, { history: what.history ? [] : before.history, saved: before.saved.filter((item) => item.name !== what.saved) });
}
