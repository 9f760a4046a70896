"""Receivers that read a queue without taking anything: source distribution mode ``copy`` [AMQP 3.5.2].

A browser is sent what can be handed out when it asks, oldest first, in memory and on disk, then what comes
later. What receivers have unsettled is not shown. The filter ``enmasse:start`` says where it begins: ``first`` (the
default), ``next`` (only what comes later), or behind a message that is named by its id; the filter ``enmasse:id``
names the only message that is wanted. With the capability ``enmasse:ids`` messages carry their ids, as an annotation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import with_message_annotations
from enmasse.message.text_search import ID_ANNOTATION
from enmasse.messaging.delivery import SMALL_BYTES, Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.entry import READY, Entry, with_attempts
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.queues.jobs import LOOK_UNITS
from enmasse.messaging.queues.places import IDS_CAPABILITY, Place, offset_of
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from enmasse.messaging.address import AttachOptions
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.selectors.selector import Selector


PAGE_BYTES = 1 << 20

START_FILTER = "enmasse:start"
ID_FILTER = "enmasse:id"

_Shown = tuple[bytes, int, int, int]
"""A message that is about to be sent, its failed deliveries, its place in memory and its offset."""

_PRIORITY = attrgetter("priority")


def _place(name: str, value: Any, wanted: str) -> Place:
    place = Place.parse(value) if isinstance(value, str) else None
    if place is None:
        raise AttachError("amqp:invalid-field", f"filter {name} takes {wanted}, not {value!r:.100}")
    return place


class _Copy:
    """A delivery that the browser may settle; nothing depends on it."""

    __slots__ = ("sink",)

    def __init__(self, sink: Consumer) -> None:
        self.sink = sink


class Browser(Consumer):
    """A receiver of copies."""

    __slots__ = (
        "_asked", "_is_at_frame", "_is_draining", "_is_fetching", "_offset", "_only", "_page_bytes", "_rows",
        "_selector", "_seq", "_wanted", "_with_ids",
    )  # fmt: skip
    address: Backlog

    def __init__(
        self, address: Backlog, port: ConsumerPort, options: AttachOptions, selector: Selector | None
    ) -> None:
        super().__init__(address, port, options.presettle)
        self._selector = selector
        self._with_ids = IDS_CAPABILITY in options.capabilities
        self._rows: Iterator[_Shown] = iter(())
        """The messages that it has yet to look at."""
        self._page_bytes = 0
        """The bytes of the page on disk that these are of; 0 if they are in memory."""
        self._wanted = 0
        """The bytes of the next message, if it is a large one that waits for room on its way to the receiver."""
        self._only: Place | None = None
        """The place of the only message that is wanted."""
        self._seq, self._offset = self._start(options.filters.get(START_FILTER))
        """The place up to which messages in memory were shown, and the offset below which those on disk were."""
        if (name := options.filters.get(ID_FILTER)) is not None:
            self._only = _place(ID_FILTER, name, "the id of a message")
            self._offset = max(self._only.offset, 0)
        self._is_at_frame = False
        """True if the offset is the first one of a frame."""
        self._is_fetching = False
        self._is_draining = False
        self._asked = 0

    def _start(self, start: Any) -> tuple[int, int]:
        """Return the place and the offset to begin behind.

        Raises:
            AttachError: the filter names none.
        """
        backlog = self.address
        if start is None or start == "first":
            return -1, 0
        if start == "next":
            return backlog.seq, 0 if backlog.log is None else backlog.log.visible
        place = _place(START_FILTER, start, "first, next or the id of a message")
        # A place beyond all that are known is of a former start of the node.
        return place.seq if place.seq <= backlog.seq else -1, place.offset + 1

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what there is for the credit."""
        self._is_draining = drain
        self.address.due()

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Count the outcome; a browser takes nothing."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)

    def on_detached(self, *, closed: bool = False) -> None:
        """Note that the link is detached."""
        self.port.take_unsettled()
        super().on_detached(closed=closed)
        self.drop()
        self.address.core.read_ahead.keep(self, 0)

    def drop(self) -> None:
        """Drop what was read from disk, and not sent: it is read again."""
        if self._page_bytes:
            self._page_bytes = 0
            self._rows = iter(())
            self._is_at_frame = False

    def pump(self, most: int) -> bool:
        """Send what there is, as far as credit and so much work go; false if there may be more for its credit."""
        left = most
        while left > 0 and self.port.credit > 0 and not self.is_blocked:
            if self._wanted > SMALL_BYTES and self.must_wait(self._wanted):
                # To read it once more would be in vain.
                break
            self._wanted = 0
            shown = next(self._rows, None)
            if shown is not None:
                left -= LOOK_UNITS
                if self._selector is not None:
                    left -= self._selector.cost(shown[0])
                if self._shows(shown):
                    self._show(shown)
                elif self._page_bytes:
                    self._offset = shown[3] + 1
            else:
                self._page_bytes = 0
                if self._is_fetching or not (self._collect() or self._fetch()):
                    break
        core = self.address.core
        core.units += most - left
        core.read_ahead.keep(self, self._page_bytes)
        if left <= 0 and self.port.credit > 0 and not self.is_blocked:
            return False
        if self._is_draining and not self._is_fetching and not self.is_blocked:
            self._is_draining = False
            self.port.drained()
        return True

    def _show(self, shown: _Shown) -> None:
        """Send a message, or keep its place until there is room for it on its way to the receiver."""
        payload, _, _, offset = shown
        if len(payload) > SMALL_BYTES and self.must_wait(len(payload)):
            self._wanted = len(payload)
            if self._page_bytes:
                self._offset = offset
                self.drop()
            else:
                self._rows = chain((shown,), self._rows)
            return
        if self._page_bytes:
            self._offset = offset + 1
        self._send(shown)

    def _send(self, shown: _Shown) -> None:
        stored, attempts, seq, offset = shown
        payload = with_attempts(stored, attempts) if attempts else stored
        if self._with_ids:
            with suppress(DecodeError):
                payload = with_message_annotations(payload, {ID_ANNOTATION: str(Place.of(stored, seq, offset))})
        self.deliveries += 1
        if self.presettle:
            self.send(None, payload, True)
        else:
            self.unsettled += 1
            self.send(_Copy(self), payload, False)

    def _shows(self, shown: _Shown) -> bool:
        payload, attempts, seq, offset = shown
        if self._only is not None and not self._only.has(payload, seq, offset):
            return False
        return self._selector is None or self._selector.matches(payload, attempts)

    def _collect(self) -> bool:
        """Look at what is in memory next; false if there is nothing new."""
        new = self.address.in_memory(self._seq)
        if not new:
            return False
        self._seq = new[-1].seq
        if not self._with_ids and self.address.order is not None:
            # Who pages by ids needs the order in which they rise.
            new.sort(key=_PRIORITY, reverse=True)
        self._rows = self._entries(new)
        return True

    def _entries(self, entries: list[Entry]) -> Iterator[_Shown]:
        for entry in entries:
            offset = offset_of(entry)
            was_shown = 0 <= offset < self._offset
            if entry.state == READY and not was_shown:
                yield entry.payload, entry.attempts, entry.seq, offset

    def _fetch(self) -> bool:
        """Read on from disk; false if there is nothing there."""
        backlog = self.address
        pager, log = backlog.pager, backlog.log
        if pager is None or log is None or pager.at is None:
            return False
        if self._only is not None and self._offset > self._only.offset:
            return False
        if pager.merging.is_under_way:
            # The address has its turn when that is done.
            return True
        # What is no more on disk alone was shown from memory.
        start, end = pager.span(max(self._offset, pager.at))
        if start >= min(end, log.visible):
            return False
        storage = backlog.core.storage
        first = log_key(log.log_id, 0, start)
        if start == pager.at:
            first = log_key(log.log_id, 0, pager.frame_at)
        elif not self._is_at_frame:
            found = storage.floor(Table.FRAME, first, log_key(log.log_id, 0, 0))
            first = first if found is None else found[0]
        self._offset = start
        self._is_fetching = True
        self._asked = min(end, log.visible)
        storage.fetch(Table.FRAME, first, log_key(log.log_id, 0, end), PAGE_BYTES, self._fetched)
        return True

    def _fetched(self, records: list[tuple[bytes, bytes]], _damaged: list[bytes]) -> None:
        self._is_fetching = False
        backlog = self.address
        pager, log = backlog.pager, backlog.log
        if pager is None or log is None or backlog.is_closed:
            return
        self._rows = self._read(records)
        self._page_bytes = sum([len(value) for _, value in records])
        backlog.due()

    def _read(self, records: list[tuple[bytes, bytes]]) -> Iterator[_Shown]:
        """Yield the messages of a page, each as it is looked at."""
        if not records:
            self._offset = self._asked
            self._is_at_frame = True
        for _, value in records:
            pager, log = self.address.pager, self.address.log
            if pager is None or log is None or self.address.is_closed:
                return
            frame = Frame(value, verify=False)
            if frame.first_offset >= log.visible:
                return
            if not (pager.is_forgotten(frame) or pager.is_for_others(frame)):
                ref = pager.ref_of(frame)
                payloads = ref.payloads(frame)
                for row in ref.rows_left(max(0, self._offset - frame.first_offset)):
                    yield payloads[row], pager.attempts_of(ref, row), self._seq, frame.first_offset + row
            self._offset = max(self._offset, frame.next_offset)
            self._is_at_frame = True
