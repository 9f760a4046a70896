// SQL over the tables and addresses of a space.
import { Alert, Button, Card, CardBody, CardTitle, ExpandableSection, Grid, GridItem, Label, NumberInput, Spinner, Tab, Tabs, TabTitleText, TextInput } from "@patternfly/react-core";
import PlayIcon from "@patternfly/react-icons/dist/esm/icons/play-icon";
import { type ReactElement, useEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";
import { query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useGet, useLatest } from "../api/live";
import { ask, askForParquet, type LakeTable, type PipelineRow, quoted, type QueryResult, tablesOf } from "../api/pipelines";
import { useRights } from "../api/rights";
import type { AddressRow, RowList } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { download } from "../parts/code";
import { Teach } from "../parts/empty";
import { ago, bytes, count, plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { MESSAGE_COLUMNS, type Relation } from "./sql-completion";
import { SqlEditor } from "./sql-editor";
import { forget, type Memory, recall, remember, save } from "./sql-memory";
import { csvOf, Results } from "./sql-results";

const READABLE = new Set(["stream", "queue", "subscription", "deadletter"]);

const MAX_LISTED = 100;

interface Place {
  line: number;
  column: number;
}

/** Where in the query an error is, as the API says it. */
function placeOf(error: ApiError): Place | undefined {
  const found = /line (\d+), column (\d+)/.exec(error.message);
  return found ? { line: Number(found[1]), column: Number(found[2]) } : undefined;
}

function offsetOf(sql: string, { line, column }: Place): number {
  return sql.split("\n").slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
}

export default function SqlPage(): ReactElement {
  const space = useSpace();
  return <Sql key={space.api} space={space} />;
}

function Sql({ space }: { space: Space }): ReactElement {
  const key = `${space.namespace}/${space.name}`;
  const rights = useRights(space.namespace);
  const [search] = useSearchParams();
  const [memory, setMemory] = useState<Memory>(() => recall(key));
  const [sql, setSql] = useState(() => {
    const table = search.get("table");
    return search.get("sql") ?? (table ? `SELECT * FROM ${quoted(table)} LIMIT 100` : (recall(key).history[0]?.sql ?? ""));
  });
  const [limit, setLimit] = useState(1000);
  const [result, setResult] = useState<{ sql: string; limit: number; answer: QueryResult; ms: number }>();
  const [error, setError] = useState<{ sql: string; error: ApiError }>();
  const [running, setRunning] = useState<AbortController>();
  const [saving, setSaving] = useState(false);
  const [turn, setTurn] = useState(0);
  const editor = useRef<HTMLTextAreaElement>(null);
  const asked = useAskable(space, turn);
  useEffect(() => () => running?.abort(), [running]);

  const may = rights.may("create", "addressspaces/query");
  const run = async () => {
    if (!sql.trim() || running || !may) return;
    const stop = new AbortController();
    const began = performance.now();
    setRunning(stop);
    setError(undefined);
    try {
      const answer = await ask(space.api, sql, limit, stop.signal);
      setResult({ sql, limit, answer, ms: performance.now() - began });
      setMemory(remember(key, { sql, at: new Date().toISOString(), rows: answer.rows.length }));
      setTurn((before) => before + 1);
    } catch (caught) {
      if (!stop.signal.aborted) {
        setError({ sql, error: asApiError(caught) });
        setMemory(remember(key, { sql, at: new Date().toISOString() }));
      }
    } finally {
      setRunning(undefined);
    }
  };
  const insert = (text: string) => {
    const element = editor.current;
    if (!sql.trim() || !element) {
      setSql(`SELECT * FROM ${text} LIMIT 100`);
      element?.focus();
      return;
    }
    const { selectionStart, selectionEnd } = element;
    setSql(sql.slice(0, selectionStart) + text + sql.slice(selectionEnd));
    requestAnimationFrame(() => {
      element.focus();
      element.setSelectionRange(selectionStart + text.length, selectionStart + text.length);
    });
  };
  const parquet = async () => {
    if (!result) return;
    setSaving(true);
    try {
      download(`${space.name}.parquet`, await askForParquet(space.api, result.sql, result.limit));
    } catch (caught) {
      setError({ sql: result.sql, error: asApiError(caught) });
    } finally {
      setSaving(false);
    }
  };
  const goTo = (place: Place) => {
    const at = offsetOf(sql, place);
    editor.current?.focus();
    editor.current?.setSelectionRange(at, at + (/^\w+/.exec(sql.slice(at))?.[0].length ?? 1));
  };
  return (
    <PageFrame title="SQL" trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }]} about="Asks tables and addresses; looking takes nothing away.">
      {rights.known && !may && <Alert isInline variant="info" title="You may not query this space" className="em-health">A query reads messages; tenant-edit may do that, tenant-view not.</Alert>}
      <Grid hasGutter>
        <GridItem lg={9} className="em-sql">
          <SqlEditor sql={sql} change={setSql} editor={editor} relations={asked.relations} run={() => void run()} />
          <div className="em-sql-bar">
            {running ? (
              <Button variant="secondary" onClick={() => running.abort()}>Stop</Button>
            ) : (
              <Button icon={<PlayIcon />} onClick={() => void run()} isDisabled={!sql.trim() || !may} aria-keyshortcuts="Control+Enter">
                Run
              </Button>
            )}
            <kbd className="em-wide-only">Ctrl Enter</kbd>
            <label htmlFor="sql-limit">Rows at most</label>
            <NumberInput
              value={limit}
              min={1}
              max={10_000}
              inputProps={{ id: "sql-limit" }}
              inputAriaLabel="Rows at most"
              minusBtnAriaLabel="Fewer rows"
              plusBtnAriaLabel="More rows"
              widthChars={6}
              onMinus={() => setLimit(Math.max(1, limit - 100))}
              onPlus={() => setLimit(Math.min(10_000, limit + 100))}
              onChange={(event) => setLimit(Math.max(1, Math.min(10_000, Number((event.target as HTMLInputElement).value) || 1)))}
            />
            <SaveQuery sql={sql} onSave={(name) => setMemory(save(key, { name, sql }))} />
          </div>
          {running && <p className="em-total" role="status"><Spinner size="md" aria-label="Running" /> Running. The first query of a space waits for Spark, ten seconds or so.</p>}
          {error && <SqlProblem problem={error} present={sql} goTo={goTo} />}
          {result && !running && (
            <Card isCompact className="em-above">
              <CardBody>
                <p className="em-figure-below em-wrap">Answered in {count(result.ms)} ms{result.sql === sql ? "" : <>: <code>{result.sql.slice(0, 200)}</code></>}</p>
                <Results key={turn} result={result.answer} title="Result" saveCsv={() => download(`${space.name}.csv`, csvOf(result.answer), "text/csv")} saveParquet={() => void parquet()} busy={saving} />
              </CardBody>
            </Card>
          )}
          {!result && !running && !error && (
            <Teach title="Ask something">
              Choose a table or an address beside, and press Ctrl Enter. Tables are what pipelines write; a stream is there as rows with
              <code> partition, offset, timestamp, key, value</code>, so <code>CAST(value AS STRING)</code> shows its messages.
            </Teach>
          )}
        </GridItem>
        <GridItem lg={3}>
          <Relations asked={asked} insert={insert} />
          <Remembered memory={memory} choose={setSql} forget={(what) => setMemory(forget(key, what))} />
        </GridItem>
      </Grid>
    </PageFrame>
  );
}

