// The schema registry of a space, in the form of Confluent's.
import { path, query, sendSignedIn, write } from "./client";
import type { Space } from "../app/space";

export const LEVELS = ["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"];

export interface SchemaVersion {
  subject: string;
  version: number;
  id: number;
  schema: string;
  /** Left out: AVRO. */
  schemaType?: "JSON" | "PROTOBUF";
}

export interface Level {
  compatibilityLevel: string;
}

export interface Verdict {
  is_compatible: boolean;
  messages?: string[];
}

export function registryOf(space: Space): string {
  return path("/schemas/v1/spaces", space.namespace, space.name);
}

function bodyOf(schema: string, type: string): Record<string, string> {
  return { schema, schemaType: type };
}

/** Whether a schema could be the next version of a subject, and why not. */
export async function check(registry: string, subject: string, schema: string, type: string): Promise<Verdict> {
  const url = query(`${path(`${registry}/compatibility/subjects`, subject)}/versions`, { verbose: true });
  return (await write<Verdict>("POST", url, { body: bodyOf(schema, type) })).value;
}

export async function register(registry: string, subject: string, schema: string, type: string): Promise<void> {
  await sendSignedIn("POST", `${path(`${registry}/subjects`, subject)}/versions`, { body: bodyOf(schema, type) });
}

/** Deletes a version of a subject, or all where none is given; its messages can be read as before. */
export async function forget(registry: string, subject: string, version?: number): Promise<void> {
  const url = path(`${registry}/subjects`, subject);
  await sendSignedIn("DELETE", version === undefined ? url : `${url}/versions/${version}`);
}

/** Sets the level of a subject, or of the space where none is given; without a level a subject has that of its space again. */
export async function setLevel(registry: string, subject: string | undefined, compatibility: string): Promise<void> {
  const url = subject === undefined ? `${registry}/config` : path(`${registry}/config`, subject);
  if (compatibility) await sendSignedIn("PUT", url, { body: { compatibility } });
  else await sendSignedIn("DELETE", url);
}

/** A schema as it is read: a level of the tree a line's indentation. */
export function pretty(schema: string): string {
  try {
    return JSON.stringify(JSON.parse(schema), null, 2);
  } catch {
    return schema;
  }
}
