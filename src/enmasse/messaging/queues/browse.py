"""Receivers that read a queue without taking anything: source distribution mode ``copy`` [AMQP 3.5.2].

A browser is sent what can be handed out when it asks, oldest first, in memory and on disk, then what comes
later. What receivers have unsettled is not shown. The filter ``enmasse:start`` says where it begins: ``first`` (the
default), ``next`` (only what comes later), or behind a message that is named by its id; the filter ``enmasse:id``
names the only message that is wanted. With the capability ``enmasse:ids`` messages carry their ids, as an annotation.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.messaging.errors import AttachError
from enmasse.messaging.log.entry import with_attempts
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.queues.places import IDS_CAPABILITY, Place, offset_of
from enmasse.messaging.storage import Table
from enmasse.wire.amqp.errors import DecodeError
from enmasse.wire.amqp.performatives import ACCEPTED
from enmasse.wire.amqp.sections import with_message_annotations
from enmasse.wire.amqp.text_search import ID_ANNOTATION

if TYPE_CHECKING:
    from enmasse.messaging.address import AttachOptions
    from enmasse.messaging.queues.backlog import Backlog
    from enmasse.messaging.selectors.selector import Selector


PAGE_BYTES = 1 << 20

START_FILTER = "enmasse:start"
ID_FILTER = "enmasse:id"

_Shown = tuple[bytes, int, int, int]
"""A message that is about to be sent, its failed deliveries, its place in memory and its offset."""


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
        "_asked", "_has_begun", "_is_draining", "_is_fetching", "_offset", "_only", "_payloads", "_selector", "_seq",
        "_with_ids",
    )  # fmt: skip
    address: Backlog

    def __init__(
        self, address: Backlog, port: ConsumerPort, options: AttachOptions, selector: Selector | None
    ) -> None:
        super().__init__(address, port, options.presettle)
        self._selector = selector
        self._with_ids = IDS_CAPABILITY in options.capabilities
        self._payloads: deque[_Shown] = deque()
        self._only: Place | None = None
        """The place of the only message that is wanted."""
        self._seq, self._offset = self._start(options.filters.get(START_FILTER))
        """The place up to which messages in memory were shown, and the offset below which those on disk were."""
        if (name := options.filters.get(ID_FILTER)) is not None:
            self._only = _place(ID_FILTER, name, "the id of a message")
            self._offset = max(self._only.offset, 0)
        self._has_begun = False
        """True once memory was looked through."""
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

    def pump(self) -> None:
        """Send what there is, as far as credit goes."""
        while self.port.credit > 0 and not self.is_blocked:
            if self._payloads:
                self._send(self._payloads.popleft())
            elif self._is_fetching or (self._has_begun and self._fetch()):
                return
            else:
                is_first, self._has_begun = not self._has_begun, True
                if not self._collect() and not is_first:
                    break
        if self._is_draining and not self._is_fetching and not self.is_blocked:
            self._is_draining = False
            self.port.drained()

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

    def _shows(self, payload: bytes, attempts: int) -> bool:
        return self._selector is None or self._selector.matches(payload, attempts)

    def _is_other(self, payload: bytes, seq: int, offset: int) -> bool:
        return self._only is not None and not self._only.has(payload, seq, offset)

    def _collect(self) -> bool:
        """Collect what is in memory; false if there is nothing new."""
        backlog = self.address
        # Who pages by ids needs the order in which they rise.
        entries = backlog.in_memory() if self._with_ids else backlog.in_turn()
        new = [entry for entry in entries if entry.seq > self._seq]
        if not new:
            return False
        self._seq = max(entry.seq for entry in new)
        for entry in new:
            offset = offset_of(entry)
            was_shown = 0 <= offset < self._offset
            if was_shown or self._is_other(entry.payload, entry.seq, offset):
                continue
            if self._shows(entry.payload, entry.attempts):
                self._payloads.append((entry.payload, entry.attempts, entry.seq, offset))
        return True

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
        start, end = pager.span(max(self._offset, pager.frame_at))
        if start >= min(end, log.visible):
            return False
        self._is_fetching = True
        self._asked = min(end, log.visible)
        keys = log_key(log.log_id, 0, start), log_key(log.log_id, 0, end)
        backlog.core.storage.fetch(Table.FRAME, *keys, PAGE_BYTES, self._fetched)
        return True

    def _fetched(self, records: list[tuple[bytes, bytes]], _damaged: list[bytes]) -> None:
        self._is_fetching = False
        backlog = self.address
        pager, log = backlog.pager, backlog.log
        if pager is None or log is None or backlog.is_closed:
            return
        if not records:
            self._offset = self._asked
        for _, value in records:
            frame = Frame(value, verify=False)
            if frame.first_offset >= log.visible:
                break
            self._collect_frame(frame, max(self._offset, pager.at or 0))
            self._offset = frame.next_offset
        backlog.due()

    def _collect_frame(self, frame: Frame, start: int) -> None:
        pager = self.address.pager
        assert pager is not None
        if pager.is_forgotten(frame) or pager.is_for_others(frame):
            return
        ref = pager.ref_of(frame)
        payloads = ref.payloads(frame)
        for row in ref.rows_left(max(0, start - frame.first_offset)):
            if self._is_other(payloads[row], 0, frame.first_offset + row):
                continue
            attempts = pager.attempts_of(ref, row)
            if self._shows(payloads[row], attempts):
                self._payloads.append((payloads[row], attempts, self._seq, frame.first_offset + row))
