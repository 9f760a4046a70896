"""Keeps the beginning of an incomplete frame, within bounds, until the rest can have come.

Every byte is searched once for what is missing, so a frame costs no more than twice what it does in one piece,
however it is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from enmasse.wire.stomp.frames import (
    COMMANDS,
    MAX_BODY_BYTES,
    MAX_COMMAND_BYTES,
    MAX_HEAD_BYTES,
    FrameError,
    unknown_command,
)

FREE_BYTES = 4 << 10
"""The bytes that need no room of a shared budget: mostly it is a frame cut by the end of a read."""

_HEAD_ENDS = (b"\n\n", b"\n\r\n", b"\x00")


class Awaited(Enum):
    """The missing part of a frame."""

    HEAD = auto()
    """The empty line that ends its headers."""
    NUL = auto()
    """The NUL that ends its body."""
    LENGTH = auto()
    """The rest of a length that is known."""


def no_limit(_size: int) -> bool:
    """Return true: there is room for any number of bytes."""
    return True


class Remainder:
    """The beginning of an incomplete frame.

    Attributes:
        more_room: called with a number of bytes; returns true if so many may be kept. 0 gives the room back.
    """

    __slots__ = ("_awaited", "_holds_room", "_needed", "_sought", "data", "more_room")

    def __init__(self) -> None:
        self.data = bytearray()
        self.more_room: Callable[[int], bool] = no_limit
        self._holds_room = False
        self._awaited = Awaited.HEAD
        self._needed = 0
        self._sought = 0
        """The bytes that have been searched for the missing part."""

    def keep(self, data: bytes, at: int, awaited: Awaited, needed: int = 0) -> None:
        """Keep the beginning of a frame.

        Args:
            data: the bytes with the frame.
            at: the place where it begins.
            awaited: the missing part.
            needed: the frame's length, if that is known.

        Raises:
            FrameError: this cannot become a frame, or there is no room.
        """
        self.data += data[at:] if at else data
        self._awaited = awaited
        self._needed = needed
        self._sought = len(self.data)
        self._check()

    def is_worth_reading(self, more: bytes) -> bool:
        """Add more bytes, and return true if the missing part may be among them.

        Raises:
            FrameError: this cannot become a frame, or there is no room.
        """
        data = self.data
        data += more
        if self._awaited is Awaited.LENGTH:
            is_there = len(data) >= self._needed
        elif self._awaited is Awaited.NUL:
            is_there = data.find(0, self._sought) >= 0
        else:
            begin = max(0, self._sought - 2)
            is_there = any(data.find(end, begin) >= 0 for end in _HEAD_ENDS)
        if not is_there:
            self._sought = len(data)
            self._check()
        return is_there

    def _check(self) -> None:
        size = len(self.data)
        if self._awaited is Awaited.HEAD:
            command, end, _ = bytes(self.data[: MAX_COMMAND_BYTES + 1]).partition(b"\n")
            command = command.removesuffix(b"\r")
            if not (command in COMMANDS if end else any(known.startswith(command) for known in COMMANDS)):
                raise unknown_command(command)
            if size > MAX_HEAD_BYTES:
                raise FrameError(f"the headers of a frame have up to {MAX_HEAD_BYTES} bytes")
        elif size > MAX_HEAD_BYTES + MAX_BODY_BYTES:
            raise FrameError(f"a body has up to {MAX_BODY_BYTES} bytes, and then a NUL")
        if size > FREE_BYTES:
            self._holds_room = True
            if not self.more_room(size):
                raise FrameError("there is no room for frames that are not complete: send smaller ones, or later")

    def take(self) -> bytes:
        """Return the kept bytes, and clear them."""
        data = bytes(self.data)
        self.clear()
        return data

    def clear(self) -> None:
        """Drop the kept bytes."""
        self.data.clear()
        if self._holds_room:
            self._holds_room = False
            self.more_room(0)
