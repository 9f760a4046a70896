"""Receivers of a measurement: they count what comes, and look when it was due."""

from __future__ import annotations

import time
from typing import Any

from enmasse.bench.errors import BenchError
from enmasse.bench.histogram import Histogram
from enmasse.bench.plan import Job
from enmasse.bench.stamp import STAMP, STAMP_BYTES
from enmasse.bench.window import Window
from enmasse.client import Delivery, Receiver

__all__ = ["Intake", "ReceivedCounts"]


class ReceivedCounts:
    """What the receivers of a process have seen; all but ``in_window`` is of everything that came.

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
        job: whose messages to expect.
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
