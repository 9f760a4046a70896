"""A client and a server engine, joined and recorded, with a session between them."""

from __future__ import annotations

from typing import Any

from enmasse.testing.clock import ManualClock
from enmasse.testing.engine_pair import EnginePair
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Source, Target
from enmasse.wire.amqp.sasl import SaslClient, SaslServer
from enmasse.wire.amqp.session import Session
from enmasse.wire.sasl.mechanisms import Anonymous

__all__ = ["RecordedPair"]


class RecordedPair(EnginePair):
    """Two engines whose handlers and sinks are recorders; the server accepts whatever it is asked.

    Args:
        client: the arguments of the client's ``Connection`` besides its own defaults.
        server: the same for the server's.
        with_sasl: whether they meet by SASL ANONYMOUS.
    """

    def __init__(
        self,
        *,
        client: dict[str, Any] | None = None,
        server: dict[str, Any] | None = None,
        with_sasl: bool = False,
    ) -> None:
        clock = ManualClock()
        self.client_diary = Recorder()
        self.server_diary = Recorder()
        asks: dict[str, Any] = {"container_id": "client", "is_server": False, "now": clock.now}
        answers: dict[str, Any] = {"container_id": "server", "is_server": True, "now": clock.now}
        if with_sasl:
            asks["sasl"] = SaslClient([Anonymous()])
            answers["sasl"] = SaslServer(["ANONYMOUS"], lambda *_: True, is_optional=False)
        super().__init__(
            Connection(self.client_diary, **asks | (client or {})),
            Connection(self.server_diary, **answers | (server or {})),
            clock,
        )

    def begin(self) -> Session:
        """A session that runs in both directions; the client's end of it."""
        self.pump()
        session = self.client.begin()
        self.pump()
        return session

    def sender(self, session: Session, name: str = "out", **options: Any) -> tuple[RecordingSink, ReceivingLink]:
        """A link on which the client sends: its sink, and the server's end."""
        sink = RecordingSink()
        sink.link = session.attach_sender(name, sink, Target("q"), **options)
        self.pump()
        link = self.server_diary.links[-1]
        assert isinstance(link, ReceivingLink)
        return sink, link

    def receiver(self, session: Session, name: str = "in", **options: Any) -> tuple[ReceivingLink, RecordingSink]:
        """A link on which the client receives: its link, and the server's sink."""
        sink = RecordingSink()
        link = session.attach_receiver(name, sink, Source("q"), **options)
        sink.link = link
        self.pump()
        return link, self.sink_of(self.server_diary.links[-1])

    @staticmethod
    def sink_of(link: Link | None) -> RecordingSink:
        """Return the sink of a link."""
        assert isinstance(link, SendingLink | ReceivingLink)
        assert isinstance(link.sink, RecordingSink)
        return link.sink
