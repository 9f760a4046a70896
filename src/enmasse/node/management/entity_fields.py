"""The attributes of spaces and addresses, and the checks of their values.

A wrong attribute is answered with 400 and a sentence that names it, what it takes and the value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from enmasse.errors import ConfigError
from enmasse.identity.oidc_settings import read_settings as read_oidc_settings
from enmasse.messaging.address import Declaration
from enmasse.messaging.address_types import ADDRESS_TYPES
from enmasse.messaging.limits import (
    MAX_CONNECTOR_BYTES,
    MAX_CONNECTOR_CONNECTIONS,
    MAX_CONNECTOR_SESSIONS,
    MAX_CONNECTOR_UNSETTLED,
    MAX_FILTER_ADDRESSES,
    MAX_RETAINED,
    MAX_RETAINED_BYTES,
    MAX_SESSION_BYTES,
    MAX_SESSIONS,
    MAX_SUBSCRIPTION_BYTES,
    MAX_SUBSCRIPTIONS,
    WILL_GRACE_MS,
    SpaceLimits,
    least,
)
from enmasse.model.kinds.address_settings import (
    MAX_MS,
    MAX_NUMBER,
    MAX_PARTITIONS,
    SETTINGS,
    AddressSettings,
    Setting,
    read_settings,
)
from enmasse.model.schema.names import host_problem
from enmasse.node.entity_records import MAX_NAME_BYTES, Record
from enmasse.node.errors import EntityError

SPACE_TYPE = "io.enmasse.space"
ADDRESS_TYPE = "io.enmasse.address"

AUTHENTICATIONS = ("none", "standard", "external")
"""``none`` lets everybody in; ``standard`` only the space's users; ``external`` whom an OIDC provider knows."""

_SECRETS = frozenset({"clientSecret"})
"""Settings of a space's identity provider that are never reported."""

_SHOWN_OF_CONNECTORS = ("servers", "patterns", "tls", "idleTimeout", "maxFrameSize", "origins")
_SECRETS_OF_CONNECTORS = ("authorities", "certificate", "key", "username", "password")

MAX_PORT = 65_535

MAX_HOSTS = 64
"""The most further host names of one space."""

SPACE_TYPES = ("standard", "brokered")

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
        type: the type of its value.
        is_changeable: true if an update may change it.
        of: the address types that have it; empty for all.
        choices: the words that it takes; empty for any.
        choices_of: the words that an address type takes, for types that take only some of ``choices``.
        least: the smallest number that it takes.
        most: the greatest number that it takes.
    """

    type: type
    is_changeable: bool = False
    of: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    choices_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    least: float = 0
    most: float = MAX_NUMBER


def _field(setting: Setting) -> Field:
    return Field(
        setting.type,
        is_changeable=not setting.is_fixed,
        of=setting.taken_of,
        choices=setting.choices,
        choices_of=setting.choices_of,
        least=setting.least,
        most=setting.most,
    )


FIELDS: dict[str, dict[str, Field]] = {
    SPACE_TYPE: {
        "spaceType": Field(str, choices=SPACE_TYPES),
        "authentication": Field(str, is_changeable=True, choices=AUTHENTICATIONS),
        "uid": Field(str),
        "generation": Field(int, is_changeable=True),
        "home": Field(str, is_changeable=True),
        "homeGeneration": Field(int, is_changeable=True),
        "maxBytes": Field(int, is_changeable=True),
        "maxConnections": Field(int, is_changeable=True),
        "maxDevices": Field(int, is_changeable=True),
        "maxLinks": Field(int, is_changeable=True),
        "maxMessageRate": Field(int, is_changeable=True),
        "maxByteRate": Field(int, is_changeable=True),
        "maxMessageSize": Field(int, is_changeable=True),
        "maxTtl": Field(int, is_changeable=True, most=MAX_MS),
        "maxRetained": Field(int, is_changeable=True),
        "maxRetainedBytes": Field(int, is_changeable=True),
        "maxSessions": Field(int, is_changeable=True),
        "maxSessionBytes": Field(int, is_changeable=True),
        "maxSessionExpiry": Field(int, is_changeable=True, most=MAX_MS),
        "willGrace": Field(int, is_changeable=True, most=MAX_MS),
        "maxFilterAddresses": Field(int, is_changeable=True),
        "maxSubscriptions": Field(int, is_changeable=True),
        "maxSubscriptionBytes": Field(int, is_changeable=True),
        "maxConnectorConnections": Field(int, is_changeable=True),
        "maxConnectorSessions": Field(int, is_changeable=True),
        "maxConnectorUnsettled": Field(int, is_changeable=True),
        "maxConnectorBytes": Field(int, is_changeable=True),
        "hosts": Field(list, is_changeable=True),
        "port": Field(int, is_changeable=True, most=MAX_PORT),
        "oidc": Field(dict, is_changeable=True),
        "connectors": Field(dict, is_changeable=True),
        "acknowledgeUndeliverable": Field(bool, is_changeable=True),
        "copyOverlapping": Field(bool, is_changeable=True),
        "takeDollarNames": Field(bool, is_changeable=True),
        "takeQueryProperties": Field(bool, is_changeable=True),
        "mqttPacketBytes": Field(int, is_changeable=True, most=16 << 20),
        "mqttReceiveMaximum": Field(int, is_changeable=True, most=1_000),
        "mqttKeepAlive": Field(int, is_changeable=True, most=0xFFFF),
        "mqttInflight": Field(int, is_changeable=True, most=1_000),
    },
    ADDRESS_TYPE: {
        "space": Field(str),
        "address": Field(str),
        "addressType": Field(str, choices=tuple(ADDRESS_TYPES)),
        "topic": Field(str),
        "partitions": Field(int),
        "uid": Field(str),
        "generation": Field(int, is_changeable=True),
        **{setting.name: _field(setting) for setting in SETTINGS.values()},
    },
}
"""The attributes by entity type, in the order in which they are reported."""


def checked(entity_type: str, name: str, attributes: dict[str, Any]) -> Record:
    """Check attributes and return their record, without those that are null.

    Raises:
        EntityError: 400 an attribute is unknown, or its value is wrong.
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
        if bool(record.get("home")) != bool(record.get("homeGeneration")):
            raise EntityError(400, "attributes home and homeGeneration, which counts from 1 on, are given together")
        if "hosts" in record:
            record["hosts"] = _hosts(record["hosts"])
        if "oidc" in record:
            try:
                read_oidc_settings("attribute oidc", record["oidc"])
            except ConfigError as error:
                raise EntityError(400, str(error)) from None
        if "connectors" in record:
            # Most nodes have none, and start faster without a client.
            from enmasse.node.uplinks.remote import check_connectors  # noqa: PLC0415

            try:
                check_connectors(record["connectors"])
            except ConfigError as error:
                raise EntityError(400, f"attribute connectors: {error}") from None
    return record


