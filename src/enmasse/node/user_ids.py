"""The user-id of messages is their sender's own: one that says another name is rejected [AMQP 3.2.4].

Rules:
1. A receiver may believe the user-id of whatever it gets from a node: what is sent by AMQP, STOMP and HTTP is looked
   at; MQTT and devices have no way to say one.
2. In a space for everybody nobody has a name: there it is ``anonymous``.
3. An administrator's connections are not looked at: what they send, they send for others.
4. A message of the size and the beginning of one that may pass may pass, and so may one that differs from it in its
   message-id and body: most messages cost a comparison or two.
"""

from __future__ import annotations

from array import array
from operator import sub
from typing import TYPE_CHECKING
from weakref import ref

from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import AmqpError, Rejected
from enmasse.message.section_stream import SectionStream
from enmasse.message.sections import begins_section, user_id_of, user_id_shape
from enmasse.messaging.direct.metered_sink import MeteredSink
from enmasse.messaging.log.frame import Column, Frame, FrameError, split_payload
from enmasse.messaging.streams.producers import FRAME_FORMAT
from enmasse.wire.amqp.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.message.passage import Passage
    from enmasse.message.sections import UserIdShape
    from enmasse.messaging.delivery import Producer
    from enmasse.node.users.rights import Rights
    from enmasse.wire.amqp.link import ReceivingLink


class UserIds:
    """The messages of one sender, as far as they are known.

    Args:
        rights: the rights of the sender's connection.

    Attributes:
        size: the size of the latest message, if size and head tell that it may pass; else -1.
        head: its bytes before the content of the body.
    """

    __slots__ = ("_rights", "_shape", "_tail", "head", "size")

    def __init__(self, rights: Rights) -> None:
        self.size = -1
        self.head = b""
        self._shape: UserIdShape | None = None
        self._tail = b""
        """The part of head behind the properties."""
        self._rights = rights

    def problem(self, payload: bytes, message_format: int = 0) -> AmqpError | None:
        """Return why a message may not pass; None: it may.

        Args:
            payload: the bytes of the message.
            message_format: 0 for AMQP's own; frames hold messages; others have no properties that anybody here knows.
        """
        try:
            if message_format == FRAME_FORMAT:
                self._require_rows(payload)
            elif not message_format and not self._require(payload, len(payload)):
                self.head, _, is_whole = split_payload(payload)
                self.size = -1 if is_whole else len(payload)
                self._tail = b"" if self._shape is None else self.head[self._shape.end :]
        except RemoteError as error:
            return AmqpError(error.condition, error.description)
        return None

    def _require(self, payload: bytes, size: int) -> bool:
        """Check the user-id of a message, and return whether it was like the latest one."""
        if self._shape is not None and self._shape.fits(payload, size):
            return True
        # What is no message has no user-id, and may be passed on by who does not look into it.
        user_id = user_id_of(payload, size) if begins_section(payload) else None
        if user_id is not None:
            self._rights.require_user_id(user_id)
        self._shape = user_id_shape(payload)
        return False

    def _require_rows(self, payload: bytes) -> None:
        """Check the user-ids of the messages in a frame; many have the same bytes before their contents."""
        try:
            frame = Frame(payload, verify=False)
        except FrameError:
            return  # its address says what is wrong
        heads, bodies = _offsets(payload, frame.heads, frame.rows), _offsets(payload, frame.bodies, frame.rows)
        cells = map(payload[frame.heads.data_at : frame.heads.data_end].__getitem__, map(slice, heads, heads[1:]))
        for head, size in set(zip(cells, map(sub, bodies[1:], bodies), strict=True)):
            self._require(head, len(head) + size)


def _offsets(payload: bytes, column: Column, rows: int) -> array[int]:
    found = array("i")
    found.frombytes(payload[column.offsets_at : column.offsets_at + 4 * (rows + 1)])
    return found


