"""What every test of hostile peers needs: a bystander whose round trips go on meanwhile."""

from __future__ import annotations

import threading
import time
from statistics import median

from enmasse.client import blocking
from enmasse.errors import EnmasseError

__all__ = ["MEGABYTE", "Bystander"]

MEGABYTE = 1 << 20
PATIENCE_S = 30.0

WORST_MEDIAN_S = 1.0
"""Generous: it is a few milliseconds, but for one that shares a machine and an interpreter with its enemy."""


class Bystander:
    """Two clients, one of which asks and one of which answers, on one anycast address, again and again.

    Args:
        url: of the node.
        address: an anycast address of its own.
    """

    def __init__(self, url: str, address: str) -> None:
        self._url = url
        self._address = address
        self._latencies: list[float] = []
        self._error: Exception | None = None
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._answer, self._ask)]

    def start(self) -> None:
        """Begin, and return once it has had an answer."""
        for thread in self._threads:
            thread.start()
        self.wait_for(1)

    @property
    def round_trips(self) -> int:
        """How many there were."""
        return len(self._latencies)

    def wait_for(self, more: int) -> None:
        """Wait for so many more round trips."""
        goal = self.round_trips + more
        deadline = time.monotonic() + PATIENCE_S
        while self.round_trips < goal:
            assert self._error is None, self._error
            assert time.monotonic() < deadline, "the bystander's round trips have stopped"
            time.sleep(0.005)

    def check(self) -> None:
        """See that answers have come in time since the last look, and still come."""
        self.wait_for(3)
        taken, self._latencies[:-1] = self._latencies[:-1], []
        assert median(taken) < WORST_MEDIAN_S, f"the median of {len(taken)} round trips was {median(taken):.2f} s"

    def stop(self) -> None:
        """End both clients."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not any(thread.is_alive() for thread in self._threads)
        assert self._error is None, self._error

    def _run(self, work: object) -> None:
        try:
            with blocking.connect(self._url, timeout=PATIENCE_S, reconnect=False) as connection:
                work(connection)  # type: ignore[operator]
        except (EnmasseError, TimeoutError, AssertionError) as error:
            self._error = error

    def _answer(self, connection: blocking.Connection) -> None:
        requests = connection.receiver(self._address)
        answers = connection.sender(None)
        # Who asks may be in the middle of a round trip.
        while not self._is_over.is_set() or self._threads[1].is_alive():
            delivery = requests.receive(timeout=0.1)
            if delivery is not None:
                asked = delivery.message
                answer = blocking.Message(asked.body, to=asked.reply_to, correlation_id=asked.message_id)
                answers.send(answer, timeout=PATIENCE_S)
                delivery.accept()

    def _ask(self, connection: blocking.Connection) -> None:
        while not self._is_over.is_set():
            began = time.monotonic()
            answer = connection.request(self._address, blocking.Message(body="?"), timeout=PATIENCE_S)
            assert answer.body == "?"
            self._latencies.append(time.monotonic() - began)
            time.sleep(0.005)
