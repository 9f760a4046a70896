// The fresh proof of who is here. What outlasts the session asks for it besides the session's cookie; so it is kept where
// no other server of this host gets it: for this origin, port included, and for this tab.
import { setReach } from "./state";

export const PROOF_HEADER = "EnMasse-Proof";

const KEY = "enmasse.proof";
// A link, or the pages of a provider, give it to another tab.
const tabs = new BroadcastChannel(KEY);
tabs.onmessage = (event: MessageEvent) => typeof event.data === "string" && keep(event.data);

function keep(proof: string): void {
  sessionStorage.setItem(KEY, proof);
  setReach({ proving: false });
}

export function keepProof(proof: string | undefined): void {
  if (!proof) return;
  keep(proof);
  tabs.postMessage(proof);
}

export function presentProof(): string | null {
  return sessionStorage.getItem(KEY);
}

export function forgetProof(): void {
  sessionStorage.removeItem(KEY);
}

/** Keeps the proof that came in the fragment of the page's address, and takes it out of there. */
export function takeProof(): void {
  const found = /^#proof=([0-9a-f.]+)$/.exec(window.location.hash);
  if (!found) return;
  window.history.replaceState(undefined, "", window.location.pathname + window.location.search);
  keepProof(found[1]);
}
