"""The attributes of CloudEvents 1.0 in messages, whatever protocol an event came over.

An event is kept in AMQP's binary mode: attributes are application properties that begin with ``cloudEvents_``, and
the data is the body. So clients of every protocol find the same, and selectors see attributes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from enmasse.message.types import Timestamp
from enmasse.node.plain_values import as_text

VERSION: Final = "1.0"

PREFIX: Final = "cloudEvents_"
"""Before attributes in application properties; clients of JMS cannot have the colon of ``cloudEvents:``."""

PREFIXES: Final = (PREFIX, "cloudEvents:")

REQUIRED: Final = ("specversion", "id", "source", "type")
"""The attributes that each event has."""

NAME: Final = re.compile(r"[a-z0-9]{1,64}", re.ASCII)
"""The name of an attribute."""


def attributes_of(properties: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the attributes among application properties; none if the message is no event."""
    found = {
        name[len(PREFIX) :]: value
        for name, value in properties.items()
        if isinstance(name, str) and name.startswith(PREFIXES)
    }
    return found if all(found.get(name) for name in REQUIRED) else {}


def shown(value: Any) -> str | bool | int:
    """Return an attribute, which AMQP may have in a type of its own, as CloudEvents have it in JSON."""
    if isinstance(value, Timestamp):
        try:
            time = datetime.fromtimestamp(int(value) // 1_000, UTC).replace(microsecond=int(value) % 1_000 * 1_000)
        except (ValueError, OverflowError, OSError):
            return str(int(value))
        return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        # CloudEvents have numbers of 32 bits.
        return int(value) if -(1 << 31) <= value < 1 << 31 else str(int(value))
    return as_text(value)
