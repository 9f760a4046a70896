// What a query answered: as a table, as a chart, and as a file.
import { Button, Pagination, ToggleGroup, ToggleGroupItem } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement, useState } from "react";
import type { QueryResult, TableColumn } from "../api/pipelines";
import { Chart, type Line } from "../parts/chart";
import { count, number, plural } from "../parts/format";

const NUMBERS = /^(TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL)/;
const TIMES = /^(TIMESTAMP|DATE)/;
const MAX_LINES = 6;
const MAX_BARS = 40;

/** A value as a number, a moment in seconds; undefined where it is neither. */
function numberOf(column: TableColumn, value: unknown): number | undefined {
  if (value === null || value === undefined || typeof value === "boolean" || value === "") return undefined;
  const found = TIMES.test(column.type) ? Date.parse(String(value)) / 1000 : Number(value);
  return Number.isFinite(found) ? found : undefined;
}

export interface Drawing {
  lines?: { x: number[]; lines: Line[]; isTime: boolean };
  bars?: { title: string; rows: [string, number][] };
  /** What is left out. */
  more: string;
}

/** A chart of an answer: lines over a first column of times or numbers, else bars; undefined where nothing can be drawn. */
export function drawingOf({ columns, rows }: Pick<QueryResult, "columns" | "rows">): Drawing | undefined {
  const first = columns[0];
  if (!first || rows.length === 0) return undefined;
  const numbers = columns.map((column, index) => ({ column, index })).filter(({ column, index }) => index > 0 && NUMBERS.test(column.type));
  if (numbers.length === 0) return undefined;
  if (!TIMES.test(first.type) && !NUMBERS.test(first.type)) {
    const { column, index } = numbers[0]!;
    const found = rows.flatMap((row): [string, number][] => {
      const value = numberOf(column, row[index]);
      return value === undefined ? [] : [[String(row[0]), value]];
    });
    if (found.length === 0) return undefined;
    return { bars: { title: `${column.name} by ${first.name}`, rows: found.slice(0, MAX_BARS) }, more: found.length > MAX_BARS ? `${plural(found.length - MAX_BARS, "more row")} not drawn` : "" };
  }
  const by = columns.findIndex((column, index) => index > 0 && column.type === "STRING");
  const series = new Map<string, Map<number, number>>();
  const xs = new Set<number>();
  for (const row of rows) {
    const x = numberOf(first, row[0]);
    if (x === undefined) continue;
    for (const { column, index } of by >= 0 ? numbers.slice(0, 1) : numbers) {
      const y = numberOf(column, row[index]);
      if (y === undefined) continue;
      const label = by >= 0 ? String(row[by]) : column.name;
      if (!series.has(label)) series.set(label, new Map());
      series.get(label)!.set(x, y);
      xs.add(x);
    }
  }
  if (series.size === 0) return undefined;
  const x = [...xs].sort((a, b) => a - b);
  const all = [...series].map(([label, points]): Line => ({ label, values: x.map((at) => points.get(at) ?? null) }));
  return { lines: { x, lines: all.slice(0, MAX_LINES), isTime: TIMES.test(first.type) }, more: all.length > MAX_LINES ? `${plural(all.length - MAX_LINES, "more line")} not drawn` : "" };
}

export function DrawnResult({ drawing, title, height = 320 }: { drawing: Drawing; title: string; height?: number }): ReactElement {
  const { lines, bars } = drawing;
  return (
    <>
      {lines && <Chart title={title} times={lines.x} lines={lines.lines} height={height} across={lines.isTime ? "time" : "number"} isFree />}
      {bars && <Bars title={bars.title} rows={bars.rows} />}
      {drawing.more && <p className="em-total">{drawing.more}.</p>}
    </>
  );
}

