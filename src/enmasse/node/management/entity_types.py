"""Describes management itself: its entity types, their attributes and operations [AMQP Management 3.3].

The answer has only what is open to the one who asks, so each management passes its own types and operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE, FIELDS, SPACE_TYPE
from enmasse.node.management.installation import INSTALLATION_TYPE
from enmasse.node.management.requests import ACTIONS
from enmasse.node.users.fields import USER_ATTRIBUTES, USER_TYPE

CONNECTION_TYPE, LINK_TYPE = "io.enmasse.connection", "io.enmasse.link"
SESSION_TYPE, WILL_TYPE = "io.enmasse.session", "io.enmasse.will"

SELF_OPERATIONS = ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS", "GET-MGMT-NODES")
"""Operations of management itself, not of an entity."""

Operations = Mapping[str, Mapping[str, Sequence[str]]]
"""The names of arguments by entity type and operation."""

ARGUMENTS: Mapping[str, Sequence[str]] = {
    **ACTIONS,
    "TRACE": ("container", "payload"),
    "LEASE": ("ranges", "given"),
    "LIST": ("after",),
    "CONNECTIONS": ("offset",),
    "SESSIONS": ("offset",),
    "WILLS": ("offset",),
    "END": ("client",),
    "LINKS": ("offset",),
    "CLOSE": ("connection",),
    "PENDING": ("address", "reason"),
    "TEST-CONNECTOR": (
        "host",
        "port",
        "tls",
        "authorities",
        "certificate",
        "key",
        "username",
        "password",
        "idleTimeout",
        "maxFrameSize",
        "address",
    ),
    "KEYS": (),
    "MAY": ("operation", "address"),
}
"""The keys of the map in an operation's body, where those are not attributes."""

_ATTRIBUTES: dict[str, Sequence[str]] = {
    SPACE_TYPE: (
        *FIELDS[SPACE_TYPE], "digest", "portProblem", "connections", "devices", "links", "bytesStored",
        "retained", "retainedBytes", "sessions", "subscriptions", "subscriptionBytes", "dynamicAddresses",
        "unroutable", "connectorStatus",
    ),
    ADDRESS_TYPE: (
        *FIELDS[ADDRESS_TYPE], "digest", "senders", "receivers", "messagesIn", "messagesOut", "accepted", "rejected",
        "released", "modified", "unsettled", "dropped", "messagesStored", "bytesStored", "bytesInMemory", "expired",
        "deadLettered", "selectorsExceeded", "subscriptions", "damaged", "partitionMarks", "consumers", "creditAsked",
        "creditGranted", "creditExcess", "backlog", "fallbackTaken", "receiversAside", "timesSetAside",
    ),
    USER_TYPE: USER_ATTRIBUTES,
    CONNECTION_TYPE: (
        "protocol", "container", "host", "space", "user", "mechanism", "tls", "via", "properties", "openedAt",
        "senders", "receivers", "transactions", "bytesIn", "bytesOut", "messagesIn", "messagesOut", "paused",
    ),
    LINK_TYPE: (
        "connection", "container", "role", "address", "space", "credit", "deliveries", "unsettled", "accepted",
        "rejected", "released", "modified", "presettled", "backlog",
    ),
    SESSION_TYPE: (
        "space", "user", "connected", "expiry", "leftAt", "filters", "filterCount", "messagesStored", "bytesStored",
        "dropped", "inFlightOut", "inFlightIn",
    ),
    WILL_TYPE: ("space", "user", "client", "link", "address", "state", "delay", "bytes"),
    "io.enmasse.listener": ("host", "port", "connections"),
    "io.enmasse.statistics": (
        "version", "pid", "journalPid", "startedAt", "uptime", "cpuSeconds", "connections", "links", "spaces",
        "addresses", "messagesIn", "messagesOut", "commits", "failedCommits", "unconfirmedBytes", "journalBytes",
        "journalUp", "journalFailure", "journalReplacements", "groupCommits", "commitTimes", "turnLags", "recentLag",
        "memoryBytes", "diskFreeBytes", "halfOpen", "turnedAway", "handshakeTimeouts", "unfinishedBytes",
        "unfinishedWaiting", "unfinishedGivenUp", "unreadBytes", "unreadLimit", "unreadWaiting", "unreadGivenUp",
        "transactionBytes", "transactionsGivenUp", "loginsFailed", "loginsDelayed", "passwordsChecked",
        "passwordsWaiting", "passwordPid", "events", "ready",
    ),
    "io.enmasse.configuration": ("instance", "changes", "installation"),
    INSTALLATION_TYPE: ("since", "nextLog", "logRanges", "logsGiven"),
    "io.enmasse.health": ("live", "ready", "recentLag", "problems"),
}  # fmt: skip

ATTRIBUTES: Mapping[str, Sequence[str]] = {
    entity_type: ("type", "name", "identity", *names) for entity_type, names in _ATTRIBUTES.items()
}
"""Every attribute that an entity of a type may have, by type; not every entity has all."""


def describe_types(operation: str, asked: Mapping[str, Any], operations: Operations) -> Any:
    """Return the body of the answer to one of ``SELF_OPERATIONS``.

    Args:
        operation: the operation's name.
        asked: the application properties of the request; ``entityType`` restricts it to one type.
        operations: the operations that are open to the one who asks.

    Raises:
        EntityError: 501 there is no such type.
    """
    if operation == "GET-MGMT-NODES":
        # Nodes do not know of each other; control does.
        return []
    wanted = asked.get("entityType")
    if wanted is not None and (not isinstance(wanted, str) or wanted not in operations):
        raise EntityError(501, f"there is no entity type {wanted!r:.100}; there are {', '.join(operations)}")
    types = list(operations) if wanted is None else [wanted]
    if operation == "GET-TYPES":
        # None of them extends another.
        return {entity_type: [] for entity_type in types}
    if operation == "GET-ATTRIBUTES":
        return {entity_type: list(ATTRIBUTES[entity_type]) for entity_type in types}
    return {
        entity_type: {name: list(arguments) for name, arguments in operations[entity_type].items()}
        for entity_type in types
    }
