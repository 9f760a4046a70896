"""The core's turn: what gathered during one turn of the loop is done at its end, once.

Rules:
1. Addresses that have something to do say ``due`` and get one ``on_turn``.
2. Everything that is to be stored in a turn, by whatever addresses, becomes one batch of the journal;
   at most two batches are on their way, so that under load a batch grows instead of a queue of them.
   Of one log only one is: nothing that builds on a batch is written before its outcome is known.
   Logs that are written together wait for one another and share one batch, and so its outcome.
3. The shell brings clocks and calls ``run_turn``; the core asks for a turn by ``request_turn``.
4. What fails in one address or log (our bug) is reported, and the others go on.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from enmasse.errors import EnmasseError
from enmasse.messaging.chores import Chores
from enmasse.messaging.fan_out import FanOut
from enmasse.messaging.log.layout import delete_log
from enmasse.messaging.log.numbers import FIRST_VOLATILE_LOG, LogNumbers
from enmasse.messaging.read_ahead import ReadAhead
from enmasse.messaging.storage import Operation, Storage

MAX_BATCHES = 2
"""One batch that is being committed and one that waits for it."""

ENDED_IN_ORDER = b"\0end"
"""The key, in the table of entities, of when the node last stopped in order; it exists while no node runs."""

WINDOW_BYTES = 8 << 20
"""Bytes of one address in memory beyond which messages wait on disk; with overhead some 16,000 small ones."""

MAX_UNCONFIRMED_BYTES = 64 << 20
"""Above this stored addresses grant no credit: the journal is behind, or cannot be reached for a moment."""


SET_US = 500_000
"""The least by which the wall clock is off when it has been set: less is unsteady reading."""

MAX_UNITS = 2_000
"""The work of addresses in one turn of the core; a unit is a microsecond or two, about one message handed out."""

MUCH_UNITS = 100
"""The work of an address in one turn from which on it waits behind others in the next, if these wait."""

TURN_UNITS = 10
"""The cost of an address's turn beside the work in it."""

CLEARED_AT_ONCE = 500
"""Records that are deleted in one go."""

CLEARING = 20
"""The work of looking for those of one log."""

PAUSE_S = 0.1
"""Seconds without writes after a batch failed: what made it fail, a full disk say, does not pass
within the microseconds that another try would take."""


class Log(Protocol):
    """Something of an address that writes to the journal."""

    @property
    def name(self) -> str:
        """The name for reports."""

    def cut(self, wall_us: int) -> tuple[list[Operation], Any]:
        """Return the operations to write now and a token for them; no token if nothing depends on them."""

    def committed(self, token: Any) -> None:
        """Note that the operations of a cut are on disk."""

    def failed(self, token: Any, reason: str) -> None:
        """Note that the operations of a cut were not written and never will be."""


class FilledLog(Log, Protocol):
    """A log of which one batch may be more than one turn bears: what fills it holds the batch back meanwhile."""

    def cut_ahead(self, wall_us: int) -> Iterator[int] | None:
        """Return the parts of what is to be done ahead of a cut, with the work of each; nothing if it is little."""

    def committed_in_parts(self, token: Any) -> Iterator[int]:
        """Note that the operations of a cut are on disk, but for what ``committed`` does at once."""


def _ignore_dropped(_space: str | None, _address: str, _reason: str) -> None:
    """Take the place of who wants to know."""


class Timed(Protocol):
    """Something that has asked to be called at a time: an address, mostly."""

    @property
    def name(self) -> str:
        """The name for reports."""

    def on_deadline(self, now: float) -> None:
        """Handle the deadline."""


class Held(Protocol):
    """An address that waits until the journal has caught up."""

    def due(self) -> None:
        """Have ``on_turn`` called."""


class Due(Protocol):
    """Something that takes part in turns: an address, mostly."""

    is_due: bool

    @property
    def name(self) -> str:
        """The name for reports."""

    def on_turn(self, now: float) -> None:
        """Take its turn."""


class _Call:
    """A function that is to be called at a time."""

    __slots__ = ("_call", "name")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.name = "a delayed call"

    def on_deadline(self, _now: float) -> None:
        self._call()


