"""Two AMQP engines joined in memory, with a clock that the test moves.

    pair = EnginePair(client, server)
    pair.pump()                          # carry bytes until both are quiet
    pair.to_server.chunk_bytes = 1       # cut what is carried into pieces
    pair.to_client.is_held = True        # keep what is carried on its way
    pair.tick(30.0)                      # time passes, deadlines are handled

Rules:
1. Nothing moves by itself: bytes travel in ``pump`` and ``tick`` only, time in ``tick`` only.
2. One lane per direction. A lane is first-in first-out unless a test reorders it, which no real
   network does to a stream: that is for tests of what an engine does with nonsense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enmasse.testing.clock import ManualClock
from enmasse.wire.amqp.connection import Connection

__all__ = ["EnginePair", "Lane"]


class Lane:
    """The way from one engine to the other.

    Args:
        source: the connection whose output is carried.
        destination: the connection that receives it.
        clock: by which delayed chunks become due.
    """

    def __init__(self, source: Connection, destination: Connection, clock: ManualClock) -> None:
        self._source = source
        self._destination = destination
        self._clock = clock
        self._waiting: list[tuple[float, bytes]] = []
        self.chunk_bytes: int | None = None
        """Cut what is carried into pieces of this size; ``None`` carries it as it was put out."""
        self.delay_s = 0.0
        """Seconds that a chunk is on its way."""
        self.is_held = False
        """True if everything stays on its way for now."""
        self.tamper: Callable[[bytes], bytes] | None = None
        """Changes each chunk as it enters the lane."""
        self.carried = bytearray()
        """Everything that was ever delivered, for replays."""

    @property
    def waiting(self) -> list[bytes]:
        """The chunks that are on their way, the next one first."""
        return [chunk for _, chunk in self._waiting]

    def collect(self) -> None:
        """Take what the source has to say onto the lane."""
        data = b"".join(self._source.pending_output())
        if data and self.tamper is not None:
            data = self.tamper(data)
        due = self._clock.now + self.delay_s
        size = self.chunk_bytes or len(data)
        self._waiting.extend((due, data[at : at + size]) for at in range(0, len(data), size or 1))

    def deliver(self, chunks: int | None = None) -> int:
        """Hand over what is due, at most ``chunks`` pieces of it, and say how many there were."""
        if self.is_held:
            return 0
        count = 0
        while self._waiting and self._waiting[0][0] <= self._clock.now and count != chunks:
            _, chunk = self._waiting.pop(0)
            self.carried += chunk
            self._destination.receive(chunk, self._clock.now)
            count += 1
        return count

    def reorder(self, order: Sequence[int]) -> None:
        """Put the waiting chunks into another order, given as their present positions."""
        if sorted(order) != list(range(len(self._waiting))):
            raise ValueError(f"{list(order)} is no order of {len(self._waiting)} chunks")
        self._waiting = [self._waiting[position] for position in order]

    def drop(self) -> None:
        """Lose everything that is on its way."""
        self._waiting.clear()

    def next_arrival(self) -> float | None:
        """The time at which the next chunk that is on its way is due."""
        return None if self.is_held or not self._waiting else self._waiting[0][0]


class EnginePair:
    """A client and a server that talk to each other in memory.

    Args:
        client: the engine that speaks first.
        server: the engine that answers.
        clock: the clock that both were made with; a new one from 0 without.
    """

    def __init__(self, client: Connection, server: Connection, clock: ManualClock | None = None) -> None:
        self.client = client
        self.server = server
        self.clock = clock or ManualClock()
        self.to_server = Lane(client, server, self.clock)
        self.to_client = Lane(server, client, self.clock)

    def pump(self) -> None:
        """Carry bytes both ways until nothing moves any more."""
        moved = True
        while moved:
            self.to_server.collect()
            self.to_client.collect()
            moved = bool(self.to_server.deliver() + self.to_client.deliver())

    def tick(self, seconds: float) -> None:
        """Let time pass, stopping wherever an engine has a deadline or a chunk arrives."""
        end = self.clock.now + seconds
        self.pump()
        while True:
            stops = [engine.next_deadline() for engine in (self.client, self.server)]
            stops += [self.to_server.next_arrival(), self.to_client.next_arrival()]
            now = min((stop for stop in stops if stop is not None), default=end)
            if now > end:
                break
            self.clock.advance(max(0.0, now - self.clock.now))
            for engine in (self.client, self.server):
                deadline = engine.next_deadline()
                if deadline is not None and deadline <= self.clock.now:
                    engine.handle_deadline(self.clock.now)
            self.pump()
            if now >= end:
                break
        self.clock.advance(max(0.0, end - self.clock.now))

    def cut(self) -> None:
        """Lose the connection: what is on its way is lost, and both engines are informed."""
        self.to_server.drop()
        self.to_client.drop()
        self.client.lost()
        self.server.lost()
