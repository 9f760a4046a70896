// What a pipeline reads, how it computes and what it writes, as boxes that are made of others.
import type { Pipeline, PipelineRow, QueryStatus, Sink, Source, Step } from "../api/pipelines";

export interface Box {
  key: string;
  kind: "address" | "table" | "files" | "step";
  title: string;
  below: string;
  /** Keys of what it is made of. */
  from: string[];
  query?: QueryStatus;
  sink?: boolean;
}

function words(text: string): Set<string> {
  return new Set(text.toLowerCase().match(/[a-z_][a-z0-9_]*/g));
}

/** The relations above a step that it reads. */
function inputsOf(step: Step, above: string[]): string[] {
  if (step.inputs?.length) return step.inputs;
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

/** What a source reads, and of which kind that is. */
function readOf(source: Source): Pick<Box, "kind" | "title" | "below"> {
  if (source.table) return { kind: "table", title: source.table, below: source.stream ? "table, as a stream" : "table that is joined" };
  if (source.database) return { kind: "table", title: source.database.table, below: `table of ${source.database.host} that is joined` };
  if (source.files) return { kind: "files", title: source.files.path, below: `files of ${source.files.format}` };
  if (source.addressPattern) return { kind: "address", title: source.addressPattern, below: "pattern of addresses" };
  const { addresses = [] } = source;
  if (addresses.length) return { kind: "address", title: addresses.join(", "), below: addresses.length === 1 ? "address" : `${addresses.length} addresses` };
  return { kind: "address", title: source.address ?? source.name, below: "address" };
}

/** By what a step computes. */
function doneBy(step: Step): string {
  const by = step.sql !== undefined ? "SQL" : step.dropDuplicates?.length ? "drops duplicates" : (step.function ?? "");
  return by + (step.stateBy ? `, by ${step.stateBy}` : "") + (step.perBatch ? ", per batch" : "");
}

/** How often each query reads, by its name; of built-in pipelines all as the pipeline says. */
export function triggerOf({ spec }: Pipeline, query: string): string {
  const sinks = spec.sinks ?? [];
  return sinks[queryNames(sinks).indexOf(query)]?.trigger ?? spec.trigger ?? "1s";
}

function declaredBoxes(pipeline: Pipeline): Box[] {
  const { sources = [], steps = [], sinks = [] } = pipeline.spec;
  const queries = new Map((pipeline.status?.queries ?? []).map((query) => [query.name, query]));
  const names: string[] = [];
  const boxes: Box[] = [];
  for (const source of sources) {
    names.push(source.name);
    boxes.push({ key: source.name, ...readOf(source), from: [] });
  }
  for (const step of steps) {
    boxes.push({ key: step.name, kind: "step", title: step.name, below: doneBy(step), from: inputsOf(step, names) });
    names.push(step.name);
  }
  const queryOf = queryNames(sinks);
  sinks.forEach((sink, index) => {
    boxes.push({
      key: `sink ${index}`,
      kind: sink.table || sink.database ? "table" : "address",
      title: sink.table ?? sink.database?.table ?? (sink.address === "*" ? "addresses" : (sink.address ?? "")),
      below: sink.database ? `of ${sink.database.host}` : sink.table ? "table" : sink.address === "*" ? "as each row says" : "address",
      from: [sink.input ?? names.at(-1) ?? ""],
      query: queries.get(queryOf[index]!),
      sink: true,
    });
  });
  const refusing = [...sources, ...steps].filter((relation) => relation.badRecords);
  for (const address of new Set(refusing.map((relation) => relation.badRecords!))) {
    const from = refusing.filter((relation) => relation.badRecords === address).map((relation) => relation.name);
    boxes.push({ key: `bad ${address}`, kind: "address", title: address, below: "bad records", from, sink: true });
  }
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

export function boxesOf(pipeline: Pipeline, row: PipelineRow | undefined): Box[] {
  return pipeline.spec.builtin ? builtinBoxes(pipeline, row) : declaredBoxes(pipeline);
}
