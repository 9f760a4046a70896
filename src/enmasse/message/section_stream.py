"""The sections of a message that comes in pieces, of which none is held whole."""

from __future__ import annotations

import struct

from enmasse.message.codec import decode
from enmasse.message.errors import DecodeError
from enmasse.message.section_kinds import DATA, FOOTER, PROPERTIES, SEQUENCE
from enmasse.message.sections import section_start, user_id_in

MAX_START_BYTES = 64
"""The most bytes before the content of a section: its descriptor, constructor and size."""

MAX_PROPERTIES_BYTES = 64 << 10
"""The longest properties, which are held until they are complete."""

_FIXED = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
"""Bytes of a value by the upper half of its constructor [AMQP 1.2]."""

_U32 = struct.Struct(">I")


class SectionStream:
    """Follows the sections of a message, checks their order [AMQP 3.2], and finds its user-id.

    Attributes:
        user_id: as soon as its properties have come, if they have one.
    """

    __slots__ = ("_last", "_left", "_properties", "_start", "user_id")

    def __init__(self) -> None:
        self.user_id: bytes | None = None
        self._last = 0
        self._left = 0
        """Bytes of the section that are still to come."""
        self._start = bytearray()
        """The bytes of the next section that have come."""
        self._properties = bytearray()

    @property
    def is_past_properties(self) -> bool:
        """True once properties that come would be out of order."""
        return self._last > PROPERTIES or (self._last == PROPERTIES and not self._left)

    def feed(self, part: bytes | memoryview) -> None:
        """Follow the next piece.

        Raises:
            DecodeError: it is no sections in their order, or its user-id is none.
        """
        at = 0
        size = len(part)
        while at < size:
            if not self._left:
                self._start.append(part[at])
                at += 1
                self._begin()
                continue
            taken = min(self._left, size - at)
            self._left -= taken
            if self._last == PROPERTIES:
                self._properties += part[at : at + taken]
                if not self._left:
                    self.user_id = user_id_in(bytes(self._properties))
                    self._properties.clear()
            at += taken

    def end(self) -> None:
        """Check that the last section is complete.

        Raises:
            DecodeError: it is not.
        """
        if self._left or self._start:
            raise DecodeError("a section is cut short")

    def _begin(self) -> None:
        """Begin a section, if what has come of its start is enough."""
        start = bytes(self._start)
        size = len(start)
        try:
            code, value_at = section_start(start, 0, size)
            at = value_at
            while start[at] == 0:
                # The value is described by itself, as that of a body may be.
                _, at = decode(start, at + 1, size)
            row = start[at] >> 4
            if row in (0xA, 0xC, 0xE):
                left = start[at + 1]
            elif row in (0xB, 0xD, 0xF):
                (left,) = _U32.unpack_from(start, at + 1)
            else:
                left = _FIXED[row]
        except (IndexError, KeyError, struct.error, DecodeError):
            if size >= MAX_START_BYTES:
                raise DecodeError("a message is not made of sections") from None
            return
        last = self._last
        is_repeated = code == last and code in (DATA, SEQUENCE)
        if not is_repeated and (code <= last or (last >= DATA and code != FOOTER)):
            raise DecodeError(f"a message's sections are out of order: {code:#04x} after {last:#04x}")
        self._start.clear()
        self._last = code
        self._left = left
        if code == PROPERTIES:
            if left > MAX_PROPERTIES_BYTES:
                raise DecodeError(f"the properties have more than {MAX_PROPERTIES_BYTES} bytes")
            self._properties += start[value_at:]
