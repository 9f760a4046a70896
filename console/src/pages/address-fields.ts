// What can be said of an address of each type. The wizard offers all of it, an edit what is not fixed.
import type { AddressRow, AddressType } from "../api/types";
import type { Field } from "../parts/fields";

interface Option extends Field {
  of: AddressType[];
  fixed?: boolean;
}

const STORED: AddressType[] = ["queue", "topic", "subscription"];
const KEPT: AddressType[] = ["queue", "subscription", "deadletter"];

const named = (rows: AddressRow[], type: AddressType) => rows.filter((row) => row.type === type).map((row) => ({ value: row.address }));

function options(rows: AddressRow[]): Option[] {
  return [
    { of: ["subscription"], fixed: true, required: true, path: "spec.topic", label: "Topic", kind: "choice", none: "Choose one", options: [{ value: "", label: "Choose a topic" }, ...named(rows, "topic")] },
    { of: ["stream"], fixed: true, path: "spec.partitions", label: "Partitions", kind: "number", help: "Order holds within one; readers share them. Fixed for ever. Left out: as the plan says." },
    { of: STORED, path: "spec.deadletter", label: "Dead letters go to", kind: "choice", none: "Nowhere: they are dropped and counted", options: named(rows, "deadletter"), help: "Messages that failed too often, or were rejected." },
    { of: STORED, path: "spec.expiry", label: "Expired messages go to", kind: "choice", none: "Nowhere: they are dropped and counted", options: named(rows, "deadletter") },
    { of: ["anycast", "multicast"], path: "spec.fallback", label: "While nobody receives, messages go to", kind: "choice", none: "Nowhere: senders wait", options: named(rows, "queue") },
    { of: ["subscription"], path: "spec.subscription.maxConsumers", label: "Receivers at a time", kind: "number", fixed: true, help: "1 if left out." },
    { of: ["queue", "deadletter"], fixed: true, path: "spec.limits.maxConsumers", label: "Receivers at a time", kind: "number", help: "Any number if left out." },
    { of: [...KEPT, "topic"], path: "spec.messageTtl.maximum", label: "Messages wait at most, in milliseconds", kind: "number" },
    { of: STORED, path: "spec.messageRedelivery.maximumDeliveryAttempts", label: "Attempts to deliver", kind: "number", help: "10 with an address for dead letters, else without limit." },
    { of: STORED, path: "spec.messageRedelivery.redeliveryDelay", label: "Delay before the next attempt, in milliseconds", kind: "number" },
    { of: [...KEPT, "stream", "topic"], path: "spec.limits.maxBytes", label: "Stored bytes at most", kind: "number" },
    { of: [...KEPT, "topic"], path: "spec.fullPolicy", label: "When it is full", kind: "choice", options: [{ value: "block", label: "Senders wait" }, { value: "reject", label: "Messages are rejected" }, { value: "drop-oldest", label: "The oldest are dropped" }] },
    { of: ["topic", "multicast"], path: "spec.slowPolicy", label: "A receiver that falls behind", kind: "choice", options: [{ value: "block", label: "holds up the senders" }, { value: "drop-oldest", label: "loses its oldest messages" }, { value: "spill", label: "is served from disk" }, { value: "drop", label: "is left out" }] },
    { of: ["queue", "topic", "subscription", "deadletter"], fixed: true, path: "spec.storage", label: "What survives a restart", kind: "choice", none: "Durable messages", options: [{ value: "durable", label: "All messages" }, { value: "memory", label: "Nothing" }] },
    { of: ["stream"], path: "spec.retention.age", label: "Kept for", kind: "text", none: "for ever", help: "30s, 15m, 12h, 7d" },
    { of: ["stream"], path: "spec.retention.bytes", label: "Kept bytes", kind: "number", help: "Beyond it the oldest are deleted." },
    { of: ["queue", "subscription"], path: "spec.lastValueKey", label: "Keep only the latest of each", kind: "text", help: "subject, or the name of an application property." },
    { of: KEPT, path: "spec.exclusive", label: "One receiver gets everything, the others stand by", kind: "flag" },
    { of: ["anycast"], path: "spec.acknowledge", label: "Senders learn", kind: "choice", none: "what the receiver made of a message", options: [{ value: "node", label: "that a receiver has it" }] },
    { of: ["anycast", "multicast", "queue", "topic", "stream"], path: "spec.limits.messageRate", label: "Messages a second at most", kind: "number" },
    { of: ["queue", "topic", "stream", "anycast", "multicast"], path: "spec.schema.format", label: "Format of messages, for pipelines", kind: "choice", none: "Not said", options: ["json", "cbor", "avro", "protobuf", "senml", "text", "raw"].map((value) => ({ value })) },
  ];
}

export function addressFields(type: AddressType, rows: AddressRow[], creating: boolean): Field[] {
  return options(rows).filter((option) => option.of.includes(type) && (creating || !option.fixed));
}
