// A project: the devices of its tenant, the commands to them, and what it says of itself.
import { Alert, Button, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, Label, Modal, ModalBody, ModalFooter, ModalHeader, Tab, Tabs, TabTitleText, TextInput, ToolbarGroup, ToolbarItem } from "@patternfly/react-core";
import PlusCircleIcon from "@patternfly/react-icons/dist/esm/icons/plus-circle-icon";
import { type FormEvent, type ReactElement, useMemo, useRef, useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { each, fetchSignedIn, path, remove, write } from "../api/client";
import { changeDevice, type DeviceRow, IOT, type IoTProject, registryOf, replace } from "../api/devices";
import { type ApiError, asApiError } from "../api/errors";
import { useObject } from "../api/live";
import { useRights } from "../api/rights";
import { type Space, useSpace } from "../app/space";
import { CodeTabs, download, shell } from "../parts/code";
import { Listed, useConfirm } from "../parts/confirm";
import { EditObject } from "../parts/edit";
import { Teach } from "../parts/empty";
import { Facts } from "../parts/facts";
import type { Field } from "../parts/fields";
import { ago, dateTime, plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { Status } from "../parts/status";
import { type Action, ActionsMenu, type Column, LiveTable } from "../parts/table";
import { Authorities } from "./authorities";
import { Commands, type Project, projectOf, SendCommand } from "./commands";

export function useProject(): { space: Space; project: Project; object: IoTProject | null | undefined; error: ApiError | undefined } {
  const space = useSpace();
  const { project: name = "" } = useParams();
  const collection = path(IOT, "namespaces", space.namespace, "iotprojects");
  const { data, error } = useObject<IoTProject>(collection, name);
  const api = path(collection, name);
  return { space, project: useMemo(() => projectOf(space, name, api), [space.api, name, api]), object: data, error };
}

export function trailOf(project: Project): { title: string; to: string }[] {
  const { space } = project;
  return [
    { title: "Spaces", to: "/spaces" },
    { title: space.name, to: `${space.to}/addresses` },
    { title: "Devices", to: `${space.to}/projects` },
  ];
}

export default function ProjectPage(): ReactElement {
  const { space, project, object, error } = useProject();
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const [search, setSearch] = useSearchParams();
  const trail = trailOf(project);
  if (error && !object) return <PageFrame title={project.name} trail={trail}><Refusal error={error} /></PageFrame>;
  if (object === null) {
    return (
      <PageFrame title={project.name} trail={trail}>
        <Teach title="There is no such project" actions={<Link to={`${space.to}/projects`}>All projects</Link>}>It may have been deleted meanwhile.</Teach>
      </PageFrame>
    );
  }
  if (!object) return <PageFrame title={project.name} trail={trail}>{null}</PageFrame>;
  const tab = search.get("tab") ?? "devices";
  const content: Record<string, () => ReactElement> = {
    devices: () => <Devices project={project} />,
    commands: () => <Commands project={project} send={<ToolbarItem><span className="em-figure-below">Choose devices to send one.</span></ToolbarItem>} />,
    authorities: () => <Authorities project={project} />,
    settings: () => <Settings project={project} object={object} mayEdit={rights.may("update", "iotprojects")} />,
  };
  const deletion = {
    title: "Delete",
    danger: true,
    refused: rights.may("delete", "iotprojects") ? undefined : "You may not delete projects",
    run: () =>
      confirm({
        title: <>Delete the project <bdi>{project.name}</bdi>?</>,
        loses: "All its devices with their credentials, the commands that wait for them, and its addresses with what they store. Connected devices are disconnected.",
        action: "Delete",
        type: project.name,
        run: async () => {
          await remove(project.api);
          void navigate(`${space.to}/projects`);
        },
      }),
  };
  return (
    <PageFrame
      title={project.name}
      trail={trail}
      beside={
        <>
          {object.spec.configuration?.enabled === false && <Label isCompact color="orange">disabled</Label>}{" "}
          <Status phase={object.status?.phase} ready={object.status?.isReady} messages={object.status?.messages} />
        </>
      }
      actions={<ActionsMenu actions={[deletion]} />}
    >
      <Tabs activeKey={tab} onSelect={(_, key) => setSearch(key === "devices" ? {} : { tab: String(key) }, { replace: true })} aria-label="About the project">
        {[["devices", "Devices"], ...(rights.may("list", "commands") ? [["commands", "Commands"]] : []), ["authorities", "Authorities"], ["settings", "Settings"]].map(([key, title]) => (
          <Tab key={key!} eventKey={key!} title={<TabTitleText>{title}</TabTitleText>}>
            <div className="em-above">{tab === key && content[key!]?.()}</div>
          </Tab>
        ))}
      </Tabs>
    </PageFrame>
  );
}

/** Whether a device may come in, and is there. */
export function Presence({ enabled, connected }: { enabled: boolean; connected?: boolean }): ReactElement {
  const [look, text] = !enabled ? ["still", "disabled"] : connected ? ["good", "connected"] : ["waits", connected === undefined ? "not seen" : "away"];
  return <span className={`em-phase em-phase-${look}`}>{text}</span>;
}

/** The time at which a device was seen last. Its messages are not noted one by one: one that is connected is there now. */
export function LastSeen({ at, connected }: { at?: string; connected?: boolean }): ReactElement | null {
  if (!at) return null;
  return connected ? <span title={`Noted ${dateTime(at)}`}>now</span> : <span title={dateTime(at)}>{ago(at)}</span>;
}

function columnsOf(project: Project): Column<DeviceRow>[] {
  const through = (row: DeviceRow) => [...(row.via ?? []), ...(row.viaGroups ?? []).map((group) => `group ${group}`)].join(", ");
  return [
    { key: "id", title: "Device", cell: (row) => <Link to={path(`${project.to}/devices`, row.id)} className="em-wrap"><bdi>{row.id}</bdi></Link> },
    { key: "presence", title: "Status", sortable: false, cell: (row) => <Presence {...row} /> },
    { key: "lastSeen", title: "Last seen", sortable: false, brief: true, cell: (row) => <LastSeen at={row.lastSeen} connected={row.connected} /> },
    { key: "via", title: "Through", sortable: false, info: "The gateways that may act for it.", cell: (row) => through(row) && <span className="em-names">{through(row)}</span> },
    { key: "created", title: "Registered", sortable: false, brief: true, cell: (row) => row.created && <span title={dateTime(row.created)}>{ago(row.created)}</span> },
  ];
}

interface Failed {
  line: number;
  id?: string;
  error: string;
}

// What one request takes; passwords are hashed, which takes a tenth of a second each.
const MAX_LINES = 1000;
const MAX_HASHED = 100;
const MAX_CHARACTERS = 256 * 1024;

/** The lines of a file of devices in parts that one request takes, each with the number of its first line. */
function* partsOf(text: string, isCsv: boolean): Generator<{ first: number; body: string; isLast: boolean }> {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const head = isCsv ? lines.splice(0, 1) : [];
  let begin = 0;
  let size = 0;
  let hashed = 0;
  const part = (end: number) => ({ first: begin + 1, body: [...head, ...lines.slice(begin, end)].join("\n"), isLast: end === lines.length });
  for (const [index, line] of lines.entries()) {
    const plain = line.split('"pwd-plain"').length - 1;
    if (index > begin && (index - begin >= MAX_LINES || size + line.length > MAX_CHARACTERS || hashed + plain > MAX_HASHED)) {
      yield part(index);
      [begin, size, hashed] = [index, 0, 0];
    }
    size += line.length + 1;
    hashed += plain;
  }
  yield part(lines.length);
}

function Devices({ project }: { project: Project }): ReactElement {
  const confirm = useConfirm();
  const rights = useRights(project.space.namespace);
  const columns = useMemo(() => columnsOf(project), [project.to]);
  const [creating, setCreating] = useState(false);
  const [commanded, setCommanded] = useState<string[]>();
  const [note, setNote] = useState<{ title: string; failed: Failed[] }>();
  const [bringing, setBringing] = useState(false);
  const [error, setError] = useState<ApiError>();
  const file = useRef<HTMLInputElement>(null);
  const registry = registryOf(project.tenant);
  const mayCreate = rights.may("create", "devices");
  const mayUpdate = rights.may("update", "devices") ? undefined : "You may not change devices";
  const attempt = async (act: () => Promise<unknown>) => {
    setError(undefined);
    try {
      await act();
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  const enabling = (enabled: boolean): Action<DeviceRow> => ({
    title: enabled ? "Enable" : "Disable",
    refused: mayUpdate,
    run: (rows, done) => {
      const run = () => each(rows, (row) => changeDevice(registry.device(row.id), (device) => ({ ...device, enabled })));
      if (enabled) void attempt(() => run().then(done));
      else
        confirm({
          title: `Disable ${plural(rows.length, "device")}?`,
          loses: <><Listed names={rows.map((row) => row.id)} />: disconnected at once, and refused until enabled again.</>,
          action: "Disable",
          run: () => run().then(done),
        });
    },
  });
  const deletion: Action<DeviceRow> = {
    title: "Delete",
    danger: true,
    refused: rights.may("delete", "devices") ? undefined : "You may not delete devices",
    run: (rows, done) =>
      confirm({
        title: `Delete ${plural(rows.length, "device")}?`,
        loses: <><Listed names={rows.map((row) => row.id)} />: with their credentials and the commands that wait for them. Messages that they sent stay.</>,
        action: "Delete",
        run: async () => {
          await each(rows, (row) => remove(registry.device(row.id)));
          done();
        },
      }),
  };
  const commanding: Action<DeviceRow> = {
    title: "Send a command",
    refused: rights.may("create", "commands") ? undefined : "You may not send commands",
    run: (rows) => setCommanded(rows.map((row) => row.id)),
  };
  const bring = (given: File) =>
    attempt(async () => {
      const isCsv = given.name.endsWith(".csv");
      const contentType = isCsv ? "text/csv" : "application/x-ndjson";
      const failed: Failed[] = [];
      let created = 0;
      setBringing(true);
      try {
        for (const { first, body, isLast } of partsOf(await given.text(), isCsv)) {
          const { value } = await write<{ created: number; failed: Failed[] }>("POST", registry.import, { body, contentType });
          created += value.created;
          failed.push(...value.failed.map((item) => ({ ...item, line: first + item.line - 1 })));
          setNote({ title: `${plural(created, "device")} registered${isLast ? "" : " so far"}`, failed: [...failed] });
        }
      } finally {
        setBringing(false);
      }
    });
  const creation = (
    <Button icon={<PlusCircleIcon />} onClick={() => setCreating(true)} isAriaDisabled={!mayCreate} title={mayCreate ? undefined : "You may not register devices"}>
      Register a device
    </Button>
  );
  const importing = (
    <>
      <input ref={file} type="file" accept=".csv,.json,.jsonl,.ndjson" hidden aria-label="File of devices" onChange={(event) => { const given = event.target.files?.[0]; event.target.value = ""; if (given) void bring(given); }} />
      <Button variant="secondary" isAriaDisabled={!mayCreate || bringing} title="A device on each line, as JSON or CSV" onClick={() => file.current?.click()}>
        Import
      </Button>
    </>
  );
  return (
    <>
      {error && <Refusal error={error} />}
      {note && (
        <Alert isInline variant={note.failed.length ? "warning" : "success"} title={note.title} className="em-health" role="status">
          {note.failed.slice(0, 5).map((line) => <p key={line.line}>Line {line.line} {line.id && <bdi>({line.id})</bdi>}: {line.error}</p>)}
          {note.failed.length > 5 && <p>And {note.failed.length - 5} lines more.</p>}
        </Alert>
      )}
      <LiveTable<DeviceRow>
        label="Devices"
        noun="device"
        url={`${project.api}/rows/devices`}
        columns={columns}
        rowKey={(row) => row.id}
        filters={[{ key: "status", title: "Status", options: ["enabled", "disabled"] }]}
        rowActions={(row) => [commanding, enabling(!row.enabled), deletion]}
        bulkActions={[commanding, enabling(true), enabling(false), deletion]}
        toolbar={
          <ToolbarGroup>
            <ToolbarItem>{creation}</ToolbarItem>
            <ToolbarItem>{importing}</ToolbarItem>
            <ToolbarItem>
              <Button variant="link" onClick={() => void attempt(async () => download(`${project.tenant}.jsonl`, await (await fetchSignedIn(registry.export, { accept: "application/x-ndjson" })).blob()))}>
                Export
              </Button>
            </ToolbarItem>
          </ToolbarGroup>
        }
        empty={
          <Teach title="No device yet" actions={<>{creation}{importing}</>}>
            Only what is registered comes in. Register a device and give it a password; it then logs in as <code>ID@{project.tenant}</code> over MQTT,
            HTTP or AMQP.
          </Teach>
        }
      />
      {creating && <NewDevice project={project} close={() => setCreating(false)} />}
      {commanded && <SendCommand project={project} devices={commanded} close={() => setCommanded(undefined)} />}
    </>
  );
}

function NewDevice({ project, close }: { project: Project; close: () => void }): ReactElement {
  const navigate = useNavigate();
  const [id, setId] = useState("");
  const [password, setPassword] = useState("");
  const [via, setVia] = useState("");
  const [made, setMade] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const registry = registryOf(project.tenant);
  const gateways = via.split(/[\s,]+/).filter(Boolean);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      // What is made once stays when its password is refused.
      if (!made) await write("POST", registry.device(id), { body: gateways.length ? { via: gateways } : {} });
      setMade(true);
      if (password) await replace(registry.credentials(id), [{ type: "hashed-password", "auth-id": id, secrets: [{ "pwd-plain": password }] }], "");
      void navigate(path(`${project.to}/devices`, id));
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  const words = ["enmasse", "iot", "device", "create", project.tenant, id || "ID", ...gateways.flatMap((gateway) => ["--via", gateway])];
  const lines = [words.map(shell).join(" "), ...(password ? [["enmasse", "iot", "credentials", "create", project.tenant, id || "ID"].map(shell).join(" ")] : [])];
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby="device-title">
      <ModalHeader title="Register a device" labelId="device-title" />
      <ModalBody>
        <Form id="device-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="Id" fieldId="device-id" isRequired>
            <TextInput id="device-id" value={id} onChange={(_, value) => setId(value)} isRequired autoFocus autoComplete="off" isDisabled={made} />
          </FormGroup>
          <FormGroup label="Password" fieldId="device-password">
            <TextInput id="device-password" type="password" value={password} onChange={(_, value) => setPassword(value)} autoComplete="new-password" />
            <FormHelperText>
              <HelperText>
                <HelperTextItem>It is never shown again. Without one the device comes through a gateway, or gets credentials later.</HelperTextItem>
              </HelperText>
            </FormHelperText>
          </FormGroup>
          <FormGroup label="Gateways that may act for it" fieldId="device-via">
            <TextInput id="device-via" value={via} onChange={(_, value) => setVia(value)} autoComplete="off" placeholder="gateway-1 gateway-2" isDisabled={made} />
          </FormGroup>
        </Form>
        <CodeTabs label="What this amounts to" tabs={[{ name: "Command line", text: lines.join("\n") }]} />
        {error && <Refusal error={error} title={made ? "The device is registered, and its password was refused" : undefined} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="device-form" isLoading={busy} isDisabled={busy || !id}>
          Register
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}

const FIELDS: Field[] = [
  { path: "spec.configuration.registrationLimits.maximumDevices", label: "Registered devices at most", kind: "number" },
  { path: "spec.configuration.registrationLimits.maximumCredentialsPerDevice", label: "Credentials of each device at most", kind: "number" },
  { path: "spec.configuration.resourceLimits.maximumConnections", label: "Connections at a time at most", kind: "number" },
  { path: "spec.configuration.resourceLimits.maximumTimeToLive", label: "Events wait at most, in seconds", kind: "number" },
];

function Settings({ project, object, mayEdit }: { project: Project; object: IoTProject; mayEdit: boolean }): ReactElement {
  const { space, tenant } = project;
  const address = (name: string) => <Link to={path(`${space.to}/addresses`) + `?q=${encodeURIComponent(name)}`}>{name}</Link>;
  return (
    <>
      <Facts
        facts={[
          ["Tenant", <code>{tenant}</code>],
          ["Telemetry", address(`telemetry/${tenant}`)],
          ["Events", address(`event/${tenant}`)],
          ["Commands", address(`command/${tenant}`)],
          ["Answers of devices", address(`command_response/${tenant}`)],
          ["Questions of devices", address(`inquiry/${tenant}`)],
        ]}
      />
      <div className="em-above">
        <EditObject object={object} url={project.api} fields={FIELDS} refused={mayEdit ? undefined : "You may look at the settings, and not change them."} />
      </div>
    </>
  );
}