class LinkUserIds(UserIds):
    """The ``MessageGuard`` of a link of AMQP.

    Args:
        rights: the rights of its connection.
        link: the link that brings the messages.
    """

    __slots__ = ("_ref",)

    def __init__(self, rights: Rights, link: ReceivingLink) -> None:
        super().__init__(rights)
        self._ref = ref(link)

    @property
    def _link(self) -> ReceivingLink:
        """The link, which has this guard: so it is there when it asks."""
        link = self._ref()
        assert link is not None
        return link

    def admits(self, payload: bytes, delivery_id: int, settled: bool, message_format: int) -> bool:
        """Return whether a message may pass, or else reject it."""
        shape = self._shape
        if (
            shape is not None
            and len(payload) == self.size
            and payload.startswith(self._tail, shape.end)
            and payload.startswith(shape.field, shape.at)
            and payload.startswith(shape.lead)
            and not message_format
        ):
            # Like the latest one but for the message-id, other properties, and the body.
            return True
        problem = self.problem(payload, message_format)
        if problem is None:
            link = self._link
            link.known_size, link.known_head = self.size, self.head
            return True
        sink = self._link.sink
        if isinstance(sink, MeteredSink):
            sink.port.add_bytes(len(payload))
        self.reject(problem, delivery_id, settled)
        return False

    def passage(
        self, payload: bytes, delivery_id: int, settled: bool, message_format: int, begin: Callable[[], Passage]
    ) -> Passage:
        """Return what takes the rest of a large message, and follows its sections."""
        is_message = not message_format and begins_section(payload)
        return begin() if not is_message else _Guarded(self, payload, delivery_id, settled, begin)

    def require(self, sections: SectionStream) -> AmqpError | None:
        """Return why a message of which so much has come may not pass; None: it may."""
        try:
            if not sections.is_past_properties:
                raise DecodeError("the properties of a large message are not in its first part")
            if sections.user_id is not None:
                self._rights.require_user_id(sections.user_id)
        except RemoteError as error:
            return AmqpError(error.condition, error.description)
        return None

    def reject(self, problem: AmqpError, delivery_id: int, settled: bool) -> None:
        """Give a message its outcome, and the sender its credit again."""
        sink = self._link.sink
        producer: Producer = sink.producer if isinstance(sink, MeteredSink) else sink
        if settled:
            producer.address.dropped += 1
        else:
            self._link.settle(delivery_id, Rejected(problem))
        producer.on_refused()


class _Guarded:
    """The rest of a large message; once it may not pass, its receiver loses it, and its sender is told at its end."""

    __slots__ = ("_delivery_id", "_guard", "_passage", "_problem", "_sections", "_settled")

    def __init__(
        self, guard: LinkUserIds, payload: bytes, delivery_id: int, settled: bool, begin: Callable[[], Passage]
    ) -> None:
        self._guard = guard
        self._delivery_id = delivery_id
        self._settled = settled
        self._sections = SectionStream()
        self._problem: AmqpError | None = None
        self._passage: Passage | None = None
        self._follow(payload)
        if self._problem is None:
            self._problem = guard.require(self._sections)
        if self._problem is None:
            self._passage = begin()

    @property
    def is_kept(self) -> bool:
        """True while what comes is kept until the message is complete."""
        return self._passage is not None and self._passage.is_kept

    def _follow(self, part: bytes | memoryview, *, is_last: bool = False) -> Passage | None:
        """Return what takes a piece, if the message may still pass."""
        if self._problem is None:
            try:
                self._sections.feed(part)
                if is_last:
                    self._sections.end()
            except DecodeError as error:
                self._problem = AmqpError(error.condition, error.description)
                if self._passage is not None:
                    self._passage.abort()
                    self._passage = None
        return self._passage

    def write(self, part: bytes | memoryview) -> None:
        """Pass on a piece, after which others come."""
        passage = self._follow(part)
        if passage is not None:
            passage.write(part)

    def end(self, part: bytes | memoryview, settled: bool) -> None:
        """Pass on the last piece, or reject the message, as all of it has come."""
        passage = self._follow(part, is_last=True)
        if passage is not None:
            passage.end(part, settled)
        elif self._problem is not None:
            self._guard.reject(self._problem, self._delivery_id, self._settled or settled)

    def abort(self) -> None:
        """Note that the sender aborted the message."""
        if self._passage is not None:
            self._passage.abort()
