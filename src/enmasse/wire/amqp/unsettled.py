"""Unsettled deliveries: their tags, and which of a session's belong to a link.

When links go, each delivery of their session is looked at once, however many links do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enmasse.wire.amqp.session_output import SessionOutput

MASK = 0xFFFFFFFF

FEW = 64
"""So many are looked through as they are."""


def tag_of(delivery_id: int) -> bytes:
    """The tag under which we send a delivery: its id, seven bits in a byte.

    A tag is any binary [AMQP 2.8.7], but clients are known that read it as UTF-8, which this is.
    """
    high = delivery_id >> 7
    return bytes((high >> 21, high >> 14 & 0x7F, high >> 7 & 0x7F, high & 0x7F, delivery_id & 0x7F))


def number_of(tag: bytes) -> int:
    """The delivery id under which a tag of ours was sent first."""
    number = 0
    for seven in tag:
        number = number << 7 | seven
    return number


class UnsettledByLink:
    """A session's unsettled deliveries by the sink that gets their outcomes."""

    __slots__ = ("_by_sink", "_kept", "_seen")

    def __init__(self) -> None:
        self._by_sink: dict[Any, list[int]] = {}
        self._kept = 0
        """Delivery ids in all lists, of which some may have been settled meanwhile."""
        self._seen = 0
        """The delivery id from which on none was looked at."""

    def take(self, session: SessionOutput, sink: Any) -> list[Any]:
        """Remove from the session and return what a sink has, oldest first."""
        unsettled = session.unsettled
        if len(unsettled) <= FEW:
            ids = [delivery_id for delivery_id, delivery in unsettled.items() if delivery.sink is sink]
            return [unsettled.pop(delivery_id) for delivery_id in ids]
        self._look(session)
        ids = self._by_sink.pop(sink, [])
        self._kept -= len(ids)
        taken = []
        for delivery_id in ids:
            delivery = unsettled.get(delivery_id)
            if delivery is not None and delivery.sink is sink:
                del unsettled[delivery_id]
                taken.append(delivery)
        return taken

    def _look(self, session: SessionOutput) -> None:
        unsettled, enlisted = session.unsettled, session.enlisted
        known = len(unsettled) + len(enlisted)
        span = (session.next_delivery_id - self._seen) & MASK
        if not self._kept or span > known or self._kept > 2 * known:
            self._by_sink.clear()
            self._kept = 0
            news = [*unsettled, *enlisted]
        else:
            news = [(self._seen + more) & MASK for more in range(span)]
        self._seen = session.next_delivery_id
        lists = self._by_sink
        for delivery_id in news:
            delivery = unsettled.get(delivery_id)
            if delivery is None:
                # One that is enlisted comes back when its transaction is rolled back.
                retired = enlisted.get(delivery_id)
                if retired is None:
                    continue
                delivery = retired.delivery
            lists.setdefault(delivery.sink, []).append(delivery_id)
            self._kept += 1
