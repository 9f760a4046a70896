import { Alert, Button, Checkbox, FormGroup, Modal, ModalBody, ModalFooter, ModalHeader, Tab, Tabs, TabTitleText } from "@patternfly/react-core";
import { type ReactElement, useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { path, query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet } from "../api/live";
import { askForParquet, type QueryResult, quoted, tablesOf } from "../api/pipelines";
import { useRights } from "../api/rights";
import { type Space, useSpace } from "../app/space";
import { Chart } from "../parts/chart";
import { download } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { Figures } from "../parts/facts";
import { ago, bytes, count, dateTime } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Rows } from "../parts/rows";
import { act, Asking, recordsOf, refusedChange, StartSpark, useAnswer, useSpark } from "./lake";
import { shortName } from "./pipeline-actions";
import { csvOf, Results } from "./sql-results";

interface Column {
  column: string;
  type: string;
  min: string | null;
  max: string | null;
  nulls: number | null;
}

interface Version {
  version: number;
  at: string;
  operation: string | null;
  files_added: number | null;
  files_removed: number | null;
  rows: number | null;
}

const MAX_VERSIONS = 100;
const MAX_ROWS = 100;

/** A relation of SQL about a table, whatever an address of the space is called. */
function about(kind: "table" | "history" | "statistics", name: string): string {
  return `\`${`${kind}:${name}`.replaceAll("`", "``")}\``;
}

export default function TablePage(): ReactElement {
  const { table = "" } = useParams();
  const space = useSpace();
  return <TableOf key={`${space.api} ${table}`} space={space} name={table} />;
}

function TableOf({ space, name }: { space: Space; name: string }): ReactElement {
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const [search, setSearch] = useSearchParams();
  const spark = useSpark(space, rights);
  const lake = useGet<QueryResult>(spark.runs ? `${space.api}/tables` : null);
  const [done, setDone] = useState<string>();
  const [compacting, setCompacting] = useState(false);
  const [turn, setTurn] = useState(0);
  const found = tablesOf(lake.data).find((table) => table.name === name);
  const writers = spark.pipelines.filter((row) => row.tables.includes(name));
  const mayQuery = rights.may("create", "addressspaces/query");
  const refused = refusedChange(rights, "tables");
  const isDelta = found?.format === "delta";
  const tab = search.get("tab") ?? "columns";
  const version = search.get("version");
  const all = `${space.to}/tables`;
  const changed = (what: string) => {
    setDone(what);
    setTurn((before) => before + 1);
    lake.again();
  };
  const restore = (to: Version) =>
    confirm({
      title: `Have ${name} be as version ${to.version}?`,
      loses: (
        <>
          It becomes as it was {dateTime(to.at)}, as a new version. What pipelines have written since is in it no more, and they do not write
          it again; what they write from now on is added. To bring that back, restore the version before the new one, as long as its files are kept.
        </>
      ),
      action: "Restore",
      run: async () => changed(await act(space, "tables", name, "restore", { version: to.version })),
    });
  return (
    <PageFrame
      title={name}
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }, { title: "Tables", to: all }]}
      actions={
        <>
          <Button variant="secondary" className="em-beside" onClick={() => setCompacting(true)} isAriaDisabled={!isDelta || refused !== undefined} title={refused ?? (isDelta ? undefined : "Only a Delta table is compacted")}>
            Compact
          </Button>
          <Button variant="secondary" onClick={() => void navigate(query(`${space.to}/sql`, { table: name }))}>Ask it</Button>
        </>
      }
    >
      {done && <Alert isInline variant="success" title={`${done[0]?.toUpperCase()}${done.slice(1)}`} className="em-health" />}
      {lake.error && <Refusal error={lake.error} />}
      {spark.known && !spark.runs && <StartSpark spark={spark}>It knows what is in the table, and runs while pipelines do.</StartSpark>}
      {spark.runs && !lake.data && !lake.error && <Asking />}
      {lake.data && !found && <Teach title="There is no such table" actions={<Link to={all}>All tables</Link>}>A pipeline makes it when it starts to write it.</Teach>}
      {found && (
        <>
          <Figures
            figures={[
              { title: "Rows", value: count(found.rows), below: found.columns && `${found.columns.length} columns` },
              { title: "Files", value: count(found.files), below: found.format === "delta" ? "of Delta" : (found.format ?? "cannot be read") },
              { title: "Size", value: bytes(found.bytes), below: found.rows && found.bytes ? `${bytes(found.bytes / found.rows)} a row` : undefined },
              {
                title: "Written by",
                value: writers.length,
                below: writers.length ? writers.map((row) => <Link key={row.name} className="em-beside" to={path(`${space.to}/pipelines`, row.name)}>{shortName(row.name)}</Link>) : "no pipeline now",
              },
            ]}
          />
          <Tabs activeKey={tab} onSelect={(_, key) => setSearch(key === "columns" ? {} : { tab: String(key) }, { replace: true })} aria-label="About the table">
            <Tab eventKey="columns" tabContentId="table-panel" title={<TabTitleText>Columns</TabTitleText>} />
            <Tab eventKey="versions" tabContentId="table-panel" title={<TabTitleText>Versions</TabTitleText>} />
            <Tab eventKey="rows" tabContentId="table-panel" title={<TabTitleText>Rows</TabTitleText>} />
          </Tabs>
          <div className="em-above" id="table-panel" role="tabpanel" aria-label="About the table" key={turn}>
            {!mayQuery && tab !== "columns" && <Alert isInline variant="info" title="You may not query this space">Versions and rows are read by a query; tenant-edit may do that, tenant-view not.</Alert>}
            {tab === "columns" && <Columns space={space} name={name} known={found.columns} ask={isDelta && mayQuery} />}
            {tab === "versions" && mayQuery && (isDelta ? <Versions space={space} name={name} refused={refused} restore={restore} show={(one) => setSearch({ tab: "rows", version: String(one) })} /> : <p className="em-total">A table of plain Parquet has no versions.</p>)}
            {tab === "rows" && mayQuery && <TableRows space={space} name={name} version={version !== null && /^\d{1,18}$/.test(version) ? version : undefined} present={() => setSearch({ tab: "rows" })} />}
          </div>
        </>
      )}
      {compacting && <Compact space={space} name={name} columns={(found?.columns ?? []).map((column) => column.name)} close={() => setCompacting(false)} done={changed} />}
    </PageFrame>
  );
}

