"""Receivers that look at a queue without taking anything: source distribution mode ``copy`` [AMQP 3.5.2].

A browser is sent what can be handed out when it asks, oldest first, in memory and on disk, then what comes
later. What receivers have unsettled is not shown.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from enmasse.messaging.delivery import ACCEPTED, Consumer, ConsumerPort
from enmasse.messaging.frame import Frame
from enmasse.messaging.log import log_key, log_range
from enmasse.messaging.queue_entry import READY, Entry
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from enmasse.messaging.backlog import Backlog
    from enmasse.messaging.selector import Selector

__all__ = ["Browser"]

PAGE_BYTES = 1 << 20


class _Copy:
    """A delivery that the browser may settle; nothing depends on it."""

    __slots__ = ("sink",)

    def __init__(self, sink: Consumer) -> None:
        self.sink = sink


class Browser(Consumer):
    """A receiver of copies."""

    __slots__ = ("_asked", "_is_draining", "_is_fetching", "_offset", "_payloads", "_selector", "_seq")
    address: Backlog

    def __init__(self, address: Backlog, port: ConsumerPort, presettle: bool, selector: Selector | None) -> None:
        super().__init__(address, port, presettle)
        self._selector = selector
        self._payloads: deque[bytes] = deque()
        self._seq = -1
        """What was in memory is shown up to this place."""
        self._offset = 0
        """What is on disk only is shown below this offset."""
        self._is_fetching = False
        self._is_draining = False
        self._asked = 0

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what there is for the credit."""
        self._is_draining = drain
        self.address.due()

    def on_outcome(self, delivery: Any, state: Any) -> None:
        """Looking takes nothing: the outcome is only counted."""
        self.unsettled -= 1
        if state is not ACCEPTED:
            self.count(state)

    def gone(self, *, closed: bool = False) -> None:
        """The link is detached."""
        self.port.take_unsettled()
        super().gone(closed=closed)

    def pump(self) -> None:
        """Send what there is, as far as credit goes."""
        while self.port.credit > 0 and not self.is_blocked:
            if self._payloads:
                self._send(self._payloads.popleft())
            elif self._is_fetching or (self._seq >= 0 and self._fetch()):
                return
            elif not self._look():
                if self._seq >= 0 or not self._fetch():
                    break
                return
        if self._is_draining and not self._is_fetching and not self.is_blocked:
            self._is_draining = False
            self.port.drained()

    def _send(self, payload: bytes) -> None:
        self.deliveries += 1
        if self.presettle:
            self.send(None, payload, True)
        else:
            self.unsettled += 1
            self.send(_Copy(self), payload, False)

    def _shows(self, payload: bytes, attempts: int) -> bool:
        return self._selector is None or self._selector.matches(payload, attempts)

    def _look(self) -> bool:
        """Take up what is in memory; false if there is nothing new."""
        backlog = self.address
        entries: list[Entry] = [*backlog.returned, *backlog.ready]
        if backlog.order is not None:
            entries += backlog.order.entries()
        new = [entry for entry in entries if entry.state == READY and entry.seq > self._seq]
        if not new:
            return False
        self._seq = max(entry.seq for entry in new)
        for entry in new:
            ref = entry.frame
            was_shown = ref is not None and ref.first + entry.row < self._offset
            if not was_shown and self._shows(entry.payload, entry.attempts):
                self._payloads.append(entry.payload)
        return True

    def _fetch(self) -> bool:
        """Read on from disk; false if there is nothing there."""
        backlog = self.address
        pager, log = backlog.pager, backlog.log
        if pager is None or log is None or pager.at is None:
            return False
        if pager.merging.is_under_way:
            # The address has its turn when that is done.
            return True
        start = max(self._offset, pager.frame_at)
        if start >= log.visible:
            return False
        self._is_fetching = True
        self._asked = log.visible
        backlog.core.storage.fetch(
            Table.FRAME, log_key(log.log_id, 0, start), log_range(log.log_id, 0)[1], PAGE_BYTES, self._fetched
        )
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
            self._look_at(frame, max(self._offset, pager.at or 0))
            self._offset = frame.next_offset
        backlog.due()

    def _look_at(self, frame: Frame, start: int) -> None:
        pager = self.address.pager
        assert pager is not None
        if pager.is_forgotten(frame):
            return
        ref = pager.ref_of(frame)
        gone = set(ref.settled) | (ref.taken or set())
        for row, payload in enumerate(frame.payloads()):
            if row not in gone and frame.first_offset + row >= start and self._shows(payload, 0):
                self._payloads.append(payload)
