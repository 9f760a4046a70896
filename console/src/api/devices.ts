// The device registry, whose API is that of Eclipse Hono, and the projects that its tenants belong to.
import { fetchSignedIn, path, query, sendSignedIn, write } from "./client";
import type { ReadyStatus, Resource } from "./types";

export const IOT = "/apis/iot.enmasse.io/v1alpha1";
export const REGISTRY = "/registry/v1";

export interface IoTProject extends Resource {
  spec: {
    downstreamStrategy: {
      providedStrategy?: { addressSpaceName: string };
      managedStrategy?: { addressSpace: { name: string }; addresses?: { telemetry?: { type?: string } } };
    };
    configuration?: {
      enabled?: boolean;
      registrationLimits?: Record<string, number>;
      resourceLimits?: Record<string, number>;
      defaults?: Record<string, unknown>;
    };
  };
  status?: ReadyStatus & { tenant?: string };
}

/** The name of the space that a project uses. */
export function spaceOfProject(project: IoTProject): string {
  const { providedStrategy, managedStrategy } = project.spec.downstreamStrategy;
  return managedStrategy?.addressSpace.name ?? providedStrategy?.addressSpaceName ?? "";
}

export interface DeviceRow {
  id: string;
  enabled: boolean;
  connected?: boolean;
  lastSeen?: string;
  via?: string[];
  viaGroups?: string[];
  memberOf?: string[];
  created?: string;
}

export interface CommandRow {
  id: string;
  device: string;
  name: string;
  state: string;
  reason?: string;
  attempts: number;
  payload?: string;
  created: number;
  changed: number;
  expires: number;
  response?: { status?: number; payload?: string };
}

export const COMMAND_STATES = ["queued", "delivered", "accepted", "rejected", "expired", "failed"];

export interface Device {
  enabled?: boolean;
  via?: string[];
  viaGroups?: string[];
  memberOf?: string[];
  defaults?: Record<string, unknown>;
  ext?: Record<string, unknown>;
  status?: {
    created?: string;
    updated?: string;
    connected?: boolean;
    "last-seen"?: string;
    "connection-events"?: { event: string; time: string }[];
    [name: string]: unknown;
  };
}

export interface Secret {
  id?: string;
  enabled?: boolean;
  "not-before"?: string;
  "not-after"?: string;
  "pwd-plain"?: string;
  comment?: string;
}

export interface Credential {
  type: string;
  "auth-id"?: string;
  enabled?: boolean;
  cert?: string;
  secrets?: Secret[];
}

export interface CommandRequest {
  name: string;
  payload?: string;
  "content-type"?: string;
  mode?: "direct" | "stored";
  ttl?: number;
  "supersede-key"?: string;
  "response-required"?: boolean;
  devices?: string[];
}

/** An authority of a tenant, and whether it counts where a device names nobody. */
export interface Authority {
  id: string;
  "subject-dn": string;
  "not-after"?: string;
  proof?: string;
  counts: boolean;
  problem?: string;
}

/** What is there, and its version: whoever writes says which one it was, so that nobody's change is lost. */
export interface Versioned<T> {
  value: T;
  version: string;
}

export async function read<T>(url: string): Promise<Versioned<T>> {
  const answer = await fetchSignedIn(url);
  return { value: (await answer.json()) as T, version: answer.headers.get("ETag") ?? "" };
}

export async function replace(url: string, value: unknown, version: string): Promise<void> {
  await sendSignedIn("PUT", url, { body: value, ...(version ? { headers: { "If-Match": version } } : {}) });
}

/** The paths of a tenant's part of the registry. */
export function registryOf(tenant: string): { device: (id: string) => string; credentials: (id: string) => string; commands: (id?: string) => string; authorities: (id?: string, act?: string) => string; import: string; export: string } {
  return {
    device: (id) => path(REGISTRY, "devices", tenant, id),
    credentials: (id) => path(REGISTRY, "credentials", tenant, id),
    commands: (id) => (id === undefined ? path(REGISTRY, "commands", tenant) : path(REGISTRY, "commands", tenant, id)),
    authorities: (id, act) => (id === undefined ? path(REGISTRY, "tenants", tenant, "authorities") : path(REGISTRY, "tenants", tenant, "authorities", id, act!)),
    import: path(REGISTRY, "import", tenant),
    export: path(REGISTRY, "export", tenant),
  };
}

/** Changes a device, as it is at that moment. */
export async function changeDevice(url: string, change: (device: Device) => Device): Promise<void> {
  const { value, version } = await read<Device>(url);
  const { status: _, ...kept } = change(value);
  await replace(url, kept, version);
}

/** Sends a command; one that is not stored is answered by the device. */
export async function command(url: string, request: CommandRequest, wait: number): Promise<{ id?: string; devices?: number; status?: number; payload?: string }> {
  return (await write<{ id?: string; devices?: number; status?: number; payload?: string }>("POST", request.mode === "direct" ? query(url, { wait }) : url, { body: request })).value;
}
