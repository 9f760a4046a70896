// A picture of a pipeline: what it reads, computes and writes, with the rows of each of its queries.
import type { ReactElement } from "react";
import type { Pipeline, PipelineRow, QueryStatus, Sink, Step } from "../api/pipelines";
import { count, rate } from "../parts/format";

interface Box {
  key: string;
  kind: "address" | "table" | "step";
  title: string;
  below: string;
  /** Keys of what it is made of. */
  from: string[];
  query?: QueryStatus;
  sink?: boolean;
}

const WIDTH = 168;
const HEIGHT = 52;
const ACROSS = 84;
const DOWN = 22;

function words(text: string): Set<string> {
  return new Set(text.toLowerCase().match(/[a-z_][a-z0-9_]*/g));
}

/** The relations above a step that it reads. */
function inputsOf(step: Step, above: string[]): string[] {
  if (step.sql !== undefined) {
    const named = words(step.sql);
    return above.filter((name) => named.has(name.toLowerCase()));
  }
  return step.input ? [step.input] : above.slice(-1);
}

function baseName(sink: Sink): string {
  if (sink.table) return `table-${sink.table}`;
  const [kind, name] = sink.database ? ["database", sink.database.table] : ["to", sink.address ?? ""];
  return `${kind}-${name.replace(/[^A-Za-z0-9._-]+/g, "_").replace(/^[._]+|[._]+$/g, "") || "any"}`;
}

/** The names of the queries of sinks, which are made of what they write. */
function queryNames(sinks: Sink[]): string[] {
  return sinks.map((sink, index) => {
    const name = baseName(sink);
    const same = sinks.slice(0, index).filter((other) => baseName(other) === name).length;
    return same ? `${name}-${same + 1}` : name;
  });
}

/** Queries of built-in pipelines that send messages; the others write tables. */
const SENDS = new Set(["alerts", "commands"]);

function declaredBoxes(pipeline: Pipeline): Box[] {
  const { sources = [], steps = [], sinks = [] } = pipeline.spec;
  const queries = new Map((pipeline.status?.queries ?? []).map((query) => [query.name, query]));
  const names: string[] = [];
  const boxes: Box[] = [];
  for (const source of sources) {
    names.push(source.name);
    boxes.push({ key: source.name, kind: source.table || source.database ? "table" : "address", title: source.address ?? source.table ?? source.database?.table ?? source.name, below: `as ${source.name}`, from: [] });
  }
  for (const step of steps) {
    boxes.push({ key: step.name, kind: "step", title: step.name, below: step.sql === undefined ? (step.function ?? "") : "SQL", from: inputsOf(step, names) });
    names.push(step.name);
  }
  const queryOf = queryNames(sinks);
  sinks.forEach((sink, index) => {
    boxes.push({
      key: `sink ${index}`,
      kind: sink.table || sink.database ? "table" : "address",
      title: sink.table ?? sink.database?.table ?? sink.address ?? "",
      below: sink.database ? `of ${sink.database.host}` : sink.table ? "table" : "address",
      from: [sink.input ?? names.at(-1) ?? ""],
      query: queries.get(queryOf[index]!),
      sink: true,
    });
  });
  return boxes;
}

function builtinBoxes(pipeline: Pipeline, row: PipelineRow | undefined): Box[] {
  const { name } = pipeline.spec.builtin!;
  const queries = pipeline.status?.queries ?? [];
  const sends = (query: QueryStatus) => SENDS.has(query.name) || (query.name === "messages" && name !== "lake");
  const addresses = (row?.sinks ?? []).filter((sink) => !row?.tables.includes(sink));
  const sink = (kind: "address" | "table", title: string, query: QueryStatus | undefined): Box => ({ key: `sink ${kind} ${title}`, kind, title, below: kind, from: ["builtin"], query, sink: true });
  const writes = queries.filter((query) => !sends(query) && !query.name.startsWith("compact-"));
  return [
    ...(row?.sources ?? []).map((source): Box => ({ key: source, kind: "address", title: source, below: "address", from: [] })),
    { key: "builtin", kind: "step", title: name, below: "built in", from: row?.sources ?? [] },
    ...addresses.map((address) => sink("address", address, queries.find(sends))),
    ...(row?.tables ?? []).map((table, index) => sink("table", table, writes[index])),
  ];
}

function figures(query: QueryStatus | undefined): string {
  if (!query) return "";
  return `${count(query.rows ?? 0)} rows${query.inputRowsPerSecond ? `, ${rate(query.inputRowsPerSecond)}/s` : ""}`;
}

