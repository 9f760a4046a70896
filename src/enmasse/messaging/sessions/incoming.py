"""The packet ids of QoS 2 that a session has received: each message is stored once, whatever is sent again.

Rules:
1. A message and its packet id are on disk with the same batch; only then the client is told so (PUBREC).
2. A packet id that was received is received until the client releases it (PUBREL). Its end is on disk before the
   client is told (PUBCOMP): then the client may use it for another message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import check_order
from enmasse.messaging.errors import full, malformed
from enmasse.messaging.facts import facts_of
from enmasse.messaging.part import Part
from enmasse.messaging.transaction import OutcomeLog, TakesMessages

if TYPE_CHECKING:
    from enmasse.messaging.core import Log
    from enmasse.messaging.queues.topic import Topic
    from enmasse.messaging.sessions.session import Session


Answer = Callable[[Any], None]
"""Called with the outcome of a message, as AMQP has it."""


def _ignore(_outcome: Any) -> None:
    """Ignore an outcome that nobody waits for any more."""


def _nobody() -> None:
    """Tell nobody, as the connection has gone."""


class Incoming(Part["Session"]):
    """The packet ids that a session has received and its client has not released.

    Args:
        session: the session.
    """

    __slots__ = ("_ids", "_releasing", "has_record")

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._ids: dict[int, Answer | None] = {}
        """By packet id, whom to tell once its message is stored; ``None`` if it is."""
        self._releasing: dict[int, Callable[[], None]] = {}
        """By packet id, whom to tell once its end is on disk."""
        self.has_record = False
        """True if the journal may have a record."""

    def __len__(self) -> int:
        """The number of packet ids."""
        return len(self._ids)

    def __iter__(self) -> Any:
        """Iterate over the packet ids."""
        return iter(self._ids)

    def __contains__(self, packet_id: object) -> bool:
        """Return true if the message of a packet id is stored."""
        return packet_id in self._ids and self._ids[packet_id] is None

    def load(self, packet_ids: list[int]) -> None:
        """Take up what an earlier run of the node received."""
        self._ids = dict.fromkeys(packet_ids)
        self.has_record = bool(packet_ids)

    def receive(self, packet_id: int, address: TakesMessages, target: str, payload: bytes, done: Answer) -> None:
        """Store a message at an address, once.

        Args:
            packet_id: the id of its PUBLISH.
            address: the address to which it goes.
            target: the name that the client gave.
            payload: the message as AMQP has it.
            done: called with the outcome: accepted once it is stored, or was before.
        """
        if packet_id in self._ids:
            if self._ids[packet_id] is None:
                done(ACCEPTED)
            else:
                # It is on its way for a connection that has gone since.
                self._ids[packet_id] = done
            return
        session = self.whole
        try:
            facts = facts_of(payload)
            check_order(payload)
            payload = address.annotate(payload, target)
        except DecodeError as error:
            done(malformed(error))
            return
        if session.core.is_pressed:
            done(RELEASED)
            return
        if not address.has_room(len(payload)):
            options = getattr(address, "options", None)
            done(full(address.name) if getattr(options, "full_policy", "block") != "block" else RELEASED)
            return
        problem = address.why_not_retained(payload, target) if facts.retain else None
        if problem is not None:
            done(Rejected(problem))
            return
        self._ids[packet_id] = done
        self._write(packet_id, self._enlist(address, target, payload))

    def _enlist(self, address: TakesMessages, target: str, payload: bytes) -> Log:
        if address.kind == "topic":
            topic: Topic = address  # type: ignore[assignment]  # its kind says so
            return topic.enlist_message(payload, target, _ignore, origin=self.whole)
        return address.enlist_message(payload, target, _ignore)

    def note(self, packet_id: int, done: Callable[[], None]) -> None:
        """Note that an address which stores nothing has taken a message.

        ``done`` is called once that is on disk, or cannot be written now: the client has to hear that its message was
        accepted. The journal writes it later.
        """

        def decided(_outcome: Any) -> None:
            self._ids[packet_id] = None
            done()

        self._ids[packet_id] = decided
        self._write(packet_id, None)

    def _write(self, packet_id: int, log: Log | None) -> None:
        def decided(reason: str | None) -> None:
            answer = self._ids.get(packet_id)
            if answer is None:
                return
            if reason is None:
                self._ids[packet_id] = None
                answer(ACCEPTED)
            else:
                del self._ids[packet_id]
                answer(RELEASED)

        session = self.whole
        if session.is_lasting:
            session.journal.write(session, decided, *(() if log is None else (log,)))
        elif log is None:
            decided(None)
        else:
            session.core.write_together([log, OutcomeLog(session.name, decided)])

    def release(self, packet_id: int, done: Callable[[], None]) -> bool:
        """Forget a packet id, as the client asks.

        Args:
            packet_id: the packet id.
            done: called once that is on disk.

        Returns:
            False if it was not received.
        """
        session = self.whole
        if packet_id in self._releasing:
            self._releasing[packet_id] = done
            return True
        if packet_id not in self:
            return False
        del self._ids[packet_id]
        if not session.is_lasting:
            done()
            return True
        self._releasing[packet_id] = done
        self._write_release(session, packet_id)
        return True

    def _write_release(self, session: Session, packet_id: int) -> None:
        def decided(reason: str | None) -> None:
            if reason is None:
                self._releasing.pop(packet_id, _nobody)()
            elif not session.is_over:
                # The record will be written again, as the journal does by itself; the client waits for that.
                self._write_release(session, packet_id)

        session.journal.write(session, decided)

    def detach(self) -> None:
        """Tell a connection that has gone nothing any more."""
        for packet_id, answer in self._ids.items():
            if answer is not None:
                self._ids[packet_id] = _ignore
        self._releasing = dict.fromkeys(self._releasing, _nobody)

    def clear(self) -> None:
        """Forget everything, as the session is over."""
        self._ids.clear()
        self._releasing.clear()
