// Every page of the console. The router, the navigation and the command palette are made from this list.
import type { ComponentType } from "react";

export interface ConsolePage {
  /** Below /console; `:namespace` and `:space` are those of a space. */
  path: string;
  title: string;
  /** Loaded when it is first shown. */
  load: () => Promise<{ default: ComponentType }>;
  /** Where the navigation has it; absent: it is reached from other pages. */
  nav?: "installation" | "space";
  /** What the palette says of it. */
  hint?: string;
  /** The right without which the navigation leaves it out. */
  needs?: { verb: string; resource: string };
}

export const SPACE = "/spaces/:namespace/:space";

export const pages: ConsolePage[] = [
  { path: "/", title: "Start", nav: "installation", hint: "Health, rates, and what needs you", load: () => import("../pages/start") },
  { path: "/spaces", title: "Spaces", nav: "installation", hint: "All address spaces", load: () => import("../pages/spaces") },
  { path: "/new-space", title: "Create a space", hint: "A step-by-step form", load: () => import("../pages/space-new") },
  { path: `${SPACE}/addresses`, title: "Addresses", nav: "space", load: () => import("../pages/addresses") },
  { path: `${SPACE}/new-address`, title: "Create an address", hint: "A step-by-step form", needs: { verb: "create", resource: "addresses" }, load: () => import("../pages/address-new") },
  { path: `${SPACE}/addresses/:name`, title: "Address", load: () => import("../pages/address") },
  { path: `${SPACE}/addresses/:name/messages`, title: "Messages", load: () => import("../pages/messages") },
  { path: `${SPACE}/pipelines`, title: "Pipelines", nav: "space", hint: "What is computed, on Spark", needs: { verb: "list", resource: "pipelines" }, load: () => import("../pages/pipelines") },
  { path: `${SPACE}/pipelines/:name`, title: "Pipeline", load: () => import("../pages/pipeline") },
  { path: `${SPACE}/new-pipeline`, title: "Create a pipeline", hint: "Built in, or your own", needs: { verb: "create", resource: "pipelines" }, load: () => import("../pages/pipeline-new") },
  { path: `${SPACE}/tables`, title: "Tables", nav: "space", hint: "What pipelines keep: rows, versions, upkeep", needs: { verb: "get", resource: "addressspaces/tables" }, load: () => import("../pages/tables") },
  { path: `${SPACE}/tables/:table`, title: "Table", load: () => import("../pages/table") },
  { path: `${SPACE}/models`, title: "Models", nav: "space", hint: "What pipelines predict with, by version", needs: { verb: "create", resource: "addressspaces/query" }, load: () => import("../pages/models") },
  { path: `${SPACE}/schemas`, title: "Schemas", nav: "space", hint: "What messages consist of, by subject and version", needs: { verb: "get", resource: "addressspaces/schemas" }, load: () => import("../pages/schemas") },
  { path: `${SPACE}/schemas/:subject`, title: "Schema", load: () => import("../pages/schema") },
  { path: `${SPACE}/new-schema`, title: "Register a schema", hint: "Checked before it is registered", needs: { verb: "create", resource: "addressspaces/schemas" }, load: () => import("../pages/schema-new") },
  { path: `${SPACE}/sql`, title: "SQL", nav: "space", hint: "Ask tables and addresses", needs: { verb: "create", resource: "addressspaces/query" }, load: () => import("../pages/sql") },
  { path: `${SPACE}/projects`, title: "Devices", nav: "space", hint: "Projects of devices: registered, seen, commanded", needs: { verb: "list", resource: "iotprojects" }, load: () => import("../pages/projects") },
  { path: `${SPACE}/projects/:project`, title: "Project", load: () => import("../pages/project") },
  { path: `${SPACE}/projects/:project/devices/:device`, title: "Device", load: () => import("../pages/device") },
  { path: `${SPACE}/readings`, title: "Readings", nav: "space", hint: "Last values of devices, history and alerts", needs: { verb: "create", resource: "addressspaces/query" }, load: () => import("../pages/readings") },
  { path: `${SPACE}/connections`, title: "Connections", nav: "space", needs: { verb: "get", resource: "addressspaces/connections" }, load: () => import("../pages/connections") },
  { path: `${SPACE}/connections/:connection`, title: "Connection", load: () => import("../pages/connection") },
  { path: `${SPACE}/connectors`, title: "Connectors", nav: "space", hint: "Other brokers that the space reaches", needs: { verb: "list", resource: "addressspaces" }, load: () => import("../pages/connectors") },
  { path: `${SPACE}/endpoints`, title: "Endpoints", nav: "space", hint: "Where to connect, and how, in six languages", load: () => import("../pages/endpoints") },
  { path: `${SPACE}/users`, title: "Users", nav: "space", hint: "Who may do what", needs: { verb: "list", resource: "messagingusers" }, load: () => import("../pages/users") },
  { path: `${SPACE}/quota`, title: "Plan and quota", nav: "space", hint: "What is used, of what", load: () => import("../pages/quota") },
  { path: `${SPACE}/events`, title: "Events", nav: "space", needs: { verb: "list", resource: "events" }, load: () => import("../pages/space-events") },
  { path: "/plans", title: "Plans", nav: "installation", hint: "What tenants may choose", needs: { verb: "list", resource: "addressspaceplans" }, load: () => import("../pages/plans") },
  { path: "/nodes", title: "Nodes", nav: "installation", hint: "The processes that carry messages", needs: { verb: "list", resource: "nodes" }, load: () => import("../pages/nodes") },
  { path: "/nodes/:node", title: "Node", load: () => import("../pages/nodes") },
  { path: "/events", title: "Events", nav: "installation", hint: "What happened in the installation", needs: { verb: "list", resource: "events" }, load: () => import("../pages/events") },
  { path: "/audit", title: "Audit", nav: "installation", hint: "Who changed what", needs: { verb: "list", resource: "audit" }, load: () => import("../pages/audit") },
  { path: "/account", title: "Tokens and sessions", hint: "What lets you in, and where", load: () => import("../pages/account") },
  { path: "/broker", title: "Service broker", nav: "installation", hint: "What platforms may order", load: () => import("../pages/broker") },
];