function short(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

interface Placed {
  column: number;
  line: number;
}

/** Where each box stands: as many columns as there are steps in a row, lines so that few ways cross. What passes a
 * column by has a lane in it. */
function arrange(boxes: Box[]): { places: Map<string, Placed>; lanes: Map<string, string[]>; columns: number; counts: number[] } {
  const depths = new Map<string, number>();
  for (const box of boxes) if (!box.sink) depths.set(box.key, box.from.length ? 1 + Math.max(...box.from.map((key) => depths.get(key) ?? 0)) : 0);
  const last = Math.max(0, ...depths.values()) + 1;
  for (const box of boxes) if (box.sink) depths.set(box.key, last);
  const columns: { key: string; from: string[] }[][] = Array.from({ length: last + 1 }, () => []);
  const lanes = new Map<string, string[]>();
  for (const box of boxes) {
    const to = depths.get(box.key)!;
    const from = box.from.filter((key) => depths.has(key)).map((key) => {
      let before = key;
      const passed: string[] = [];
      for (let column = depths.get(key)! + 1; column < to; column++) {
        const lane = `${key} by ${column}`;
        if (!columns[column]!.some((item) => item.key === lane)) columns[column]!.push({ key: lane, from: [before] });
        passed.push(lane);
        before = lane;
      }
      lanes.set(`${key} ${box.key}`, passed);
      return before;
    });
    columns[to]!.push({ key: box.key, from });
  }
  const places = new Map<string, Placed>();
  const counts = columns.map((items) => items.length);
  columns.forEach((items, column) => {
    // By the middle of what they are made of, measured from the middle of its column.
    const weight = (item: { from: string[] }) => {
      const middles = item.from.map((key) => places.get(key)).filter((place) => place !== undefined).map((place) => place.line - (counts[place.column]! - 1) / 2);
      return middles.length ? middles.reduce((sum, value) => sum + value, 0) / middles.length : 0;
    };
    const weights = new Map(items.map((item) => [item.key, weight(item)]));
    [...items].sort((a, b) => weights.get(a.key)! - weights.get(b.key)!).forEach((item, line) => places.set(item.key, { column, line }));
  });
  return { places, lanes, columns: last + 1, counts };
}

export function PipelineGraph({ pipeline, row }: { pipeline: Pipeline; row: PipelineRow | undefined }): ReactElement {
  const boxes = pipeline.spec.builtin ? builtinBoxes(pipeline, row) : declaredBoxes(pipeline);
  const { places, lanes, columns, counts } = arrange(boxes);
  const width = columns * (WIDTH + ACROSS) - ACROSS + 4;
  const height = Math.max(...counts) * (HEIGHT + DOWN) - DOWN + 4;
  const at = (key: string) => {
    const { column, line } = places.get(key)!;
    const used = counts[column]! * (HEIGHT + DOWN) - DOWN;
    return { x: 2 + column * (WIDTH + ACROSS), y: 2 + (height - 4 - used) / 2 + line * (HEIGHT + DOWN) };
  };
  /** From the right of a box to the left of another, straight through its lanes. */
  const way = (from: string, to: string) => {
    let text = "";
    let { x, y } = at(from);
    x += WIDTH;
    y += HEIGHT / 2;
    for (const key of [...(lanes.get(`${from} ${to}`) ?? []), to]) {
      const next = at(key);
      const end = { x: key === to ? next.x - 5 : next.x, y: next.y + HEIGHT / 2 };
      const bend = (end.x - x) / 2;
      text += `${text ? "" : `M${x} ${y}`} C${x + bend} ${y} ${end.x - bend} ${end.y} ${end.x} ${end.y}`;
      if (key !== to) text += ` H${end.x + WIDTH}`;
      x = key === to ? end.x : end.x + WIDTH;
      y = end.y;
    }
    return { text, x, y };
  };
  const told = boxes
    .filter((box) => box.from.length > 0)
    .map((box) => `${box.title} is made of ${box.from.map((key) => boxes.find((other) => other.key === key)?.title ?? key).join(" and ")}${box.query ? `: ${figures(box.query)}` : ""}`)
    .join("; ");
  return (
    <div className="em-graph" tabIndex={0} role="group" aria-label="What it reads, computes and writes">
      <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={told}>
        {boxes.flatMap((box) =>
          box.from
            .filter((key) => places.has(key))
            .map((key) => {
              const { text, x, y } = way(key, box.key);
              return (
                <g key={`${key} ${box.key}`} className="em-graph-way">
                  <path d={text} />
                  <polygon points={`${x + 5},${y} ${x - 2},${y - 4} ${x - 2},${y + 4}`} />
                </g>
              );
            }),
        )}
        {boxes.map((box) => {
          const { x, y } = at(box.key);
          return (
            <g key={box.key} className={`em-graph-${box.kind}${box.query?.error ? " em-graph-failed" : ""}`}>
              <title>{`${box.title}: ${[box.below, figures(box.query), box.query?.error].filter(Boolean).join(", ")}`}</title>
              <rect x={x} y={y} width={WIDTH} height={HEIGHT} rx={box.kind === "step" ? 12 : 4} />
              {box.kind === "table" && <path className="em-graph-mark" d={`M${x + 10} ${y + 12}h12v12h-12zm0 4h12m-12 4h12m-6 -8v12`} />}
              {box.kind === "address" && <path className="em-graph-mark" d={`M${x + 10} ${y + 13}h12v9h-12zl6 5l6 -5`} />}
              {box.kind === "step" && <path className="em-graph-mark" d={`M${x + 11} ${y + 12}l5 6l-5 6m6 0h6`} />}
              <text x={x + 30} y={y + 22} className="em-graph-title">{short(box.title, 18)}</text>
              <text x={x + 30} y={y + 40} className="em-graph-below">{short(figures(box.query) || box.below, 24)}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}
