"""A server's engine that accepts whatever it is asked, and a peer that speaks to it frame by frame."""

from __future__ import annotations

from typing import Any

from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Composite, Flow, Open, Transfer
from tests.support.raw_peer import RawPeer

__all__ = ["Scene", "condition_of", "flow", "is_alive", "kinds"]


class Scene(RawPeer):
    """The peer of one engine.

    Args:
        open_with: the peer's open; none leaves the greeting to the test.
        options: what the engine is made with.
    """

    def __init__(self, open_with: Open | None = None, *, greets: bool = True, **options: Any) -> None:
        self.diary = Recorder()
        made: dict[str, Any] = {"container_id": "s", "is_server": True, "now": 0.0, **options}
        super().__init__(Connection(self.diary, **made))
        if greets:
            self.greet(open_with=open_with)

    def sink(self, name: str) -> RecordingSink:
        """The engine's sink of the latest link of a name."""
        link = next(link for link in reversed(self.diary.links) if link.name == name)
        assert isinstance(link.sink, RecordingSink)
        return link.sink

    def receiving(self, name: str = "in") -> ReceivingLink:
        """The engine's end of a link on which this peer sends."""
        link = self.sink(name).link
        assert isinstance(link, ReceivingLink)
        return link

    def sending(self, name: str = "out") -> SendingLink:
        """The engine's end of a link on which this peer receives."""
        link = self.sink(name).link
        assert isinstance(link, SendingLink)
        return link

    def sender(self, credit: int = 10, name: str = "in", handle: int = 0, **fields: Any) -> RecordingSink:
        """Attach a link on which this peer sends, with credit; the engine's sink."""
        self.attach_sender(name, handle, **fields)
        if credit:
            self.receiving(name).grant(credit)
            self.hear()
        return self.sink(name)

    def receiver(self, credit: int = 10, name: str = "out", handle: int = 0, **fields: Any) -> RecordingSink:
        """Attach a link on which this peer receives, and grant credit; the engine's sink."""
        self.attach_receiver(name, handle, **fields)
        if credit:
            self.say(flow(handle, credit))
            self.hear()
        return self.sink(name)

    def send(self, delivery_id: int, payload: bytes = b"m", *, tag: bytes | None = None, **fields: Any) -> None:
        """Send one transfer on handle 0, unless ``fields`` say otherwise."""
        made = {"handle": 0, "delivery_tag": tag or b"t%d" % delivery_id, **fields}
        self.say(Transfer(delivery_id=delivery_id, **made), payload=payload)

    def heard(self) -> list[Composite]:
        """Every performative that the engine has put out since the last time."""
        return [frame.performative for frame in self.hear() if frame.performative is not None]


def flow(handle: int | None, credit: int | None, *, count: int | None = 0, **fields: Any) -> Flow:
    """A flow of a peer whose window is wide."""
    made = {"next_incoming_id": 0, "incoming_window": 1000, "outgoing_window": 1000, **fields}
    return Flow(handle=handle, link_credit=credit, delivery_count=count, **made)


def kinds(performatives: list[Composite]) -> list[str]:
    """The names of their types, in order."""
    return [type(found).__name__ for found in performatives]


def condition_of(performative: Any) -> str | None:
    """The condition of the error in an end, a detach or a close."""
    return None if performative.error is None else str(performative.error.condition)


def is_alive(scene: Scene, channel: int = 50) -> bool:
    """Whether the connection still begins sessions."""
    scene.hear()
    return not scene.engine.closed and scene.begin(channel).remote_channel == channel
