"""The value of a message that is no plain body: several data sections, sequences, structured values.

Rules:
1. Data sections give their content, joined; an amqp-value of binary its bytes, of string its UTF-8.
2. Any other body gives JSON: binary inside as base64, timestamps as milliseconds, uuids as text.
3. What cannot be decoded is given as it came, for one odd message must not stop a query.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any
from uuid import UUID

from enmasse.errors import RemoteError
from enmasse.wire.amqp.codec import decode_all
from enmasse.wire.amqp.types import Array, Described

__all__ = ["text_of", "value_of"]

_DATA = 0x75
_SEQUENCE = 0x76
_VALUE = 0x77


def value_of(payload: bytes) -> bytes:
    """What the column ``value`` holds for a message given as its AMQP sections."""
    try:
        sections = decode_all(payload)
    except RemoteError:
        return payload
    bodies = [s for s in sections if isinstance(s, Described) and s.descriptor in (_DATA, _SEQUENCE, _VALUE)]
    if not bodies:
        return b""
    kind = bodies[0].descriptor
    values = [body.value for body in bodies]
    if kind == _DATA and all(isinstance(value, bytes) for value in values):
        return b"".join(values)
    if kind == _SEQUENCE and all(isinstance(value, list) for value in values):
        return _json([item for value in values for item in value])
    value = values[0]
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    return b"" if value is None else _json(value)


def text_of(value: Any) -> str | None:
    """A property as text: strings as they are, everything else as it stands in JSON."""
    if value is None or type(value) is str:
        return value
    plain = _plain(value)
    return str(plain) if isinstance(plain, str) else _json(plain).decode()


def _json(value: Any) -> bytes:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _plain(value: Any) -> Any:
    """The same value of types that JSON has."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Array):
        return [_plain(item) for item in value.values]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
