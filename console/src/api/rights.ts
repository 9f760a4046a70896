// What the person may do, by the API's own word: a button that would be refused is not offered.
import { useEffect, useState } from "react";
import { sendSignedIn } from "./client";
import { useReach } from "./state";

interface Rule {
  verbs: string[];
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
}

const GROUPS: Record<string, string> = {
  messagingusers: "user.enmasse.io",
  addressspaceplans: "admin.enmasse.io",
  addressplans: "admin.enmasse.io",
  authenticationservices: "admin.enmasse.io",
  iotprojects: "iot.enmasse.io",
  tenants: "iot.enmasse.io",
  devices: "iot.enmasse.io",
  credentials: "iot.enmasse.io",
  commands: "iot.enmasse.io",
  namespaces: "",
  events: "",
  secrets: "",
};

export interface Rights {
  known: boolean;
  /** Whether a verb is allowed on a collection, or on a part of its objects, as `addresses/purge`. */
  may: (verb: string, resource: string) => boolean;
}

const NOTHING: Rights = { known: false, may: () => false };
const cache = new Map<string, { of: number; asked: number; rights: Promise<Rights> }>();
// Streams are refused again and again, which says nothing new.
const KEPT_MS = 10_000;

function matches(list: string[] | undefined, value: string): boolean {
  return list !== undefined && (list.includes("*") || list.includes(value));
}

async function ask(namespace: string): Promise<Rights> {
  const answer = await sendSignedIn("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
    body: { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } },
  });
  const { status } = (await answer.json()) as { status: { resourceRules?: Rule[] } };
  const rules = (status.resourceRules ?? []).filter((rule) => !rule.resourceNames?.length);
  return {
    known: true,
    may: (verb, resource) => {
      const group = GROUPS[resource.split("/")[0]!] ?? "enmasse.io";
      return rules.some((rule) => matches(rule.verbs, verb) && matches(rule.apiGroups, group) && matches(rule.resources, resource));
    },
  };
}

/** The person's rights in a namespace; while they are not known yet, none. They are asked for again after a refusal. */
export function useRights(namespace = "default"): Rights {
  const [rights, setRights] = useState<Rights>(NOTHING);
  const [turn, setTurn] = useState(0);
  const { rights: version, here } = useReach();
  useEffect(() => {
    let gone = false;
    let timer = 0;
    let entry = cache.get(namespace);
    if (!entry || (entry.of !== version && Date.now() - entry.asked > KEPT_MS)) {
      entry = { of: version, asked: Date.now(), rights: ask(namespace) };
      cache.set(namespace, entry);
      entry.rights.catch(() => cache.delete(namespace));
    } else if (entry.of !== version) {
      timer = window.setTimeout(() => setTurn((before) => before + 1), entry.asked + KEPT_MS - Date.now() + 1);
    }
    entry.rights.then(
      (found) => !gone && setRights(found),
      () => undefined,
    );
    return () => {
      gone = true;
      window.clearTimeout(timer);
    };
  }, [namespace, version, here, turn]);
  return rights;
}
