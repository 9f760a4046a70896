from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import Row

from enmasse.pipeline.running.querying import json_value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1 << 62, 1 << 62),
        (0.5, 0.5),
        (float("inf"), "inf"),
        ("é", "é"),
        (b"text", "text"),
        (bytearray(b"\xff\x00"), "base64:/wA="),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
        (date(2026, 1, 31), "2026-01-31"),
        (timedelta(minutes=1), 60.0),
        (Decimal("1.50"), "1.50"),
        ([1, [b"x"]], [1, ["x"]]),
        (Row(a=1, b=Row(c=None)), {"a": 1, "b": {"c": None}}),
        ({1: date(2026, 1, 1)}, {"1": "2026-01-01"}),
    ],
)
def test_every_value_has_a_form_in_json(value: object, expected: object) -> None:
    assert json_value(value) == expected
    assert json.dumps(json_value(value), allow_nan=False)
