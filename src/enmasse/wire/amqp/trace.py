"""An observer of a connection's bytes, which prints frames as text, without secrets.

Rules:
1. An observer breaks nothing and believes nothing: bytes that are no frames are counted, never shown, for
   what they hold is not known.
2. What SASL carries for authentication is masked before it is kept or shown; the lengths stay.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Any

from enmasse.errors import RemoteError
from enmasse.message.codec import skip
from enmasse.message.composites import decode_composite
from enmasse.message.types import Array, Described
from enmasse.wire.amqp.framing import sasl_frame
from enmasse.wire.amqp.performatives import Composite, SaslChallenge, SaslInit, SaslOutcome, SaslResponse

MAX_OBSERVED_BYTES = (1 << 20) + 8
"""No larger frame is agreed on with anybody; a peer that announces one is disconnected."""

MAX_VALUE_CHARACTERS = 200
"""Of one value in a text: a map may fill a frame."""

_SASL_TYPE = 1
_TRANSFER = b"\x00\x53\x14"
_SECRETS = {SaslInit: "initial_response", SaslResponse: "response", SaslChallenge: "challenge",
            SaslOutcome: "additional_data"}  # fmt: skip
_U32 = struct.Struct(">I")
_HEADERS = {0: "AMQP", 2: "TLS", 3: "SASL"}


class Splitter:
    """Finds protocol headers and frames in the bytes of one direction, however they come.

    Args:
        begun: the beginning of a frame that came before.
    """

    __slots__ = ("_needed", "_rest", "is_lost")

    def __init__(self, begun: bytes = b"") -> None:
        self._rest = bytearray(begun)
        self._needed = 8
        self.is_lost = False
        """True if something came that is no frame: nothing after it can be split into frames."""

    def feed(self, data: bytes) -> list[bytes]:
        """The headers and frames that are complete now, in order.

        Where something comes that is no frame, ``b""`` is the last that is given.
        """
        if self.is_lost:
            return []
        rest = self._rest
        if rest:
            rest += data
            if len(rest) < self._needed:
                return []
            data = bytes(rest)
            rest.clear()
        found: list[bytes] = []
        at, end = 0, len(data)
        self._needed = 8
        while end - at >= 8:
            if data.startswith(b"AMQP", at):
                size = 8
            else:
                size = _U32.unpack_from(data, at)[0]
                doff = data[at + 4]
                if size > MAX_OBSERVED_BYTES or doff < 2 or doff * 4 > size:
                    self.is_lost = True
                    return [*found, b""]
            if at + size > end:
                self._needed = size
                break
            found.append(data[at : at + size])
            at += size
        rest += data[at:]
        return found


def mask(frame: bytes) -> bytes:
    """The same header or frame with what proves an identity overwritten by ``*``.

    A SASL frame that cannot be read is masked whole behind its head.
    """
    if frame.startswith(b"AMQP") or frame[5] != _SASL_TYPE:
        return frame
    try:
        found, _ = decode_composite(frame, 4 * frame[4], len(frame))
    except (RemoteError, IndexError, struct.error):
        return frame[:8] + b"*" * (len(frame) - 8)
    name = _SECRETS.get(type(found))
    if name is None:
        return frame
    secret = getattr(found, name)
    if secret:
        setattr(found, name, b"*" * len(secret))
    return sasl_frame(found)


def shorten(frame: bytes, payload_bytes: int) -> bytes:
    """A transfer with at most so much of its payload; every other frame as it is.

    The size that the frame states stays, so that the reader sees how long it was.
    """
    body = 4 * frame[4]
    if len(frame) <= body + payload_bytes or frame[body : body + 3] != _TRANSFER or frame.startswith(b"AMQP"):
        return frame
    try:
        after = skip(frame, body, len(frame))
    except (RemoteError, IndexError, struct.error):
        return frame
    return frame[: after + payload_bytes]


def describe(frame: bytes, payload_bytes: int = 0) -> str:
    """One header or frame as a line: channel, performative, fields that are not at their default, payload.

    Args:
        frame: the frame as ``Splitter`` gives it, shortened or not.
        payload_bytes: the most bytes of the payload that are shown, in hexadecimal.
    """
    if not frame:
        return "no frames from here on: what came cannot be split into frames"
    if frame.startswith(b"AMQP"):
        kind = _HEADERS.get(frame[4], f"protocol {frame[4]}")
        return f"header {kind} {frame[5]}.{frame[6]}.{frame[7]}"
    size = _U32.unpack_from(frame)[0]
    body = 4 * frame[4]
    channel = int.from_bytes(frame[6:8], "big")
    where = "sasl" if frame[5] == _SASL_TYPE else str(channel)
    if size == body:
        return f"{where} heartbeat"
    try:
        found, after = decode_composite(frame, body, len(frame))
    except (RemoteError, IndexError, struct.error) as error:
        return f"{where} unreadable frame of {size} bytes ({error})"
    line = f"{where} {_call(found)}{_fields(found)}"
    payload = size - after
    if payload > 0:
        line += f" payload {payload} B"
        if payload_bytes:
            shown = frame[after : after + payload_bytes]
            line += f" [{shown.hex(' ')}{' ...' if len(shown) < payload else ''}]"
    return line


def _call(found: Composite) -> str:
    """A composite by its name in the specification."""
    return found.SYMBOL.removeprefix("amqp:").removesuffix(":list")


def _fields(found: Composite) -> str:
    secret = _SECRETS.get(type(found))
    forced = getattr(type(found), "MANDATORY", ())
    parts: list[str] = []
    for item in fields(found):  # type: ignore[arg-type]  # every composite is a dataclass
        value = getattr(found, item.name)
        if value is None or (value == item.default and item.name not in forced):
            continue
        name = item.name.replace("_", "-")
        if item.name == secret:
            parts.append(f"{name}=({len(value)} bytes, masked)")
        elif item.name == "role":
            parts.append(f"role={'receiver' if value else 'sender'}")
        else:
            parts.append(f"{name}={_value(value)}")
    return "".join(f" {part}" for part in parts)


def _value(value: Any) -> str:
    text = _whole(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[:MAX_VALUE_CHARACTERS] + "..."


def _whole(value: Any) -> str:
    if isinstance(value, Composite):
        return f"{_call(value)}({_fields(value)[1:]})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(str(value))
    if isinstance(value, bytes):
        return f"0x{value[:MAX_VALUE_CHARACTERS].hex()}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_whole(key)}: {_whole(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Array):
        return _whole(value.values)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_whole(item) for item in value) + "]"
    if isinstance(value, Described):
        return f"@{_whole(value.descriptor)} {_whole(value.value)}"
    return str(value)
