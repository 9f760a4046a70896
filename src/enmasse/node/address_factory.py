"""From the record of an address to the address itself, made anew or changed while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.messaging.address import Address
from enmasse.messaging.anycast import Anycast
from enmasse.messaging.backlog import Backlog
from enmasse.messaging.fallback import Direct
from enmasse.messaging.multicast import Multicast
from enmasse.messaging.patterns import Wild, parse
from enmasse.messaging.queue import Queue
from enmasse.messaging.stream import Stream
from enmasse.messaging.subscription import Subscription
from enmasse.messaging.topic import Topic
from enmasse.node.entity_fields import address_limits, stored_options

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.entity_fields import Record

__all__ = ["configure_address", "make_address"]


def make_address(core: Core, record: Record, max_ttl_ms: int = 0) -> Address:
    """Return the address that a record describes, empty and not yet part of its space.

    Args:
        core: whose turn it takes part in.
        record: of the address.
        max_ttl_ms: how long its space lets messages wait; 0 is without limit.
    """
    address = _make(core, record, max_ttl_ms)
    address.limit(address_limits(record))
    return address


def _make(core: Core, record: Record, max_ttl_ms: int) -> Address:
    name, kind, log = record["address"], record["addressType"], record["log"]
    options = stored_options(record, max_ttl_ms)
    if kind in ("anycast", "multicast"):
        direct = Anycast(core, name) if kind == "anycast" else Multicast(core, name)
        _configure_direct(direct, record)
        return direct
    if kind == "topic":
        return Topic(core, name, log, options=options)
    if kind == "stream":
        partitions = record.get("partitions", 1)
        return Stream(core, name, log, uid=record["uid"], partitions=partitions, **_stream_bounds(record))
    if kind == "subscription":
        topic = record["topic"]
        pattern = (*parse(topic), Wild.REST)
        return Subscription(core, name, log, topic=topic, pattern=pattern, options=options)
    return Queue(core, name, log, options=options)


def configure_address(address: Address, record: Record, max_ttl_ms: int = 0) -> None:
    """Have an address follow what its record, and its space, say by now."""
    address.limit(address_limits(record))
    if isinstance(address, Stream):
        address.configure(**_stream_bounds(record))
    elif isinstance(address, Backlog | Topic):
        address.configure(stored_options(record, max_ttl_ms))
    elif isinstance(address, Direct):
        _configure_direct(address, record)


def _configure_direct(address: Direct, record: Record) -> None:
    address.fall_back_to(record.get("fallback", ""))
    if isinstance(address, Multicast):
        address.slow = record.get("slowPolicy", "drop")


def _stream_bounds(record: Record) -> dict[str, int]:
    """Return what bounds a stream; more may be kept than the default limit if that is said."""
    kept = record.get("retentionBytes", 0)
    return {
        "max_bytes": record.get("maxBytes", 0) or kept,
        "retention_bytes": kept,
        "retention_ms": record.get("retentionMs", 0),
    }
