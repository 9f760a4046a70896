"""Converts values of AMQP to text, bytes and JSON, for protocols whose messages hold nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from uuid import UUID

from enmasse.message.types import Described


def as_bytes(value: Any) -> tuple[bytes, str]:
    """Return a body, and its content type if it is not plain bytes: text as UTF-8, other values as JSON."""
    if value is None:
        return b"", ""
    if isinstance(value, str):
        return value.encode(errors="replace"), "text/plain"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), ""
    return json.dumps(as_json(value)).encode(), "application/json"


def as_text(value: Any) -> str:
    """Return a property as text: bytes that are not UTF-8 as base64, maps and lists as JSON."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, int | float | UUID):
        return str(int(value)) if isinstance(value, int) else str(value)
    return "" if value is None else json.dumps(as_json(value))


def as_json(value: Any) -> Any:
    """Return a value of AMQP as JSON can have it: other types as text, bytes as base64."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Described):
        return as_json(value.value)
    if isinstance(value, dict):
        return {as_text(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return str(value)