/** An error with its place in the query. */
function SqlProblem({ problem: { sql, error }, present, goTo }: { problem: { sql: string; error: ApiError }; present: string; goTo: (place: Place) => void }): ReactElement {
  const place = placeOf(error);
  const line = place && sql.split("\n")[place.line - 1];
  return (
    <Refusal error={error} title={error.code === 422 ? "This is no query that can be run" : undefined}>
      {place && line !== undefined && (
        <>
          <pre className="em-sql-place" role="group" aria-label={`Line ${place.line}, column ${place.column}`}>{`${line}\n${" ".repeat(place.column - 1)}▲`}</pre>
          {sql === present && <Button variant="link" isInline onClick={() => goTo(place)}>Go to line {place.line}, column {place.column}</Button>}
        </>
      )}
    </Refusal>
  );
}

function SaveQuery({ sql, onSave }: { sql: string; onSave: (name: string) => void }): ReactElement {
  const [name, setName] = useState<string>();
  if (name === undefined) {
    return <Button variant="link" isDisabled={!sql.trim()} onClick={() => setName("")}>Save the query</Button>;
  }
  const done = () => {
    if (name.trim()) onSave(name.trim().slice(0, 80));
    setName(undefined);
  };
  return (
    <span className="em-sql-save">
      <TextInput aria-label="Name of the query" placeholder="Its name" value={name} onChange={(_, value) => setName(value)} onKeyDown={(event) => (event.key === "Enter" ? done() : event.key === "Escape" ? setName(undefined) : undefined)} autoFocus />
      <Button variant="secondary" onClick={done}>Save</Button>
    </span>
  );
}

interface Askable {
  tables: LakeTable[];
  addresses: AddressRow[];
  /** Whether the addresses are known, and whether there are more. */
  isKnown: boolean;
  hasMore: boolean;
  relations: Relation[];
}

