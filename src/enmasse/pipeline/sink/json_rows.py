"""Rows of Arrow as JSON, as Spark's ``to_json`` would have them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import date, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from enmasse.pipeline.far_moments import python_values


def json_of(row: dict[str, Any]) -> str:
    """Return a row as JSON; numbers that JSON does not have are text."""
    document = plain_json(row)
    try:
        return json.dumps(document, separators=(",", ":"), allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(document), separators=(",", ":"), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def values_of(column: pa.Array) -> list[Any]:
    """Return the values of a column, maps as dicts; a moment beyond the years 1 to 9999 as text."""
    convert, values = _converter(column.type), python_values(column)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(of: pa.DataType) -> Callable[[Any], Any] | None:
    """Return what makes maps of the pairs that Arrow gives for them; None: there are none."""
    if pa.types.is_map(of):
        below = _converter(of.item_type)
        return lambda pairs: {key: value if below is None else _or_null(below, value) for key, value in pairs}
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        below = _converter(of.value_type)
        return None if below is None else lambda items: [_or_null(below, item) for item in items]
    if pa.types.is_struct(of):
        fields = {field.name: _converter(field.type) for field in of}
        if not any(fields.values()):
            return None
        return lambda row: {
            name: value if (convert := fields[name]) is None else _or_null(convert, value)
            for name, value in row.items()
        }
    return None


def _or_null(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def plain_json(value: Any) -> Any:
    """Return a value as JSON has it, as Spark's ``to_json`` would: what is NULL in a row is left out."""
    if isinstance(value, dict):
        return {str(key): plain_json(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [plain_json(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else value
