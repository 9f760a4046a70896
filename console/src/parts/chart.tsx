// Lines over time: uPlot for charts, a few points of SVG for sparklines.
import { type ReactElement, useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useTheme } from "../app/theme";
import { bytes as asBytes, number, rate } from "./format";

export interface Line {
  label: string;
  values: (number | null)[];
  /** 0 to 5, of the palette; as given by its place if left out. */
  color?: number;
}

const COLORS = ["--em-line-0", "--em-line-1", "--em-line-2", "--em-line-3", "--em-line-4", "--em-line-5"];
const NO_LINES: Line[] = [];
const DAY_S = 86_400;

/** A moment on the axis: as precise as the step to the next one. */
function tick(at: number, step: number): string {
  const moment = new Date(at * 1000);
  if (step >= DAY_S) return moment.toLocaleDateString([], { month: "short", day: "numeric" });
  return moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(step < 60 ? { second: "2-digit" } : {}) });
}

function formatOf(unit: "bytes" | "rate", isFree: boolean): (value: number | undefined | null) => string {
  return isFree ? number : unit === "bytes" ? asBytes : rate;
}

function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

export interface ChartProps {
  title: string;
  /** Seconds since 1970. */
  times: number[];
  lines: Line[];
  unit?: "bytes" | "rate";
  height?: number;
  /** Charts of one key move their crosshair together. */
  sync?: string;
  /** What `times` are: moments, or plain numbers. */
  across?: "time" | "number";
  /** Values of any size, with gaps between them: the axis begins at the least one, and lines bridge gaps. */
  isFree?: boolean;
}

export function Chart({ title, times, lines = NO_LINES, unit = "rate", height = 180, sync, across = "time", isFree = false }: ChartProps): ReactElement {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const { dark } = useTheme();
  const shape = lines.map((line) => line.label).join("\n");
  const data: uPlot.AlignedData = [times, ...lines.map((line) => line.values)];
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const element = box.current!;
    const format = formatOf(unit, isFree);
    const place = (at: number) => {
      if (across === "number") return number(at);
      const moment = new Date(1000 * at);
      return isFree ? moment.toLocaleString() : moment.toLocaleTimeString();
    };
    const axis = { stroke: token("--em-axis"), grid: { stroke: token("--em-grid"), width: 1 }, ticks: { show: false } };
    const made = new uPlot(
      {
        width: Math.max(element.clientWidth, 120),
        height,
        legend: { live: true },
        cursor: { drag: { x: false, y: false }, points: { size: 6 }, ...(sync ? { sync: { key: sync } } : {}) },
        scales: { x: { time: across === "time" }, ...(isFree ? {} : { y: { range: (_plot, _low, high) => [0, Math.max(high || 0, 1) * 1.08] } }) },
        axes: [
          {
            ...axis,
            space: 70,
            values: (_plot, splits, _axis, _space, step) => splits.map((at) => (across === "number" ? number(at) : tick(at, step))),
          },
          { ...axis, size: 58, values: (_plot, splits) => splits.map((value) => format(value)) },
        ],
        series: [
          { label: "at", value: (plot, value) => place(value ?? plot.data[0].at(-1) ?? 0) },
          ...lines.map((line, index) => ({
            label: line.label,
            stroke: token(COLORS[(line.color ?? index) % COLORS.length]!),
            fill: lines.length === 1 ? `${token(COLORS[(line.color ?? index) % COLORS.length]!)}22` : undefined,
            width: 2,
            points: { show: isFree && latest.current[0].length < 60 },
            spanGaps: isFree,
            // Without a cursor the latest value stands there.
            value: (plot: uPlot, value: number | null, series: number, at: number | null) => format(at === null ? plot.data[series]?.at(-1) : value),
          })),
        ],
      },
      latest.current,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 120), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
    // `shape` stands for the lines: their values are set below.
    // eslint-disable-next-line
  }, [shape, unit, height, sync, dark, across, isFree]);

  useEffect(() => {
    plot.current?.setData(data);
  });

  const now = lines.map((line) => `${line.label} ${formatOf(unit, isFree)(line.values.at(-1))}`).join(", ");
  return (
    <figure className="em-chart" role="img" aria-label={`${title} over time; now ${now}`}>
      <figcaption>{title}</figcaption>
      <div ref={box} aria-hidden="true" />
    </figure>
  );
}

/** A line without axes, for a cell of a table. */
export function Sparkline({ values, label, color = 0 }: { values: number[] | undefined; label: string; color?: number }): ReactElement | null {
  if (!values || values.length < 2) return null;
  const most = Math.max(...values, 1e-9);
  const step = 64 / (values.length - 1);
  const points = values.map((value, index) => `${(index * step).toFixed(1)},${(17 - (value / most) * 15).toFixed(1)}`).join(" ");
  return (
    <svg className="em-spark" viewBox="0 0 64 18" width="64" height="18" role="img" aria-label={label}>
      <polyline points={points} fill="none" stroke={`var(${COLORS[color % COLORS.length]})`} strokeWidth="1.5" strokeLinejoin="round" />
    </svg>
  );
}
