"""The settings of an address: each is one field of ``AddressSettings``, and everything else is derived from it.

Derived are: the attributes of an address that a node takes and reports (``node/management/entity_fields``), those
that control sends to it (``drivers/embedded``), the settings in effect, of an address, its topic and its plan, and
what a status says of them (``control/addresses/effective``), the fields that a type of addresses has
(``model/kinds/addresses``), the declaration of an address that only a node knows (``control/addresses/adoption``),
and the tables of ``docs/reference/addresses.md``. So a new setting is a field here, a field of the resource
(``AddressSpec``), and the code that applies it.

``entity_digest`` is computed on both sides, so control and a node can see that they mean the same attributes.

Without pydantic: the messaging core uses these settings, and a node need not load the resources for it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

AddressType = Literal["anycast", "multicast", "queue", "topic", "subscription", "stream", "deadletter"]

ADDRESS_TYPES: tuple[AddressType, ...] = get_args(AddressType)

BROKERED_TYPES: tuple[AddressType, ...] = ("queue", "topic", "subscription", "deadletter")
"""The types that a brokered space has: one store, strict order, transactions over all."""

DIRECT: tuple[AddressType, ...] = ("anycast", "multicast")
STORING: tuple[AddressType, ...] = ("queue", "topic", "subscription", "deadletter")
"""The types that keep messages for receivers; a stream keeps them for readers."""

_FAILING: tuple[AddressType, ...] = ("queue", "topic", "subscription")
_SLOW: tuple[AddressType, ...] = ("topic", "multicast")

Storage = Literal["message", "memory", "durable"]
FullPolicy = Literal["block", "reject", "drop-oldest"]
RejectPolicy = Literal["retry", "deadletter"]
SlowPolicy = Literal["block", "drop-oldest", "spill", "drop"]
Distribution = Literal["balanced", "closest"]
Acknowledge = Literal["receiver", "node"]

MAX_NUMBER = (1 << 63) - 1
"""The greatest number that every program that reads the settings can hold."""

MAX_PARTITIONS = 1_024
"""One journal holds all partitions of a stream, each with its own index entry and cursor."""

MAX_MS = 100 * 366 * 86_400_000
"""A hundred years: no time is longer, and none overflows when it is added to another."""

MAX_MULTIPLIER = 1_000
"""Already the second repetition would come too late to be of use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The description of one field of ``AddressSettings``: how it is declared, kept and shown.

    Attributes:
        name: the attribute of ``io.enmasse.address``, and the key in a node's record.
        field: the field of ``AddressSettings``.
        type: str, int, float or bool.
        default: the value on a node that was sent none.
        meaning: one sentence part for the reference, in Markdown.
        unless: the default in words, where the value alone does not say it.
        of: the types of addresses whose declaration has it; all if empty.
        taken_of: the types for which a node takes it, which may be more than ``of``; all if empty.
        path: the field of a declaration that holds it, below ``spec``; empty: declarations have no field for it.
        path_of: the same of single types that say it elsewhere.
        plan_path: the field of a plan that holds it; by default as ``path``.
        is_bound: whether a plan bounds what an address says; otherwise an address overrides its plan.
        is_inherited: whether a subscription that says nothing has what its topic says.
        is_fixed: whether it stays as it is for the life of the address.
        choices: the words that it takes; empty for any text.
        choices_of: the words that only some types take.
        least: the smallest number that it takes, beside what stands for none.
        most: the greatest number that it takes.
    """

    name: str
    field: str
    type: type
    default: Any
    meaning: str
    unless: str = ""
    of: tuple[AddressType, ...] = ()
    taken_of: tuple[AddressType, ...] = ()
    path: str = ""
    path_of: Mapping[str, str]
    plan_path: str = ""
    is_bound: bool = False
    is_inherited: bool = False
    is_fixed: bool = False
    choices: tuple[str, ...] = ()
    choices_of: Mapping[str, tuple[str, ...]]
    least: float = 0
    most: float = MAX_NUMBER

    def is_of(self, address_type: str) -> bool:
        """Tell whether addresses of a type have it."""
        return not self.of or address_type in self.of

    def path_for(self, address_type: str) -> str:
        """Return where the declaration of an address of a type says it; empty: nowhere."""
        return self.path_of.get(address_type, self.path) if self.is_of(address_type) else ""


def wire_name(name: str) -> str:
    """Return the name of a field as resources and the management of nodes have it."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _row(
    meaning: str,
    of: tuple[AddressType, ...] = (),
    *,
    taken_of: tuple[AddressType, ...] | None = None,
    path: str = "",
    path_of: Mapping[str, str] | None = None,
    choices_of: Mapping[str, tuple[str, ...]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the attributes of a ``Setting`` beyond its name, type and default."""
    return {
        "meaning": meaning,
        "of": of,
        "taken_of": of if taken_of is None else taken_of,
        "path": path,
        "path_of": path_of or {},
        "plan_path": path,
        "choices_of": choices_of or {},
        **more,
    }


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """The options of an address beyond its type; sizes are in bytes, times in milliseconds, 0 and empty are none."""

    storage: Storage = field(default="message", metadata=_row(
        "what survives a restart: `message`: durable messages; `memory`: nothing; `durable`: everything. Fixed",
        STORING, path="storage", is_fixed=True,
    ))  # fmt: skip
    max_bytes: int = field(default=0, metadata=_row(
        "what may be stored, in bytes",
        (*STORING, "stream"), taken_of=(), path="limits.maxBytes", is_bound=True,
        unless="4 GiB; 128 MiB with `memory`; 16 GiB of a stream",
    ))  # fmt: skip
    max_consumers: int = field(default=0, metadata=_row(
        "receivers at a time, browsers aside; one more is refused with `amqp:resource-limit-exceeded`",
        ("queue", "subscription", "deadletter"), taken_of=(), path="limits.maxConsumers", is_bound=True,
        path_of={"subscription": "subscription.maxConsumers"}, unless="any number; 1 of a declared subscription",
    ))  # fmt: skip
    max_links: int = field(default=0, metadata=_row(
        "senders and receivers at a time", path="limits.links", is_bound=True, unless="any number"
    ))  # fmt: skip
    max_senders: int = field(default=0, metadata=_row("senders at a time", unless="any number"))
    max_receivers: int = field(
        default=0, metadata=_row("receivers at a time, browsers among them", unless="any number")
    )
    max_message_rate: int = field(default=0, metadata=_row(
        "messages a second from all senders", path="limits.messageRate", is_bound=True, unless="any number"
    ))  # fmt: skip
    max_byte_rate: int = field(default=0, metadata=_row(
        "bytes a second from all senders", path="limits.byteRate", is_bound=True, unless="any number"
    ))  # fmt: skip
    max_message_size: int = field(default=0, metadata=_row(
        "bytes of one message", path="limits.messageSize", is_bound=True, unless="as the space has it"
    ))  # fmt: skip
    full_policy: FullPolicy = field(default="block", metadata=_row(
        "at `maxBytes`: `block` grants no credit, `reject` answers `rejected` with `amqp:resource-limit-exceeded`, "
        "`drop-oldest` makes room",
        STORING, path="fullPolicy",
    ))  # fmt: skip
    slow_policy: SlowPolicy = field(default="drop-oldest", metadata=_row(
        "of a topic: what bounds a volatile subscriber at 8 MiB: `drop-oldest`, `spill` to disk, or `block` the "
        "senders. Of a multicast address: what happens to a receiver that takes nothing for a second while others "
        "can: `drop`: it is set aside until it takes something again, and what waited for it is dropped and counted "
        "(`timesSetAside`, `dropped`); `block`: senders wait for it",
        _SLOW, path="slowPolicy", unless="`drop-oldest`; `drop` of a multicast address",
        choices_of={"topic": ("block", "drop-oldest", "spill"), "multicast": ("block", "drop")},
    ))  # fmt: skip
    distribution: Distribution = field(default="balanced", metadata=_row(
        "which receiver gets the next message: `balanced`: the one with credit and the fewest unsettled, in turn "
        "among equals; `closest`: the same among the receivers that are closest, which on one node are all of them",
        ("anycast",), path="distribution",
    ))  # fmt: skip
    acknowledge: Acknowledge = field(default="receiver", metadata=_row(
        "whose acceptance the sender's outcome is: `receiver`: that of the receiver that has the message; `node`: "
        "the node's, as soon as it has handed the message to a receiver; one that the receiver releases, or leaves "
        "without an outcome, goes to another as long as there is one",
        ("anycast",), path="acknowledge",
    ))  # fmt: skip
    fallback: str = field(default="", metadata=_row(
        "a queue of the space that takes the messages as long as no receiver is attached: senders have that queue's "
        "credit, policies and outcomes. With the first receiver the credit is called in; what crossed that and finds "
        "no receiver's credit still goes to the queue. What the queue has is given to its own receivers only. "
        "Messages have at most 16 MiB",
        DIRECT, path="fallback",
    ))  # fmt: skip
    ttl_minimum: int = field(default=0, metadata=_row(
        "a shorter time to live is raised to it, in ms; a message without one is given the maximum, or else this",
        STORING, path="messageTtl.minimum", is_bound=True, most=MAX_MS,
    ))  # fmt: skip
    ttl_maximum: int = field(default=0, metadata=_row(
        "a longer time to live is lowered to it, in ms; a message without one is given it",
        STORING, path="messageTtl.maximum", is_bound=True, most=MAX_MS,
    ))  # fmt: skip
    max_attempts: int = field(default=0, metadata=_row(
        "failed deliveries after which a message is a dead letter",
        STORING, path="messageRedelivery.maximumDeliveryAttempts", is_inherited=True,
        unless="without limit; 10 of a declared address with a `deadletter`",
    ))  # fmt: skip
    reject_policy: RejectPolicy | Literal[""] = field(default="", metadata=_row(
        "a rejection is a failed attempt (`retry`), or the last one (`deadletter`)",
        STORING, path="messageRedelivery.rejectPolicy", is_inherited=True,
        unless="`retry` where attempts are limited, `deadletter` where not",
    ))  # fmt: skip
    redelivery_delay: int = field(default=0, metadata=_row(
        "wait after the first failure, in ms",
        STORING, path="messageRedelivery.redeliveryDelay", is_inherited=True, most=MAX_MS,
    ))  # fmt: skip
    redelivery_delay_multiplier: float = field(default=1.0, metadata=_row(
        "grows it with each further one",
        STORING, path="messageRedelivery.redeliveryDelayMultiplier", is_inherited=True,
        least=1, most=MAX_MULTIPLIER,
    ))  # fmt: skip
    max_redelivery_delay: int = field(default=0, metadata=_row(
        "bounds it, in ms",
        STORING, path="messageRedelivery.maximumDeliveryDelay", is_inherited=True, most=MAX_MS,
        unless="not bounded",
    ))  # fmt: skip
    deadletter: str = field(default="", metadata=_row(
        "where dead letters go",
        _FAILING, taken_of=STORING, path="deadletter", is_inherited=True, unless="none: they are dropped and counted",
    ))  # fmt: skip
    expiry: str = field(default="", metadata=_row(
        "where expired messages go",
        _FAILING, taken_of=STORING, path="expiry", is_inherited=True, unless="none: they are dropped and counted",
    ))  # fmt: skip
    exclusive: bool = field(default=False, metadata=_row(
        "the receiver that came first gets everything, the others stand by",
        ("queue", "subscription", "deadletter"), path="exclusive",
    ))  # fmt: skip
    last_value_key: str = field(default="", metadata=_row(
        "only the latest message of each key is kept: `subject` or the name of an application property; messages "
        "without a key are all kept",
        ("queue", "subscription"), path="lastValueKey",
    ))  # fmt: skip
    retention_bytes: int = field(default=0, metadata=_row(
        "how much of a stream is kept, in bytes",
        ("stream",), path="retention.bytes", plan_path="retentionBytes", is_bound=True, unless="all",
    ))  # fmt: skip
    retention_ms: int = field(default=0, metadata=_row(
        "for how long a stream is kept, in ms; a declaration says it as a duration",
        ("stream",), path="retention.age", plan_path="retentionAge", is_bound=True, most=MAX_MS, unless="for ever",
    ))  # fmt: skip
    users_only: bool = field(default=False, metadata=_row(
        "in a space that is open to everybody: clients that have not logged in may neither send to it nor receive "
        "from it, nor move or delete its messages; devices may, and webhooks and the API",
        path="usersOnly", is_inherited=True,
    ))  # fmt: skip


def _declared(item: Field[Any], hint: Any) -> Setting:
    """Return the setting that a field of ``AddressSettings`` describes."""
    words = _words(hint)
    row: dict[str, Any] = {"choices": words, **item.metadata}
    kind = str if words else hint
    assert item.default is not MISSING
    return Setting(name=wire_name(item.name), field=item.name, type=kind, default=item.default, **row)


def _words(hint: Any) -> tuple[str, ...]:
    """Return the words that a type has, ``""`` for none among them left out."""
    if get_origin(hint) is Literal:
        return tuple(word for word in get_args(hint) if word)
    return tuple(word for part in get_args(hint) for word in _words(part))


_HINTS = get_type_hints(AddressSettings)

SETTINGS: dict[str, Setting] = {item.name: _declared(item, _HINTS[item.name]) for item in fields(AddressSettings)}
"""By attribute, in the order in which they are sent and documented."""

DEFAULTS = AddressSettings()

_FIELDS = {setting.name: setting.field for setting in SETTINGS.values()}


def read_settings(record: Mapping[str, Any]) -> AddressSettings:
    """Return the settings that the attributes of an address say; those left out or null have their defaults."""
    given = {known: value for name, value in record.items() if (known := _FIELDS.get(name)) and value is not None}
    return AddressSettings(**given) if given else DEFAULTS


_LETTERS = 16
_OWN = frozenset({"log", "home"})  # the node alone decides on logs; of a space, homeGeneration counts


def entity_digest(attributes: Mapping[str, Any]) -> str:
    """Return a short digest of an entity's attributes, the same for every order of them.

    Attributes that are None count as left out; those that only a node knows do not count.
    """
    counted = {key: value for key, value in attributes.items() if value is not None and key not in _OWN}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_LETTERS]
