"""The load: senders and receivers of one process, and when each message is due.

A sender sends one message after the other when it is due, whatever the peer does, or as many as the peer takes.
A receiver counts what comes, and reads from each message when it was due.

Event loops count in milliseconds; messages of an open loop that wait for the next of these would be
late by half of one, and the peer would be blamed. So the kernel's interval timer wakes the loop with a
signal: one pacer for a process, in its main thread.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import signal
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from enmasse.bench.histogram import Histogram
from enmasse.bench.plan import STAMP, STAMP_BYTES, BenchError, Job
from enmasse.client import Delivery, Message, Outcome, Receiver, Sender
from enmasse.errors import EnmasseError

LEAST_S = 20e-6
"""Nearer moments are taken as now: to wait for them takes longer than they are away."""


class Pacer:
    """Wakes tasks at moments of the monotonic clock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._loop.add_signal_handler(signal.SIGALRM, self._wake)

    async def until(self, due: int) -> None:
        """Return at ``due`` nanoseconds, or at once if that is over."""
        waiter = self._loop.create_future()
        heapq.heappush(self._waiting, (due, next(self._numbers), waiter))
        if self._waiting[0][2] is waiter:
            self._wake()
        await waiter

    def _wake(self) -> None:
        waiting = self._waiting
        while waiting:
            left_s = (waiting[0][0] - time.monotonic_ns()) / 1e9
            if left_s > LEAST_S:
                signal.setitimer(signal.ITIMER_REAL, left_s)
                return
            _, _, waiter = heapq.heappop(waiting)
            if not waiter.done():
                waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class Window:
    """Moments of the monotonic clock, in nanoseconds.

    Attributes:
        begin: sending begins, for warming up.
        start: the moment from which what is due counts.
        end: nothing is due any more.
    """

    begin: int
    start: int
    end: int


def head_and_filler(size: int, *, durable: bool) -> tuple[bytes, bytes]:
    """Return the bytes of a message of ``size`` bytes before and after its stamp."""
    payload = Message(b"\0" * size, durable=durable).encode()
    return payload[: len(payload) - size], b"x" * (size - STAMP_BYTES)


PORTION = 256
"""Messages that are sent before the loop has its turn: about what one write of the socket takes."""


