"""Reads traces of HTTP: splits bytes into requests or answers, masks secrets, and describes them as text.

Rules:
1. Nothing is taken on trust: bytes that are no heads are counted and never shown, as they may hold anything.
2. Credentials are masked before a frame is kept or shown; lengths stay.
3. A frame is a head with its body; where the body comes in chunks, the head and each chunk are frames.
"""

from __future__ import annotations

import re

from enmasse.wire.http.heads import MAX_BODY_BYTES, MAX_HEAD_BYTES, METHODS

MAX_VALUE_CHARACTERS = 200
"""The most characters of one line of a head in a description."""

_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,15})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_SECRET = re.compile(rb"(?<=\r\n)((?:proxy-)?authorization|cookie):[^\r\n]*", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]{0,1000})?\r\n")
_MAX_CHUNK_LINE = 1_100


class Splitter:
    """Splits the bytes of one direction into frames.

    Args:
        begun: the beginning of a head that was received before.
    """

    __slots__ = ("_in_chunks", "_rest", "is_lost")

    def __init__(self, begun: bytes = b"") -> None:
        self._rest = begun
        self._in_chunks = False
        self.is_lost = False
        """True after bytes that are no frame: frames after them cannot be found."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete now, in order; before bytes that are no frame, ``b""`` is the last."""
        if self.is_lost:
            return []
        rest = self._rest + data
        found: list[bytes] = []
        at = 0
        while at < len(rest):
            end = self._end_of_chunk(rest, at) if self._in_chunks else self._end_of_head(rest, at)
            if end < 0:
                self.is_lost = True
                self._rest = b""
                return [*found, b""]
            if end == 0 or end > len(rest):
                break
            frame = rest[at:end]
            if self._in_chunks:
                chunk = _CHUNK.match(frame)
                self._in_chunks = chunk is not None and int(chunk[1], 16) > 0
            else:
                self._in_chunks = _CHUNKED.search(frame) is not None and frame.endswith(_HEAD_END)
            found.append(frame)
            at = end
        self._rest = rest[at:]
        return found

    @staticmethod
    def _end_of_head(data: bytes, at: int) -> int:
        """Return the end of a head and its body; 0 if it is not known yet, negative if this is no head."""
        word = data[at : at + 9]
        starts = (b"HTTP/1.1 ", b"HTTP/1.0 ", *(method + b" " for method in METHODS))
        if not any(word.startswith(start) or start.startswith(word) for start in starts):
            return -1
        end = data.find(_HEAD_END, at, at + MAX_HEAD_BYTES)
        if end < 0:
            return -1 if len(data) - at > MAX_HEAD_BYTES else 0
        end += len(_HEAD_END)
        length = _LENGTH.search(data, at, end)
        if length is None:
            return end
        size = int(length[1])
        return -1 if size > MAX_BODY_BYTES else end + size

    @staticmethod
    def _end_of_chunk(data: bytes, at: int) -> int:
        """Return the end of a chunk, of the last one with its trailers; 0 and negative as for heads."""
        line = _CHUNK.match(data, at)
        if line is None:
            return -1 if len(data) - at > _MAX_CHUNK_LINE or b"\n" in data[at:] else 0
        size = int(line[1], 16)
        if size:
            return -1 if size > MAX_BODY_BYTES else line.end() + size + 2
        end = data.find(_HEAD_END, line.end() - 2)
        if end < 0:
            return -1 if len(data) - at > MAX_HEAD_BYTES else 0
        return end + len(_HEAD_END)


def mask(frame: bytes) -> bytes:
    """Return the frame with credentials overwritten by ``*``."""
    end = frame.find(_HEAD_END)
    if _CHUNK.match(frame) is not None or end < 0:
        return frame
    start = frame[: end + 2]
    return (
        _SECRET.sub(lambda found: found[1] + b":" + b"*" * (len(found[0]) - len(found[1]) - 1), start)
        + frame[end + 2 :]
    )


def shorten(frame: bytes, payload_bytes: int) -> bytes:
    """Return the frame with at most so many bytes of its body."""
    end = _body_at(frame)
    return frame[: end + payload_bytes] if end > 0 and len(frame) > end + payload_bytes else frame


def describe(frame: bytes, payload_bytes: int = 0) -> str:
    """Return the frame as one line: the lines of its head, the size of the body, and so many bytes of it."""
    end = _body_at(frame)
    if not end:
        return f"{len(frame)} bytes that are no frame"
    chunk = _CHUNK.match(frame)
    body = frame[end:]
    if chunk is not None:
        size = int(chunk[1], 16)
        shown = f"chunk {size} bytes"
        body = body[:size]
    else:
        lines = frame[:end].decode("latin-1").splitlines()
        shown = " ".join(
            f"{line[:MAX_VALUE_CHARACTERS]!r}" if " " in line else line[:MAX_VALUE_CHARACTERS]
            for line in lines
            if line
        )
        length = _LENGTH.search(frame, 0, end)
        size = 0 if length is None else int(length[1])
        if size:
            shown += f" body {size} bytes"
    if size and payload_bytes:
        shown += f" {body[:payload_bytes]!r}"
    return shown


def _body_at(frame: bytes) -> int:
    """Return where the body begins; 0 if this is no frame."""
    chunk = _CHUNK.match(frame)
    if chunk is not None:
        return chunk.end()
    end = frame.find(_HEAD_END)
    return end + len(_HEAD_END) if end >= 0 else 0
