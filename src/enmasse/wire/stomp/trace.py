"""Reads traces of STOMP: splits bytes into frames, masks secrets, and describes frames as text.

Rules:
1. Nothing is taken on trust: bytes that are no frames are counted and never shown, as they may hold anything.
2. Credentials are masked before a frame is kept or shown; lengths stay.
"""

from __future__ import annotations

import re

from enmasse.wire.stomp.frames import COMMANDS, MAX_BODY_BYTES, MAX_HEAD_BYTES, MAX_LENGTH_DIGITS

MAX_OBSERVED_BYTES = MAX_BODY_BYTES + MAX_HEAD_BYTES + 1
"""The largest frame that the engine accepts."""

MAX_VALUE_CHARACTERS = 200
"""The most characters of one header in a description."""

_SAID = COMMANDS | {b"CONNECTED", b"MESSAGE", b"RECEIPT", b"ERROR"}
_LENGTH = re.compile(rb"\ncontent-length: *(\d{1,%d})\r?(?:\n|$)" % MAX_LENGTH_DIGITS)
_SECRET = re.compile(rb"(?<=\npasscode:)[^\n]*")
_HEAD_END = re.compile(rb"\n\r?\n")


class Splitter:
    """Splits the bytes of one direction into frames, without heart-beats.

    Args:
        begun: the beginning of a frame that was received before.
    """

    __slots__ = ("_needed", "_rest", "is_lost")

    def __init__(self, begun: bytes = b"") -> None:
        self._rest = bytearray(begun)
        self._needed = 0
        self.is_lost = False
        """True after bytes that are no frame: frames after them cannot be found."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now, in order; before bytes that are no frame, ``b""`` is the last."""
        if self.is_lost:
            return []
        rest = self._rest
        rest += data
        if len(rest) < self._needed:
            return []
        data = bytes(rest)
        rest.clear()
        self._needed = 0
        found: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if data[at] in b"\r\n":
                at += 1
                continue
            stop = self._end_of(data, at)
            if stop < 0 or stop - at > MAX_OBSERVED_BYTES:
                self.is_lost = True
                return [*found, b""]
            if stop == 0 or stop > end:
                self._needed = max(0, stop - at)
                break
            found.append(data[at:stop])
            at = stop
        rest += data[at:]
        return found

    @staticmethod
    def _end_of(data: bytes, at: int) -> int:
        """Return the end of the frame at ``at``; 0 if that is not known yet, negative if it is no frame."""
        head = _HEAD_END.search(data, at, at + MAX_HEAD_BYTES + 3)
        line = data.find(b"\n", at, at + MAX_HEAD_BYTES)
        if line >= 0 and data[at:line].removesuffix(b"\r") not in _SAID:
            return -1
        if head is None:
            return -1 if len(data) - at > MAX_HEAD_BYTES else 0
        length = _LENGTH.search(data, at, head.start() + 1)
        if length is not None:
            return head.end() + int(length[1]) + 1
        nul = data.find(0, head.end())
        return -1 if nul < 0 and len(data) - at > MAX_OBSERVED_BYTES else nul + 1


def mask(frame: bytes) -> bytes:
    """Return the frame with credentials overwritten by ``*``."""
    if not frame.startswith((b"CONNECT\n", b"CONNECT\r", b"STOMP\n", b"STOMP\r")):
        return frame
    return _SECRET.sub(lambda found: b"*" * len(found[0]), frame)


def shorten(frame: bytes, payload_bytes: int) -> bytes:
    """Return the frame with at most so many bytes of its body, and without the final NUL if that is cut."""
    head = _HEAD_END.search(frame)
    if head is None or len(frame) <= head.end() + payload_bytes + 1:
        return frame
    return frame[: head.end() + payload_bytes]


def describe(frame: bytes, payload_bytes: int = 0) -> str:
    """Return the frame as one line: command, headers, size of the body, and so many bytes of it."""
    head = _HEAD_END.search(frame)
    if head is None:
        return f"{len(frame)} bytes that are no frame"
    lines = frame[: head.start()].decode(errors="replace").splitlines() or [""]
    body = frame[head.end() :].removesuffix(b"\x00")
    length = _LENGTH.search(frame, 0, head.start() + 1)
    size = len(body) if length is None else int(length[1])
    shown = " ".join(
        f"{line[:MAX_VALUE_CHARACTERS]!r}" if " " in line else line[:MAX_VALUE_CHARACTERS] for line in lines
    )
    if size:
        shown += f" body {size} bytes"
        if payload_bytes:
            shown += f" {body[:payload_bytes]!r}"
    return shown
