"""The parts of a message before its body, as the converters of protocols gather them."""

from __future__ import annotations

from typing import Any, Final

from enmasse.errors import LocalError, RemoteError
from enmasse.message.sections import Header, Properties, encode_message

_EMPTY_DATA: Final = b"\x00\x53\x75\xa0\x00"


class Parts:
    """The parts of a message before its body.

    Args:
        durable: whether the message is durable.

    Attributes:
        header: the header of AMQP.
        fields: the fields of AMQP's properties, by name.
        annotations: the annotations of the message.
        properties: the properties of the application.
    """

    __slots__ = ("annotations", "fields", "header", "properties")

    def __init__(self, *, durable: bool = False) -> None:
        self.header = Header(durable=durable)
        self.fields: dict[str, Any] = {}
        self.annotations: dict[str, Any] = {}
        self.properties: dict[str, Any] = {}

    def encode(self, body: bytes = b"") -> bytes:
        """Return the message with a body of one data section.

        Raises:
            RemoteError: AMQP has no such value.
        """
        try:
            return encode_message(
                body,
                header=self.header,
                message_annotations=self.annotations,
                properties=Properties(**self.fields),
                application_properties=self.properties,
            )
        except (LocalError, UnicodeError) as error:
            raise RemoteError("amqp:invalid-field", str(error)) from None

    def encode_head(self) -> bytes:
        """Return the sections before the body. Raises as ``encode`` does."""
        return self.encode()[: -len(_EMPTY_DATA)]