class SentCounts:
    """Counts of the senders of a process; all but ``in_window`` is of everything that was sent.

    Attributes:
        sent: messages handed over with a right to go.
        outcomes: the number of each outcome that came back.
        failed: messages whose outcome cannot be known any more.
        unsent: messages that were due, and for which there was no credit to the end.
        measured: messages that were due in the measured part, sent or not.
        in_window: outcomes (of settled messages: departures) during the measured part.
        latency: from when each measured message was due to its outcome; what was never sent counts
            with the time for which it had waited.
        late: from when each measured message was due until it was handed over.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.outcomes: dict[str, int] = {}
        self.failed = 0
        self.unsent = 0
        self.measured = 0
        self.in_window = 0
        self.latency = Histogram()
        self.late = Histogram()
        self.unsent_waits = Histogram()

    def dump(self) -> dict[str, Any]:
        """Everything, for the conductor."""
        return {
            "sent": self.sent,
            "outcomes": self.outcomes,
            "failed": self.failed,
            "unsent": self.unsent,
            "measured": self.measured,
            "in_window": self.in_window,
            "latency": self.latency.dump(),
            "late": self.late.dump(),
            "unsent_waits": self.unsent_waits.dump(),
        }


class Feed:
    """Feeds one sender.

    Args:
        sender: the link, attached.
        number: the number of the sender, from 0 on.
        job: the messages to send.
        counts: shared by all feeds of the process.
        pacer: wakes up when a message is due.
    """

    def __init__(self, sender: Sender, number: int, job: Job, counts: SentCounts, pacer: Pacer) -> None:
        self._sender = sender
        self._number = number
        self._job = job
        self._counts = counts
        self._pacer = pacer
        self._head, self._filler = head_and_filler(job.size, durable=job.is_durable)
        self._window = Window(0, 0, 0)
        self._index = 0
        self._under_way = 0
        self._changed = asyncio.Event()
        self._error: EnmasseError | None = None

    async def run(self, window: Window) -> None:
        """Send until the window's end, and wait for outcomes.

        Raises:
            EnmasseError: the link has ended.
        """
        self._window = window
        await self._pacer.until(window.begin)
        late_s = (window.end - time.monotonic_ns()) / 1e9 + self._job.drain_s
        try:
            async with asyncio.timeout(late_s):
                if self._job.period_ns:
                    await self._send_when_due()
                elif self._job.is_presettled:
                    await self._send_as_credit_comes()
                else:
                    await self._send_as_outcomes_come()
                await self._sender.flush()
        except TimeoutError:
            self._count_unsent()
        # The callbacks of the last outcomes are still to run.
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error

    async def _send_when_due(self) -> None:
        end = self._window.end
        while (due := self._due()) < end:
            if due > time.monotonic_ns():
                await self._pacer.until(due)
            room = min(PORTION, await self._sender.wait_for_credit())
            now = time.monotonic_ns()
            while room and due <= now and due < end:
                self._send(due, now)
                room -= 1
                due = self._due()
            if due <= now:
                await asyncio.sleep(0)

    def _due(self) -> int:
        job = self._job
        return self._window.begin + int((self._number + self._index * job.senders) * job.period_ns)

    async def _send_as_credit_comes(self) -> None:
        while time.monotonic_ns() < self._window.end:
            try:
                async with asyncio.timeout((self._window.end - time.monotonic_ns()) / 1e9):
                    room = await self._sender.wait_for_credit()
            except TimeoutError:
                return
            now = time.monotonic_ns()
            for _ in range(min(PORTION, room)):
                self._send(now, now)
            await asyncio.sleep(0)

    async def _send_as_outcomes_come(self) -> None:
        outstanding = self._job.outstanding
        while self._error is None and (now := time.monotonic_ns()) < self._window.end:
            for _ in range(outstanding - self._under_way):
                self._send(now, now)
            self._changed.clear()
            try:
                async with asyncio.timeout((self._window.end - now) / 1e9):
                    await self._changed.wait()
            except TimeoutError:
                return

    def _send(self, due: int, now: int) -> None:
        job, counts, window = self._job, self._counts, self._window
        payload = b"".join((self._head, STAMP.pack(due, job.run, self._number, self._index), self._filler))
        self._index += 1
        counts.sent += 1
        if due >= window.start:
            counts.measured += 1
            counts.late.record(now - due)
        future = self._sender.send_payload_nowait(payload, settled=job.is_presettled)
        if not job.is_presettled:
            self._under_way += 1
            future.add_done_callback(partial(self._on_outcome, due))
        elif window.start <= now < window.end:
            counts.in_window += 1

    def _on_outcome(self, due: int, future: asyncio.Future[Outcome]) -> None:
        counts, window = self._counts, self._window
        self._under_way -= 1
        self._changed.set()
        error = None if future.cancelled() else future.exception()
        if error is not None or future.cancelled():
            counts.failed += 1
            if isinstance(error, EnmasseError):
                self._error = error
            return
        name = future.result().name
        counts.outcomes[name] = counts.outcomes.get(name, 0) + 1
        now = time.monotonic_ns()
        if due >= window.start:
            counts.latency.record(now - due)
        if window.start <= now < window.end:
            counts.in_window += 1

    def _count_unsent(self) -> None:
        """Count messages that were due and never sent with their waits; to leave them out would flatter the peer."""
        if not self._job.period_ns:
            return
        counts, window = self._counts, self._window
        now = time.monotonic_ns()
        while (due := self._due()) < window.end:
            self._index += 1
            counts.unsent += 1
            if due >= window.start:
                counts.measured += 1
                counts.late.record(now - due)
                counts.unsent_waits.record(now - due)


class ReceivedCounts:
    """Counts of the receivers of a process; all but ``in_window`` is of everything that came.

    Attributes:
        received: messages of this run.
        foreign: messages of others, or of an earlier run.
        measured: messages of this run that were due in its measured part.
        in_window: messages that came during the measured part, whosever they are.
        disordered: messages that came after a later one of the same sender, or again.
        latency: from when each measured message was due until it was here.
    """

    def __init__(self) -> None:
        self.received = 0
        self.foreign = 0
        self.measured = 0
        self.in_window = 0
        self.disordered = 0
        self.latency = Histogram()

    def dump(self) -> dict[str, Any]:
        """Everything, for the conductor."""
        return {
            "received": self.received,
            "foreign": self.foreign,
            "measured": self.measured,
            "in_window": self.in_window,
            "disordered": self.disordered,
            "latency": self.latency.dump(),
        }


class Intake:
    """Empties one receiver.

    Args:
        receiver: the link, attached without credit.
        job: the messages to expect.
        counts: shared by all receivers of the process.
    """

    def __init__(self, receiver: Receiver, job: Job, counts: ReceivedCounts) -> None:
        self._receiver = receiver
        self._size = job.size
        self._run = job.run
        self._counts = counts
        self._next: dict[int, int] = {}
        self._window = Window(0, 0, 0)

    async def run(self, window: Window) -> None:
        """Take what comes, until cancelled.

        Raises:
            BenchError: the peer has ended the link.
            EnmasseError: it has ended otherwise.
        """
        self._window = window
        receiver, counts = self._receiver, self._counts
        while True:
            delivery = await receiver.receive()
            if delivery is None:
                raise BenchError(f"{receiver} was ended by the peer")
            # What lies here has come before this moment, and is looked at in one go.
            now = time.monotonic_ns()
            number = 0
            while delivery is not None:
                self._take(delivery, now)
                delivery.accept()
                number += 1
                delivery = receiver.receive_nowait()
            if window.start <= now < window.end:
                counts.in_window += number

    def _take(self, delivery: Delivery, now: int) -> None:
        counts = self._counts
        payload = delivery.payload
        at = len(payload) - self._size
        if at < 0 or len(payload) < STAMP_BYTES:
            counts.foreign += 1
            return
        due, run, sender, number = STAMP.unpack_from(payload, at)
        if run != self._run:
            counts.foreign += 1
            return
        counts.received += 1
        expected = self._next.get(sender, 0)
        if number < expected:
            counts.disordered += 1
        else:
            self._next[sender] = number + 1
        if due >= self._window.start:
            counts.measured += 1
            counts.latency.record(now - due)
