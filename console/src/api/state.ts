// What every request tells the whole page: whether the API answers, who is signed in, and whether rights have changed.
import { useSyncExternalStore } from "react";

export interface Reach {
  /** The API answered the last request. */
  here: boolean;
  /** A request was refused because nobody is signed in. */
  signedOut: boolean;
  /** A request was refused for want of a fresh proof, and waits for one. */
  proving: boolean;
  /** Who is signed in, or was before the session ended; undefined until the API has said it. */
  person?: string;
  /** Grows when a refusal says that what was known of the person's rights may be wrong. */
  rights: number;
}

let reach: Reach = { here: true, signedOut: false, proving: false, rights: 0 };
const listeners = new Set<() => void>();

export function setReach(change: Partial<Reach>): void {
  const next = { ...reach, ...change };
  if ((Object.keys(change) as (keyof Reach)[]).every((key) => next[key] === reach[key])) return;
  reach = next;
  for (const listener of [...listeners]) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useReach(): Reach {
  return useSyncExternalStore(subscribe, () => reach);
}

export function presentReach(): Reach {
  return reach;
}

/** Resolves as soon as something holds; rejects when the signal ends it. */
function becomes(holds: () => boolean, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = subscribe(() => {
      if (holds()) {
        stop();
        resolve();
      }
    });
    signal?.addEventListener("abort", () => {
      stop();
      reject(signal.reason);
    });
  });
}

/** Resolves when the person has signed in again. */
export function signedIn(signal?: AbortSignal): Promise<void> {
  return becomes(() => !reach.signedOut, signal);
}

/** Resolves when the person has given a fresh proof, or does not want to. */
export function proofGiven(signal?: AbortSignal): Promise<void> {
  return becomes(() => !reach.proving, signal);
}

/** Resolves when the API answers again. */
export function isBack(signal?: AbortSignal): Promise<void> {
  return reach.here ? Promise.resolve() : becomes(() => reach.here, signal);
}
