import { Card, CardBody, CardTitle, DescriptionList, DescriptionListDescription, DescriptionListGroup, DescriptionListTerm, Gallery, Progress, ProgressMeasureLocation } from "@patternfly/react-core";
import type { ReactElement, ReactNode } from "react";
import type { Fill } from "../api/types";
import { bytes, count, percent, UNKNOWN } from "./format";

/** Terms and what they are, side by side. */
export function Facts({ facts }: { facts: [string, ReactNode][] }): ReactElement {
  return (
    <DescriptionList isCompact columnModifier={{ default: "1Col", md: "2Col", xl: "3Col" }}>
      {facts
        .filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([term, value]) => (
          <DescriptionListGroup key={term}>
            <DescriptionListTerm>{term}</DescriptionListTerm>
            <DescriptionListDescription className="em-wrap">{value}</DescriptionListDescription>
          </DescriptionListGroup>
        ))}
    </DescriptionList>
  );
}

/** One figure with its name. */
export interface Figure {
  title: string;
  value: ReactNode;
  below?: ReactNode;
  /** What the tour calls it. */
  tour?: string;
}

export function Figures({ figures }: { figures: Figure[] }): ReactElement {
  return (
    <Gallery hasGutter minWidths={{ default: "9rem", md: "11rem" }} className="em-figures">
      {figures.map((figure) => (
        <Card key={figure.title} isCompact data-tour={figure.tour}>
          <CardTitle>{figure.title}</CardTitle>
          <CardBody>
            <div className="em-figure">{figure.value}</div>
            {figure.below && <div className="em-figure-below">{figure.below}</div>}
          </CardBody>
        </Card>
      ))}
    </Gallery>
  );
}

/** How much of a limit is used. */
export function Used({ title, fill, isBytes }: { title: string; fill: Fill; isBytes?: boolean }): ReactElement {
  const share = fill.limit > 0 ? Math.min(100, (100 * fill.used) / fill.limit) : 0;
  const show = isBytes ? bytes : count;
  return (
    <Progress
      title={title}
      value={share}
      size="sm"
      measureLocation={ProgressMeasureLocation.top}
      label={`${show(fill.used)} of ${show(fill.limit)}`}
      valueText={`${show(fill.used)} of ${show(fill.limit)}`}
      variant={share >= 95 ? "danger" : share >= 80 ? "warning" : undefined}
    />
  );
}

/** The same for a cell of a table: the limit that is closest to being reached. */
export function Fullest({ fills }: { fills: Record<string, Fill> | undefined }): ReactElement | null {
  const shares = Object.entries(fills ?? {}).map(([name, fill]) => ({ name, fill, share: fill.limit > 0 ? fill.used / fill.limit : 0 }));
  const most = shares.sort((a, b) => b.share - a.share)[0];
  if (!most) return null;
  const percent = Math.round(most.share * 100);
  const show = most.name === "bytes" ? bytes : count;
  const text = `${percent} % of ${most.name}: ${show(most.fill.used)} of ${show(most.fill.limit)}`;
  return (
    <span className={`em-fill${percent >= 95 ? " em-full" : percent >= 80 ? " em-high" : ""}`} title={text} role="img" aria-label={text}>
      <svg viewBox="0 0 48 6" width="48" height="6" aria-hidden="true">
        <rect className="em-fill-all" width="48" height="6" rx="3" />
        <rect className="em-fill-used" width={Math.max(most.share > 0 ? 3 : 0, Math.min(48, 48 * most.share))} height="6" rx="3" />
      </svg>
      <span aria-hidden="true"> {percent} %</span>
    </span>
  );
}

/** A part of a whole for a cell of a table, as a bar and in words; a part that is not empty is always seen. */
export function Share({ part, whole, label }: { part: number; whole: number | undefined; label: string }): ReactElement {
  if (!whole) return <>{UNKNOWN}</>;
  const share = Math.min(1, part / whole);
  const text = percent(share);
  return (
    <span className={`em-fill${share >= 0.05 ? " em-full" : share > 0 ? " em-high" : ""}`} role="img" aria-label={`${text} ${label}`} title={`${count(part)} of ${count(whole)}`}>
      <svg viewBox="0 0 48 6" width="48" height="6" aria-hidden="true">
        <rect className="em-fill-all" width="48" height="6" rx="3" />
        <rect className="em-fill-used" width={share > 0 ? Math.max(3, 48 * share) : 0} height="6" rx="3" />
      </svg>
      <span aria-hidden="true"> {text}</span>
    </span>
  );
}
