// A tour of a minute: from a space to a message received. It stands above the page and points at the page's own controls,
// and goes on when the person has done what it says.
import { Button, Content, Flex, FlexItem, PageSection } from "@patternfly/react-core";
import { type ReactElement, type ReactNode, useEffect, useSyncExternalStore } from "react";
import { Link, matchPath, useLocation } from "react-router";
import { path, query, V1 } from "../api/client";
import { useGet } from "../api/live";
import { useReach } from "../api/state";
import type { RowList, SpaceRow } from "../api/types";
import { plural } from "../parts/format";
import { SPACE } from "./pages";
import { spaceOf } from "./space";

const STEPS = ["space", "address", "send", "count", "receive", "end"] as const;
type Step = (typeof STEPS)[number];

interface Tour {
  /** `offer` before the first visit has decided, `over` when it was left or has ended. */
  step: Step | "offer" | "over";
  namespace?: string;
  space?: string;
  /** The address's object. */
  address?: string;
}

const KEY = "enmasse.tour";
const HIGHLIGHT = "data-tour-step";

function remembered(): Tour {
  try {
    return (JSON.parse(localStorage.getItem(KEY) ?? "null") as Tour | null) ?? { step: "offer" };
  } catch {
    return { step: "over" };
  }
}

let tour = remembered();
// What the page shows that a step waits for, as `queue orders`.
let showing = "";
const listeners = new Set<() => void>();

