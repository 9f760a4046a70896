"""The search for a text in messages: the same for who browses an address as for who acts on what is found there.

Most messages do not have it, and a node goes through many of them: those that cannot have it are told by their bytes,
and only the others are decoded.
"""

from __future__ import annotations

from typing import Any, Final

from enmasse.message.errors import DecodeError
from enmasse.message.sections import Sections

ID_ANNOTATION: Final = "x-opt-id"
"""The id by which a browser calls a message: it is not part of it, and not searched."""

_BETWEEN: Final = frozenset("='\",:[](){}\\")
"""Characters that come between texts when a message is written out."""

_OF_NUMBERS: Final = frozenset("0123456789abcdef.+-")
_WORDS_OF_VALUES: Final = "true false none inf nan"

_DOTTED_I, _KELVIN = "İ".encode(), "\N{KELVIN SIGN}".encode()
"""The only characters beyond ASCII whose small letters are of it."""


class TextSearch:
    """Finds a text, in capitals or not, in the body, properties and annotations of messages.

    Application properties and annotations are searched as ``name=value``, bytes as UTF-8.

    Args:
        words: the text.
    """

    __slots__ = ("_in_bytes", "_words")

    def __init__(self, words: str) -> None:
        self._words = words.lower()
        self._in_bytes = self._words.encode() if _is_in_bytes(self._words) else b""

    def matches(self, payload: bytes) -> bool:
        """Return whether the text is in a message of AMQP's own format (0); in one that cannot be read it is not."""
        words = self._in_bytes
        if words and words not in payload.lower() and _DOTTED_I not in payload and _KELVIN not in payload:
            return False
        try:
            return self._is_in(Sections(payload))
        except DecodeError:
            return False

    def _is_in(self, sections: Sections) -> bool:
        named = sections.properties
        fields = (named.subject, named.to, named.message_id, named.correlation_id, named.group_id, sections.body)
        if any(field is not None and self._words in _text(field).lower() for field in fields):
            return True
        return any(
            self._words in f"{key}={_text(value)}".lower()
            for part in (sections.application_properties, sections.message_annotations)
            for key, value in part.items()
            if key != ID_ANNOTATION
        )


def _is_in_bytes(words: str) -> bool:
    """Return whether every message with a text has it among its bytes, in capitals or not."""
    is_of_value = words in _WORDS_OF_VALUES or _OF_NUMBERS.issuperset(words)
    return words.isascii() and not is_of_value and _BETWEEN.isdisjoint(words)


def _text(value: Any) -> str:
    return bytes(value).decode(errors="replace") if isinstance(value, bytes | bytearray | memoryview) else str(value)
