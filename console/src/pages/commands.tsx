// Commands to devices: those that were sent, and a form that sends another one.
import { Alert, Button, Checkbox, Form, FormGroup, FormHelperText, FormSelect, FormSelectOption, HelperText, HelperTextItem, Modal, ModalBody, ModalFooter, ModalHeader, TextArea, TextInput } from "@patternfly/react-core";
import { type FormEvent, type ReactElement, useMemo, useState } from "react";
import { Link } from "react-router";
import { each, path, query, remove } from "../api/client";
import { command, COMMAND_STATES, type CommandRequest, type CommandRow, registryOf } from "../api/devices";
import { type ApiError, asApiError } from "../api/errors";
import { useRights } from "../api/rights";
import type { Space } from "../app/space";
import { CodeTabs, shell } from "../parts/code";
import { Listed, useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { ago, count, dateTime, plural } from "../parts/format";
import { Refusal } from "../parts/problem";
import { type Action, type Column, LiveTable } from "../parts/table";

/** A project, as its pages know it. */
export interface Project {
  space: Space;
  name: string;
  tenant: string;
  /** Its page, and its path at the API. */
  to: string;
  api: string;
}

export function projectOf(space: Space, name: string, api: string): Project {
  return { space, name, tenant: `${space.namespace}.${name}`, to: path(`${space.to}/projects`, name), api };
}

const WAITS_S = 10;
const GOOD = new Set(["accepted"]);
const WAITS = new Set(["queued", "delivered"]);

function State({ row }: { row: CommandRow }): ReactElement {
  const look = GOOD.has(row.state) ? "good" : WAITS.has(row.state) ? "waits" : "bad";
  return (
    <>
      <span className={`em-phase em-phase-${look}`}>{row.state}</span>
      {row.reason && <div className="em-figure-below em-wrap">{row.reason}</div>}
    </>
  );
}

const iso = (ms: number) => new Date(ms).toISOString();

function columnsOf(project: Project, device: string | undefined): Column<CommandRow>[] {
  const all: Column<CommandRow>[] = [
    {
      key: "name",
      title: "Command",
      sortable: false,
      cell: (row) => (
        <>
          <bdi className="em-wrap">{row.name}</bdi>
          {row.payload && <div className="em-figure-below em-wrap">{row.payload.slice(0, 80)}</div>}
        </>
      ),
    },
    { key: "device", title: "Device", sortable: false, cell: (row) => <Link to={path(`${project.to}/devices`, row.device)} className="em-wrap">{row.device}</Link> },
    { key: "state", title: "State", sortable: false, cell: (row) => <State row={row} /> },
    { key: "response", title: "Answer", sortable: false, cell: (row) => row.response && <span className="em-wrap">{row.response.status} {row.response.payload?.slice(0, 80)}</span> },
    { key: "attempts", title: "Attempts", sortable: false, number: true, cell: (row) => count(row.attempts) },
    { key: "created", title: "Sent", sortable: false, brief: true, cell: (row) => <span title={dateTime(iso(row.created))}>{ago(iso(row.created))}</span> },
    { key: "expires", title: "Expires", sortable: false, brief: true, info: "When it is given up, if the device has not come by then.", cell: (row) => WAITS.has(row.state) && <span title={dateTime(iso(row.expires))}>{ago(iso(row.expires))}</span> },
  ];
  return all.filter((column) => device === undefined || column.key !== "device");
}

export function Commands({ project, device, send }: { project: Project; device?: string; send: ReactElement }): ReactElement {
  const confirm = useConfirm();
  const rights = useRights(project.space.namespace);
  const columns = useMemo(() => columnsOf(project, device), [project.to, device]);
  const cancelling: Action<CommandRow> = {
    title: "Cancel",
    danger: true,
    refused: rights.may("delete", "commands") ? undefined : "You may not cancel commands",
    run: (rows, done) =>
      confirm({
        title: `Cancel ${plural(rows.length, "command")}?`,
        loses: <><Listed names={rows.map((row) => `${row.name} to ${row.device}`)} />: what has not been delivered yet never will be.</>,
        action: "Cancel them",
        run: async () => {
          await each(rows, (row) => remove(registryOf(project.tenant).commands(row.id)));
          done();
        },
      }),
  };
  return (
    <LiveTable<CommandRow>
      label="Commands"
      noun="command"
      searchLabel="Find commands by device"
      url={query(`${project.api}/rows/commands`, { device })}
      columns={columns}
      rowKey={(row) => row.id}
      filters={[{ key: "status", title: "State", options: COMMAND_STATES }]}
      rowActions={(row) => (row.state === "queued" ? [cancelling] : [{ ...cancelling, refused: "It waits no more" }])}
      bulkActions={[cancelling]}
      prefix="c."
      toolbar={send}
      empty={
        <Teach title="No command yet" actions={send}>
          A stored command waits until its device listens, over whatever protocol it comes, and is given up when its time is over. A direct
          one is delivered now or not at all.
        </Teach>
      }
    />
  );
}

function commandLine(project: Project, devices: string[], request: CommandRequest, wait: number): string {
  const words = ["enmasse", "iot", "command", "send", project.tenant, request.name || "NAME"];
  for (const device of devices) words.push("--device", device);
  if (request.payload) words.push("--payload", request.payload);
  if (request.mode === "direct") words.push("--now", ...(wait ? ["--wait", String(wait)] : []));
  else if (request["response-required"]) words.push("--answer");
  if (request.ttl) words.push("--ttl", String(request.ttl));
  if (request["supersede-key"]) words.push("--supersede", request["supersede-key"]);
  return words.map(shell).join(" ");
}

/** A form that sends a command to one device or to several. */
export function SendCommand({ project, devices, close }: { project: Project; devices: string[]; close: () => void }): ReactElement {
  const [name, setName] = useState("");
  const [payload, setPayload] = useState("");
  const [mode, setMode] = useState<"stored" | "direct">("stored");
  const [ttl, setTtl] = useState("3600");
  const [key, setKey] = useState("");
  const [answers, setAnswers] = useState(false);
  const [told, setTold] = useState<{ title: string; text?: string }>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const [one] = devices;
  const single = devices.length === 1 && one !== undefined;
  const stored = mode === "stored" || !single;
  const request: CommandRequest = {
    name,
    ...(payload ? { payload } : {}),
    mode: stored ? "stored" : "direct",
    ...(stored && Number(ttl) > 0 ? { ttl: Number(ttl) } : {}),
    ...(stored && key ? { "supersede-key": key } : {}),
    ...(answers ? { "response-required": true } : {}),
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    setTold(undefined);
    try {
      const { commands } = registryOf(project.tenant);
      const answer = single ? await command(commands(one), request, answers ? WAITS_S : 0) : await command(commands(), { ...request, devices }, 0);
      if (stored) setTold({ title: single ? "It waits for the device" : `It waits for ${plural(answer.devices ?? devices.length, "device")}` });
      else setTold({ title: answers ? `The device answered ${answer.status ?? ""}` : "The device has it", text: answer.payload });
    } catch (caught) {
      setError(asApiError(caught));
    }
    setBusy(false);
  };
  return (
    <Modal isOpen variant="medium" onClose={close} aria-labelledby="command-title">
      <ModalHeader title={single ? `Send a command to ${one}` : `Send a command to ${plural(devices.length, "device")}`} labelId="command-title" />
      <ModalBody>
        <Form id="command-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="Command" fieldId="command-name" isRequired>
            <TextInput id="command-name" value={name} onChange={(_, value) => setName(value)} isRequired autoFocus autoComplete="off" placeholder="reboot" />
          </FormGroup>
          <FormGroup label="Payload" fieldId="command-payload">
            <TextArea id="command-payload" value={payload} onChange={(_, value) => setPayload(value)} resizeOrientation="vertical" placeholder='{"level": 3}' />
          </FormGroup>
          {single && (
            <FormGroup label="If the device does not listen now" fieldId="command-mode">
              <FormSelect id="command-mode" value={mode} onChange={(_, value) => setMode(value as "stored" | "direct")}>
                <FormSelectOption value="stored" label="it waits" />
                <FormSelectOption value="direct" label="it is not sent" />
              </FormSelect>
            </FormGroup>
          )}
          {stored && (
            <>
              <FormGroup label="Expires after, in seconds" fieldId="command-ttl">
                <TextInput id="command-ttl" type="number" min={1} value={ttl} onChange={(_, value) => setTtl(value)} />
              </FormGroup>
              <FormGroup label="Takes the place of commands with the key" fieldId="command-key">
                <TextInput id="command-key" value={key} onChange={(_, value) => setKey(value)} autoComplete="off" />
                <FormHelperText>
                  <HelperText>
                    <HelperTextItem>Of those that wait for the same device with the same key, only the latest is delivered.</HelperTextItem>
                  </HelperText>
                </FormHelperText>
              </FormGroup>
            </>
          )}
          <Checkbox id="command-answer" label="The device has to answer" isChecked={answers} onChange={(_, on) => setAnswers(on)} />
        </Form>
        <CodeTabs
          label="What this amounts to"
          tabs={[
            { name: "Command line", text: commandLine(project, devices, request, answers ? WAITS_S : 0) },
            { name: "HTTP", text: `POST ${registryOf(project.tenant).commands(single ? one : undefined)}\n\n${JSON.stringify(single ? request : { ...request, devices }, null, 2)}` },
          ]}
        />
        {told && (
          <Alert isInline variant="success" title={told.title} className="em-above" role="status">
            {told.text && <code className="em-wrap">{told.text}</code>}
          </Alert>
        )}
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="command-form" isLoading={busy} isDisabled={busy || !name}>
          Send
        </Button>
        <Button variant="link" onClick={close}>
          Done
        </Button>
      </ModalFooter>
    </Modal>
  );
}
