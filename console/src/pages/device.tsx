// One device: whether it is there, what proves that it is the one, and what it is told.
import { Button, Card, CardBody, CardTitle, Form, FormGroup, FormHelperText, FormSelect, FormSelectOption, Grid, GridItem, HelperText, HelperTextItem, Modal, ModalBody, ModalFooter, ModalHeader, TextArea, TextInput, ToolbarItem } from "@patternfly/react-core";
import { Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type FormEvent, type ReactElement, useEffect, useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { query, remove } from "../api/client";
import { changeDevice, type Credential, type Device, type DeviceRow, read, registryOf, replace, type Versioned } from "../api/devices";
import { type ApiError, asApiError } from "../api/errors";
import { useGet, useLatest } from "../api/live";
import { useRights } from "../api/rights";
import type { RowList } from "../api/types";
import { CodeTabs } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { Facts } from "../parts/facts";
import { ago, dateTime } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { ActionsMenu } from "../parts/table";
import { Commands, type Project, SendCommand } from "./commands";
import { LastSeen, Presence, trailOf, useProject } from "./project";
import { LastReadings } from "./readings";

const KINDS: Record<string, string> = { "hashed-password": "password", "x509-cert": "client certificate", psk: "pre-shared key", rpk: "public key (tokens)" };
const NONE: Credential[] = [];

export default function DevicePage(): ReactElement {
  const { space, project, object, error: projectError } = useProject();
  const { device: id = "" } = useParams();
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const registry = registryOf(project.tenant);
  const { data: device, error, again } = useGet<Device>(object ? registry.device(id) : null);
  // The row follows the device, and says when what it has registered has to be read again.
  const rows = useLatest<RowList<DeviceRow & { updated?: string }>>(object ? query(`${project.api}/rows/devices`, { device: id, limit: 1 }) : null);
  const row = rows.data?.items[0];
  const sign = row && `${row.enabled} ${row.updated ?? ""} ${row.connected} ${row.lastSeen}`;
  useEffect(() => {
    if (sign !== undefined) again();
    // Asked for again when the row says that something is new.
    // eslint-disable-next-line
  }, [sign]);
  const [shown, setShown] = useState<Device>();
  useEffect(() => {
    if (device) setShown(device);
  }, [device]);
  const [dialog, setDialog] = useState<"command" | "gateways">();
  const trail = [...trailOf(project), { title: project.name, to: project.to }];
  if (object === null || error?.code === 404) {
    return (
      <PageFrame title={id} trail={trail}>
        <Teach title="There is no such device" actions={<Link to={object === null ? `${space.to}/projects` : project.to}>All devices</Link>}>It may have been deleted meanwhile.</Teach>
      </PageFrame>
    );
  }
  const failed = projectError ?? error;
  if (failed && !shown) return <PageFrame title={id} trail={trail}><Refusal error={failed} /></PageFrame>;
  if (!shown) return <PageFrame title={id} trail={trail}>{null}</PageFrame>;
  const enabled = shown.enabled !== false;
  const status = shown.status ?? {};
  const mayUpdate = rights.may("update", "devices") ? undefined : "You may not change devices";
  const change = (next: boolean) => changeDevice(registry.device(id), (found) => ({ ...found, enabled: next })).then(again);
  const actions = [
    { title: "How it connects", run: () => document.getElementById("connects")?.scrollIntoView() },
    { title: "Change its gateways", refused: mayUpdate, run: () => setDialog("gateways") },
    {
      title: enabled ? "Disable" : "Enable",
      refused: mayUpdate,
      run: () =>
        enabled
          ? confirm({ title: <>Disable <bdi>{id}</bdi>?</>, loses: "It is disconnected at once, and refused until it is enabled again.", action: "Disable", run: () => change(false) })
          : void change(true),
    },
    {
      title: "Delete",
      danger: true,
      refused: rights.may("delete", "devices") ? undefined : "You may not delete devices",
      run: () =>
        confirm({
          title: <>Delete <bdi>{id}</bdi>?</>,
          loses: "It is disconnected, and goes with its credentials and the commands that wait for it. Messages that it sent stay.",
          action: "Delete",
          run: async () => {
            await remove(registry.device(id));
            void navigate(project.to);
          },
        }),
    },
  ];
  const sending = (
    <Button variant="secondary" onClick={() => setDialog("command")} isAriaDisabled={!rights.may("create", "commands")} title={rights.may("create", "commands") ? undefined : "You may not send commands"}>
      Send a command
    </Button>
  );
  const seen = row?.lastSeen ?? status["last-seen"];
  return (
    <PageFrame
      title={id}
      trail={trail}
      beside={<Presence enabled={enabled} connected={row?.connected ?? status.connected} />}
      actions={<ActionsMenu actions={actions} />}
    >
      <Facts
        facts={[
          ["Last seen", seen && <LastSeen at={seen} connected={row?.connected ?? status.connected} />],
          ["Registered", status.created && <span title={dateTime(status.created)}>{ago(status.created)}</span>],
          ["Changed", status.updated && <span title={dateTime(status.updated)}>{ago(status.updated)}</span>],
          ["Through gateways", shown.via?.join(", ")],
          ["Through groups of gateways", shown.viaGroups?.join(", ")],
          ["Is a gateway of", shown.memberOf?.join(", ")],
          ["Its messages have", shown.defaults && <code>{JSON.stringify(shown.defaults)}</code>],
          ["Notes", shown.ext && <code>{JSON.stringify(shown.ext)}</code>],
        ]}
      />
      <div className="em-above"><LastReadings space={space} device={id} /></div>
      <Grid hasGutter className="em-above">
        <GridItem xl={7}>
          <Card isCompact isFullHeight>
            <CardTitle component="h2">Credentials</CardTitle>
            <CardBody>{rights.may("get", "credentials") ? <Credentials project={project} id={id} /> : <p className="em-total">You may not see which there are.</p>}</CardBody>
          </Card>
        </GridItem>
        <GridItem xl={5}>
          <Card isCompact isFullHeight>
            <CardTitle component="h2">Connections</CardTitle>
            <CardBody><Comings events={status["connection-events"] ?? []} /></CardBody>
          </Card>
        </GridItem>
      </Grid>
      {rights.may("list", "commands") && (
        <>
          <h2 className="em-above em-section">Commands</h2>
          <Commands project={project} device={id} send={<ToolbarItem>{sending}</ToolbarItem>} />
        </>
      )}
      <h2 className="em-above em-section" id="connects">How it connects</h2>
      <Connects project={project} id={id} />
      {dialog === "command" && <SendCommand project={project} devices={[id]} close={() => setDialog(undefined)} />}
      {dialog === "gateways" && <Gateways url={registry.device(id)} device={shown} close={() => { setDialog(undefined); again(); }} />}
    </PageFrame>
  );
}

function Comings({ events }: { events: { event: string; time: string }[] }): ReactElement {
  if (events.length === 0) return <p className="em-total">It has not connected since the service started.</p>;
  return (
    <Table aria-label="Connections" variant="compact" gridBreakPoint="">
      <Tbody>
        {[...events].reverse().map((item, index) => (
          <Tr key={index}>
            <Td><span className={`em-phase em-phase-${item.event === "connected" ? "good" : "waits"}`}>{item.event}</span></Td>
            <Td className="em-nowrap"><span title={dateTime(item.time)}>{ago(item.time)}</span></Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Credentials({ project, id }: { project: Project; id: string }): ReactElement {
  const confirm = useConfirm();
  const rights = useRights(project.space.namespace);
  const url = registryOf(project.tenant).credentials(id);
  const [found, setFound] = useState<Versioned<Credential[]>>();
  const [error, setError] = useState<ApiError>();
  const [adding, setAdding] = useState<Credential | "new">();
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let gone = false;
    read<Credential[]>(url).then(
      (value) => !gone && setFound(value),
      (caught: unknown) => !gone && setError(asApiError(caught)),
    );
    return () => {
      gone = true;
    };
  }, [url, turn]);
  const refused = rights.may("update", "credentials") ? undefined : "You may not change credentials";
  const all = found?.value ?? NONE;
  const save = async (next: Credential[]) => {
    await replace(url, next, found?.version ?? "");
    setTurn((before) => before + 1);
  };
  const button = (
    <Button size="sm" variant="secondary" isAriaDisabled={refused !== undefined} title={refused} onClick={() => setAdding("new")}>
      Add
    </Button>
  );
  return (
    <>
      {error && <Refusal error={error} />}
      {found && all.length === 0 && <p className="em-total">None: it comes through a gateway, or not at all.</p>}
      {all.length > 0 && (
        <Table aria-label="Credentials" variant="compact" gridBreakPoint="grid-md">
          <Thead>
            <Tr>
              <Th>Logs in as</Th>
              <Th>Proved by</Th>
              <Th>Valid</Th>
              <Th screenReaderText="Actions" />
            </Tr>
          </Thead>
          <Tbody>
            {all.map((one) => (
              <Tr key={`${one.type} ${one["auth-id"]}`}>
                <Td dataLabel="Logs in as" className="em-wrap"><bdi>{one["auth-id"]}</bdi></Td>
                <Td dataLabel="Proved by">{KINDS[one.type] ?? one.type}</Td>
                <Td dataLabel="Valid"><Validity one={one} /></Td>
                <Td isActionCell>
                  <ActionsMenu
                    label="Change"
                    actions={[
                      ...(one.type === "hashed-password" ? [{ title: "Set another password", refused, run: () => setAdding(one) }] : []),
                      { title: one.enabled === false ? "Enable" : "Disable", refused, run: () => void save(all.map((other) => (other === one ? { ...other, enabled: one.enabled === false } : other))).catch((caught: unknown) => setError(asApiError(caught))) },
                      {
                        title: "Take away",
                        danger: true,
                        refused,
                        run: () => confirm({ title: <>Take away the {KINDS[one.type]} of <bdi>{one["auth-id"]}</bdi>?</>, loses: "The device cannot log in with it any more, and is disconnected.", action: "Take away", run: () => save(all.filter((other) => other !== one)) }),
                      },
                    ]}
                  />
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
      {found && <p className="em-below">{button}</p>}
      {adding && <NewCredential id={id} former={adding === "new" ? undefined : adding} all={all} save={save} close={() => setAdding(undefined)} />}
    </>
  );
}

function Validity({ one }: { one: Credential }): ReactElement {
  if (one.enabled === false) return <>disabled</>;
  const ends = (one.secrets ?? []).filter((secret) => secret.enabled !== false).map((secret) => secret["not-after"]);
  const last = ends.includes(undefined) ? undefined : ends.filter((end) => end !== undefined).sort().at(-1);
  const count = one.secrets?.length ?? 0;
  return (
    <>
      {last === undefined ? "yes" : <span title={dateTime(last)}>until {dateTime(last)}</span>}
      {count > 1 && <div className="em-figure-below">{count} secrets</div>}
    </>
  );
}

function NewCredential(props: { id: string; former?: Credential; all: Credential[]; save: (all: Credential[]) => Promise<void>; close: () => void }): ReactElement {
  const { id, former, all, save, close } = props;
  const [type, setType] = useState(former?.type ?? "hashed-password");
  const [name, setName] = useState(former?.["auth-id"] ?? id);
  const [secret, setSecret] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const made: Credential =
        type === "x509-cert"
          ? secret.includes("BEGIN CERTIFICATE")
            ? { type, cert: secret.replace(/-----(BEGIN|END) CERTIFICATE-----|\s/g, "") }
            : { type, "auth-id": name, secrets: [{}] }
          : { type, "auth-id": name, secrets: [{ "pwd-plain": secret }] };
      await save(former ? all.map((one) => (one === former ? { ...former, secrets: made.secrets } : one)) : [...all, made]);
      close();
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="credential-title">
      <ModalHeader title={former ? `Another password for ${name}` : "Add credentials"} labelId="credential-title" />
      <ModalBody>
        <Form id="credential-form" onSubmit={(event) => void submit(event)}>
          {!former && (
            <>
              <FormGroup label="Proved by" fieldId="credential-type">
                <FormSelect id="credential-type" value={type} onChange={(_, value) => setType(value)}>
                  <FormSelectOption value="hashed-password" label="a password" />
                  <FormSelectOption value="x509-cert" label="a client certificate" />
                </FormSelect>
              </FormGroup>
              <FormGroup label={type === "x509-cert" ? "Subject of the certificate" : "Logs in as"} fieldId="credential-name">
                <TextInput id="credential-name" value={name} onChange={(_, value) => setName(value)} autoComplete="off" />
              </FormGroup>
            </>
          )}
          {type === "hashed-password" ? (
            <FormGroup label="Password" fieldId="credential-secret" isRequired>
              <TextInput id="credential-secret" type="password" value={secret} onChange={(_, value) => setSecret(value)} isRequired autoFocus={former !== undefined} autoComplete="new-password" />
              <FormHelperText>
                <HelperText>
                  <HelperTextItem>It is never shown again.{former && " The former one is worthless at once."}</HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
          ) : (
            <FormGroup label="Or the certificate itself, as PEM" fieldId="credential-secret">
              <TextArea id="credential-secret" value={secret} onChange={(_, value) => setSecret(value)} resizeOrientation="vertical" className="em-yaml" />
            </FormGroup>
          )}
        </Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="credential-form" isLoading={busy} isDisabled={busy || (type === "hashed-password" && !secret)}>
          Save
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}

function Gateways({ url, device, close }: { url: string; device: Device; close: () => void }): ReactElement {
  const [via, setVia] = useState((device.via ?? []).join(" "));
  const [error, setError] = useState<ApiError>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      await changeDevice(url, ({ via: _, ...rest }) => {
        const gateways = via.split(/[\s,]+/).filter(Boolean);
        return gateways.length ? { ...rest, via: gateways } : rest;
      });
      close();
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <Modal isOpen variant="small" onClose={close} aria-labelledby="gateways-title">
      <ModalHeader title="Gateways that may act for it" labelId="gateways-title" />
      <ModalBody>
        <Form id="gateways-form" onSubmit={(event) => void submit(event)}>
          <FormGroup label="Ids of devices, divided by spaces" fieldId="gateways-via">
            <TextInput id="gateways-via" value={via} onChange={(_, value) => setVia(value)} autoComplete="off" autoFocus />
          </FormGroup>
        </Form>
        {error && <Refusal error={error} />}
      </ModalBody>
      <ModalFooter>
        <Button type="submit" form="gateways-form">
          Save
        </Button>
        <Button variant="link" onClick={close}>
          Cancel
        </Button>
      </ModalFooter>
    </Modal>
  );
}

function Connects({ project, id }: { project: Project; id: string }): ReactElement {
  const who = `${id}@${project.tenant}`;
  return (
    <CodeTabs
      label="Programs"
      tabs={[
        { name: "MQTT", text: `mosquitto_pub -h localhost -p 1883 -q 1 -u '${who}' -P "$PASSWORD" -t telemetry -m '{"temperature": 21.5}'\nmosquitto_sub -h localhost -p 1883 -u '${who}' -P "$PASSWORD" -t 'command///req/#' -v` },
        { name: "HTTP", text: `curl -u "${who}:$PASSWORD" --json '{"temperature": 21.5}' 'http://localhost:8081/telemetry?hono-ttd=30'` },
        { name: "Simulated", text: `enmasse iot simulate ${project.tenant} -n 10` },
      ]}
    />
  );
}
