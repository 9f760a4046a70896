"""The attributes of spaces and addresses: which there are, what they may say, and which may change.

A wrong attribute is answered with 400 and a sentence that names it, what it takes and what came.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from enmasse.errors import ConfigError
from enmasse.identity.oidc_settings import read_settings
from enmasse.messaging.limits import AddressLimits, SpaceLimits, least
from enmasse.messaging.options import FULL_POLICIES, SLOW_POLICIES, STORAGES, StoredOptions
from enmasse.messaging.space import Home
from enmasse.node.errors import EntityError

__all__ = [
    "ADDRESS_TYPE",
    "FIELDS",
    "KINDS",
    "MAX_MS",
    "MAX_NAME_BYTES",
    "MAX_PARTITIONS",
    "SPACE_TYPE",
    "Record",
    "address_limits",
    "check_address",
    "checked",
    "home_of",
    "public",
    "space_limits",
    "stored_options",
    "told",
]

SPACE_TYPE = "io.enmasse.space"
ADDRESS_TYPE = "io.enmasse.address"

MAX_NAME_BYTES = 320
"""A key of the journal holds it."""

MAX_PARTITIONS = 1_024

MAX_NUMBER = (1 << 63) - 1
"""What every program that reads the attributes can hold."""

MAX_MS = 100 * 366 * 86_400_000
"""A hundred years: no time is longer, and none overflows when it is added to another."""

MAX_MULTIPLIER = 1_000.0
"""Already the second repetition would come too late to be of use."""

AUTHENTICATIONS = ("none", "standard", "external")
"""``none`` lets everybody in; ``standard`` only the space's users; ``external`` whom an OIDC provider knows."""

_SECRETS = frozenset({"clientSecret"})
"""Of what a space agrees on with a provider: told to nobody."""

MAX_PORT = 65_535

MAX_HOSTS, MAX_HOST_LETTERS = 64, 253
"""Further names of one space; a name of the DNS is no longer [RFC 1035 2.3.4]."""

KINDS = ("anycast", "multicast", "queue", "topic", "subscription", "stream", "deadletter")

BROKERED_KINDS = ("queue", "topic", "subscription", "deadletter")
"""What a space of type brokered has: one store, strict order, transactions over all."""

SPACE_TYPES = ("standard", "brokered")

Record = dict[str, Any]

MULTICAST_SLOW_POLICIES = ("block", "drop")
DISTRIBUTIONS = ("balanced", "closest")
"""On one node every receiver is equally close, so both mean the same."""

