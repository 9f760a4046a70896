// Two texts, line by line: what one has and the other has not.
import type { ReactElement } from "react";

export interface DiffLine {
  sign: " " | "+" | "-";
  text: string;
}

/** Beyond this, lines are not paired: all former ones go and all new ones come. */
const MAX_PAIRS = 4_000_000;

/** The fewest lines that go and come, by the longest common subsequence. */
export function diffOf(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let tail = 0;
  while (tail < a.length - start && tail < b.length - start && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const old = a.slice(start, a.length - tail);
  const fresh = b.slice(start, b.length - tail);
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ sign: " ", text }));
  return [...same(a.slice(0, start)), ...changed(old, fresh), ...same(tail ? a.slice(-tail) : [])];
}

function changed(old: string[], fresh: string[]): DiffLine[] {
  const gone = (text: string): DiffLine => ({ sign: "-", text });
  const come = (text: string): DiffLine => ({ sign: "+", text });
  if (old.length * fresh.length > MAX_PAIRS) return [...old.map(gone), ...fresh.map(come)];
  const width = fresh.length + 1;
  // How many lines are the same from here on.
  const common = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = fresh.length - 1; j >= 0; j--) {
      common[i * width + j] = old[i] === fresh[j] ? common[(i + 1) * width + j + 1]! + 1 : Math.max(common[(i + 1) * width + j]!, common[i * width + j + 1]!);
    }
  }
  const found: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < old.length && j < fresh.length) {
    if (old[i] === fresh[j]) {
      found.push({ sign: " ", text: old[i]! });
      i++;
      j++;
    } else if (common[(i + 1) * width + j]! >= common[i * width + j + 1]!) found.push(gone(old[i++]!));
    else found.push(come(fresh[j++]!));
  }
  return [...found, ...old.slice(i).map(gone), ...fresh.slice(j).map(come)];
}

const SAID = { "+": "added: ", "-": "removed: ", " ": "" };

export function Diff({ before, after, label }: { before: string; after: string; label: string }): ReactElement {
  return (
    <pre className="em-diff" tabIndex={0} role="group" aria-label={label}>
      {diffOf(before, after).map(({ sign, text }, index) => (
        <div key={index} className={sign === "+" ? "em-diff-added" : sign === "-" ? "em-diff-removed" : undefined}>
          <span aria-hidden="true">{sign} </span>
          <span className="em-status-text">{SAID[sign]}</span>
          {text}
        </div>
      ))}
    </pre>
  );
}