function Columns({ space, name, known, ask }: { space: Space; name: string; known: { name: string; type: string }[] | undefined; ask: boolean }): ReactElement {
  const { result, error } = useAnswer(space, ask ? `SELECT * FROM ${about("statistics", name)}` : null);
  if (error) return <Refusal error={error} />;
  if (ask && !result) return <Asking />;
  const rows = ask ? recordsOf<Column>(result) : (known ?? []).map((column): Column => ({ column: column.name, type: column.type, min: null, max: null, nulls: null }));
  const text = (value: string | null) => (value === null ? "–" : <bdi className="em-cell">{value}</bdi>);
  return (
    <Rows<Column>
      label="Columns"
      rows={rows}
      rowKey={(row) => row.column}
      none="It has no columns that can be read."
      heads={[
        { title: "Column", cell: (row) => <code>{row.column}</code> },
        { title: "Type", cell: (row) => row.type.toLowerCase() },
        { title: "Least", cell: (row) => text(row.min) },
        { title: "Greatest", cell: (row) => text(row.max) },
        { title: "Nulls", number: true, cell: (row) => count(row.nulls) },
      ]}
    />
  );
}

function Versions(props: { space: Space; name: string; refused: string | undefined; restore: (version: Version) => void; show: (version: number) => void }): ReactElement {
  const { result, error } = useAnswer(props.space, `SELECT * FROM ${about("history", props.name)} ORDER BY version DESC`, MAX_VERSIONS);
  if (error) return <Refusal error={error} />;
  if (!result) return <Asking />;
  const versions = recordsOf<Version>(result);
  const added = versions.filter(({ rows }) => rows !== null).reverse();
  return (
    <>
      {added.length > 1 && <Chart title="Rows added by each version" times={added.map((one) => Date.parse(one.at) / 1000)} lines={[{ label: "rows", values: added.map((one) => one.rows) }]} isFree height={140} />}
      <Rows<Version>
        label="Versions"
        rows={versions}
        rowKey={(one) => String(one.version)}
        none="It has no versions."
        heads={[
          { title: "Version", number: true, cell: (one) => one.version },
          { title: "Made", cell: (one) => <span className="em-nowrap" title={ago(one.at)}>{dateTime(one.at)}</span> },
          { title: "By", cell: (one) => one.operation },
          { title: "Rows added", number: true, cell: (one) => count(one.rows) },
          { title: "Files added", number: true, cell: (one) => count(one.files_added) },
          { title: "Files removed", number: true, cell: (one) => count(one.files_removed) },
          {
            title: "Look back",
            cell: (one) => (
              <span className="em-nowrap">
                <Button variant="link" isInline className="em-beside" onClick={() => props.show(one.version)} aria-label={`Show rows of version ${one.version}`}>Show rows</Button>
                {one !== versions[0] && (
                  <Button variant="link" isInline isDanger onClick={() => props.restore(one)} isAriaDisabled={props.refused !== undefined} title={props.refused} aria-label={`Restore version ${one.version}`}>Restore</Button>
                )}
              </span>
            ),
          },
        ]}
      />
      {result.truncated && <p className="em-total">These are the newest {MAX_VERSIONS}.</p>}
    </>
  );
}

