"""Rows of Arrow as JSON."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa

from enmasse.pipeline.sink.json_rows import json_of, values_of


def test_values_are_as_spark_writes_them_and_null_is_left_out() -> None:
    row = {
        "bytes": b"\xff",
        "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "day": date(2026, 1, 31),
        "time": time(10, 30),
        "amount": Decimal("1.50"),
        "whole": Decimal("2.00"),
        "none": None,
        "deep": {"items": [None, {"none": None, "a": 1}]},
        "odd": [math.nan, math.inf, -math.inf, 0.5],
        "long": timedelta(seconds=1),
    }
    assert json.loads(json_of(row)) == {
        "bytes": "/w==",
        "at": "2026-01-31T12:00:00+00:00",
        "day": "2026-01-31",
        "time": "10:30:00",
        "amount": 1.5,
        "whole": 2,
        "deep": {"items": [None, {"a": 1}]},
        "odd": ["NaN", "Infinity", "-Infinity", 0.5],
        "long": "0:00:01",
    }


def test_moments_that_python_does_not_have_are_texts() -> None:
    moment = pa.timestamp("us", "UTC")
    of = pa.struct({"at": moment, "days": pa.list_(pa.date32()), "by": pa.map_(pa.string(), moment)})
    far, shown = 10**18, "+33658-09-27T01:46:40Z"
    column = pa.array([{"at": far, "days": [0, 10**7, None], "by": [("a", far)]}, {"at": 0, "days": None}, None], of)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert values_of(column) == [
        {"at": shown, "days": [epoch.date(), "+29349-01-26", None], "by": {"a": shown}},
        {"at": epoch, "days": None, "by": None},
        None,
    ]


def test_maps_are_objects() -> None:
    tags = pa.map_(pa.string(), pa.list_(pa.struct({"of": pa.map_(pa.string(), pa.int32())})))
    (value,) = values_of(pa.array([[("a", [{"of": [("b", 1)]}, None])]], tags))
    assert value == {"a": [{"of": {"b": 1}}, None]}
