"""SenML [RFC 8428]: packs of measurements in JSON or CBOR, resolved: a row for each record.

Rules:
1. A pack is taken as a whole: base fields hold for the records after them, so one that is wrong makes all doubtful.
2. Times before 2^28 are relative to the moment when the address accepted the message, so that a pack that is read
   again says the same [RFC 8428 4.5.3].
3. A record of base fields alone gives no row.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from enmasse.pipeline.decoding.cbor import read_cbor
from enmasse.pipeline.decoding.shaping import RecordProblem

_VERSION: Final = 10
"""The version of RFC 8428; a higher one may mean anything."""
_RELATIVE_BELOW: Final = 1 << 28
_LABELS: Final = {
    -1: "bver",
    -2: "bn",
    -3: "bt",
    -4: "bu",
    -5: "bv",
    -6: "bs",
    0: "n",
    1: "u",
    2: "v",
    3: "vs",
    4: "vb",
    5: "s",
    6: "t",
    7: "ut",
    8: "vd",
}
_TEXTS: Final = ("bn", "bu", "n", "u", "vs")
_NUMBERS: Final = ("bver", "bt", "bv", "bs", "v", "s", "t", "ut")
_VALUES: Final = ("v", "vs", "vb", "vd")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9\-:./_]*")


def read_senml(content: bytes, accepted_s: float) -> list[dict[str, Any]]:
    """Return the resolved records of a pack, by the names of the columns.

    Args:
        content: the message.
        accepted_s: the time at which the address accepted it, in seconds since 1970.

    Raises:
        RecordProblem: it is no SenML pack.
    """
    pack = _pack(content)
    if not isinstance(pack, list) or not pack:
        raise RecordProblem("expected a SenML pack: a list of at least one record")
    base: dict[str, Any] = {}
    rows = []
    for number, record in enumerate(pack):
        try:
            fields = _fields(record)
            base.update((name, value) for name, value in fields.items() if name[0] == "b")
            row = _row(base, fields, accepted_s)
        except RecordProblem as problem:
            raise RecordProblem(f"record {number}: {problem}") from problem
        if row is not None:
            rows.append(row)
    return rows


def _pack(content: bytes) -> Any:
    if content[:1] not in (b"[", b" ", b"\n", b"\r", b"\t"):
        return read_cbor(content)
    try:
        return json.loads(content.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RecordProblem(f"not JSON: {error}") from error


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def _fields(record: Any) -> dict[str, Any]:
    """Return a record by the labels of its JSON form."""
    if not isinstance(record, Mapping):
        raise RecordProblem(f"expected a map, got a {type(record).__name__}")
    fields: dict[str, Any] = {}
    for label, value in record.items():
        name = label if isinstance(label, str) else _LABELS.get(label) if type(label) is int else None
        if name is None or name == "":
            continue
        if name.endswith("_"):
            # Its sender demands that it is understood [RFC 8428 4.4].
            raise RecordProblem(f"field {name!r} is not known here")
        if name in _TEXTS and not isinstance(value, str):
            raise RecordProblem(f"{name}: expected a text, got a {type(value).__name__}")
        if name == "vb" and not isinstance(value, bool):
            raise RecordProblem(f"vb: expected true or false, got a {type(value).__name__}")
        if name in _TEXTS or name in _NUMBERS or name in _VALUES:
            fields[name] = _number(name, value) if name in _NUMBERS else value
    if fields.get("bver", _VERSION) > _VERSION:
        raise RecordProblem(f"bver: expected at most {_VERSION}, got {fields['bver']}")
    return fields


def _number(name: str, value: Any) -> float:
    if not isinstance(value, bool) and isinstance(value, int | float | Decimal):
        try:
            # CBOR may have decimal fractions [RFC 8428 6].
            number = float(value) if isinstance(value, Decimal) else value
            if math.isfinite(number):
                return number
        except (OverflowError, ValueError):
            pass  # too large, or a Decimal that signals
    raise RecordProblem(f"{name}: expected a number, got a {type(value).__name__} or one out of range")


def _row(base: Mapping[str, Any], fields: Mapping[str, Any], accepted_s: float) -> dict[str, Any] | None:
    values = [name for name in _VALUES if name in fields]
    if len(values) > 1:
        raise RecordProblem(f"expected one value, got {' and '.join(values)}")
    if not values and "s" not in fields:
        if all(name[0] == "b" for name in fields):
            return None
        raise RecordProblem("expected a value: v, vs, vb, vd or s")
    name = base.get("bn", "") + fields.get("n", "")
    if not _NAME.fullmatch(name):
        raise RecordProblem(f"expected a name of letters, digits and -:./_, got {name[:60]!r}")
    time = base.get("bt", 0) + fields.get("t", 0)
    # A base value alone is none; it is added to those of records [RFC 8428 4.1].
    return {
        "name": name,
        "unit": fields.get("u", base.get("bu")),
        "time": time + accepted_s if time < _RELATIVE_BELOW else time,
        "value": float(fields["v"] + base.get("bv", 0)) if "v" in fields else None,
        "string_value": fields.get("vs"),
        "bool_value": fields.get("vb"),
        "data_value": _data(fields["vd"]) if "vd" in fields else None,
        "sum": float(fields["s"] + base.get("bs", 0)) if "s" in fields else None,
        "update_time": float(fields["ut"]) if "ut" in fields else None,
    }


def _data(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise RecordProblem(f"vd: expected bytes, got a {type(value).__name__}")
    text = value.rstrip("=")
    try:
        # Without padding [RFC 8428 5].
        made = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError as error:
        raise RecordProblem(f"vd: expected base64url: {error}") from error
    # Not with bits that nothing holds, nor what the library passes over.
    if urlsafe_b64encode(made).decode().rstrip("=") != text:
        raise RecordProblem("vd: expected base64url")
    return made
