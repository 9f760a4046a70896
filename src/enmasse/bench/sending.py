"""Senders of a measurement: one message after the other is due, whatever the peer does, or as many as it takes."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from enmasse.bench.histogram import Histogram
from enmasse.bench.pacer import Pacer
from enmasse.bench.plan import Job
from enmasse.bench.stamp import STAMP, head_and_filler
from enmasse.bench.window import Window
from enmasse.client import Outcome, Sender
from enmasse.errors import EnmasseError

__all__ = ["Feed", "SentCounts"]

PORTION = 256
"""Messages that are sent before the loop has its turn: about what one write of the socket takes."""


class SentCounts:
    """What the senders of a process have done; all but ``in_window`` is of everything that was sent.

    Attributes:
        sent: messages handed over with a right to go.
        outcomes: how often which outcome came back.
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
        number: of the sender, from 0 on.
        job: what to send.
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
        """What was due and could not go has waited all that time; to leave it out would flatter the peer."""
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
