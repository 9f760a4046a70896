"""Names and forms of the journal's records, for people and for checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from enmasse.messaging.log.frame import Frame, FrameError, check_frame
from enmasse.messaging.log.holders import Holders
from enmasse.messaging.retained_log import RetainedError, decode_value
from enmasse.messaging.storage import Table

if TYPE_CHECKING:
    from collections.abc import Callable

_EXACT = {Table.FRAME: 16, Table.SETTLED: 16, Table.MARK: 16, Table.ATTEMPTS: 16, Table.TIME: 24,
          Table.HOLDER: 16, Table.RETAINED: 20}  # fmt: skip
_LEAST = {
    Table.PRODUCER: 16,
    Table.OFFSET: 8,
    Table.SUBSCRIPTION: 4,
    Table.SESSION: 5,
    Table.META: 1,
    Table.ENTITY: 1,
}


def table_name(stored: bytes) -> str:
    """The table of a stored key."""
    try:
        return Table(stored[0]).name
    except (ValueError, IndexError):
        return f"table {stored[0]}" if stored else "no table"


def log_of(stored: bytes) -> int | None:
    """The log that a record belongs to."""
    if len(stored) < 5 or stored[0] in (Table.META, Table.ENTITY):
        return None
    return int.from_bytes(stored[1:5], "big")


def place_of(stored: bytes) -> dict[str, Any]:
    """Return the fields of a key, by name."""
    key = stored[1:]
    place: dict[str, Any] = {"table": table_name(stored)}
    log = log_of(stored)
    if log is None:
        return place | {"key": _text(key)}
    place["log"] = log
    if stored[0] == Table.SUBSCRIPTION:
        return place | {"name": _text(key[4:])}
    if stored[0] == Table.RETAINED:
        return place | {"digest": key[4:].hex()}
    if len(key) >= 8:
        place["partition"] = int.from_bytes(key[4:8], "big")
    if stored[0] == Table.TIME and len(key) == 24:
        return place | {"time": int.from_bytes(key[8:16], "big"), "offset": int.from_bytes(key[16:], "big")}
    if stored[0] in (Table.PRODUCER, Table.OFFSET):
        return place | {"name": _text(key[16:])}
    if len(key) == 16:
        return place | {"offset": int.from_bytes(key[8:], "big")}
    return place | {"key": key.hex()}


def describe(stored: bytes) -> str:
    """One record for a message to a person."""
    place = place_of(stored)
    name = place.pop("table")
    return f"{name} record of " + ", ".join(f"{what} {value}" for what, value in place.items())


def _text(data: bytes) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data.hex()
    return text if text.isprintable() else data.hex()


def explain_bad_record(stored: bytes, value: bytes | None) -> str | None:
    """Return the fault of a record; ``None`` if none can be seen.

    Args:
        stored: its key, with the table's byte.
        value: ``None`` if its checksum is wrong.
    """
    if value is None:
        return "has a wrong checksum"
    try:
        table = Table(stored[0])
    except (ValueError, IndexError):
        return "is of no table that this version knows"
    length = len(stored) - 1
    if length != _EXACT.get(table, length) or length < _LEAST.get(table, 0) or table is Table.MERGE:
        return f"has a key of {length} bytes"
    check = _CHECKS.get(table)
    return None if check is None else check(stored[1:], value)


def _bad_frame(key: bytes, value: bytes) -> str | None:
    try:
        check_frame(value, int.from_bytes(key[8:], "big"))
        Frame(value, verify=False).check_columns()
    except FrameError as error:
        return f"is damaged: {error}"
    return None


def _bad_entity(key: bytes, value: bytes) -> str | None:
    if key[:1] == b"\0":
        return None if len(value) == 8 else f"is a counter of {len(value)} bytes"
    try:
        document = json.loads(value)
    except ValueError as error:
        return f"is no JSON: {error}"
    return None if isinstance(document, dict) else "is no JSON object"


def _bad_holder(_key: bytes, value: bytes) -> str | None:
    try:
        Holders(value)
    except ValueError as error:
        return f"is damaged: {error}"
    return None


def _bad_value(_key: bytes, value: bytes) -> str | None:
    try:
        decode_value(value)
    except RetainedError as error:
        return f"is damaged: {error}"
    return None


_CHECKS: dict[Table, Callable[[bytes, bytes], str | None]] = {
    Table.FRAME: _bad_frame,
    Table.ENTITY: _bad_entity,
    Table.HOLDER: _bad_holder,
    Table.RETAINED: _bad_value,
}