def _hosts(given: list[Any]) -> list[str]:
    """Return host names as they are compared: in lower case, each once."""
    if len(given) > MAX_HOSTS:
        raise EntityError(400, f"attribute hosts takes at most {MAX_HOSTS} names, not {len(given)}")
    for host in given:
        problem = host_problem(host) if isinstance(host, str) else f"expected a host name, got {host!r:.100}"
        if problem is not None:
            raise EntityError(400, f"attribute hosts: {problem}")
    return list(dict.fromkeys(host.lower() for host in given))


def _value(key: str, field: Field, value: Any) -> Any:
    # A value that is given for a map may be a secret in the wrong place.
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
        if value < field.least:
            raise EntityError(400, f"attribute {key} takes at least {field.least}, not {value}")
        if value > field.most:
            raise EntityError(400, f"attribute {key} takes at most {field.most}, not {value}")
    elif field.choices and value not in field.choices:
        raise EntityError(400, f"{value!r:.100} is no {_named(key)}; there are {', '.join(field.choices)}")
    return field.type(value)


def _named(key: str) -> str:
    names = ("addressType", "fullPolicy", "rejectPolicy", "slowPolicy")
    return re.sub("(?=[A-Z])", " ", key).lower() if key in names else key


def check_address(name: str, record: Record) -> None:
    """Check that the attributes of an address fit together.

    Raises:
        EntityError: 400 an attribute is missing, or contradicts another.
    """
    for needed in ("space", "address", "addressType"):
        if not record.get(needed):
            raise EntityError(400, f"address {name!r} lacks its attribute {needed}")
    kind = record["addressType"]
    if ADDRESS_TYPES[kind].needs_topic and not record.get("topic"):
        raise EntityError(400, f"{kind} {name!r} lacks its attribute topic")
    if not 1 <= record.get("partitions", 1) <= MAX_PARTITIONS:
        raise EntityError(400, f"a stream has 1 to {MAX_PARTITIONS} partitions")
    if any(letter.isspace() for letter in record["address"]) or record["address"].startswith("$"):
        raise EntityError(400, f"{record['address']!r} is no address: no white space, and no $ at its start")
    for key, row in FIELDS[ADDRESS_TYPE].items():
        if row.of and key in record and kind not in row.of:
            raise EntityError(400, f"only {_list(row.of)} has the attribute {key}, and {name!r} is a {kind}")
        words = row.choices_of.get(kind, ())
        if words and key in record and record[key] not in words:
            raise EntityError(
                400, f"a {kind} takes as its {_named(key)} one of {', '.join(words)}, not {record[key]!r}"
            )
    least, most = record.get("ttlMinimum", 0), record.get("ttlMaximum", 0)
    if most and least > most:
        raise EntityError(400, f"ttlMinimum is at most ttlMaximum, but {least} is more than {most}")
    for key in ("deadletter", "expiry", "fallback"):
        if record.get(key) == record["address"]:
            raise EntityError(400, f"attribute {key} of {name!r} names the address itself; name another one")


