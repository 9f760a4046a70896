// The API's answers, as far as the pages read them.

export interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

export interface Resource {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
}

export interface Objects<T> {
  kind: string;
  metadata: { resourceVersion?: string; continue?: string; remainingItemCount?: number };
  items: T[];
}

export interface WatchEvent<T> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR";
  object: T;
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface ReadyStatus {
  isReady?: boolean;
  phase?: string;
  messages?: string[];
  conditions?: Condition[];
}

export type Limits = Record<string, number | string>;

export interface EndpointStatus {
  name: string;
  serviceHost?: string;
  servicePorts?: Record<string, number>;
  externalHost?: string;
  externalPorts?: Record<string, number>;
  cert?: string;
}

export interface AddressSpace extends Resource {
  spec: {
    type?: string;
    plan?: string;
    authenticationService?: { name?: string; type?: string };
    endpoints?: Record<string, unknown>[];
    limits?: Limits;
    spark?: { ui?: boolean };
  };
  status?: ReadyStatus & { caCert?: string; endpointStatuses?: EndpointStatus[]; limits?: Limits };
}

export type AddressType = "anycast" | "multicast" | "queue" | "topic" | "subscription" | "stream" | "deadletter";

export interface AddressSpec {
  address: string;
  type: AddressType;
  plan?: string;
  topic?: string;
  partitions?: number;
  deadletter?: string;
  expiry?: string;
  fallback?: string;
  storage?: string;
  fullPolicy?: string;
  slowPolicy?: string;
  acknowledge?: string;
  exclusive?: boolean;
  lastValueKey?: string;
  subscription?: { maxConsumers?: number };
  messageTtl?: { minimum?: number; maximum?: number };
  messageRedelivery?: Record<string, number | string>;
  limits?: Limits;
  retention?: { bytes?: number; age?: string };
  schema?: { format: string; definition?: string };
}

export interface Address extends Resource {
  spec: AddressSpec;
  status?: ReadyStatus & Partial<AddressSpec> & { planStatus?: { name: string; resources?: Record<string, number> } };
}

export interface Grant {
  operations: string[];
  addresses?: string[];
}

export interface MessagingUser extends Resource {
  spec: {
    username: string;
    authentication?: { type?: string; password?: string; subject?: string };
    authorization?: Grant[];
  };
  status?: ReadyStatus;
}

export interface PlanChoice {
  name: string;
  displayName?: string;
  description?: string;
  limits?: Limits;
  resources?: Record<string, number>;
  resourceLimits?: Record<string, number>;
}

export interface AddressSpaceSchema extends Resource {
  spec: {
    description?: string;
    addressTypes?: { name: AddressType; displayName?: string; description?: string; plans?: PlanChoice[] }[];
    plans?: PlanChoice[];
    authenticationServices?: string[];
  };
}

export interface EventObject extends Resource {
  involvedObject: { kind?: string; namespace?: string; name?: string };
  type: string;
  reason?: string;
  message?: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
}

// Rows of tables, filtered and sorted by the API. What is absent is not known.

export interface RowList<R> {
  kind: "RowList";
  total: number;
  items: R[];
  time?: string;
  /** Only where something is left out: how many were looked at, or have figures. */
  truncatedAt?: number;
}

export interface Fill {
  used: number;
  limit: number;
}

interface Standing {
  phase?: string;
  ready?: boolean;
  messages?: string[];
}

export interface SpaceRow extends Standing {
  namespace: string;
  name: string;
  type: string;
  plan?: string;
  created?: string;
  addresses?: number;
  connections?: number;
  sessions?: number;
  subscriptions?: number;
  subscriptionBytes?: number;
  messagesIn?: number;
  messagesOut?: number;
  stored?: number;
}

export interface AddressRow extends Standing {
  name: string;
  address: string;
  type: AddressType;
  plan?: string;
  created?: string;
  messagesIn?: number;
  messagesOut?: number;
  stored?: number;
  bytes?: number;
  senders?: number;
  receivers?: number;
  partitions?: number;
  fill?: Record<string, Fill>;
  spark?: { in: number[]; out: number[] };
}

export interface ConnectorRow {
  name: string;
  ready: boolean;
  messages?: string[];
  hosts: string[];
  tls: string;
  connections?: number;
  reconnects?: number;
  senders?: number;
  receivers?: number;
  creditGranted?: number;
  creditAsked?: number;
  unsettled?: number;
  messagesIn?: number;
  messagesOut?: number;
  bytesSent?: number;
  bytesReceived?: number;
  silence?: number;
}

export interface ConnectionRow {
  name: string;
  host?: string;
  via?: string;
  containerId?: string;
  protocol?: string;
  tls?: string;
  user?: string;
  mechanism?: string;
  opened?: string;
  senders?: number;
  receivers?: number;
  notRead?: string;
  messagesIn?: number;
  messagesOut?: number;
  properties?: Record<string, string>;
}

export interface LinkRow {
  name: string;
  connection: string;
  containerId?: string;
  role: string;
  address?: string;
  credit?: number;
  unsettled?: number;
  rate?: number;
  deliveries?: number;
  accepted?: number;
  rejected?: number;
  released?: number;
  modified?: number;
  presettled?: number;
  backlog?: number;
}

export interface UserRow extends Standing {
  name: string;
  username: string;
  authentication?: string;
  grants?: Grant[];
}

export interface SubscriptionRow {
  name: string;
  address?: string;
  stored?: number;
  receivers?: number;
  selector?: string;
}

export interface Series {
  kind: "Series";
  step: number;
  times: number[];
  series: Record<string, (number | null)[]>;
}

export interface Problem {
  kind: string;
  namespace?: string;
  name: string;
  text: string;
  remedy?: string;
  path?: string;
}

export interface NodeRow {
  name: string;
  up: boolean;
  ready: boolean;
  cpu?: number;
  memory?: number;
  connections?: number;
  links?: number;
  addresses?: number;
  /** Milliseconds. */
  uptime?: number;
  version?: string;
  diskFree?: number;
  lag?: number;
  problems?: string[];
}

export interface Overview {
  kind: "Overview";
  problems: Problem[];
  problemCount?: number;
  totals: {
    spaces?: number;
    addresses?: number;
    connections?: number;
    stored?: number;
    messagesIn?: number;
    messagesOut?: number;
    pipelines?: Record<string, number>;
  };
  nodes?: NodeRow[];
  series?: Pick<Series, "times" | "series">;
}

export interface AuditEntry {
  time: string;
  user?: string;
  from?: string;
  agent?: string;
  verb?: string;
  group?: string;
  resource?: string;
  namespace?: string;
  name?: string;
  path?: string;
  code?: number;
  ms?: number;
  dryRun?: boolean;
}

export interface ConsoleConfig {
  version: string;
  login: { required: boolean; accounts: boolean; oidc: string | null };
}