function change(changes: Partial<Tour>): void {
  tour = { ...tour, ...changes };
  localStorage.setItem(KEY, JSON.stringify(tour));
  for (const listener of [...listeners]) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function beginTour(): void {
  change({ step: "space", address: undefined });
}

/** Tells the tour what was done on a page. */
export function tourSees(what: "sent" | "received"): void {
  if (what === "sent" && tour.step === "send") change({ step: "count" });
  if (what === "received" && tour.step === "receive") change({ step: "end" });
}

/** Tells the tour which address of which type a page shows. */
export function useTourShows(type: string | undefined): void {
  useEffect(() => {
    showing = type ?? "";
    for (const listener of [...listeners]) listener();
    return () => {
      showing = "";
    };
  }, [type]);
}

function Panel({ title, children, actions, step, leave = "Leave the tour" }: { title: string; children: ReactNode; actions?: ReactNode; step?: number; leave?: string }): ReactElement {
  return (
    <PageSection className="em-tour" aria-label="Tour" isFilled={false}>
      <Flex alignItems={{ default: "alignItemsCenter" }} columnGap={{ default: "columnGapMd" }} rowGap={{ default: "rowGapSm" }}>
        <FlexItem grow={{ default: "grow" }} className="em-tour-text" role="status">
          <strong>
            {step !== undefined && <span className="em-tour-step">{step} of {STEPS.length - 1} </span>}
            {title}
          </strong>
          <Content component="p">{children}</Content>
        </FlexItem>
        <FlexItem>
          {actions}
          <Button variant={leave === "Done" ? "primary" : "link"} size={leave === "Done" ? "sm" : "default"} onClick={() => change({ step: "over" })}>
            {leave}
          </Button>
        </FlexItem>
      </Flex>
    </PageSection>
  );
}

export function Tour(): ReactElement | null {
  const { step, namespace, space, address } = useSyncExternalStore(subscribe, () => tour);
  const shown = useSyncExternalStore(subscribe, () => showing);
  const { pathname } = useLocation();
  const { person, signedOut } = useReach();
  const inSpace = matchPath(`${SPACE}/*`, pathname)?.params;
  const atAddress = matchPath(`${SPACE}/addresses/:name`, pathname)?.params.name;
  const atMessages = matchPath(`${SPACE}/addresses/:name/messages`, pathname)?.params.name;

  useEffect(() => {
    if (step === "over" || step === "offer") document.documentElement.removeAttribute(HIGHLIGHT);
    else document.documentElement.setAttribute(HIGHLIGHT, step);
  }, [step]);
  useEffect(() => {
    if ((step === "space" || step === "address") && inSpace?.namespace && inSpace.space && (step === "space" || inSpace.space !== space || inSpace.namespace !== namespace)) {
      change({ step: "address", namespace: inSpace.namespace, space: inSpace.space });
    } else if (step === "address" && shown === "queue" && (atAddress ?? atMessages)) {
      change({ step: "send", address: atAddress ?? atMessages });
    }
  });

  if (step === "over" || !person || signedOut) return null;
  if (step === "offer") {
    if (pathname !== "/") return null;
    return (
      <Panel title="New here?" leave="Not now" actions={<Button size="sm" onClick={beginTour}>Take the tour</Button>}>
        A minute from a space to a message that you have sent and received. It is in the help menu at any time.
      </Panel>
    );
  }
  const place = spaceOf(namespace ?? "", space ?? "");
  const addressTo = path(`${place.to}/addresses`, address ?? "");
  const number = STEPS.indexOf(step) + 1;
  switch (step) {
    case "space":
      return <SpaceStep number={number} atWizard={pathname === "/new-space"} />;
    case "address":
      return (
        <Panel step={number} title="Create an address" actions={!inSpace && <Link to={`${place.to}/addresses`}>To the space {space}</Link>}>
          {shown && shown !== "queue" ? "This one is no queue. For the tour, take one: it keeps a message until somebody takes it." : pathname.endsWith("/new-address") ? "Leave it a queue, give it a name as hello, and go on with Next until it is created." : "It is what applications send to and receive from. Press “Create an address”, or open a queue that is there."}
        </Panel>
      );
    case "send":
      return (
        <Panel step={number} title="Send a message" actions={!atAddress && !atMessages && <Link to={addressTo}>To the address</Link>}>
          {atMessages ? "Below, under “Try it”: write a few words, and press “Send”." : "Press “Messages”: that page shows what is stored, and sends."}
        </Panel>
      );
    case "count":
      return (
        <Panel
          step={number}
          title="See it counted"
          actions={atAddress ? <Button size="sm" onClick={() => change({ step: "receive" })}>I see it</Button> : <Link to={addressTo}>Back to the address</Link>}
        >
          {atAddress ? "“Stored” has counted your message; the charts show it, too." : "The message lies in the queue. The address's own page shows what flows."}
        </Panel>
      );
    case "receive":
      return (
        <Panel step={number} title="Receive it" actions={!atAddress && !atMessages && <Link to={addressTo}>To the address</Link>}>
          {atMessages ? "Under “Try it”, press “Take one”: it is yours, and no longer in the queue." : "Press “Messages” once more."}
        </Panel>
      );
    default:
      return (
        <Panel
          leave="Done"
          title="There it is: sent, stored, counted, received"
          actions={
            <Link to={`${place.to}/endpoints`} className="em-beside" onClick={() => change({ step: "over" })}>
              Let an application do it
            </Link>
          }
        >
          Applications do the same by AMQP, MQTT, STOMP or HTTP; “Endpoints” has the lines of code.
        </Panel>
      );
  }
}

function SpaceStep({ number, atWizard }: { number: number; atWizard: boolean }): ReactElement {
  const rows = useGet<RowList<SpaceRow>>(query(`${V1}/rows/addressspaces`, { limit: 2 })).data;
  const there = rows?.items ?? [];
  return (
    <Panel
      step={number}
      title={there.length ? "Open a space, or create one" : "Create a space"}
      actions={there.map((row) => (
        <Link key={`${row.namespace}/${row.name}`} to={`${spaceOf(row.namespace, row.name).to}/addresses`} className="em-beside">
          Open {row.name}
        </Link>
      ))}
    >
      {atWizard ? "Go on with Next, give it a name as garden, and leave the rest as it is." : "A space is a room for the addresses of one team or application."}
      {rows && rows.total > there.length && ` There are ${plural(rows.total, "space")} in all.`}
    </Panel>
  );
}
