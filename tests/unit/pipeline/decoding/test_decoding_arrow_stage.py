"""The Python stage: each message gives rows or a row that says why not, and nothing ends it."""

from __future__ import annotations

import json
from typing import Any

import cbor2
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from enmasse.pipeline.decoding.arrow_stage import ROWS, ArrowDecoding

SCHEMA = "device STRING, t DOUBLE NOT NULL, n INT"


def raw(values: list[bytes | None]) -> pa.RecordBatch:
    offsets = pa.array(range(len(values)), pa.int64())
    moments = pa.array([1_769_860_800_000_000] * len(values), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), offsets, moments], names=["value", "_offset", "_timestamp"]
    )


def decoded(stage: ArrowDecoding, *batches: list[bytes | None]) -> list[dict[str, Any]]:
    return [row for batch in stage(iter(map(raw, batches))) for row in batch.to_pylist()]


def test_good_and_bad_messages_come_out_in_order() -> None:
    stage = ArrowDecoding("cbor", SCHEMA, ["_offset"])
    rows = decoded(
        stage,
        [cbor2.dumps({"device": "a", "t": 1}), b"\xff", cbor2.dumps({"t": "hot"}), cbor2.dumps({"t": 2.5, "x": 1})],
        [None, b""],
    )
    assert [(row["_offset"], row["device"], row["t"], row["_value"]) for row in rows] == [
        (0, "a", 1.0, None),
        (1, None, None, b"\xff"),
        (2, None, None, cbor2.dumps({"t": "hot"})),
        (3, None, 2.5, None),
        (0, None, None, None),
        (1, None, None, b""),
    ]
    assert [row["_problem"] is None for row in rows] == [True, False, False, True, False, False]
    assert rows[2]["_problem"] == "t: expected DOUBLE, got the text 'hot'"


def test_fields_that_are_there_are_told_from_those_that_are_not_be_they_null_or_not() -> None:
    stage = ArrowDecoding("cbor", SCHEMA, ["_offset"], with_present=True)
    bodies = [{"t": 1}, {"device": None, "t": 1, "n": None}, {"t": "hot", "n": 1}, {"n": 2, "t": 1, "x": 3}]
    rows = decoded(stage, [cbor2.dumps(body) for body in bodies])
    assert [row["_present"] for row in rows] == [["t"], ["device", "t", "n"], ["t", "n"], ["t", "n"]]
    pack = [{"bn": "a/", "n": "t", "v": 1}, {"n": "open", "vb": True, "u": "Cel"}]
    rows = decoded(
        ArrowDecoding("senml", "value DOUBLE, unit STRING", [], with_present=True), [json.dumps(pack).encode()]
    )
    assert [(row["value"], row["unit"], row["_present"]) for row in rows] == [
        (1.0, None, ["value"]),
        (None, "Cel", ["unit"]),
    ]


def test_a_pack_gives_a_row_for_each_record_in_batches_of_bounded_length() -> None:
    pack = json.dumps([{"bn": "d", "v": 0}, *[{"v": n} for n in range(1, 2 * ROWS + 5)]]).encode()
    stage = ArrowDecoding("senml", "value DOUBLE", ["_offset"])
    batches = list(stage(iter([raw([b"x", pack])])))
    assert [batch.num_rows for batch in batches] == [ROWS, ROWS, 6]
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert values == [None, *map(float, range(2 * ROWS + 5))]


def test_an_error_that_nobody_thought_of_is_a_problem_of_its_message(monkeypatch: Any) -> None:
    # No message is known that does this; so the reader itself is made to fail.
    from enmasse.pipeline.decoding import arrow_stage

    def broken(content: bytes, _: float) -> list[Any]:
        if content == b"bad":
            raise ZeroDivisionError("oh")
        return [{"t": 1.0}]

    monkeypatch.setattr(arrow_stage, "records_reader", lambda *_: broken)
    rows = decoded(ArrowDecoding("cbor", SCHEMA, []), [b"bad", b"good"])
    assert [row["_problem"] for row in rows] == ["ZeroDivisionError: oh", None]


@given(
    st.lists(
        st.binary(max_size=20)
        | st.dictionaries(st.sampled_from(["device", "t", "n"]), st.integers() | st.text(max_size=3)).map(
            cbor2.dumps
        ),
        max_size=5,
    )
)
def test_no_message_is_lost_and_none_ends_the_stage(values: list[bytes]) -> None:
    rows = decoded(ArrowDecoding("cbor", SCHEMA, ["_offset"]), list(values))
    assert [row["_offset"] for row in rows] == list(range(len(values)))
    for row, value in zip(rows, values, strict=True):
        assert row["_value"] == (None if row["_problem"] is None else value)
