"""Parses STOMP's headers: addresses, subscriptions, acknowledgement modes and filters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.message.types import Timestamp
from enmasse.messaging.retaining import RETAINED_FILTER
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.streams.reader import PARTITION_FILTER, START_FILTER
from enmasse.messaging.streams.readers import CONSUMER
from enmasse.wire.stomp.frames import Version

if TYPE_CHECKING:
    from enmasse.messaging.space import Space


PREFIXES: Final = ("/queue/", "/topic/")
"""Prefixes that clients of other brokers put before names."""

MODES: Final = ("auto", "client", "client-individual")

AUTO_WINDOW: Final = 1_000
CLIENT_WINDOW: Final = 100
MAX_WINDOW: Final = 10_000
"""The most messages that a subscription may have without an outcome: more is hardly meant."""

INVALID: Final = "amqp:invalid-field"


def resolve(space: Space, destination: str) -> str:
    """Return the address of a destination, without another broker's prefix unless an address has that very name."""
    if space.knows(destination):
        return destination
    return next((destination[len(prefix) :] for prefix in PREFIXES if destination.startswith(prefix)), destination)


def required(headers: Mapping[str, str], name: str, command: str) -> str:
    """Return a mandatory header.

    Raises:
        RemoteError: the header is missing.
    """
    value = headers.get(name)
    if not value:
        raise RemoteError(INVALID, f"{command} has no header {name!r}")
    return value


def subscription_of(headers: Mapping[str, str], command: str, version: Version) -> str:
    """Return the subscription's name; clients of version 1.0 may use the destination."""
    by_destination = headers.get("destination") if version is Version.V1_0 else None
    return headers.get("id") or by_destination or required(headers, "id", command)


def is_true(headers: Mapping[str, str], name: str) -> bool:
    """Return true if a header is ``true``."""
    return headers.get(name, "").strip().lower() == "true"


def durable_name(headers: Mapping[str, str], name: str) -> str | None:
    """Return the name of a durable subscription, in the headers of several brokers; None if it is not durable."""
    for header in ("durable-subscription-name", "activemq.subscriptionName"):
        if headers.get(header):
            return headers[header]
    return name if is_true(headers, "durable") else None


def mode_of(headers: Mapping[str, str]) -> str:
    """Return the acknowledgement mode.

    Raises:
        RemoteError: the mode is unknown.
    """
    mode = headers.get("ack", "auto")
    if mode not in MODES:
        raise RemoteError(INVALID, f"ack is one of {', '.join(MODES)}; not {mode!r:.60}")
    return mode


def window_of(headers: Mapping[str, str], mode: str) -> int:
    """Return the most messages that a subscription may have without an outcome."""
    for name in ("prefetch-count", "activemq.prefetchSize"):
        if name in headers:
            return _number(name, headers[name], 1, MAX_WINDOW)
    return AUTO_WINDOW if mode == "auto" else CLIENT_WINDOW


def filters_of(headers: Mapping[str, str]) -> dict[str, Any]:
    """Return a subscriber's filters as those of AMQP."""
    found: dict[str, Any] = {}
    if headers.get("selector"):
        found[SELECTOR_FILTER] = headers["selector"]
    if "start" in headers:
        found[START_FILTER] = _start(headers["start"])
    if "partition" in headers:
        found[PARTITION_FILTER] = _number("partition", headers["partition"], 0, (1 << 31) - 1)
    if "consumer" in headers:
        found[CONSUMER] = headers["consumer"]
    if "retained" in headers:
        found[RETAINED_FILTER] = headers["retained"]
    return found


def _start(text: str) -> Any:
    """Return where a reader of a stream begins: a word, an offset, or a time."""
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RemoteError(
            INVALID,
            f"start is first, last, next, an offset, or a time such as 2026-01-31T12:00:00Z; not {text!r:.60}",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Timestamp(int(moment.timestamp() * 1000))


def _number(name: str, text: str, least: int, most: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20) or not least <= int(text) <= most:
        raise RemoteError(INVALID, f"{name} is a whole number from {least} to {most}, not {text!r:.60}")
    return int(text)
