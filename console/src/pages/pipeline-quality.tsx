// What a pipeline has learnt of its rows: which do not fit the schemas of its sources, could not be computed, or do not meet what is expected.
import { Card, CardBody, CardTitle } from "@patternfly/react-core";
import type { ReactElement } from "react";
import type { DriftedField, Expectation, ExpectationStatus, FailedRows, Pipeline, QueryStatus, Source } from "../api/pipelines";
import { Share } from "../parts/facts";
import { count } from "../parts/format";
import { Rows } from "../parts/rows";

/** What a source is called where a query tells what it has read. */
function readAs(source: Source): string | undefined {
  return source.address ?? source.addressPattern ?? (source.addresses?.length ? source.addresses.join(", ") : source.files ? `files/${source.files.path}` : source.table);
}

interface Drifted extends DriftedField {
  /** Read of the source, where that is known. */
  rows: number | undefined;
}

/** How much a query has read of a source. */
function rowsOf(query: QueryStatus, source: Source | undefined): number | undefined {
  const told = query.sources ?? [];
  if (told.length < 2) return query.rows;
  return told.find((one) => source && one.name === readAs(source))?.rows;
}

/** Each thing that several queries tell of counts once, as the one that has most. */
function most<T>(all: T[], key: (item: T) => string, size: (item: T) => number): T[] {
  const found = new Map<string, T>();
  for (const item of all) {
    const known = found.get(key(item));
    if (!known || size(item) > size(known)) found.set(key(item), item);
  }
  return [...found.values()];
}

export function driftOf({ spec, status }: Pipeline): Drifted[] {
  const all = (status?.queries ?? []).flatMap((query) =>
    (query.drift ?? []).map((field): Drifted => ({ ...field, rows: rowsOf(query, spec.sources?.find((source) => source.name === field.source)) })),
  );
  return most(all, ({ source, field }) => `${source} ${field}`, ({ count }) => count).sort((a, b) => b.count - a.count);
}

/** What becomes of a message that does not fit. */
function afterDrift(source: Source | undefined): string {
  const bad = source?.badRecords;
  switch (source?.onDrift) {
    case "null":
      return `the value is NULL${bad ? `; what is no object goes to ${bad}` : ""}`;
    case "fail":
      return "the query fails";
    default:
      return bad ? `goes to ${bad}` : "is left out";
  }
}

function failedOf({ status }: Pipeline): FailedRows[] {
  return most((status?.queries ?? []).flatMap((query) => query.failedRows ?? []), ({ relation }) => relation, ({ count }) => count);
}

interface Held extends Expectation {
  relation: string;
  status?: ExpectationStatus;
  badRecords?: string;
}

function expectationsOf({ spec, status }: Pipeline): Held[] {
  const counted = most((status?.queries ?? []).flatMap((query) => query.expectations ?? []), ({ relation, name }) => `${relation} ${name}`, ({ rows }) => rows);
  return [...(spec.sources ?? []), ...(spec.steps ?? [])].flatMap((relation) =>
    (relation.expectations ?? []).map((one): Held => ({
      ...one,
      relation: relation.name,
      badRecords: relation.badRecords,
      status: counted.find((found) => found.relation === relation.name && found.name === one.name),
    })),
  );
}

function afterUnmet({ action, badRecords }: Held): string {
  switch (action) {
    case "drop":
      return "drop: left out";
    case "dead-letter":
      return `dead-letter: goes to ${badRecords ?? "badRecords"}`;
    case "fail":
      return "fail: the query fails";
    default:
      return "keep: counted alone";
  }
}

export function DataQuality({ pipeline }: { pipeline: Pipeline }): ReactElement {
  const drift = driftOf(pipeline);
  const { spec, status } = pipeline;
  const began = (status?.queries ?? []).length > 0;
  return (
    <>
      <Card isCompact className="em-figures">
        <CardTitle component="h2">What does not fit its schema</CardTitle>
        <CardBody>
          <Rows<Drifted>
            label="What does not fit its schema"
            rows={drift}
            rowKey={({ source, field }) => `${source} ${field}`}
            none={began ? "Nothing since its runner started: every message had the form and the types that the schemas say." : "It is counted once its runner has begun."}
            heads={[
              { title: "Source", cell: ({ source }) => source },
              { title: "Field", cell: ({ field }) => (field ? <code>{field}</code> : "the message as a whole") },
              { title: "Messages", number: true, cell: (it) => count(it.count) },
              { title: "Share", number: true, cell: (it) => <Share part={it.count} whole={it.rows} label="of what was read does not fit" /> },
              { title: "What was wrong with one", cell: ({ example }) => example && <code className="em-example"><bdi>{example}</bdi></code> },
              ...(spec.builtin ? [] : [{ title: "Then it", cell: ({ source }: Drifted) => afterDrift(spec.sources?.find((one) => one.name === source)) }]),
            ]}
          />
        </CardBody>
      </Card>
      <Card isCompact>
        <CardTitle component="h2">What could not be computed</CardTitle>
        <CardBody>
          <Rows<FailedRows>
            label="What could not be computed"
            rows={failedOf(pipeline)}
            rowKey={({ relation }) => relation}
            none={began ? "Nothing since its runner started: no expression failed for a row." : "It is counted once its runner has begun."}
            heads={[
              { title: "Relation", cell: ({ relation }) => relation },
              { title: "Rows", number: true, cell: (it) => count(it.count) },
              { title: "What was wrong with one", cell: ({ example }) => example && <code className="em-example"><bdi>{example}</bdi></code> },
            ]}
          />
        </CardBody>
      </Card>
      <Card isCompact>
        <CardTitle component="h2">Expectations</CardTitle>
        <CardBody>
          <Rows<Held>
            label="Expectations"
            rows={expectationsOf(pipeline)}
            rowKey={({ relation, name }) => `${relation} ${name}`}
            none={spec.builtin ? "A pipeline that is built in has none." : <>None are declared: <code>expectations</code> of a source or step say what its rows are to meet, and what becomes of those that do not.</>}
            heads={[
              { title: "Relation", cell: ({ relation }) => relation },
              { title: "Expectation", cell: ({ name }) => name },
              { title: "Condition", cell: ({ condition }) => <code>{condition}</code> },
              { title: "Else", cell: afterUnmet },
              { title: "Rows", number: true, cell: (it) => count(it.status?.rows) },
              { title: "Did not meet it", number: true, cell: (it) => count(it.status?.failed) },
              { title: "Share", number: true, cell: (it) => <Share part={it.status?.failed ?? 0} whole={it.status?.rows} label="of the rows did not meet it" /> },
            ]}
          />
        </CardBody>
      </Card>
    </>
  );
}
