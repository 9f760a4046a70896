// How each type of address behaves, drawn: who sends on the left, who receives on the right, and what is kept between.
import type { ReactElement, ReactNode } from "react";
import type { AddressType } from "../api/types";

export interface TypeFacts {
  title: string;
  /** One sentence: what it does. */
  does: string;
  /** One sentence: when to take it. */
  use: string;
  kept: string;
}

export const TYPES: Record<AddressType, TypeFacts> = {
  queue: {
    title: "Queue",
    does: "Keeps each message until one receiver has taken it.",
    use: "Work to be shared out: orders, jobs, commands.",
    kept: "Stored until accepted",
  },
  topic: {
    title: "Topic",
    does: "Copies each message to everybody who has subscribed.",
    use: "News that several programs want, each in its own time.",
    kept: "Stored for each subscription",
  },
  stream: {
    title: "Stream",
    does: "Appends each message to a log that many read, from any point, again and again.",
    use: "Telemetry and events, for Spark and for whoever comes later.",
    kept: "Stored as long as retention says",
  },
  anycast: {
    title: "Anycast",
    does: "Hands each message straight to one receiver; the sender learns what that one made of it.",
    use: "Requests and replies, with nothing in between.",
    kept: "Not stored",
  },
  multicast: {
    title: "Multicast",
    does: "Hands each message straight to all who are there at this moment.",
    use: "Live values, where an old one is worth nothing.",
    kept: "Not stored",
  },
  subscription: {
    title: "Subscription",
    does: "Keeps what one topic is sent, for receivers that come and go.",
    use: "A program that must miss nothing of a topic.",
    kept: "Stored until accepted",
  },
  deadletter: {
    title: "Dead letter",
    does: "Keeps what other addresses could not deliver, with the reason, to be sent again.",
    use: "Beside queues and topics whose messages must not vanish.",
    kept: "Stored until taken or replayed",
  },
};

function Party({ y, x }: { y: number; x: number }): ReactElement {
  return <circle className="em-party" cx={x} cy={y} r="8" />;
}

function Arrow({ from, to, dashed }: { from: [number, number]; to: [number, number]; dashed?: boolean }): ReactElement {
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
  const [dx, dy] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
  const [x, y] = to;
  const head = `${x},${y} ${x - 7 * dx - 3.5 * dy},${y - 7 * dy + 3.5 * dx} ${x - 7 * dx + 3.5 * dy},${y - 7 * dy - 3.5 * dx}`;
  return (
    <g className={dashed ? "em-way em-way-dashed" : "em-way"}>
      <line x1={from[0]} y1={from[1]} x2={x - 5 * dx} y2={y - 5 * dy} />
      <polygon points={head} />
    </g>
  );
}

function Stored({ x, y, boxes, width = 12 }: { x: number; y: number; boxes: number; width?: number }): ReactElement {
  return (
    <g>
      <rect className="em-store" x={x} y={y - 12} width={boxes * (width + 2) + 6} height="24" rx="4" />
      {Array.from({ length: boxes }, (_, index) => (
        <rect key={index} className="em-message" x={x + 4 + index * (width + 2)} y={y - 7} width={width} height="14" rx="2" />
      ))}
    </g>
  );
}

const PICTURES: Record<AddressType, ReactNode> = {
  queue: (
    <>
      <Party x={16} y={45} />
      <Arrow from={[28, 45]} to={[68, 45]} />
      <Stored x={72} y={45} boxes={4} />
      <Arrow from={[138, 40]} to={[186, 22]} />
      <Arrow from={[138, 50]} to={[186, 68]} dashed />
      <Party x={198} y={20} />
      <Party x={198} y={70} />
    </>
  ),
  topic: (
    <>
      <Party x={16} y={45} />
      <Arrow from={[28, 45]} to={[66, 45]} />
      <circle className="em-hub" cx={76} cy={45} r="9" />
      <Arrow from={[86, 41]} to={[114, 22]} />
      <Arrow from={[86, 49]} to={[114, 68]} />
      <Stored x={116} y={20} boxes={2} />
      <Stored x={116} y={70} boxes={2} />
      <Arrow from={[152, 20]} to={[186, 20]} />
      <Arrow from={[152, 70]} to={[186, 70]} />
      <Party x={198} y={20} />
      <Party x={198} y={70} />
    </>
  ),
  stream: (
    <>
      <Party x={16} y={45} />
      <Arrow from={[28, 45]} to={[46, 45]} />
      <Stored x={48} y={45} boxes={7} />
      <Arrow from={[76, 58]} to={[76, 74]} />
      <Arrow from={[132, 32]} to={[132, 16]} />
      <path className="em-reads" d="M76 76 H186" />
      <path className="em-reads" d="M132 14 H186" />
      <Party x={198} y={14} />
      <Party x={198} y={76} />
    </>
  ),
  anycast: (
    <>
      <Party x={16} y={45} />
      <Arrow from={[28, 45]} to={[96, 45]} />
      <circle className="em-hub" cx={106} cy={45} r="9" />
      <Arrow from={[116, 41]} to={[186, 22]} />
      <Arrow from={[116, 49]} to={[186, 68]} dashed />
      <Party x={198} y={20} />
      <Party x={198} y={70} />
    </>
  ),
  multicast: (
    <>
      <Party x={16} y={45} />
      <Arrow from={[28, 45]} to={[96, 45]} />
      <circle className="em-hub" cx={106} cy={45} r="9" />
      <Arrow from={[116, 41]} to={[186, 20]} />
      <Arrow from={[117, 45]} to={[186, 45]} />
      <Arrow from={[116, 49]} to={[186, 70]} />
      <Party x={198} y={18} />
      <Party x={198} y={45} />
      <Party x={198} y={72} />
    </>
  ),
  subscription: (
    <>
      <circle className="em-hub" cx={18} cy={45} r="9" />
      <Arrow from={[30, 45]} to={[72, 45]} />
      <Stored x={76} y={45} boxes={4} />
      <Arrow from={[142, 45]} to={[186, 45]} />
      <Party x={198} y={45} />
    </>
  ),
  deadletter: (
    <>
      <Stored x={10} y={28} boxes={2} />
      <Arrow from={[48, 24]} to={[112, 24]} dashed />
      <text className="em-cross" x="116" y="30">
        ✕
      </text>
      <Arrow from={[46, 42]} to={[82, 64]} />
      <Stored x={86} y={66} boxes={3} />
      <Arrow from={[138, 66]} to={[186, 66]} />
      <Party x={198} y={66} />
    </>
  ),
};

export function Picture({ type }: { type: AddressType }): ReactElement {
  return (
    <svg className="em-picture" viewBox="0 0 214 90" role="img" aria-label={TYPES[type].does}>
      {PICTURES[type]}
    </svg>
  );
}