function Bars({ title, rows }: { title: string; rows: [string, number][] }): ReactElement {
  const most = Math.max(...rows.map(([, value]) => Math.abs(value)), 1e-9);
  return (
    <figure className="em-bars">
      <figcaption>{title}</figcaption>
      <dl>
        {rows.map(([name, value], index) => (
          <div key={`${name} ${index}`}>
            <dt><bdi className="em-wrap">{name}</bdi></dt>
            <dd>
              <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                <rect className={value < 0 ? "em-bar-below" : "em-bar"} width={(100 * Math.abs(value)) / most} height="10" />
              </svg>
              <span>{number(value)}</span>
            </dd>
          </div>
        ))}
      </dl>
    </figure>
  );
}

export function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// Decimals come as text, and are numbers.
const NUMERIC = /^(tinyint|smallint|int|integer|bigint|long|float|real|double|decimal)\b/i;

/** The answer as CSV, by RFC 4180. Texts that a spreadsheet would take for formulas begin with an apostrophe. */
export function csvOf({ columns, rows }: Pick<QueryResult, "columns" | "rows">): string {
  const cell = (value: unknown, isNumber: boolean) => {
    const guarded = typeof value === "string" && !isNumber && /^[=+\-@\t\r\n]/.test(value) ? `'${value}` : textOf(value);
    return /[",\r\n]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
  };
  const numeric = columns.map((column) => NUMERIC.test(column.type));
  const lines = [columns.map((column) => cell(column.name, false)), ...rows.map((row) => row.map((value, at) => cell(value, numeric[at] ?? false)))];
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

const PER_PAGE = 100;

export function Results(props: { result: QueryResult; title: string; saveCsv: () => void; saveParquet: () => void; busy: boolean; more?: string }): ReactElement {
  const { result, more = "raise the limit, or ask for less" } = props;
  const [asChart, setAsChart] = useState(false);
  const [page, setPage] = useState(1);
  const drawing = drawingOf(result);
  const shown = result.rows.slice((page - 1) * PER_PAGE, page * PER_PAGE);
  return (
    <>
      <div className="em-result-bar">
        <span role="status">{plural(result.rows.length, "row")}{result.truncated && `; there are more: ${more}`}</span>
        <span className="em-result-does">
          {drawing && (
            <ToggleGroup isCompact aria-label="Show as">
              <ToggleGroupItem text="Table" isSelected={!asChart} onChange={() => setAsChart(false)} />
              <ToggleGroupItem text="Chart" isSelected={asChart} onChange={() => setAsChart(true)} />
            </ToggleGroup>
          )}
          <Button variant="secondary" size="sm" onClick={props.saveCsv}>Save as CSV</Button>
          <Button variant="secondary" size="sm" isLoading={props.busy} isDisabled={props.busy} onClick={props.saveParquet}>Save as Parquet</Button>
        </span>
      </div>
      {result.warnings?.map((warning) => <p key={warning} className="em-total">{warning}</p>)}
      {asChart && drawing ? (
        <DrawnResult drawing={drawing} title={props.title} />
      ) : (
        <>
          <div className="em-table em-result">
            <Table aria-label="Result" variant="compact" gridBreakPoint="">
              <Thead>
                <Tr>
                  {result.columns.map((column, index) => (
                    <Th key={index} modifier="nowrap" className={NUMBERS.test(column.type) ? "em-number" : undefined}>
                      {column.name} <span className="em-figure-below">{column.type.toLowerCase()}</span>
                    </Th>
                  ))}
                </Tr>
              </Thead>
              <Tbody>
                {shown.map((row, at) => (
                  <Tr key={at}>
                    {row.map((value, index) => (
                      <Td key={index} className={NUMBERS.test(result.columns[index]?.type ?? "") ? "em-number" : "em-cell"}>
                        {value === null ? <i className="em-figure-below">null</i> : <bdi>{textOf(value)}</bdi>}
                      </Td>
                    ))}
                  </Tr>
                ))}
              </Tbody>
            </Table>
          </div>
          {result.rows.length > PER_PAGE && (
            <Pagination itemCount={result.rows.length} page={page} perPage={PER_PAGE} perPageOptions={[]} onSetPage={(_, next) => setPage(next)} isCompact widgetId="result" />
          )}
          {result.rows.length === 0 && <p className="em-total">The answer has {count(0)} rows.</p>}
        </>
      )}
    </>
  );
}