def public(record: Record) -> Record:
    """Return a record without what only the node itself uses."""
    return {key: value for key, value in record.items() if key != "log"}


def reported(record: Record) -> Record:
    """Return a record as it is reported: ``public`` and without secrets."""
    found = public(record)
    if "oidc" in found:
        found["oidc"] = {key: value for key, value in found["oidc"].items() if key not in _SECRETS}
    if "connectors" in found:
        found["connectors"] = {name: _shown(one) for name, one in found["connectors"].items()}
    return found


def _shown(connector: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a connector is without its secrets, of which only the names are told."""
    shown = {key: connector[key] for key in _SHOWN_OF_CONNECTORS if key in connector}
    return shown | {"secrets": [name for name in _SECRETS_OF_CONNECTORS if connector.get(name)]}


def _list(kinds: tuple[str, ...]) -> str:
    return f"a {kinds[0]}" if len(kinds) == 1 else f"a {', '.join(kinds[:-1])} or {kinds[-1]}"


def space_limits(record: Record) -> SpaceLimits:
    """Return the limits of a whole space, beside what it stores; what is in memory is bounded if nobody says so."""
    return SpaceLimits(
        connections=record.get("maxConnections", 0),
        devices=record.get("maxDevices", 0),
        links=record.get("maxLinks", 0),
        message_rate=record.get("maxMessageRate", 0),
        byte_rate=record.get("maxByteRate", 0),
        message_bytes=record.get("maxMessageSize", 0),
        ttl_ms=record.get("maxTtl", 0),
        retained=record.get("maxRetained") or MAX_RETAINED,
        retained_bytes=record.get("maxRetainedBytes") or MAX_RETAINED_BYTES,
        sessions=record.get("maxSessions") or MAX_SESSIONS,
        session_bytes=record.get("maxSessionBytes") or MAX_SESSION_BYTES,
        session_expiry_ms=record.get("maxSessionExpiry", 0),
        will_grace_ms=record.get("willGrace") or WILL_GRACE_MS,
        filter_addresses=record.get("maxFilterAddresses") or MAX_FILTER_ADDRESSES,
        subscriptions=record.get("maxSubscriptions") or MAX_SUBSCRIPTIONS,
        subscription_bytes=record.get("maxSubscriptionBytes") or MAX_SUBSCRIPTION_BYTES,
        connector_connections=record.get("maxConnectorConnections") or MAX_CONNECTOR_CONNECTIONS,
        connector_sessions=record.get("maxConnectorSessions") or MAX_CONNECTOR_SESSIONS,
        connector_unsettled=record.get("maxConnectorUnsettled") or MAX_CONNECTOR_UNSETTLED,
        connector_bytes=record.get("maxConnectorBytes") or MAX_CONNECTOR_BYTES,
        mqtt_packet_bytes=record.get("mqttPacketBytes", 0),
        mqtt_receive_maximum=record.get("mqttReceiveMaximum", 0),
        mqtt_keep_alive_s=record.get("mqttKeepAlive", 0),
        mqtt_inflight=record.get("mqttInflight", 0),
    )


def settings_of(record: Record, max_ttl_ms: int = 0) -> AddressSettings:
    """Return the settings of an address that its record holds.

    Args:
        record: the record of the address.
        max_ttl_ms: the space's limit of messages' time to live; 0 is without limit.
    """
    settings = read_settings(record)
    most = least(settings.ttl_maximum, max_ttl_ms)
    if not most:
        return settings
    return replace(settings, ttl_minimum=min(settings.ttl_minimum, most), ttl_maximum=most)


def declaration_of(record: Record, max_ttl_ms: int = 0) -> Declaration:
    """Return what the record of an address declares; see ``settings_of``."""
    return Declaration(
        log_id=record["log"],
        uid=record.get("uid", ""),
        topic=record.get("topic", ""),
        partitions=record.get("partitions", 1),
        settings=settings_of(record, max_ttl_ms),
    )
