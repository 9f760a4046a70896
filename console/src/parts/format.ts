// Numbers, sizes and times as people read them.

const COUNT = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const TIME = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "medium" });
const AGO = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** What stands where nothing is known. */
export const UNKNOWN = "–";

export function count(value: number | undefined | null): string {
  if (value === undefined || value === null) return UNKNOWN;
  return Math.abs(value) < 100_000 ? COUNT.format(value) : SHORT.format(value);
}

export function rate(value: number | undefined | null): string {
  if (value === undefined || value === null) return UNKNOWN;
  if (value !== 0 && Math.abs(value) < 10) return value.toFixed(1);
  return count(Math.round(value));
}

/** A value as it was measured, to the third decimal. */
export function number(value: number | undefined | null): string {
  if (value === undefined || value === null || Number.isNaN(value)) return UNKNOWN;
  return Math.abs(value) < 1e9 ? NUMBER.format(value) : SHORT.format(value);
}

/** A share from 0 to 1; what is little is not called none, and what lacks little not all. */
export function percent(share: number): string {
  const value = 100 * share;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  if (value > 99.9 && value < 100) return "> 99.9 %";
  return `${value < 10 && value !== 0 ? value.toFixed(1) : Math.round(value)} %`;
}

export function bytes(value: number | undefined | null): string {
  if (value === undefined || value === null) return UNKNOWN;
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(size) < 1024 || unit === "TiB") return `${size < 10 && unit !== "B" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1024;
  }
  return UNKNOWN;
}

export function duration(seconds: number | undefined | null): string {
  if (seconds === undefined || seconds === null) return UNKNOWN;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} days`;
}

export function dateTime(value: string | undefined): string {
  const time = value ? new Date(value) : undefined;
  return time && !Number.isNaN(time.getTime()) ? TIME.format(time) : UNKNOWN;
}

export function ago(value: string | undefined, now = Date.now()): string {
  const time = value ? Date.parse(value) : NaN;
  if (Number.isNaN(time)) return UNKNOWN;
  const seconds = Math.round((time - now) / 1000);
  if (Math.abs(seconds) < 60) return AGO.format(seconds, "second");
  if (Math.abs(seconds) < 3600) return AGO.format(Math.round(seconds / 60), "minute");
  if (Math.abs(seconds) < 86_400) return AGO.format(Math.round(seconds / 3600), "hour");
  return AGO.format(Math.round(seconds / 86_400), "day");
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

export const IN_BYTES = new Set(["maxBytes", "byteRate", "messageSize", "retainedBytes", "sessionBytes", "subscriptionBytes", "pipelineMemory"]);

/** The value of a limit of a space or an address, as its name wants it. */
export function limit(name: string, value: number | string): string {
  if (typeof value === "string") return value;
  return IN_BYTES.has(name) ? bytes(value) : count(value);
}

export function limits(all: Record<string, number | string> | undefined): string {
  return Object.entries(all ?? {})
    .map(([name, value]) => `${name} ${limit(name, value)}`)
    .join(", ");
}
