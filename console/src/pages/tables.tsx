import { type ReactElement } from "react";
import { Link } from "react-router";
import { path } from "../api/client";
import { useGet } from "../api/live";
import { type LakeTable, type QueryResult, tablesOf } from "../api/pipelines";
import { useRights } from "../api/rights";
import { useSpace } from "../app/space";
import { Teach } from "../parts/empty";
import { bytes, count } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Rows } from "../parts/rows";
import { Asking, StartSpark, useSpark } from "./lake";
import { shortName } from "./pipeline-actions";

interface Row extends LakeTable {
  /** Pipelines, by the names of their objects. */
  writers: string[];
  /** Whether Spark has told of it; else a pipeline declares it. */
  told: boolean;
}

export default function TablesPage(): ReactElement {
  const space = useSpace();
  const rights = useRights(space.namespace);
  const spark = useSpark(space, rights);
  const answer = useGet<QueryResult>(spark.runs ? `${space.api}/tables` : null);
  const found = new Map<string, Row>();
  for (const pipeline of spark.pipelines) {
    for (const name of pipeline.tables) found.set(name, { name, writers: [...(found.get(name)?.writers ?? []), pipeline.name], told: false });
  }
  for (const table of tablesOf(answer.data)) found.set(table.name, { ...table, writers: found.get(table.name)?.writers ?? [], told: true });
  const rows = [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  const wait = spark.runs && !answer.data && !answer.error;
  return (
    <PageFrame
      title="Tables"
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]}
      about="What pipelines keep in the lake of the space: every version of it, until its files are cleared away."
    >
      {answer.error && <Refusal error={answer.error} />}
      {rows.length > 0 && (
        <Rows<Row>
          label="Tables"
          rows={rows}
          rowKey={(row) => row.name}
          none=""
          heads={[
            { title: "Table", cell: (row) => <Link to={path(`${space.to}/tables`, row.name)}>{row.name}</Link> },
            { title: "Format", cell: (row) => row.format ?? (row.told ? <span className="em-last-error">cannot be read</span> : "–") },
            { title: "Rows", number: true, cell: (row) => count(row.rows) },
            { title: "Files", number: true, cell: (row) => count(row.files) },
            { title: "Size", number: true, cell: (row) => bytes(row.bytes) },
            { title: "Columns", number: true, cell: (row) => count(row.columns?.length) },
            {
              title: "Written by",
              cell: (row) => row.writers.length === 0 ? <span className="em-figure-below">no pipeline now</span> : row.writers.map((name, index) => (
                <span key={name}>
                  {index > 0 && ", "}
                  <Link to={path(`${space.to}/pipelines`, name)}>{shortName(name)}</Link>
                </span>
              )),
            },
          ]}
        />
      )}
      {wait && <Asking />}
      {spark.known && !spark.runs && (
        <StartSpark spark={spark}>
          It knows what is in the tables, and runs while pipelines do. {rows.length > 0 && "Above are those that pipelines declare."}
        </StartSpark>
      )}
      {answer.data && rows.length === 0 && (
        <Teach title="No table yet" actions={<Link to={`${space.to}/new-pipeline`}>Create a pipeline</Link>}>A pipeline with a table as its sink makes one.</Teach>
      )}
    </PageFrame>
  );
}
