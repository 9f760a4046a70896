"""The core's turn: what gathered during one turn of the loop is done at its end, once.

Rules:
1. Addresses that have something to do say ``due`` and get one ``on_turn``.
2. Everything that is to be stored in a turn, by whatever addresses, becomes one batch of the journal;
   at most two batches are on their way, so that under load a batch grows instead of a queue of them.
3. The shell brings clocks and calls ``run_turn``; the core asks for a turn by ``request_turn``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from enmasse.messaging.storage import Operation, Storage

if TYPE_CHECKING:
    from enmasse.messaging.address import Address

__all__ = ["Core", "Log"]

MAX_BATCHES = 2
"""One that is being committed and one that waits for it."""

MAX_UNCONFIRMED_BYTES = 64 << 20
"""Above this stored addresses grant no credit: the journal is behind, or gone for a moment."""


class Log(Protocol):
    """Something of an address that writes to the journal."""

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """What is to be written now, and what hangs on it; nothing hangs on nothing."""

    def committed(self, token: Any) -> None:
        """What was cut is on disk."""

    def failed(self, token: Any, reason: str) -> None:
        """What was cut was not written and never will be."""


class _Batch:
    __slots__ = ("callbacks", "cuts", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cuts: list[tuple[Log, Any]] = []
        self.callbacks: list[Callable[[str | None], None]] = []


class Core:
    """What all addresses of a node share: the turn, the deadlines, the way to the journal.

    Args:
        storage: the journal.
        request_turn: asks the shell to call ``run_turn`` soon; called at most once per turn.
        on_fault: hears of an address that failed in its turn (our bug); the others have theirs.
    """

    def __init__(
        self,
        storage: Storage,
        request_turn: Callable[[], None],
        on_fault: Callable[[Address, Exception], None],
    ) -> None:
        self.storage = storage
        self.wall_us = 0
        """The wall clock of this turn, in microseconds since 1970 UTC."""
        self.batches_committed = 0
        self.batches_failed = 0
        self._request_turn = request_turn
        self._on_fault = on_fault
        self._is_requested = False
        self._due: list[Address] = []
        self._logs: dict[Log, None] = {}
        self._operations: list[tuple[Sequence[Operation], Callable[[str | None], None]]] = []
        self._batches: deque[_Batch] = deque()
        self._deadlines: list[tuple[float, int, Address]] = []
        self._scheduled = 0

    # What addresses call

    def due(self, address: Address) -> None:
        """Have the address's ``on_turn`` called; see ``Address.due``."""
        self._due.append(address)
        self._request()

    def schedule(self, address: Address, when: float) -> None:
        """Have the address's ``on_deadline`` called at ``when``; spurious calls are possible."""
        self._scheduled += 1
        heapq.heappush(self._deadlines, (when, self._scheduled, address))

    def write(self, log: Log) -> None:
        """Have the log cut into the next batch."""
        self._logs[log] = None
        self._request()

    def store(self, operations: Sequence[Operation], done: Callable[[str | None], None]) -> None:
        """Write records of the configuration with the next batch.

        Args:
            operations: the changes.
            done: called with nothing once they are on disk, or with the reason why they are not.
        """
        self._operations.append((operations, done))
        self._request()

    @property
    def is_pressed(self) -> bool:
        """Whether the journal is so far behind that nothing more should be taken for it."""
        return self.storage.unconfirmed_bytes > MAX_UNCONFIRMED_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written or to be confirmed."""
        return not (self._due or self._logs or self._operations or self._batches)

    def _request(self) -> None:
        if not self._is_requested:
            self._is_requested = True
            self._request_turn()

    # What the shell calls

    def run_turn(self, now: float, wall_us: int) -> None:
        """Do what gathered: hand out, share credit, write.

        Args:
            now: the monotonic clock in seconds.
            wall_us: the wall clock in microseconds since 1970 UTC.
        """
        self.wall_us = wall_us
        self._is_requested = True
        # What becomes due while others have their turn gets it too; what becomes due again waits.
        for _ in range(2):
            due = self._due
            if not due:
                break
            self._due = []
            for address in due:
                address.is_due = False
                try:
                    address.on_turn(now)
                except Exception as error:  # noqa: BLE001  the other addresses must have their turn
                    self._on_fault(address, error)
        if (self._logs or self._operations) and len(self._batches) < MAX_BATCHES:
            self._write_batch()
        self._is_requested = False
        if self._due:
            self._request()

    def next_deadline(self) -> float | None:
        """When ``handle_deadline`` should be called."""
        return self._deadlines[0][0] if self._deadlines else None

    def handle_deadline(self, now: float) -> None:
        """Call the addresses whose time has come."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            address = heapq.heappop(deadlines)[2]
            try:
                address.on_deadline(now)
            except Exception as error:  # noqa: BLE001  as above
                self._on_fault(address, error)

    # The journal

    def _write_batch(self) -> None:
        logs = self._logs
        self._logs = {}
        operations: list[Operation] = []
        batch = _Batch(0)
        for log in logs:
            cut, token = log.cut(self.wall_us)
            if token is not None:
                operations += cut
                batch.cuts.append((log, token))
        for extra, done in self._operations:
            operations += extra
            batch.callbacks.append(done)
        self._operations = []
        if not operations and not batch.cuts:
            return
        batch.number = self.storage.submit(operations)
        self._batches.append(batch)

    def on_committed(self, number: int) -> None:
        """Every batch up to ``number`` is on disk."""
        batches = self._batches
        while batches and batches[0].number <= number:
            batch = batches.popleft()
            self.batches_committed += 1
            for log, token in batch.cuts:
                log.committed(token)
            for done in batch.callbacks:
                done(None)
        if self._logs or self._operations:
            self._request()

    def on_failed(self, number: int, reason: str) -> None:
        """One batch was not written."""
        for batch in list(self._batches):
            if batch.number == number:
                self._batches.remove(batch)
                self.batches_failed += 1
                for log, token in batch.cuts:
                    log.failed(token, reason)
                for done in batch.callbacks:
                    done(reason)
        if self._logs or self._operations:
            self._request()
