// The messages of an address: looked at without taking them, followed as they come, sent, taken, purged, moved, sent back.
import { Alert, Button, Card, CardBody, CardTitle, Checkbox, Form, FormGroup, Label, TextArea, TextInput, Toolbar, ToolbarContent, ToolbarItem } from "@patternfly/react-core";
import { ExpandableRowContent, Table, Tbody, Td, Th, Thead, Tr } from "@patternfly/react-table";
import { type ReactElement, useEffect, useState } from "react";
import { useParams, useSearchParams } from "react-router";
import { create, get, lines, path, query } from "../api/client";
import { type ApiError, asApiError, type Status } from "../api/errors";
import { keepReading, useGet, useObject } from "../api/live";
import { useRights } from "../api/rights";
import type { Address, Objects, WatchEvent } from "../api/types";
import { useSpace } from "../app/space";
import { tourSees, useTourShows } from "../app/tour";
import { Code } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { Facts } from "../parts/facts";
import { bytes, dateTime, plural } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { type Action, ActionsMenu } from "../parts/table";

interface Body {
  form: string;
  text?: string;
  value?: unknown;
  hex?: string;
  bytes: number;
  truncated: boolean;
}

interface Message {
  id?: string;
  offset?: number;
  partition?: number;
  time?: string;
  bytes: number;
  durable?: boolean;
  priority?: number;
  ttl?: number;
  deliveryCount?: number;
  properties?: Record<string, unknown>;
  applicationProperties?: Record<string, unknown>;
  annotations?: Record<string, unknown>;
  reason?: string;
  from?: string;
  body?: Body;
}

const STORES = new Set(["queue", "subscription", "deadletter", "stream"]);
const TAKES = new Set(["queue", "subscription", "deadletter", "anycast", "multicast", "topic"]);
const KEPT = 200;

function textOf(body: Body | undefined): string {
  if (!body) return "";
  if (body.text !== undefined) return body.text;
  if (body.hex !== undefined) return body.hex.replace(/(..)(?=.)/g, "$1 ");
  return JSON.stringify(body.value, undefined, 2);
}

const START = 160;

/** The first letters, for a row. */
function startOf(body: Body | undefined): string {
  return textOf(body?.hex === undefined ? body : { ...body, hex: body.hex.slice(0, START) }).slice(0, START);
}

const BYTES_A_LINE = 16;