/** What can be asked; tables that Spark has not told of yet are those that pipelines declare. */
function useAskable(space: Space, turn: number): Askable {
  const pipelines = useLatest<RowList<PipelineRow>>(query(`${space.api}/rows/pipelines`, { limit: 500 })).data?.items;
  const addresses = useGet<RowList<AddressRow>>(query(`${space.api}/rows/addresses`, { limit: 500 })).data;
  // Spark is not started to list tables: it is asked where it runs anyhow.
  const runs = turn > 0 || (pipelines ?? []).some((row) => row.phase === "Running");
  const told = useGet<QueryResult>(runs ? `${space.api}/tables` : null);
  const { again } = told;
  useEffect(() => {
    if (turn > 0) again();
    // A query may have been the first to see a table.
    // eslint-disable-next-line
  }, [turn]);
  return useMemo(() => {
    const found = new Map<string, LakeTable>((pipelines ?? []).flatMap((row) => row.tables).map((name) => [name, { name }]));
    for (const table of tablesOf(told.data)) found.set(table.name, table);
    const tables = [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
    const readable = (addresses?.items ?? []).filter((row) => READABLE.has(row.type));
    return {
      tables,
      addresses: readable,
      isKnown: addresses !== undefined,
      hasMore: (addresses?.total ?? 0) > 500,
      relations: [
        ...tables.map(({ name, columns }) => ({ name, kind: "table", columns })),
        ...readable.map((row) => ({ name: row.address, kind: row.type, columns: MESSAGE_COLUMNS })),
      ],
    };
  }, [pipelines, addresses, told.data]);
}

function Relations({ asked: { tables, addresses: readable, isKnown, hasMore }, insert }: { asked: Askable; insert: (text: string) => void }): ReactElement {
  return (
    <Card isCompact>
      <CardTitle component="h2">Tables</CardTitle>
      <CardBody>
        {tables.length === 0 && <p className="em-total">None yet: a pipeline with a table as its sink makes one.</p>}
        {tables.map((table) => (
          <div key={table.name} className="em-relation">
            <Button variant="link" isInline onClick={() => insert(quoted(table.name))}>{table.name}</Button>{" "}
            {table.rows !== undefined && <span className="em-figure-below">{plural(table.rows, "row")}, {bytes(table.bytes)}</span>}
            {table.columns && (
              <ExpandableSection toggleText={plural(table.columns.length, "column")}>
                {table.columns.map((column) => (
                  <div key={column.name}>
                    <Button variant="link" isInline onClick={() => insert(quoted(column.name))}>{column.name}</Button> <span className="em-figure-below">{column.type.toLowerCase()}</span>
                  </div>
                ))}
              </ExpandableSection>
            )}
          </div>
        ))}
        <h2 className="em-relation-head">Addresses</h2>
        {isKnown && readable.length === 0 && <p className="em-total">No stored address yet.</p>}
        {readable.slice(0, MAX_LISTED).map((row) => (
          <div key={row.name} className="em-relation">
            <Button variant="link" isInline onClick={() => insert(quoted(row.address))}><bdi>{row.address}</bdi></Button> <Label isCompact>{row.type}</Label>
          </div>
        ))}
        {hasMore || readable.length > MAX_LISTED ? <p className="em-total">There are more; any can be asked by its name.</p> : null}
      </CardBody>
    </Card>
  );
}

function Remembered({ memory, choose, forget: drop }: { memory: Memory; choose: (sql: string) => void; forget: (what: { saved?: string; history?: true }) => void }): ReactElement {
  const [tab, setTab] = useState<"history" | "saved">("history");
  return (
    <Card isCompact className="em-above">
      <CardBody>
        <Tabs activeKey={tab} onSelect={(_, key) => setTab(key as "history" | "saved")} aria-label="Queries of before" isSubtab>
          <Tab eventKey="history" tabContentId="remembered" title={<TabTitleText>History</TabTitleText>} />
          <Tab eventKey="saved" tabContentId="remembered" title={<TabTitleText>Saved</TabTitleText>} />
        </Tabs>
        <div className="em-above em-remembered" id="remembered" role="tabpanel" aria-label="Queries of before">
          {tab === "history" &&
            (memory.history.length === 0 ? (
              <p className="em-total">What you ask is kept here, in this browser alone.</p>
            ) : (
              <>
                {memory.history.map((item) => (
                  <div key={item.sql} className="em-relation">
                    <Button variant="link" isInline onClick={() => choose(item.sql)} title={item.sql}>{item.sql.replace(/\s+/g, " ").slice(0, 80)}</Button>
                    <div className="em-figure-below">{ago(item.at)}, {item.rows === undefined ? "refused" : plural(item.rows, "row")}</div>
                  </div>
                ))}
                <Button variant="link" isDanger isInline onClick={() => drop({ history: true })}>Forget all of these</Button>
              </>
            ))}
          {tab === "saved" &&
            (memory.saved.length === 0 ? (
              <p className="em-total">Queries that you save are kept here, in this browser alone.</p>
            ) : (
              memory.saved.map((item) => (
                <div key={item.name} className="em-relation">
                  <Button variant="link" isInline onClick={() => choose(item.sql)} title={item.sql}>{item.name}</Button>{" "}
                  <Button variant="link" isDanger isInline aria-label={`Forget ${item.name}`} onClick={() => drop({ saved: item.name })}>Forget</Button>
                </div>
              ))
            ))}
        </div>
      </CardBody>
    </Card>
  );
}
