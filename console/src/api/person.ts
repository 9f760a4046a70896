// Who is signed in, by the API's word.
import { send } from "./client";
import { presentReach, setReach } from "./state";

export interface Person {
  username: string;
  groups?: string[];
  hasPassword?: boolean;
  /** How the person of this session proves anew who they are. */
  prove?: "password" | "link" | "provider" | null;
}

/** Looks who is signed in now; undefined: nobody. */
export async function lookWho(): Promise<Person | undefined> {
  try {
    return (await (await send("GET", "/whoami")).json()) as Person;
  } catch {
    return undefined;
  }
}

/**
 * Goes on with what the end of a session interrupted, if the person is back; somebody else begins with a page of their
 * own. Returns whether anybody is signed in.
 */
export async function goOn(): Promise<boolean> {
  const found = await lookWho();
  if (!found) return false;
  const { person, rights } = presentReach();
  if (person !== undefined && person !== found.username) window.location.reload();
  else setReach({ signedOut: false, person: found.username, rights: rights + 1 });
  return true;
}