/** Bytes as hex editors show them: where they are, what they are, and the letters among them. */
function hexOf(hex: string): string {
  const lines: string[] = [];
  for (let at = 0; at < hex.length; at += 2 * BYTES_A_LINE) {
    const bytes = hex.slice(at, at + 2 * BYTES_A_LINE).match(/../g) ?? [];
    const letters = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 0x20 && code < 0x7f ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(8, "0")}  ${bytes.join(" ").padEnd(3 * BYTES_A_LINE)} ${letters.join("")}`);
  }
  return lines.join("\n");
}

function shown(body: Body | undefined): string {
  if (body?.hex !== undefined && body.text === undefined) return hexOf(body.hex);
  const text = textOf(body);
  if (body?.form !== "json" || body.truncated) return text;
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

export default function MessagesPage(): ReactElement {
  const space = useSpace();
  const { name = "" } = useParams();
  const rights = useRights(space.namespace);
  const confirm = useConfirm();
  const [search, setSearch] = useSearchParams();
  const { data: address, error } = useObject<Address>(`${space.inNamespace}/addresses`, name);
  const [page, setPage] = useState("");
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [done, setDone] = useState("");
  const url = path(`${space.inNamespace}/addresses`, name);
  const type = address?.spec.type ?? "";
  useTourShows(address?.spec.type);
  const given = (key: string) => search.get(key) ?? "";
  const filter = { search: given("search"), selector: given("selector"), offset: given("offset"), time: given("time") };
  const following = given("follow") === "1" || (type !== "" && !STORES.has(type));
  const set = (key: string, value: string) => {
    setPage("");
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value) next.set(key, value);
        else next.delete(key);
        return next;
      },
      { replace: true },
    );
  };
  const list = useGet<Objects<Message>>(address && !following ? query(`${url}/messages`, page ? { continue: page, search: filter.search, selector: filter.selector } : { ...filter }) : null);
  const title = `Messages of ${address?.spec.address ?? name}`;
  const trail = [
    { title: space.name, to: `${space.to}/addresses` },
    { title: address?.spec.address ?? name, to: path(`${space.to}/addresses`, name) },
  ];
  if (!address) return <PageFrame title={title} trail={trail}>{error ? <Refusal error={error} /> : address === null ? <Teach title="There is no such address">It may have been deleted meanwhile.</Teach> : null}</PageFrame>;

  /** Counts first, then asks, then acts on what was chosen, or on what selector and text leave. */
  const act = (verb: "purge" | "replay" | "move", loses: string, arguments_: Record<string, unknown> = {}) => async () => {
    const body = { ...arguments_, ...(chosen.size ? { ids: [...chosen] } : { selector: filter.selector || undefined, search: filter.search || undefined }) };
    setDone("");
    try {
      const dry = await create<Status>(query(`${url}/${verb}`, { dryRun: "All" }), body);
      const number = plural(dry.details?.count ?? 0, "message");
      confirm({
        title: `${verb[0]!.toUpperCase()}${verb.slice(1)} ${number}?`,
        loses: `${number} of ${address.spec.address} ${loses}`,
        action: verb[0]!.toUpperCase() + verb.slice(1),
        run: async () => {
          setDone((await create<Status>(`${url}/${verb}`, body)).message ?? "");
          setChosen(new Set());
          list.again();
        },
      });
    } catch (caught) {
      setDone(asApiError(caught).message);
    }
  };
  const subject = chosen.size ? `the ${chosen.size} chosen` : filter.selector || filter.search ? "what the filter leaves" : "all";
  const may = (verb: string) => (rights.may("create", `addresses/${verb}`) ? undefined : `You may not ${verb} messages here`);
  const actions: Action<undefined>[] = [
    ...(type === "deadletter" ? [{ title: `Replay ${subject}`, refused: may("replay"), run: () => void act("replay", "are sent back to the addresses they came from.")() }] : []),
    ...(type === "queue" || type === "subscription" || type === "deadletter"
      ? [
          { title: `Move ${subject}`, refused: given("to") ? may("move") : "Say first where to, below", run: () => void act("move", `are moved to ${given("to")}.`, { to: given("to") })() },
          { title: `Purge ${subject}`, danger: true, refused: may("purge"), run: () => void act("purge", "are deleted. This cannot be undone.")() },
        ]
      : []),
  ];
  const messages = list.data?.items ?? [];
  return (
    <PageFrame title={title} trail={trail} actions={actions.length ? <ActionsMenu actions={actions} /> : undefined} about="Looking takes nothing away.">
      {done && <Alert isInline variant="info" title={done} role="status" />}
      <Toolbar inset={{ default: "insetNone" }}>
        <ToolbarContent>
          <ToolbarItem><TextInput aria-label="Text in the message" placeholder="Text in it" value={filter.search} onChange={(_, value) => set("search", value)} /></ToolbarItem>
          {type !== "stream" && <ToolbarItem><TextInput aria-label="Selector" placeholder="Selector, as size > 3" defaultValue={filter.selector} onBlur={(event) => set("selector", event.target.value)} onKeyDown={(event) => event.key === "Enter" && set("selector", event.currentTarget.value)} /></ToolbarItem>}
          {type === "stream" && <ToolbarItem><TextInput aria-label="From offset" placeholder="From offset" type="number" min={0} value={filter.offset} isDisabled={filter.time !== ""} onChange={(_, value) => set("offset", value)} /></ToolbarItem>}
          {type === "stream" && <ToolbarItem><TextInput aria-label="From time" type="datetime-local" step={1} isDisabled={filter.offset !== ""} onChange={(_, value) => set("time", value ? new Date(value).toISOString() : "")} /></ToolbarItem>}
          {actions.length > 0 && <ToolbarItem><TextInput aria-label="Move to" placeholder="Address to move to" value={given("to")} onChange={(_, value) => set("to", value)} /></ToolbarItem>}
          {STORES.has(type) && <ToolbarItem alignSelf="center"><Checkbox id="follow" label="Follow what comes" isChecked={following} onChange={(_, on) => set("follow", on ? "1" : "")} /></ToolbarItem>}
          {!following && <ToolbarItem><Button variant="secondary" onClick={list.again}>Look again</Button></ToolbarItem>}
        </ToolbarContent>
      </Toolbar>
      {list.error && <Refusal error={list.error} />}
      {following ? (
        <Following url={query(`${url}/messages`, { search: filter.search, selector: filter.selector })} />
      ) : list.data && messages.length === 0 ? (
        <Teach title="No message here">Send one below, or have an application send one; it stays here until somebody takes it.</Teach>
      ) : (
        <Messages url={url} messages={messages} chosen={actions.length ? chosen : undefined} choose={setChosen} />
      )}
      {list.data?.metadata.continue && !following && <Button variant="link" onClick={() => setPage(list.data?.metadata.continue ?? "")}>Next page</Button>}
      {page && <Button variant="link" onClick={() => setPage("")}>First page</Button>}
      <Try url={url} takes={TAKES.has(type)} sends={type !== "subscription"} maySend={rights.may("create", "addresses/messages")} mayTake={rights.may("create", "addresses/receive")} sent={list.again} />
    </PageFrame>
  );
}

function Messages({ url, messages, chosen, choose }: { url: string; messages: Message[]; chosen?: Set<string>; choose?: (next: Set<string>) => void }): ReactElement {
  const [open, setOpen] = useState<string>();
  return (
    <Table aria-label="Messages" variant="compact" gridBreakPoint="grid-md">
      <Thead>
        <Tr>
          <Th screenReaderText="Details" />
          {chosen && <Th screenReaderText="Choose" />}
          <Th>Time</Th>
          <Th>Body</Th>
          <Th>Form</Th>
          <Th>Size</Th>
          <Th>Why it is here</Th>
        </Tr>
      </Thead>
      {messages.map((message, index) => {
        const key = message.id ?? String(index);
        const isOpen = open === key;
        return (
          <Tbody key={key} isExpanded={isOpen}>
            <Tr>
              <Td expand={{ rowIndex: index, isExpanded: isOpen, onToggle: () => setOpen(isOpen ? undefined : key) }} />
              {chosen && choose && (
                <Td
                  select={{
                    rowIndex: index,
                    isSelected: chosen.has(key),
                    onSelect: (_, on) => {
                      const next = new Set(chosen);
                      if (on) next.add(key);
                      else next.delete(key);
                      choose(next);
                    },
                  }}
                />
              )}
              <Td dataLabel="Time">{dateTime(message.time)}{message.offset !== undefined && <div className="em-figure-below">offset {message.offset}, partition {message.partition}</div>}</Td>
              <Td dataLabel="Body" className="em-wrap"><bdi>{startOf(message.body)}</bdi></Td>
              <Td dataLabel="Form"><Label isCompact>{message.body?.form}</Label></Td>
              <Td dataLabel="Size" className="em-nowrap">{bytes(message.bytes)}</Td>
              <Td dataLabel="Why it is here">{message.reason && <>{message.reason}, from <bdi>{message.from}</bdi></>}</Td>
            </Tr>
            {isOpen && (
              <Tr isExpanded>
                <Td colSpan={chosen ? 7 : 6}><ExpandableRowContent><Details url={url} message={message} /></ExpandableRowContent></Td>
              </Tr>
            )}
          </Tbody>
        );
      })}
    </Table>
  );
}

function Details({ url, message }: { url: string; message: Message }): ReactElement {
  const [whole, setWhole] = useState<Message>();
  const [error, setError] = useState<ApiError>();
  const { body } = whole ?? message;
  const rest = (values: Record<string, unknown> | undefined): [string, string][] => Object.entries(values ?? {}).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
  const read = () =>
    get<Objects<Message>>(query(`${url}/messages`, { id: message.id, whole: true })).then(({ items }) => setWhole(items[0]), (caught: unknown) => setError(asApiError(caught)));
  return (
    <>
      <Facts facts={[["Id", message.id], ["Durable", message.durable ? "yes" : "no"], ["Priority", message.priority], ["Deliveries before", message.deliveryCount], ...rest(message.properties)]} />
      {message.applicationProperties && Object.keys(message.applicationProperties).length > 0 && <><h3 className="em-above em-section">Application properties</h3><Facts facts={rest(message.applicationProperties)} /></>}
      {message.annotations && Object.keys(message.annotations).length > 0 && <><h3 className="em-above em-section">Annotations</h3><Facts facts={rest(message.annotations)} /></>}
      <div className="em-above"><Code text={shown(body)} /></div>
      {error && <Refusal error={error} />}
      {body?.truncated && <p>The first part of {bytes(body.bytes)}. <Button variant="link" isInline onClick={() => void read()}>Show more</Button></p>}
    </>
  );
}

/** What comes from now on, the newest first. */
function Following({ url }: { url: string }): ReactElement {
  const [messages, setMessages] = useState<Message[]>([]);
  const [error, setError] = useState<ApiError>();
  const [begun, setBegun] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    setMessages([]);
    void keepReading(
      async (signal, received) => {
        for await (const { type, object } of lines<WatchEvent<Message & { metadata: never }>>(query(url, { watch: true }), signal)) {
          received();
          setBegun(true);
          setError(undefined);
          if (type === "ADDED") setMessages((before) => [object, ...before].slice(0, KEPT));
        }
      },
      stop.signal,
      setError,
    );
    return () => stop.abort();
  }, [url]);
  return (
    <>
      {error && <Refusal error={error} />}
      <p role="status" className="em-total">{begun ? `Following: ${plural(messages.length, "message")} came; the last ${KEPT} are kept.` : "Connecting …"}</p>
      <Messages url={url.split("/messages")[0]!} messages={messages} />
    </>
  );
}

/** Sends and takes messages by the person's own rights. */
function Try(props: { url: string; takes: boolean; sends: boolean; maySend: boolean; mayTake: boolean; sent: () => void }): ReactElement {
  const [body, setBody] = useState("");
  const [contentType, setContentType] = useState("");
  const [durable, setDurable] = useState(true);
  const [said, setSaid] = useState("");
  const [taken, setTaken] = useState<Message[]>();
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  const run = async (what: () => Promise<void>) => {
    setBusy(true);
    setError(undefined);
    setSaid("");
    await what().catch((caught: unknown) => setError(asApiError(caught)));
    setBusy(false);
  };
  const send = () =>
    run(async () => {
      const message = { body, durable, ...(contentType ? { contentType } : {}) };
      const { items } = await create<{ items: { outcome: string; description?: string }[] }>(`${props.url}/messages`, { messages: [message] });
      setSaid(items.map((item) => [item.outcome, item.description].filter(Boolean).join(": ")).join(", "));
      props.sent();
      if (items.every((item) => item.outcome === "accepted")) tourSees("sent");
    });
  const take = () =>
    run(async () => {
      const { items } = await create<Objects<Message>>(`${props.url}/receive`, { limit: 1, waitSeconds: 5 });
      setTaken(items);
      props.sent();
      if (items.length) tourSees("received");
    });
  return (
    <Card isCompact className="em-above">
      <CardTitle component="h2">Try it</CardTitle>
      <CardBody>
        {props.sends && (
          <Form onSubmit={(event) => { event.preventDefault(); void send(); }}>
            <FormGroup label="Body" fieldId="try-body"><TextArea id="try-body" value={body} onChange={(_, value) => setBody(value)} rows={3} /></FormGroup>
            <FormGroup label="Content type" fieldId="try-type"><TextInput id="try-type" value={contentType} onChange={(_, value) => setContentType(value)} placeholder="as application/json" /></FormGroup>
            <Checkbox id="try-durable" label="Durable" isChecked={durable} onChange={(_, on) => setDurable(on)} />
          </Form>
        )}
        <div className="em-above">
          {props.sends && <Button className="em-beside" data-tour="send" isDisabled={busy || !props.maySend} title={props.maySend ? undefined : "You may not send here"} onClick={() => void send()}>Send</Button>}
          {props.takes && <Button variant="secondary" data-tour="take" isDisabled={busy || !props.mayTake} title={props.mayTake ? undefined : "You may not take messages here"} onClick={() => void take()}>Take one</Button>}
        </div>
        {said && <p role="status">The message was {said}.</p>}
        {error && <Refusal error={error} />}
        {taken && (taken.length ? <Messages url={props.url} messages={taken} /> : <p role="status">Nothing came within 5 seconds.</p>)}
      </CardBody>
    </Card>
  );
}