class _Batch:
    __slots__ = ("callbacks", "cuts", "large", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.cuts: list[tuple[Log, Any]] = []
        self.large: list[tuple[list[tuple[FilledLog, Any]], list[tuple[Log, Any]]]] = []
        """The cuts that were more than one turn bears, with all that are reported together with them."""
        self.callbacks: list[Callable[[str | None], None]] = []


class Core:
    """The core that all addresses of a node share: the turn, the deadlines, the way to the journal.

    Args:
        storage: the journal.
        request_turn: asks the shell to call ``run_turn`` soon; called at most once per turn.
        on_fault: called with the name of what failed, and the error.
    """

    def __init__(
        self,
        storage: Storage,
        request_turn: Callable[[], None],
        on_fault: Callable[[str, Exception], None],
    ) -> None:
        self.storage = storage
        self.wall_us = 0
        """The wall clock of this turn, in microseconds since 1970 UTC."""
        self.steady_us = 0
        """The wall clock as it would be if it had not been set since the node's start: relative times run by it."""
        self.shift_us = 0
        """The time by which the wall clock has been set since then."""
        self._base_us: int | None = None
        self.gathered_bytes = 0
        """Bytes that logs hold for the next batch; they keep this account."""
        self.window_bytes = WINDOW_BYTES
        """Bytes of each stored address in memory beyond which messages wait on disk."""
        self.is_careful = False
        """True if the node before this one may have died of a message: then what it left is handed out only once
        that is marked on disk. Set by the loader of the journal."""
        self.log_numbers = LogNumbers()
        """The numbers of new logs; loaded by the loader of the journal."""
        self._next_volatile_log = FIRST_VOLATILE_LOG
        self.batches_committed = 0
        self.batches_failed = 0
        self.on_dropped: Callable[[str | None, str, str], None] = _ignore_dropped
        """Called with space, address and reason of a message that failed and has no address for dead letters."""
        self._request_turn = request_turn
        self._on_fault = on_fault
        self._is_requested = False
        self._due: list[Due] = []
        self._late: list[Due] = []
        """Those that were too much for one turn: some of them have theirs in each that follows, behind others."""
        self._had: set[Due] = set()
        """Those that did much in their turns while others waited for theirs."""
        self.units = 0
        """The work that addresses have done in this turn; they add what is much."""
        self.read_ahead = ReadAhead()
        """The records of the journal that were read for receivers and not taken yet."""
        self.fan_out = FanOut(self._request, on_fault)
        """The messages for very many receivers that are still to be handed out, in turns."""
        self.chores = Chores(self.due, on_fault)
        """The work on very many members that is left, done in turns."""
        self._leavings: deque[int] = deque()
        """Logs that are over, of which nothing is to stay in the journal."""
        self._logs: dict[Log, None] = {}
        self._groups: dict[Log, list[Log]] = {}
        """Logs that must be cut into one batch, by each of them."""
        self._operations: list[tuple[Sequence[Operation], Callable[[str | None], None]]] = []
        self._batches: deque[_Batch] = deque()
        self._busy: set[Log] = set()
        """Logs of which a batch is on its way."""
        self._filling: dict[Log, int] = {}
        """Logs that are not cut yet, and by how many that is asked for."""
        self._filled: dict[Log, FilledLog] = {}
        """Logs that were filled since they were cut."""
        self._ahead: set[Log] = set()
        """Logs of whose next cut a part is done."""
        self._held: dict[Held, None] = {}
        """Addresses that grant nothing until the journal has caught up."""
        self._deadlines: list[tuple[float, int, Timed]] = []
        self._waits: set[tuple[float, Timed]] = set()
        self._scheduled = 0
        self._now = 0.0
        self._paused_until: float | None = None
        self._is_shut = False
        self._calls: list[tuple[float, _Call]] = []
        """Callbacks, and the seconds from the next turn after which they are due."""

    # What addresses call

    def due(self, address: Due) -> None:
        """Have the address's ``on_turn`` called; see ``Address.due``."""
        self._due.append(address)
        self._request()

    def schedule(self, address: Timed, when: float) -> None:
        """Have the address's ``on_deadline`` called at ``when``; spurious calls are possible."""
        if (when, address) in self._waits:
            return
        if not self._deadlines or when < self._deadlines[0][0]:
            # The shell learns of an earlier deadline at the end of a turn.
            self._request()
        self._waits.add((when, address))
        self._scheduled += 1
        heapq.heappush(self._deadlines, (when, self._scheduled, address))

    def report(self, name: str, error: Exception) -> None:
        """Report an error in an address."""
        self._on_fault(name, error)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call something, in seconds from the end of this turn on."""
        self._calls.append((delay_s, _Call(call)))
        self._request()

    def new_log(self) -> tuple[int, Operation]:
        """Return a number for a log that was never used, and the operation with which the journal remembers it.

        Raises:
            AttachError: the node has none left.
        """
        number = self.log_numbers.draw()
        return number, self.log_counter()

    def log_counter(self) -> Operation:
        """Return the operation with which the journal remembers the log numbers used by now."""
        return self.log_numbers.counter()

    def new_volatile_log(self) -> int:
        """Return a number for a log that a restart forgets."""
        self._next_volatile_log += 1
        return self._next_volatile_log

    def write(self, log: Log) -> None:
        """Have the log cut into the next batch."""
        self._logs[log] = None
        self._request()

    def write_together(self, logs: Collection[Log]) -> None:
        """Have all these logs cut into one batch, so that either all of it is written or nothing.

        As long as one of them has a batch on its way, none is cut. Groups that share a log become one. The
        last of the logs is informed of the batch after all the others, unless it is part of another group as well.
        """
        group = dict.fromkeys(logs)
        for log in logs:
            group.update(dict.fromkeys(self._groups.get(log, ())))
        members = list(group)
        for log in members:
            self.write(log)
            if len(members) > 1:
                self._groups[log] = members

    def fill(self, log: FilledLog) -> None:
        """Have a log not cut until ``filled``: what it is given meanwhile belongs together."""
        self._filling[log] = self._filling.get(log, 0) + 1
        self._filled[log] = log

    def filled(self, log: Log) -> None:
        """Have a log cut again, as far as nobody else is filling it."""
        left = self._filling.pop(log, 1) - 1
        if left:
            self._filling[log] = left
        elif log in self._logs:
            self._request()

    def may_fill(self, log: Log) -> bool:
        """Return whether ``fill`` would hold up nothing that could be written at the end of this turn."""
        if log in self._filling or log not in self._logs or log in self._busy:
            return True
        return len(self._batches) >= MAX_BATCHES or self._paused_until is not None

    def store(self, operations: Sequence[Operation], done: Callable[[str | None], None]) -> None:
        """Write records of the configuration with the next batch.

        Args:
            operations: the changes.
            done: called with nothing once they are on disk, or with the reason why they are not.
        """
        self._operations.append((operations, done))
        self._request()

    def clear(self, log_id: int) -> None:
        """Delete all that a committed log has in the journal, after others that are to be deleted."""
        self._leavings.append(log_id)
        if len(self._leavings) == 1:
            self.chores.add("deletion of logs", self._clear())

    def _clear(self) -> Iterator[int]:
        while self._leavings:
            operations = delete_log(self.storage, self._leavings.popleft())
            while some := list(islice(operations, CLEARED_AT_ONCE)):
                self.store_in_time(some)
                yield len(some)
            yield CLEARING

    def store_in_time(self, operations: Sequence[Operation], done: Callable[[], None] | None = None) -> None:
        """Write records whose batch may fail, but which must be written once that is possible again.

        Args:
            operations: the changes.
            done: called once they are on disk.
        """

        def decided(reason: str | None) -> None:
            if reason is not None:
                self.store_in_time(operations, done)
            elif done is not None:
                done()

        self.store(operations, decided)

    @property
    def is_pressed(self) -> bool:
        """Return whether the journal is lost, or so far behind that nothing more should be taken for it."""
        return self._is_shut or self.storage.unconfirmed_bytes + self.gathered_bytes > MAX_UNCONFIRMED_BYTES

    @property
    def is_pausing(self) -> bool:
        """True if a batch failed so lately that no other is tried yet."""
        return self._paused_until is not None

    def hold(self, address: Held) -> None:
        """Have the address's ``on_turn`` called once the journal is pressed no more."""
        self._held[address] = None

    @property
    def is_idle(self) -> bool:
        """True if nothing waits to be written or to be confirmed."""
        is_written = not (self._logs or self._operations or self._batches or self._busy)
        return is_written and not (self._due or self._late or self.fan_out.is_busy)

    def _request(self) -> None:
        if not self._is_requested:
            self._is_requested = True
            self._request_turn()

    # What the shell calls

    def run_turn(self, now: float, wall_us: int) -> None:
        """Do the work that gathered: hand out, share credit, write.

        Args:
            now: the monotonic clock in seconds.
            wall_us: the wall clock in microseconds since 1970 UTC.
        """
        self.wall_us = wall_us
        self._now = now
        self._is_requested = True
        self.chores.spent = 0
        elapsed_us = int(now * 1e6)
        if self._base_us is None:
            self._base_us = wall_us - elapsed_us
        self.steady_us = self._base_us + elapsed_us
        shift = wall_us - self.steady_us
        if abs(shift - self.shift_us) > SET_US:
            self.shift_us = shift
            self._clock_set(now)
        if self.fan_out.is_busy:
            self.fan_out.on_turn()
        # What becomes due while others have their turn gets it too; what becomes due again waits.
        self.units = 0
        late = self._late
        if late:
            # Who did much in its turn while others waited for theirs waits behind them: nobody waits for such a one.
            had, self._had = self._had, set()
            late += [address for address in self._due if address in had]
            self._due = [address for address in self._due if address not in had]
        for _ in range(2):
            due = self._due
            if not due:
                break
            self._due = []
            self._late = self._late + self._have_turns(due, now)
        if late:
            self.units = 0
            self._late = self._have_turns(late, now) + self._late[len(late) :]
            if not self._late:
                self._had.clear()
        if self._paused_until is not None and now >= self._paused_until:
            self._paused_until = None
        self._is_requested = False
        if self._due or self._late:
            self._request()
        if (self._logs or self._operations) and len(self._batches) < MAX_BATCHES and self._paused_until is None:
            self._write_batch()
        if self.fan_out.is_ready:
            self._request()
        if self._calls:
            calls, self._calls = self._calls, []
            for delay_s, call in calls:
                self.schedule(call, now + delay_s)

    def _have_turns(self, due: list[Due], now: float) -> list[Due]:
        """Let addresses have their turns, and return those for whom this one is too short."""
        for at, address in enumerate(due):
            if self.units > MAX_UNITS:
                return due[at:]
            self.units += TURN_UNITS
            before = self.units
            address.is_due = False
            try:
                address.on_turn(now)
            except Exception as error:  # noqa: BLE001  the other addresses must have their turn
                self._on_fault(address.name, error)
            if self.units - before >= MUCH_UNITS and self._late:
                self._had.add(address)
        return []

    def next_deadline(self) -> float | None:
        """Return the time at which ``handle_deadline`` should be called."""
        first = self._deadlines[0][0] if self._deadlines else None
        paused = self._paused_until
        return paused if first is None or (paused is not None and paused < first) else first

    def handle_deadline(self, now: float) -> None:
        """Call the addresses whose time has come."""
        if self._paused_until is not None and now >= self._paused_until:
            self._request()
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            when, _, address = heapq.heappop(deadlines)
            self._waits.discard((when, address))
            self._call(address, now)

    def _clock_set(self, now: float) -> None:
        """Run everything that may wait for a time of day, as the wall clock was set."""
        for address in dict.fromkeys(timed for _, _, timed in self._deadlines):
            if not isinstance(address, _Call):
                self._call(address, now)

    def _call(self, address: Timed, now: float) -> None:
        try:
            address.on_deadline(now)
        except Exception as error:  # noqa: BLE001  as above
            self._on_fault(address.name, error)

    # The journal

    def shut(self, is_shut: bool) -> None:
        """Take nothing more for the journal, as it is lost, or take it again."""
        self._is_shut = is_shut
        self._go_on()

    def _write_batch(self) -> None:
        logs, self._logs = self._logs, {}
        operations: list[Operation] = []
        batch = _Batch(0)
        groups, busy, filling = self._groups, self._busy, self._filling
        grouped: set[Log] = set()
        for log in logs:
            if log in grouped:
                continue
            group = groups.get(log)
            if group is None:
                group = [log]
            else:
                grouped.update(group)
            if any(member in busy or member in filling for member in group) or self._cut_ahead(group):
                self._logs.update(dict.fromkeys(group))
                continue
            for member in group:
                groups.pop(member, None)
            operations += self._cut(group, batch)
        for extra, done in self._operations:
            operations += extra
            batch.callbacks.append(done)
        self._operations = []
        if not operations and not batch.cuts and not batch.large:
            return
        try:
            batch.number = self.storage.submit(operations)
        except EnmasseError as error:
            self._answer(batch, str(error))
            return
        self._batches.append(batch)

    def _cut_ahead(self, group: Sequence[Log]) -> bool:
        """Begin to cut, in turns, those that one turn would not bear; return whether there is such a log."""
        is_ahead = False
        for filled in [self._filled[log] for log in group if log in self._filled]:
            parts = filled.cut_ahead(self.wall_us)
            if parts is not None:
                is_ahead = True
                self._filling[filled] = 1
                self._ahead.add(filled)
                self.chores.add(filled.name, self._go_on_cutting(filled, parts))
        return is_ahead

    def _go_on_cutting(self, log: FilledLog, parts: Iterator[int]) -> Iterator[int]:
        try:
            yield from parts
        finally:
            self.filled(log)
            self._request()

    def _cut(self, group: Sequence[Log], batch: _Batch) -> list[Operation]:
        """Cut logs that share a batch; where one of them fails, nothing of the others is written either."""
        operations: list[Operation] = []
        cuts: list[tuple[Log, Any]] = []
        problem: str | None = None
        for log in group:
            try:
                cut, token = log.cut(self.wall_us)
            except Exception as error:  # noqa: BLE001  the others must be written
                self._on_fault(log.name, error)
                problem = f"{log.name!r} failed: {error}"
                continue
            if token is not None:
                operations += cut
                cuts.append((log, token))
        if problem is not None:
            self._report(cuts, problem)
            return []
        ahead: list[tuple[FilledLog, Any]] = []
        for log in [log for log in group if log in self._filled] if self._filled else ():
            filled = self._filled.pop(log)
            if log in self._ahead:
                self._ahead.remove(log)
                ahead += [(filled, token) for one, token in cuts if one is log]
        if ahead:
            batch.large.append((ahead, cuts))
        else:
            batch.cuts += cuts
        self._busy.update(log for log, _ in cuts)
        return operations

    def on_committed(self, number: int) -> None:
        """Note that every batch up to ``number`` is on disk."""
        batches = self._batches
        while batches and batches[0].number <= number:
            self.batches_committed += 1
            self._answer(batches.popleft(), None)
        self._go_on()

    def on_failed(self, number: int, reason: str) -> None:
        """Note that one batch was not written."""
        for batch in list(self._batches):
            if batch.number == number:
                self._batches.remove(batch)
                self._answer(batch, reason)
        self._go_on()

    def _answer(self, batch: _Batch, reason: str | None) -> None:
        if reason is not None:
            self.batches_failed += 1
            self._paused_until = self._now + PAUSE_S
        for ahead, cuts in batch.large:
            if reason is None:
                self.chores.add("a batch of the journal", self._report_in_parts(ahead, cuts))
            else:
                self._report(cuts, reason)
        self._report(batch.cuts, reason)
        for done in batch.callbacks:
            try:
                done(reason)
            except Exception as error:  # noqa: BLE001  as above
                self._on_fault("a change of the configuration", error)

    def _report_in_parts(self, ahead: list[tuple[FilledLog, Any]], cuts: list[tuple[Log, Any]]) -> Iterator[int]:
        for log, token in ahead:
            try:
                yield from log.committed_in_parts(token)
            except Exception as error:  # noqa: BLE001  as above
                self._on_fault(log.name, error)
        self._report(cuts, None)
        self._go_on()

    def _report(self, cuts: list[tuple[Log, Any]], reason: str | None) -> None:
        for log, _ in cuts:
            self._busy.discard(log)
        for log, token in cuts:
            try:
                if reason is None:
                    log.committed(token)
                else:
                    log.failed(token, reason)
            except Exception as error:  # noqa: BLE001  the others must be informed too
                self._on_fault(log.name, error)

    def _go_on(self) -> None:
        if self._held and not self.is_pressed:
            held, self._held = self._held, {}
            for address in held:
                address.due()
        if self._logs or self._operations or self.fan_out.is_busy:
            self._request()
