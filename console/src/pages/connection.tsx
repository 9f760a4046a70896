import { Button, Card, CardBody, Switch, Tab, Tabs, TabTitleText, Toolbar, ToolbarContent, ToolbarItem } from "@patternfly/react-core";
import { type ReactElement, useEffect, useRef, useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { lines, path, query } from "../api/client";
import { type ApiError, asApiError } from "../api/errors";
import { useLatest, useSeries } from "../api/live";
import { useRights } from "../api/rights";
import type { ConnectionRow, LinkRow, RowList } from "../api/types";
import { type Space, useSpace } from "../app/space";
import { Chart, type Line } from "../parts/chart";
import { download } from "../parts/code";
import { useConfirm } from "../parts/confirm";
import { Teach } from "../parts/empty";
import { Facts } from "../parts/facts";
import { dateTime, rate } from "../parts/format";
import { PageFrame } from "../parts/frame";
import { Refusal } from "../parts/problem";
import { LiveTable } from "../parts/table";
import { linkColumns } from "./address";
import { closingOf, Protocol } from "./connections";

export default function ConnectionPage(): ReactElement {
  const space = useSpace();
  const { connection = "" } = useParams();
  const navigate = useNavigate();
  const confirm = useConfirm();
  const rights = useRights(space.namespace);
  const [search, setSearch] = useSearchParams();
  const { data, error } = useLatest<RowList<ConnectionRow>>(query(`${space.api}/rows/connections`, { search: connection, limit: 50 }));
  const row = data?.items.find((item) => item.name === connection);
  const all = `${space.to}/connections`;
  const tab = search.get("tab") ?? "links";
  const mayClose = rights.may("delete", "addressspaces/connections");
  return (
    <PageFrame
      title={row?.containerId || connection}
      trail={[{ title: "Spaces", to: "/spaces" }, { title: space.name, to: `${space.to}/addresses` }, { title: "Connections", to: all }]}
      actions={
        row && (
          <Button variant="danger" isAriaDisabled={!mayClose} title={mayClose ? undefined : "You may not close connections"} onClick={() => confirm(closingOf(space, [row], () => void navigate(all)))}>
            Close
          </Button>
        )
      }
    >
      {error && <Refusal error={error} />}
      {data && !row && <Teach title="It is not connected (any more)" actions={<Link to={all}>All connections</Link>}>Clients that connect again do so under another name.</Teach>}
      {row && (
        <>
          <Card isCompact>
            <CardBody>
              <Facts
                facts={[
                  ["Container ID", row.containerId && <bdi key="container" className="em-wrap">{row.containerId}</bdi>],
                  ["Host", row.host],
                  ["By way of", row.via],
                  ["User", row.user],
                  ["Login", row.mechanism],
                  ["Protocol", <Protocol key="protocol" row={row} />],
                  ["Opened", dateTime(row.opened)],
                  ["In / out", `${rate(row.messagesIn)} / ${rate(row.messagesOut)} messages a second`],
                  ["Not read", row.notRead],
                  ["TLS", row.tls === "" ? "none: in the clear" : row.tls?.replace(" ", ", ")],
                  ["Program", row.properties?.product],
                  ["Version", row.properties?.version],
                  ["Platform", row.properties?.platform],
                ]}
              />
            </CardBody>
          </Card>
          <Tabs className="em-above" activeKey={tab} onSelect={(_, key) => setSearch(key === "links" ? {} : { tab: String(key) }, { replace: true })} aria-label="About the connection">
            <Tab eventKey="links" title={<TabTitleText>Links</TabTitleText>} />
            <Tab eventKey="hour" title={<TabTitleText>Last hour</TabTitleText>} />
            <Tab eventKey="trace" title={<TabTitleText>Trace</TabTitleText>} />
          </Tabs>
          <div className="em-above">
            {tab === "hour" ? (
              <Hour space={space} connection={connection} />
            ) : tab === "links" ? (
              <LiveTable<LinkRow>
                label="Links"
                noun="link"
                url={query(`${space.api}/rows/links`, { connection })}
                columns={linkColumns(space, "connection")}
                sort="name"
                rowKey={(link) => `${link.role}/${link.name}`}
                empty={<Teach title="It has no links">A client attaches a link for each address that it sends to or receives from.</Teach>}
              />
            ) : (
              <Trace space={space} connection={connection} />
            )}
          </div>
        </>
      )}
    </PageFrame>
  );
}

/** What flowed over the connection in the last hour, as far as it was recorded. */
function Hour({ space, connection }: { space: Space; connection: string }): ReactElement {
  const { data, error } = useSeries(query(`${space.api}/series`, { connection, minutes: 60 }));
  const values = data?.series ?? {};
  const lines: Line[] = [
    { label: "in", values: values.messagesIn ?? [] },
    { label: "out", values: values.messagesOut ?? [] },
  ];
  const isKnown = lines.some((line) => line.values.some((value) => value !== null));
  return (
    <>
      {error && <Refusal error={error} />}
      {data && !isKnown && <Teach title="Nothing is recorded yet">In a space of many connections, what flows over each is recorded from now on, while somebody looks: the chart begins within seconds.</Teach>}
      {data && isKnown && (
        <Card isCompact>
          <CardBody>
            <Chart title="Messages a second" times={data.times} lines={lines} sync={connection} />
          </CardBody>
        </Card>
      )}
    </>
  );
}

interface Frame {
  time?: string;
  direction?: string;
  frame?: unknown;
  [field: string]: unknown;
}

const KEPT_FRAMES = 500;

/** A frame on one line: what it is, and its fields. */
function frameText(line: Frame): string {
  const { time: _time, direction: _direction, frame, ...more } = line;
  const shown = typeof frame === "string" ? frame : frame === undefined ? "" : JSON.stringify(frame);
  const rest = Object.entries(more).map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [shown, ...rest].filter(Boolean).join(" ");
}

/** The frames of a connection as they come; begun and ended by a switch, since a node works for it. */
function Trace({ space, connection }: { space: Space; connection: string }): ReactElement {
  const [on, setOn] = useState(true);
  const [bodies, setBodies] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [frames, setFrames] = useState<Frame[]>([]);
  const rights = useRights(space.namespace);
  const waiting = useRef<Frame[]>([]);
  const mayRead = rights.may("get", "addresses/messages");

  useEffect(() => {
    if (!on) return;
    const stop = new AbortController();
    setError(undefined);
    const url = query(`${path(`${space.api}/connections`, connection)}/trace`, { watch: true, bodies: bodies || undefined });
    // Many frames may come in a moment: they are drawn a few times a second, the last of them.
    const draw = setInterval(() => {
      if (waiting.current.length === 0) return;
      const fresh = waiting.current;
      waiting.current = [];
      setFrames((before) => [...before, ...fresh].slice(-KEPT_FRAMES));
    }, 250);
    void (async () => {
      try {
        for await (const frame of lines<Frame>(url, stop.signal)) {
          waiting.current.push(frame);
          if (waiting.current.length > KEPT_FRAMES) waiting.current.shift();
        }
        setOn(false);
      } catch (caught) {
        if (stop.signal.aborted) return;
        setError(asApiError(caught));
        setOn(false);
      }
    })();
    return () => {
      stop.abort();
      clearInterval(draw);
    };
  }, [on, bodies, space.api, connection]);

  return (
    <>
      <Toolbar inset={{ default: "insetNone" }}>
        <ToolbarContent alignItems="center">
          <ToolbarItem>
            <Switch id="trace-on" label="Follow" isChecked={on} onChange={(_, value) => setOn(value)} />
          </ToolbarItem>
          <ToolbarItem>
            <Switch id="trace-bodies" label={mayRead ? "With messages" : "With messages (you may not read them)"} isChecked={bodies} isDisabled={!mayRead} onChange={(_, value) => setBodies(value)} />
          </ToolbarItem>
          <ToolbarItem>
            <Button variant="link" onClick={() => setFrames([])}>
              Clear
            </Button>
          </ToolbarItem>
          <ToolbarItem>
            <Button variant="link" isDisabled={frames.length === 0} onClick={() => download(`${connection}.jsonl`, frames.map((frame) => JSON.stringify(frame)).join("\n"), "application/jsonl")}>
              Save
            </Button>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {error && <Refusal error={error} />}
      {frames.length === 0 && !error && <p className="em-none">{on ? "Waiting for the next frame …" : "Nothing was followed."}</p>}
      <ol className="em-trace" aria-label="Frames" aria-live="off">
        {frames.map((frame, index) => (
          <li key={index}>
            <span className="em-trace-time">{frame.time?.replace(/^.*T|Z$/g, "")}</span>
            <span className="em-trace-way">{frame.direction === "out" || frame.direction === "sent" ? "←" : "→"} {String(frame.direction ?? "")}</span>
            <code>{frameText(frame)}</code>
          </li>
        ))}
      </ol>
    </>
  );
}
