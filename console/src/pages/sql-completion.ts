// Names that may go on where somebody is writing SQL: tables, addresses, and the columns of both.
import { quoted } from "../api/pipelines";

export interface Relation {
  name: string;
  /** What it is: a table, or the type of an address. */
  kind: string;
  columns?: { name: string; type: string }[];
}

export interface Choice {
  /** As it stands in the list. */
  name: string;
  /** As it is written into the query. */
  text: string;
  /** What it is. */
  about: string;
}

export interface Completion {
  /** Where the word begins that a choice takes the place of. */
  from: number;
  choices: Choice[];
}

const MOST = 8;

/** The columns of messages whose bodies are left as they are. */
export const MESSAGE_COLUMNS = [
  { name: "partition", type: "INT" },
  { name: "offset", type: "BIGINT" },
  { name: "timestamp", type: "TIMESTAMP" },
  { name: "key", type: "BINARY" },
  { name: "value", type: "BINARY" },
];

/** Where what is being written is no name: within a text or a comment. */
function isText(before: string): boolean {
  const rest = before.replace(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*\n|\/\*[\s\S]*?\*\//g, "");
  return /['"]|--|\/\*/.test(rest);
}

/** Names that go on with the word before a place of a query; all of them where `all` is asked for. */
export function complete(sql: string, at: number, relations: Relation[], all = false): Completion | undefined {
  const before = sql.slice(0, at);
  if (isText(before)) return undefined;
  const word = /(?:`[^`\n]*|[A-Za-z_]\w*)?$/.exec(before)?.[0] ?? "";
  if (!word && !all && !before.endsWith(".")) return undefined;
  const from = at - word.length;
  const prefix = word.replace(/^`/, "").toLowerCase();
  const lead = before.slice(0, from);
  const choices = namesFor(lead, sql, relations).filter(
    ({ name }) => name.toLowerCase().startsWith(prefix) && name.toLowerCase() !== prefix,
  );
  return choices.length ? { from, choices: choices.slice(0, MOST) } : undefined;
}

function namesFor(lead: string, sql: string, relations: Relation[]): Choice[] {
  const owner = /(?:`([^`]+)`|([A-Za-z_]\w*))\.$/.exec(lead);
  if (owner) {
    const found = relationOf(owner[1] ?? owner[2] ?? "", sql, relations);
    return found ? columnsOf([found]) : [];
  }
  const named = relations.map(({ name, kind }) => ({ name, text: quoted(name), about: kind }));
  if (/\b(?:from|join|describe|desc|table|in)\s+$/i.test(lead) || /\bfrom\s+[^()]*,\s*$/i.test(lead.replace(/[\s\S]*\b(?:where|group|order|select|on)\b/i, ""))) return named;
  const read = relations.filter(({ name }) => isNamed(name, sql));
  return [...columnsOf(read.length ? read : relations), ...named];
}

/** The relation that a name means, which may be another name for it: `FROM readings r`. */
function relationOf(name: string, sql: string, relations: Relation[]): Relation | undefined {
  const own = relations.find((relation) => relation.name.toLowerCase() === name.toLowerCase());
  if (own) return own;
  return relations.find((relation) => {
    const written = escaped(relation.name);
    return new RegExp(`(?:\`${written}\`|\\b${written})\\s+(?:as\\s+)?${escaped(name)}\\b`, "i").test(sql);
  });
}

function isNamed(name: string, sql: string): boolean {
  const written = escaped(name);
  return new RegExp(`\`${written}\`|(?<![\\w/.])${written}(?![\\w/])`, "i").test(sql);
}

function escaped(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
}

function columnsOf(relations: Relation[]): Choice[] {
  const found = new Map<string, Choice>();
  for (const { columns } of relations) {
    for (const { name, type } of columns ?? []) {
      if (!found.has(name)) found.set(name, { name, text: quoted(name), about: type.toLowerCase() });
    }
  }
  return [...found.values()];
}