function TableRows({ space, name, version, present }: { space: Space; name: string; version: string | undefined; present: () => void }): ReactElement {
  const sql = `SELECT * FROM ${about("table", name)}${version === undefined ? "" : ` VERSION AS OF ${version}`}`;
  const { result, error } = useAnswer(space, sql, MAX_ROWS);
  const [failure, setFailure] = useState<ApiError>();
  const [saving, setSaving] = useState(false);
  const parquet = () => {
    setSaving(true);
    askForParquet(space.api, sql, MAX_ROWS)
      .then((file) => download(`${name}.parquet`, file), (caught: unknown) => setFailure(asApiError(caught)))
      .finally(() => setSaving(false));
  };
  return (
    <>
      <p className="em-total">
        {version === undefined ? `The first ${MAX_ROWS} rows as they are now. ` : <>The first {MAX_ROWS} rows of <b>version {version}</b>. <Button variant="link" isInline onClick={present}>As they are now</Button> · </>}
        <Link to={query(`${space.to}/sql`, { sql: `SELECT * FROM ${quoted(name)}${version === undefined ? "" : ` VERSION AS OF ${version}`} LIMIT ${MAX_ROWS}` })}>Ask with SQL</Link>
      </p>
      {(error ?? failure) && <Refusal error={(error ?? failure)!} />}
      {!result && !error && <Asking />}
      {result && <Results key={sql} result={result} title={name} saveCsv={() => download(`${name}.csv`, csvOf(result), "text/csv")} saveParquet={parquet} busy={saving} more="ask with SQL for others" />}
    </>
  );
}

function Compact({ space, name, columns, close, done }: { space: Space; name: string; columns: string[]; close: () => void; done: (what: string) => void }): ReactElement {
  const [order, setOrder] = useState<string[]>([]);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError>();
  const run = async () => {
    setBusy(true);
    setError(undefined);
    try {
      done(await act(space, "tables", name, "optimize", order.length ? { zOrderBy: order } : {}));
      close();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="compact-title">
      <ModalHeader title={`Compact ${name}`} labelId="compact-title" description="Joins its small files now, and deletes those that no version needs. Its rows stay as they are." />
      <ModalBody>
        <FormGroup role="group" label="Put rows with like values beside each other, by" fieldId="compact-order">
          {columns.map((column) => (
            <Checkbox key={column} id={`compact-${column}`} label={column} isChecked={order.includes(column)} onChange={(_, on) => setOrder(on ? [...order, column] : order.filter((one) => one !== column))} />
          ))}
        </FormGroup>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button onClick={() => void run()} isLoading={busy} isDisabled={busy}>Compact</Button>
        <Button variant="link" onClick={close}>Cancel</Button>
      </ModalFooter>
    </Modal>
  );
}