_DIRECT = ("anycast", "multicast")
_STORING = ("queue", "topic", "subscription", "deadletter")
_PORTS = {"amqp": 5672, "amqps": 5671}
_TAKES = {
    str: "a string",
    int: "a whole number from 0 on",
    float: "a number",
    bool: "true or false",
    list: "a list of strings",
    dict: "a map",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One attribute.

    Attributes:
        type: what it holds.
        is_changeable: whether an update may change it.
        of: the address types that have it; empty for all.
        choices: the words that it takes; empty for any.
        most: the greatest number that it takes.
    """

    type: type
    is_changeable: bool = False
    of: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    most: float = MAX_NUMBER


def _setting(kind: type, of: tuple[str, ...], *, choices: tuple[str, ...] = (), most: float = MAX_NUMBER) -> Field:
    return Field(kind, is_changeable=True, of=of, choices=choices, most=most)


FIELDS: dict[str, dict[str, Field]] = {
    SPACE_TYPE: {
        "spaceType": Field(str, choices=SPACE_TYPES),
        "authentication": Field(str, is_changeable=True, choices=AUTHENTICATIONS),
        "uid": Field(str),
        "generation": Field(int, is_changeable=True),
        "maxBytes": Field(int, is_changeable=True),
        "maxConnections": Field(int, is_changeable=True),
        "maxDevices": Field(int, is_changeable=True),
        "maxLinks": Field(int, is_changeable=True),
        "maxMessageRate": Field(int, is_changeable=True),
        "maxByteRate": Field(int, is_changeable=True),
        "maxMessageSize": Field(int, is_changeable=True),
        "maxTtl": Field(int, is_changeable=True, most=MAX_MS),
        "hosts": Field(list, is_changeable=True),
        "port": Field(int, is_changeable=True, most=MAX_PORT),
        "oidc": Field(dict, is_changeable=True),
    },
    ADDRESS_TYPE: {
        "space": Field(str),
        "address": Field(str),
        "addressType": Field(str, choices=KINDS),
        "topic": Field(str),
        "partitions": Field(int),
        "uid": Field(str),
        "generation": Field(int, is_changeable=True),
        "storage": Field(str, of=_STORING, choices=STORAGES),
        "home": Field(str, is_changeable=True),
        "maxBytes": Field(int, is_changeable=True),
        "maxConsumers": Field(int, is_changeable=True),
        "maxLinks": Field(int, is_changeable=True),
        "maxSenders": Field(int, is_changeable=True),
        "maxReceivers": Field(int, is_changeable=True),
        "maxMessageRate": Field(int, is_changeable=True),
        "maxByteRate": Field(int, is_changeable=True),
        "maxMessageSize": Field(int, is_changeable=True),
        "fullPolicy": _setting(str, _STORING, choices=FULL_POLICIES),
        "slowPolicy": _setting(str, ("topic", "multicast"), choices=(*SLOW_POLICIES, *MULTICAST_SLOW_POLICIES[1:])),
        "distribution": _setting(str, ("anycast",), choices=DISTRIBUTIONS),
        "fallback": _setting(str, _DIRECT),
        "ttlMinimum": _setting(int, _STORING, most=MAX_MS),
        "ttlMaximum": _setting(int, _STORING, most=MAX_MS),
        "maxAttempts": _setting(int, _STORING),
        "redeliveryDelay": _setting(int, _STORING, most=MAX_MS),
        "redeliveryDelayMultiplier": _setting(float, _STORING, most=MAX_MULTIPLIER),
        "maxRedeliveryDelay": _setting(int, _STORING, most=MAX_MS),
        "deadletter": _setting(str, _STORING),
        "expiry": _setting(str, _STORING),
        "exclusive": _setting(bool, ("queue", "subscription", "deadletter")),
        "lastValueKey": _setting(str, ("queue", "subscription")),
        "retentionBytes": _setting(int, ("stream",)),
        "retentionMs": _setting(int, ("stream",), most=MAX_MS),
    },
}
"""Entity type to attribute, in the order in which they are told."""


def checked(entity_type: str, name: str, attributes: dict[str, Any]) -> Record:
    """Return a record of what attributes say; those that are null are left out.

    Raises:
        EntityError: 400 an attribute is unknown or its value none.
    """
    if not name or len(name.encode()) > MAX_NAME_BYTES:
        raise EntityError(400, f"a name has 1 to {MAX_NAME_BYTES} bytes")
    fields = FIELDS[entity_type]
    record: Record = {"name": name}
    for key, value in attributes.items():
        if key in ("name", "type", "identity"):
            continue
        field = fields.get(key)
        if field is None:
            raise EntityError(400, f"{entity_type} has no attribute {key!r}; it has {', '.join(fields)}")
        if value is not None:
            record[key] = _value(key, field, value)
    if entity_type == SPACE_TYPE:
        if name.count("/") != 1 or not all(name.split("/")):
            raise EntityError(400, f"a space is named <namespace>/<space>, not {name!r}")
        if "hosts" in record:
            record["hosts"] = _hosts(record["hosts"])
        if "oidc" in record:
            try:
                read_settings("attribute oidc", record["oidc"])
            except ConfigError as error:
                raise EntityError(400, str(error)) from None
    return record


def _hosts(given: list[Any]) -> list[str]:
    """Return host names as they are compared: in lower case, each once."""
    if len(given) > MAX_HOSTS:
        raise EntityError(400, f"attribute hosts takes at most {MAX_HOSTS} names, not {len(given)}")
    for host in given:
        if not isinstance(host, str) or not 0 < len(host) <= MAX_HOST_LETTERS or set(host) & set(" /:@"):
            raise EntityError(400, f"attribute hosts takes host names without a port, not {host!r:.100}")
    return list(dict.fromkeys(host.lower() for host in given))


def _value(key: str, field: Field, value: Any) -> Any:
    # What is given for a map may be a secret in the wrong place.
    shown = type(value).__name__ if field.type is dict else f"{value!r:.100}"
    wrong = EntityError(400, f"attribute {key} takes {_TAKES[field.type]}, not {shown}")
    if field.type is bool:
        if not isinstance(value, bool):
            raise wrong
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float) if field.type is float else field.type):
        raise wrong
    if isinstance(value, int | float):
        if value < 0 or not math.isfinite(value):
            raise wrong
        if value > field.most:
            raise EntityError(400, f"attribute {key} takes at most {field.most}, not {value}")
    elif field.choices and value not in field.choices:
        raise EntityError(400, f"{value!r:.100} is no {_named(key)}; there are {', '.join(field.choices)}")
    return field.type(value)


def _named(key: str) -> str:
    return {"addressType": "address type", "fullPolicy": "full policy", "slowPolicy": "slow policy"}.get(key, key)


def check_address(name: str, record: Record) -> None:
    """See that the attributes of an address fit together.

    Raises:
        EntityError: 400 what is missing or contradicts itself.
    """
    for needed in ("space", "address", "addressType"):
        if not record.get(needed):
            raise EntityError(400, f"address {name!r} lacks its attribute {needed}")
    kind = record["addressType"]
    if kind == "subscription" and not record.get("topic"):
        raise EntityError(400, f"subscription {name!r} lacks its attribute topic")
    if not 1 <= record.get("partitions", 1) <= MAX_PARTITIONS:
        raise EntityError(400, f"a stream has 1 to {MAX_PARTITIONS} partitions")
    if any(letter.isspace() for letter in record["address"]) or record["address"].startswith("$"):
        raise EntityError(400, f"{record['address']!r} is no address: no white space, and no $ at its start")
    for key, field in FIELDS[ADDRESS_TYPE].items():
        if field.of and key in record and kind not in field.of:
            raise EntityError(400, f"only {_list(field.of)} has the attribute {key}, and {name!r} is a {kind}")
    _check_times(record)
    policies = {"topic": SLOW_POLICIES, "multicast": MULTICAST_SLOW_POLICIES}.get(kind, ())
    if "slowPolicy" in record and record["slowPolicy"] not in policies:
        raise EntityError(400, f"a {kind} has the slow policies {', '.join(policies)}, not {record['slowPolicy']!r}")
    home_of(record)
    for key in ("deadletter", "expiry", "fallback"):
        if record.get(key) == record["address"]:
            raise EntityError(400, f"attribute {key} of {name!r} names the address itself; name another one")


def _check_times(record: Record) -> None:
    least, most = record.get("ttlMinimum", 0), record.get("ttlMaximum", 0)
    if most and least > most:
        raise EntityError(400, f"ttlMinimum is at most ttlMaximum, but {least} is more than {most}")
    multiplier = record.get("redeliveryDelayMultiplier", 1.0)
    if multiplier < 1:
        raise EntityError(400, f"redeliveryDelayMultiplier is 1 or more, not {multiplier}: delays never shrink")


def public(record: Record) -> Record:
    """A record without what only the node itself knows."""
    return {key: value for key, value in record.items() if key != "log"}


def told(record: Record) -> Record:
    """A record as whoever asks is told of it: without secrets either."""
    found = public(record)
    if "oidc" in found:
        found["oidc"] = {key: value for key, value in found["oidc"].items() if key not in _SECRETS}
    return found


def home_of(record: Record) -> Home | None:
    """Return the node that serves an address, or nothing if that is this one.

    Raises:
        EntityError: 400 its URL names no node.
    """
    url = record.get("home", "")
    if not url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path or parts.username is not None:
        raise EntityError(400, f"attribute home takes amqp://HOST[:PORT] or amqps://HOST[:PORT], not {url!r:.100}")
    return Home(parts.hostname, port or _PORTS[parts.scheme], is_secure=parts.scheme == "amqps")


def _list(kinds: tuple[str, ...]) -> str:
    return f"a {kinds[0]}" if len(kinds) == 1 else f"a {', '.join(kinds[:-1])} or {kinds[-1]}"


def space_limits(record: Record) -> SpaceLimits:
    """Return what bounds a whole space, beside what it stores."""
    return SpaceLimits(
        connections=record.get("maxConnections", 0),
        devices=record.get("maxDevices", 0),
        links=record.get("maxLinks", 0),
        message_rate=record.get("maxMessageRate", 0),
        byte_rate=record.get("maxByteRate", 0),
        message_bytes=record.get("maxMessageSize", 0),
        ttl_ms=record.get("maxTtl", 0),
    )


def address_limits(record: Record) -> AddressLimits | None:
    """Return what bounds the links of an address, if anything does."""
    limits = AddressLimits(
        links=record.get("maxLinks", 0),
        senders=record.get("maxSenders", 0),
        receivers=record.get("maxReceivers", 0),
        message_rate=record.get("maxMessageRate", 0),
        byte_rate=record.get("maxByteRate", 0),
        message_bytes=record.get("maxMessageSize", 0),
    )
    return limits if any(limits) else None


def stored_options(record: Record, max_ttl_ms: int = 0) -> StoredOptions:
    """Return the wishes of a queue, topic or subscription that its record holds.

    Args:
        record: of the address.
        max_ttl_ms: how long its space lets messages wait; 0 is without limit.
    """
    ttl_maximum = least(record.get("ttlMaximum", 0), max_ttl_ms)
    ttl_minimum = record.get("ttlMinimum", 0)
    return StoredOptions(
        max_bytes=record.get("maxBytes", 0),
        full=record.get("fullPolicy", "block"),
        storage=record.get("storage", "message"),
        ttl_minimum=min(ttl_minimum, ttl_maximum) if ttl_maximum else ttl_minimum,
        ttl_maximum=ttl_maximum,
        max_attempts=record.get("maxAttempts", 0),
        redelivery_delay=record.get("redeliveryDelay", 0),
        redelivery_multiplier=record.get("redeliveryDelayMultiplier", 1.0),
        max_redelivery_delay=record.get("maxRedeliveryDelay", 0),
        dead_letter=record.get("deadletter", ""),
        expiry=record.get("expiry", ""),
        max_consumers=record.get("maxConsumers", 0),
        exclusive=record.get("exclusive", False),
        last_value_key=record.get("lastValueKey", ""),
        slow=record.get("slowPolicy", "drop-oldest"),
    )
