"""Messages as applications see them, and the outcomes of messages that were sent [AMQP 3.2, 3.4]."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from enmasse.message.composites import Composite
from enmasse.message.outcomes import ACCEPTED, RELEASED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.sections import (
    APPLICATION_PROPERTIES,
    DEFAULT_PRIORITY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    TOPIC_NAME,
    Header,
    Properties,
    Sections,
    encode_message,
)
from enmasse.wire.amqp.performatives import Declared, TransactionalState

MessageId = str | int | bytes | UUID


RESENT = "x-opt-resent"
"""The annotation of a message that may have arrived before."""


class Message:
    """A message: a body, and what is said about it.

    Args:
        body: ``bytes`` travel as they are; anything else (text, numbers, lists, maps, None) as a
            typed value.
        subject: the subject of the message; also the key of a stream where no other is given.
        to: the address, on a sender without one.
        reply_to: the address for answers.
        message_id: names the message; for requests it is chosen if missing.
        correlation_id: the ``message_id`` of what this answers.
        content_type: the body's MIME type.
        content_encoding: the compression of the body, if it has one.
        user_id: the user who sent it.
        group_id: the group that the message belongs to.
        group_sequence: its place in that group.
        properties: the application's own properties; keys are strings.
        annotations: the notes that infrastructure reads and writes; keys start with ``x-opt-``.
        durable: whether the message is to survive a restart of where it is stored.
        ttl: seconds until it is worthless.
        priority: 0 to 9.
        creation_time: the time at which it was made, in seconds since 1970 UTC.
        delivery_count: the number of times that a delivery of it has failed before.
    """

    __slots__ = (
        "annotations", "body", "content_encoding", "content_type", "correlation_id", "creation_time",
        "delivery_count", "durable", "group_id", "group_sequence", "message_id", "priority", "properties",
        "reply_to", "subject", "to", "ttl", "user_id",
    )  # fmt: skip

    def __init__(
        self,
        body: Any = None,
        *,
        subject: str | None = None,
        to: str | None = None,
        reply_to: str | None = None,
        message_id: MessageId | None = None,
        correlation_id: MessageId | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        user_id: bytes | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        properties: dict[str, Any] | None = None,
        annotations: dict[str, Any] | None = None,
        durable: bool = False,
        ttl: float | None = None,
        priority: int = DEFAULT_PRIORITY,
        creation_time: float | None = None,
        delivery_count: int = 0,
    ) -> None:
        self.body = body
        self.subject = subject
        self.to = to
        self.reply_to = reply_to
        self.message_id = message_id
        self.correlation_id = correlation_id
        self.content_type = content_type
        self.content_encoding = content_encoding
        self.user_id = user_id
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.properties = {} if properties is None else properties
        self.annotations = {} if annotations is None else annotations
        self.durable = durable
        self.ttl = ttl
        self.priority = priority
        self.creation_time = creation_time
        self.delivery_count = delivery_count

    def encode(self) -> bytes:
        """Return the message's bytes.

        Raises:
            LocalError: a value has no AMQP type, or is out of its type's range.
        """
        header = None
        if self.durable or self.ttl is not None or self.priority != DEFAULT_PRIORITY or self.delivery_count:
            header = Header(
                self.durable,
                self.priority,
                None if self.ttl is None else round(self.ttl * 1000),
                delivery_count=self.delivery_count,
            )
        fields = (
            self.message_id,
            self.user_id,
            self.to,
            self.subject,
            self.reply_to,
            self.correlation_id,
            self.content_type,
            self.content_encoding,
            None,
            None if self.creation_time is None else round(self.creation_time * 1000),
            self.group_id,
            self.group_sequence,
        )
        return encode_message(
            self.body,
            header=header,
            message_annotations=self.annotations,
            properties=Properties(*fields) if fields.count(None) < len(fields) else None,
            application_properties=self.properties,
        )

    @classmethod
    def decode(cls, payload: bytes) -> Message:
        """Return the message that the bytes stand for.

        Raises:
            DecodeError: they are malformed.
        """
        sections = Sections(payload)
        message = cls(sections.body)
        if sections.has(HEADER):
            header = sections.header
            message.durable = header.durable
            message.ttl = None if header.ttl is None else header.ttl / 1000
            message.priority = header.priority
            message.delivery_count = header.delivery_count
        if sections.has(PROPERTIES):
            found = sections.properties
            message.message_id = found.message_id
            message.user_id = found.user_id
            message.to = found.to
            message.subject = found.subject
            message.reply_to = found.reply_to
            message.correlation_id = found.correlation_id
            message.content_type = found.content_type
            message.content_encoding = found.content_encoding
            message.creation_time = None if found.creation_time is None else found.creation_time / 1000
            message.group_id = found.group_id
            message.group_sequence = found.group_sequence
        if sections.has(MESSAGE_ANNOTATIONS):
            message.annotations = sections.message_annotations
        if sections.has(APPLICATION_PROPERTIES):
            message.properties = sections.application_properties
        return message

    @property
    def topic_name(self) -> str | None:
        """The name below a topic to which it was sent, as the node says; ``None`` if to the topic itself."""
        name: str | None = self.annotations.get(TOPIC_NAME)
        return name

    def copy(self) -> Message:
        """Return a message with the same fields; the body and the maps are shared."""
        copied = Message.__new__(Message)
        for name in Message.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied

    def __repr__(self) -> str:
        shown = [f"{self.body!r:.60}"]
        for name in ("subject", "to", "message_id", "correlation_id", "reply_to"):
            value = getattr(self, name)
            if value is not None:
                shown.append(f"{name}={value!r}")
        return f"Message({', '.join(shown)})"


class Outcome:
    """The answer to a message; two are equal if their names are.

    So ``outcome == Outcome.REJECTED`` asks for the kind, whatever the reason.

    Attributes:
        name: ``accepted``, ``rejected``, ``released``, ``modified`` or ``settled``.
        condition: why a message was rejected, if the receiver said so.
        description: the same in words.
        is_failed: for ``modified``, whether the delivery counts as a failed attempt.
        is_undeliverable_here: for ``modified``, whether this receiver is not to have it again.
        annotations: for ``modified``, annotations to add to the message.
        is_resent: whether the message was sent more than once, so that it may have arrived more than once.
    """

    __slots__ = ("annotations", "condition", "description", "is_failed", "is_resent", "is_undeliverable_here", "name")
    ACCEPTED: ClassVar[Outcome]
    """The receiver took responsibility for the message."""
    REJECTED: ClassVar[Outcome]
    """The message is invalid; sending it again is no use."""
    RELEASED: ClassVar[Outcome]
    """The message was not processed; it may be sent again."""
    MODIFIED: ClassVar[Outcome]
    """The message was not processed, or not to the end; it may be sent again."""
    SETTLED: ClassVar[Outcome]
    """Nothing is known: it was sent settled, or the receiver settled without a word."""

    def __init__(
        self,
        name: str,
        condition: str | None = None,
        description: str | None = None,
        *,
        is_failed: bool = False,
        is_undeliverable_here: bool = False,
        annotations: dict[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.condition = condition
        self.description = description
        self.is_failed = is_failed
        self.is_undeliverable_here = is_undeliverable_here
        self.annotations = annotations
        self.is_resent = False

    def resent(self) -> Outcome:
        """Return the same outcome for a message that was sent more than once."""
        copied = Outcome(
            self.name,
            self.condition,
            self.description,
            is_failed=self.is_failed,
            is_undeliverable_here=self.is_undeliverable_here,
            annotations=self.annotations,
        )
        copied.is_resent = True
        return copied

    @classmethod
    def of(cls, state: Any) -> Outcome:
        """Return the outcome that a delivery state of the engine stands for."""
        if isinstance(state, Accepted):
            return cls.ACCEPTED
        if isinstance(state, TransactionalState):
            return cls.of(state.outcome)
        if isinstance(state, Declared):
            return Declaration(state.txn_id)
        if isinstance(state, Released):
            return cls.RELEASED
        if isinstance(state, Rejected):
            error = state.error or AmqpError("")
            return cls("rejected", error.condition or None, error.description)
        if isinstance(state, Modified):
            return cls(
                "modified",
                is_failed=state.delivery_failed,
                is_undeliverable_here=state.undeliverable_here,
                annotations=state.message_annotations,
            )
        return cls.SETTLED

    def state(self) -> Composite | None:
        """Return the delivery state of the engine that means the same; ``None`` settles without a state."""
        if self.name == "rejected":
            return Rejected(AmqpError(self.condition, self.description) if self.condition else None)
        if self.name == "modified":
            return Modified(self.is_failed, self.is_undeliverable_here, self.annotations)
        return {"accepted": ACCEPTED, "released": RELEASED}.get(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        reason = ": ".join(part for part in (self.condition, self.description) if part)
        return f"{self.name} ({reason})" if reason else self.name

    def __repr__(self) -> str:
        return f"<Outcome {self}>"


class Declaration(Outcome):
    """The answer to the declaration of a transaction.

    Attributes:
        txn_id: the id that the transaction was given.
    """

    __slots__ = ("txn_id",)

    def __init__(self, txn_id: bytes) -> None:
        super().__init__("declared")
        self.txn_id = txn_id


Outcome.ACCEPTED = Outcome("accepted")
Outcome.REJECTED = Outcome("rejected")
Outcome.RELEASED = Outcome("released")
Outcome.MODIFIED = Outcome("modified")
Outcome.SETTLED = Outcome("settled")
