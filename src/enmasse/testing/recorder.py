"""A handler and a sink that record every call of an AMQP engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import Link, ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Attach, Open
from enmasse.wire.amqp.session import Session

__all__ = ["Received", "Recorder", "RecordingSink", "Sent"]


@dataclass(slots=True, eq=False)
class Sent:
    """A delivery given to ``send``, and its outcome."""

    sink: RecordingSink
    state: Any = None
    is_settled: bool = False


class Received(NamedTuple):
    """One call of ``on_message`` or ``on_crossed``."""

    payload: bytes
    delivery_id: int
    settled: bool
    message_format: int
    crossed: bool


class RecordingSink:
    """Both kinds of sink in one.

    Args:
        link: the link whose sink it is.
    """

    def __init__(self, link: Link | None = None) -> None:
        self.link = link
        self.received: list[Received] = []
        self.credits: list[tuple[int, bool]] = []
        """Each change of the credit, and whether it was to be drained."""
        self.outcomes: list[tuple[Sent, Any]] = []
        self.blocked: list[bool] = []
        self.available: list[int] = []
        self.backlog: int | None = None
        """The number of waiting messages that it reports."""
        self.given_up: list[int] = []
        self.exhausted = 0
        self.answer: Any = None
        """The state to settle every delivery with at once; ``None`` leaves that to the test."""

    @property
    def payloads(self) -> list[bytes]:
        """The payloads that came, in order."""
        return [item.payload for item in self.received]

    @property
    def states(self) -> list[Any]:
        """The outcomes that came, in order."""
        return [state for _, state in self.outcomes]

    def send(self, payload: bytes, *, settled: bool = False, message_format: int = 0) -> Sent:
        """Send on the link and return what keeps the outcome."""
        assert isinstance(self.link, SendingLink)
        delivery = Sent(self)
        self.link.send(delivery, payload, settled, message_format)
        return delivery

    def on_credit(self, gained: int, drain: bool) -> None:
        """See ``SendingSink``."""
        self.credits.append((gained, drain))

    def confirm(self, done: Callable[[], None]) -> None:
        """Call ``done`` at once, as nothing has to be stored for an outcome."""
        done()

    def on_outcome(self, delivery: Sent, state: Any) -> None:
        """See ``SendingSink``."""
        delivery.state = state
        delivery.is_settled = True
        self.outcomes.append((delivery, state))

    def count_available(self) -> int | None:
        """See ``SendingSink``."""
        return self.backlog

    def on_blocked(self, blocked: bool) -> None:
        """See ``SendingSink``."""
        self.blocked.append(blocked)

    def on_message(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """See ``ReceivingSink``."""
        self._receive(Received(payload, delivery_id, settled, message_format, crossed=False))

    def on_crossed(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> None:
        """See ``ReceivingSink``."""
        self._receive(Received(payload, delivery_id, settled, message_format, crossed=True))

    def on_exhausted(self) -> None:
        """See ``ReceivingSink``."""
        self.exhausted += 1

    def on_given_up(self, credit: int) -> None:
        """See ``ReceivingSink``."""
        self.given_up.append(credit)

    def on_available(self, available: int) -> None:
        """See ``ReceivingSink``."""
        self.available.append(available)

    def _receive(self, item: Received) -> None:
        self.received.append(item)
        if self.answer is not None and not item.settled:
            assert isinstance(self.link, ReceivingLink)
            self.link.settle(item.delivery_id, self.answer)


class Recorder:
    """A handler that accepts whatever the peer asks for and keeps a diary.

    Attributes:
        diary: the calls in order, as (name, detail).
        links: every link that was attached or is asked for, in order; their sinks are
            ``RecordingSink``.
        on_wish: called with the peer's attach instead of accepting it.
        opens: whether to answer the peer's open at once.
        link_errors: the errors with which the peer detached links, in order.
    """

    def __init__(self) -> None:
        self.diary: list[tuple[str, Any]] = []
        self.links: list[Link] = []
        self.sessions: list[Session] = []
        self.on_wish: Callable[[Link, Attach], None] | None = None
        self.opens = True
        self.remote_open: Open | None = None
        self.error: AmqpError | None = None
        self.link_errors: list[AmqpError] = []

    def calls(self, name: str) -> list[Any]:
        """The details of every call of one name, such as ``detached``."""
        return [detail for called, detail in self.diary if called == name]

    def on_opened(self, connection: Connection, remote: Open) -> None:
        """See ``ConnectionHandler``."""
        self.diary.append(("opened", remote.container_id))
        self.remote_open = remote
        if self.opens and not connection.is_open_sent:
            connection.open()

    def on_begun(self, session: Session) -> None:
        """See ``ConnectionHandler``."""
        self.sessions.append(session)
        self.diary.append(("begun", session.channel))

    def on_attach(self, link: Link, attach: Attach) -> None:
        """See ``ConnectionHandler``."""
        self.links.append(link)
        self.diary.append(("attach", link.name))
        if self.on_wish is not None:
            self.on_wish(link, attach)
        else:
            link.accept(RecordingSink(link), source=attach.source, target=attach.target)

    def on_attached(self, link: Link) -> None:
        """See ``ConnectionHandler``."""
        self.diary.append(("attached", link.name))

    def on_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """See ``ConnectionHandler``."""
        self.diary.append(("detached", (link.name, error and error.condition, closed)))
        if error is not None:
            self.link_errors.append(error)

    def on_ended(self, session: Session, error: AmqpError | None) -> None:
        """See ``ConnectionHandler``."""
        self.diary.append(("ended", (session.channel, error and error.condition)))

    def on_closed(self, error: AmqpError | None) -> None:
        """See ``ConnectionHandler``."""
        self.error = error
        self.diary.append(("closed", error and error.condition))

    def on_transactional_message(
        self,
        link: ReceivingLink,
        payload: bytes,
        delivery_id: int,
        settled: bool,
        message_format: int,
        txn_id: bytes,
    ) -> None:
        """See ``ConnectionHandler``."""
        self.diary.append(
            ("posted", (txn_id, Received(payload, delivery_id, settled, message_format, crossed=False)))
        )

    def on_transactional_outcome(self, session: Session, delivery_id: int, state: Any, settled: bool) -> None:
        """See ``ConnectionHandler``."""
        self.diary.append(("retired", (delivery_id, state, settled)))
