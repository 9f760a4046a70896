import { Tooltip } from "@patternfly/react-core";
import CheckCircleIcon from "@patternfly/react-icons/dist/esm/icons/check-circle-icon";
import ExclamationCircleIcon from "@patternfly/react-icons/dist/esm/icons/exclamation-circle-icon";
import InProgressIcon from "@patternfly/react-icons/dist/esm/icons/in-progress-icon";
import PauseCircleIcon from "@patternfly/react-icons/dist/esm/icons/pause-circle-icon";
import type { ReactElement } from "react";
import { UNKNOWN } from "./format";

const GOOD = new Set(["Active", "Running", "Ready"]);
const BAD = new Set(["Failed", "Error"]);
const STILL = new Set(["Paused", "Stopped", "Terminating"]);

const ICONS = { good: CheckCircleIcon, bad: ExclamationCircleIcon, still: PauseCircleIcon, waits: InProgressIcon };

/** A phase with its colour; what an object waits for is in the tooltip. */
export function Status({ phase, ready, messages }: { phase?: string; ready?: boolean; messages?: string[] }): ReactElement {
  if (!phase) return <span>{UNKNOWN}</span>;
  const text = messages?.filter(Boolean).join(" ");
  const look = BAD.has(phase) ? "bad" : STILL.has(phase) ? "still" : GOOD.has(phase) && ready !== false ? "good" : "waits";
  const Icon = ICONS[look];
  // PatternFly's Label measures itself each time that it is drawn, which fifty rows of a table feel.
  const label = (
    <span className={`em-phase em-phase-${look}`}>
      <Icon /> {phase}
    </span>
  );
  if (!text) return label;
  return (
    <Tooltip content={text}>
      <span className="em-status" tabIndex={0}>
        {label}
        <span className="em-status-text">{text}</span>
      </span>
    </Tooltip>
  );
}
