"""Commands are the template with the alert in it, and what is no alert asks for none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from enmasse.pipeline.builtin.commands import CommandWriting, fill, fits

ALERT = {"id": "t/d/1", "device": "d", "state": "raised", "value": 41.5, "band": {"high": 35}, "text": 'it is "hot"'}
NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("{value}", 41.5),
        ("{band}", {"high": 35}),
        ("{band.high}", 35),
        ("{nothing}", None),
        ("at {value}, above {band.high}{nothing}", "at 41.5, above 35"),
        ({"a": ["{device}", 1, {"b": "{text}"}]}, {"a": ["d", 1, {"b": 'it is "hot"'}]}),
        ("{not a field} {}", "{not a field} {}"),
        (True, True),
    ],
)
def test_fields_stand_for_what_the_alert_has(template: Any, filled: Any) -> None:
    assert fill(template, ALERT) == filled


@pytest.mark.parametrize(
    ("match", "is_fit"),
    [
        ({}, True),
        ({"state": "raised"}, True),
        ({"state": ["raised", "missing"], "device": "d"}, True),
        ({"state": "cleared"}, False),
        ({"band.high": 35}, True),
        ({"nothing": "x"}, False),
    ],
)
def test_alerts_are_chosen_by_their_fields(match: dict[str, Any], is_fit: bool) -> None:
    assert fits(ALERT, match) is is_fit


def test_what_is_no_alert_asks_for_nothing() -> None:
    values = [json.dumps(ALERT).encode(), b"", None, b"{", b"[1]", b"\xff", b'{"id": 1}', b'{"device": 3}']
    rows = [
        {"partition": 0, "offset": n, "timestamp": NOW, "key": b"k" if n == 6 else b"", "value": value}
        for n, value in enumerate(values)
    ]
    rows.append({"partition": 1, "offset": 9, "timestamp": NOW, "key": None, "value": b'{"device": "x"}'})
    written = CommandWriting({}, {"to": "{device}", "for": "{id}"})
    found = [row for out in written(iter([pa.RecordBatch.from_pylist(rows)])) for row in out.to_pylist()]
    assert [(row["alert"], row["device"], json.loads(row["value"])) for row in found] == [
        ("t/d/1", "d", {"to": "d", "for": "t/d/1"}),
        ("1", "k", {"to": "k", "for": 1}),
        ("1-9", "x", {"to": "x", "for": "1-9"}),
    ]
