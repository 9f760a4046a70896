"""Frames of STOMP: writes and parses their headers [STOMP 1.2 "Value Encoding", "Augmented BNF"].

A frame is a command, headers, an empty line, a body and a NUL. Since version 1.1 headers are escaped, since 1.2 the
carriage return as well; ``CONNECT`` and ``CONNECTED`` never are, so that older peers can read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from enmasse.errors import RemoteError


class FrameError(RemoteError):
    """Bytes that are no frame, or a frame that may not come now."""

    def __init__(self, description: str) -> None:
        super().__init__("stomp:frame-error", description)


MAX_HEAD_BYTES = 64 << 10
"""The most bytes of a frame's command and headers: many times what a message with all its properties takes."""

MAX_BODY_BYTES = 16 << 20
"""The most bytes of a frame's body, as messages are held whole."""

MAX_HEADERS = 256

MAX_LENGTH_DIGITS = 15
"""The most digits of a length: longer ones are nonsense, and take time to parse."""

COMMANDS = frozenset(
    (
        b"CONNECT", b"STOMP", b"SEND", b"SUBSCRIBE", b"UNSUBSCRIBE", b"ACK", b"NACK", b"BEGIN", b"COMMIT", b"ABORT",
        b"DISCONNECT",
    )
)  # fmt: skip
"""The commands of clients."""

MAX_COMMAND_BYTES = max(map(len, COMMANDS)) + 1
"""The length of the longest command with the carriage return that may follow."""


class Version(IntEnum):
    """A version of the protocol."""

    V1_0 = 10
    V1_1 = 11
    V1_2 = 12

    @property
    def text(self) -> str:
        """The version as in ``accept-version``."""
        return f"1.{self - 10}"


_ESCAPES = {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"}
_UNESCAPED = {"\\\\": "\\", "\\n": "\n", "\\c": ":", "\\r": "\r"}
_SPECIAL = re.compile(r"[\\\n:\r]")
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


def escape(text: str, version: Version) -> str:
    """Return a header's name or value escaped for a frame of that version."""
    if version is Version.V1_2:
        return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text) if _SPECIAL.search(text) else text
    if version is Version.V1_1:
        # Without an escape of its own, a carriage return stands for itself.
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")
    # Nothing can be escaped: what would end the header, or its name, is left out.
    return text.replace("\n", " ").replace("\r", " ")


def _unescape(text: str, version: Version) -> str:
    def plain(found: re.Match[str]) -> str:
        sequence = found[0]
        if sequence not in _UNESCAPED or (sequence == "\\r" and version is Version.V1_1):
            raise FrameError(f"the header {text!r:.100} has the escape {sequence!r}, which means nothing")
        return _UNESCAPED[sequence]

    return _ESCAPED.sub(plain, text)


def read_head(head: bytes, version: Version) -> tuple[bytes, dict[str, str]]:
    """Return the command and the headers of a frame; of a repeated header the first counts.

    Args:
        head: everything before the empty line, without the last line's end.
        version: the version that decides on escapes; ``CONNECT`` has none.

    Raises:
        FrameError: this is not the head of a frame.
    """
    lines = head.split(b"\n")
    command = lines[0].removesuffix(b"\r")
    if command not in COMMANDS:
        raise unknown_command(command)
    if len(lines) - 1 > MAX_HEADERS:
        raise FrameError(f"a frame has up to {MAX_HEADERS} headers")
    is_connect = command in (b"CONNECT", b"STOMP")
    # Lines of 1.1 and 1.0 end with a line feed alone; in CONNECT the version is not agreed on yet.
    ends_with_cr = is_connect or version is Version.V1_2
    is_escaped = not is_connect and version is not Version.V1_0
    headers: dict[str, str] = {}
    for line in lines[1:]:
        try:
            text = (line.removesuffix(b"\r") if ends_with_cr else line).decode()
        except UnicodeDecodeError:
            raise FrameError(f"the header {line[:60].decode(errors='replace')!r} is not UTF-8") from None
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise FrameError(f"the line {text!r:.100} is no header: a name, a colon and a value")
        if is_escaped:
            # A colon in a value should be escaped; many clients do not, and the value is clear all the same.
            if "\\" in text:
                name, value = _unescape(name, version), _unescape(value, version)
        elif not is_connect:
            name, value = name.strip(), value.strip()
        headers.setdefault(name, value)
    return command, headers


def unknown_command(command: bytes) -> FrameError:
    """Return the error for an unknown command."""
    return FrameError(f"there is no command {command[:40].decode(errors='replace')!r}")


def content_length(headers: dict[str, str]) -> int:
    """Return the length that a frame states for its body, or -1 if it states none.

    Raises:
        FrameError: the header is not a length.
    """
    text = headers.get("content-length")
    if text is None:
        return -1
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_LENGTH_DIGITS:
        raise FrameError(f"a content-length is a number of bytes, not {text!r:.60}")
    return int(text)


def encode_frame(
    command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", version: Version = Version.V1_2
) -> bytes:
    """Return the bytes of a frame, with headers escaped for its version."""
    if command in ("CONNECT", "STOMP", "CONNECTED"):
        lines = [f"{name}:{value}\n" for name, value in headers]
    else:
        lines = [f"{escape(name, version)}:{escape(value, version)}\n" for name, value in headers]
    # Text from a peer of another protocol may have a NUL, which would end the frame.
    return f"{command}\n{''.join(lines)}\n".replace("\x00", "\ufffd").encode() + body + b"\x00"


def is_plain(receipt: bytes) -> bool:
    """Return true if a receipt means the same escaped and not, so that its bytes can be sent back as they are."""
    return receipt.isascii() and b"\\" not in receipt and b"\r" not in receipt


def split_receipt(head: bytes) -> tuple[bytes, bytes | None]:
    """Return a head without the line of its first receipt, and that receipt with its escapes."""
    begin = head.find(b"\nreceipt:")
    if begin < 0:
        return head, None
    end = head.find(b"\n", begin + 9)
    if end < 0:
        end = len(head)
    return head[:begin] + head[end:], head[begin + 9 : end].removesuffix(b"\r")


def missing_end(size: int) -> FrameError:
    """Return the error for a frame that does not end where its length says."""
    return FrameError(f"a body of {size} bytes, as its content-length says, is not followed by a NUL")
