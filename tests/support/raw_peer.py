"""A peer that speaks to one AMQP engine frame by frame, and may break every rule.

It knows no state machine, so it says exactly what a test has it say, and shows what the engine
answered as frames read by the general decoder.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from enmasse.message.composites import decode_composite
from enmasse.testing.clock import ManualClock
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Composite, Open, Source, Target

__all__ = ["Frame", "RawPeer"]

P = TypeVar("P", bound=Composite)


class Frame(NamedTuple):
    """One frame of the engine; a heartbeat has no performative."""

    channel: int
    performative: Composite | None
    payload: bytes


class RawPeer:
    """The other end of one engine's connection.

    Args:
        engine: who is spoken to.
        clock: what ``receive`` is given; a new one without.
    """

    def __init__(self, engine: Connection, clock: ManualClock | None = None) -> None:
        self.engine = engine
        self.clock = clock or ManualClock()
        self.headers: list[bytes] = []
        """The protocol headers that came, in order."""
        self._unread = b""

    def say(self, *performatives: Composite, channel: int = 0, payload: bytes = b"") -> None:
        """Send each performative in a frame of its own; the payload goes with every one."""
        frames = [amqp_frame(channel, performative, len(payload)) + payload for performative in performatives]
        self.say_bytes(b"".join(frames))

    def say_sasl(self, performative: Composite) -> None:
        """Send a SASL frame."""
        self.say_bytes(sasl_frame(performative))

    def say_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.engine.receive(data, self.clock.now)

    def hear(self) -> list[Frame]:
        """The frames that the engine has put out since the last time."""
        data = self._unread + b"".join(self.engine.pending_output())
        frames: list[Frame] = []
        at = 0
        while len(data) - at >= 8:
            if data[at : at + 4] == b"AMQP":
                self.headers.append(data[at : at + 8])
                at += 8
                continue
            size = int.from_bytes(data[at : at + 4], "big")
            start, stop = at + 4 * data[at + 4], at + size
            if stop > len(data):
                break
            channel = int.from_bytes(data[at + 6 : at + 8], "big")
            if start == stop:
                frames.append(Frame(channel, None, b""))
            else:
                performative, after = decode_composite(data, start, stop)
                frames.append(Frame(channel, performative, data[after:stop]))
            at = stop
        self._unread = data[at:]
        return frames

    def hear_all(self, kind: type[P]) -> list[P]:
        """What was heard of one kind of performative; everything else is let go."""
        return [frame.performative for frame in self.hear() if isinstance(frame.performative, kind)]

    def hear_one(self, kind: type[P]) -> P:
        """The only performative of one kind that was heard; everything else is let go."""
        (found,) = self.hear_all(kind)
        return found

    def greet(self, *, open_with: Open | None = None) -> None:
        """Exchange headers and opens."""
        self.say_bytes(AMQP_HEADER)
        self.say(open_with or Open("raw"))
        self.hear()

    def begin(self, channel: int = 0, *, incoming_window: int = 1000, next_outgoing_id: int = 0) -> Begin:
        """Begin a session and return the engine's answer."""
        self.say(
            Begin(next_outgoing_id=next_outgoing_id, incoming_window=incoming_window, outgoing_window=1000),
            channel=channel,
        )
        return self.hear_one(Begin)

    def attach_sender(self, name: str = "in", handle: int = 0, *, channel: int = 0, **fields: object) -> Attach:
        """Attach a link on which this peer sends and return the engine's answer."""
        found = {"source": Source(), "target": Target("q"), "initial_delivery_count": 0, **fields}
        self.say(Attach(name, handle, False, **found), channel=channel)  # type: ignore[arg-type]
        return self.hear_one(Attach)

    def attach_receiver(self, name: str = "out", handle: int = 0, *, channel: int = 0, **fields: object) -> Attach:
        """Attach a link on which this peer receives and return the engine's answer."""
        found = {"source": Source("q"), "target": Target(), **fields}
        self.say(Attach(name, handle, True, **found), channel=channel)  # type: ignore[arg-type]
        return self.hear_one(Attach)
