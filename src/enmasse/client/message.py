"""Messages as applications see them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from enmasse.wire.amqp.sections import (
    APPLICATION_PROPERTIES,
    DEFAULT_PRIORITY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    Header,
    Properties,
    Sections,
    encode_message,
)

__all__ = ["Message", "MessageId"]

MessageId = str | int | bytes | UUID


class Message:
    """A message: a body, and what is said about it.

    Args:
        body: ``bytes`` travel as they are; anything else (text, numbers, lists, maps, None) as a
            typed value.
        subject: what the message is about; also the key of a stream where no other is given.
        to: the address, on a sender without one.
        reply_to: the address for answers.
        message_id: names the message; for requests it is chosen if missing.
        correlation_id: the ``message_id`` of what this answers.
        content_type: the body's MIME type.
        content_encoding: how the body is compressed, if it is.
        user_id: who sent it.
        group_id: the group that the message belongs to.
        group_sequence: its place in that group.
        properties: the application's own properties; keys are strings.
        annotations: what infrastructure reads and writes; keys start with ``x-opt-``.
        durable: whether the message is to survive a restart of where it is stored.
        ttl: seconds until it is worthless.
        priority: 0 to 9.
        creation_time: when it was made, in seconds since 1970 UTC.
        delivery_count: how often a delivery of it has failed before.
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
        """The message's bytes.

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
        """The message that the bytes stand for.

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

    def copy(self) -> Message:
        """A message with the same fields; the body and the maps are shared."""
        copied = Message.__new__(Message)
        for name in Message.__slots__:
            setattr(copied, name, getattr(self, name))
        return copied

    def __repr__(self) -> str:
        told = [f"{self.body!r:.60}"]
        for name in ("subject", "to", "message_id", "correlation_id", "reply_to"):
            value = getattr(self, name)
            if value is not None:
                told.append(f"{name}={value!r}")
        return f"Message({', '.join(told)})"
