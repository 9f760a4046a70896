"""CBOR, Avro and SenML as their specifications and other encoders write them, and whatever else may come."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.model.sql.avro import avro_columns
from enmasse.model.sql.message_schema import SENML_COLUMNS
from enmasse.pipeline.decoding.avro import avro_reader
from enmasse.pipeline.decoding.cbor import read_cbor
from enmasse.pipeline.decoding.registered import Registered
from enmasse.pipeline.decoding.senml import read_senml
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper
from enmasse.pipeline.registry_copy import RegisteredSchema

ACCEPTED_S = 1_769_860_800.0

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "temperature", "type": ["null", "double"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["ON", "OFF"]}},
        {"name": "samples", "type": {"type": "array", "items": "int"}},
    ],
}
READING = {
    "device": "d1",
    "temperature": 21.5,
    "ts": dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
    "tags": {"room": "grün"},
    "state": "OFF",
    "samples": [1, -2],
}


def avro_bytes(record: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), record)
    return file.getvalue()


# RFC 8949, appendix A, and a map as it is made by hand.
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("1bffffffffffffffff", 18446744073709551615),
        ("c249010000000000000000", 18446744073709551616),
        ("fb7e37e43c8800759c", 1.0e300),
        ("f93c00", 1.0),
        ("64f0908591", "\U00010151"),
        ("a26161016162820203", {"a": 1, "b": [2, 3]}),
        ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
        ("c074323031332d30332d32315432303a30343a30305a", dt.datetime(2013, 3, 21, 20, 4, tzinfo=dt.UTC)),
        ("a2666465766963656264316174fb4035800000000000", {"device": "d1", "t": 21.5}),
    ],
)
def test_cbor_is_read_as_its_specification_has_it(content: str, expected: Any) -> None:
    assert read_cbor(bytes.fromhex(content)) == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "premature end"),
        (b"\xff", "break code"),
        (cbor2.dumps(1) + b"x", "1 more bytes"),
        (b"\x81" * 100_000 + b"\x01", "depth"),
        (b"\x5b\x7f" + b"\xff" * 7, "premature end"),
        (b"\x9b\x7f" + b"\xff" * 7, "premature end"),
        (b"\x62\xff\xff", "text string"),
        (cbor2.dumps(cbor2.CBORTag(1, 1e300)), "datetime"),
        (cbor2.dumps(cbor2.CBORTag(35, "(")), "not CBOR"),
    ],
)
def test_what_is_no_cbor_says_so(content: bytes, problem: str) -> None:
    with pytest.raises(RecordProblem, match=problem):
        read_cbor(content)


def test_a_cycle_in_cbor_is_a_problem_of_its_column() -> None:
    cycle = read_cbor(b"\xa1\x61a\xd8\x1c\x81\xd8\x1d\x00")
    from enmasse.model.sql.ddl import parse_ddl

    with pytest.raises(RecordProblem, match="a\\[\\]: expected INT, got a list"):
        shaper(parse_ddl("a ARRAY<INT>"))(cycle)


def test_avro_is_read_with_its_schema() -> None:
    read = avro_reader(json.dumps(AVRO))
    assert read(avro_bytes(READING)) == READING


def test_avro_as_a_single_object_is_read_too() -> None:
    schema = fastavro.parse_schema(AVRO)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    fingerprint = int(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"), 16)
    header = b"\xc3\x01" + fingerprint.to_bytes(8, "little")
    assert avro_reader(json.dumps(AVRO))(header + avro_bytes(READING)) == READING


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not Avro"),
        (avro_bytes(READING)[:-1], "not Avro"),
        (avro_bytes(READING) + b"xy", "2 more bytes"),
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01abc", "not Avro"),
        (b"\x01abc", "not Avro"),
        (b"\x04\xff\xff", "not Avro"),
        (b"\xff" * 40, "not Avro"),
    ],
)
def test_what_is_no_avro_of_the_schema_says_so(content: bytes, problem: str) -> None:
    with pytest.raises(RecordProblem, match=problem):
        avro_reader(json.dumps(AVRO))(content)


FAULT = {"type": "record", "name": "acme.Fault", "fields": [{"name": "code", "type": ["null", "int"]}]}
STATE = {"type": "enum", "name": "acme.State", "symbols": ["ON", "OFF"]}
LENGTH = {"type": "fixed", "name": "acme.Length", "size": 12, "logicalType": "duration"}
DAY = {"type": "int", "logicalType": "date"}
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
ANY = ["null", "boolean", "string", "long", "double", AMOUNT, DAY, STATE, FAULT, LENGTH]
ANY += [{"type": "map", "values": "acme.State"}, {"type": "array", "items": ["null", "acme.Fault"]}]
HOUR = {"months": 1, "days": 0, "milliseconds": 2**32 - 1}


def of_any(*union: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "x", "type": list(union), **more}]}


def any_bytes(schema: dict[str, Any], value: Any) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), {"x": value})
    return file.getvalue()


@pytest.mark.parametrize(
    ("value", "name", "out"),
    [
        (True, "boolean", True),
        ("ON", "string", "ON"),
        (("acme.State", "ON"), "State", "ON"),
        (5, "long", 5),
        (5.0, "double", 5.0),
        (Decimal("1.25"), "bytes", Decimal("1.25")),
        (dt.date(2026, 11, 28), "int", dt.date(2026, 11, 28)),
        (("acme.Fault", {"code": 7}), "Fault", {"code": 7}),
        (("acme.Length", struct.pack("<III", *HOUR.values())), "Length", HOUR),
        ({"a": "OFF"}, "map", {"a": "OFF"}),
        ([None, {"code": None}], "array", [None, {"code": None}]),
    ],
)
def test_of_a_union_the_field_of_the_values_type_has_it(value: Any, name: str, out: Any) -> None:
    schema = json.dumps(of_any(*ANY))
    columns = avro_columns(schema)
    record = avro_reader(schema)(any_bytes(of_any(*ANY), value))
    assert record == {"x": {name: out}}
    (made,) = shaper(columns)(record)
    assert {key for key, one in made.items() if one is not None} == {name}
    assert shaper(columns)(avro_reader(schema)(b"\0")) == [None]


def test_a_number_and_a_time_of_day_are_two() -> None:
    schema = json.dumps(of_any({"type": "int", "logicalType": "time-millis"}, "long"))
    rows = [shaper(avro_columns(schema))(avro_reader(schema)(content)) for content in (b"\0\x04", b"\x02\x04")]
    assert rows == [[{"int": "00:00:00.002000", "long": None}], [{"int": None, "long": 2}]]


def test_numbers_of_one_kind_are_one_column() -> None:
    schema = of_any("null", "int", "long")
    read = avro_reader(json.dumps(schema))
    assert [read(content) for content in (b"\x02\x04", b"\x04\x04", b"\x00")] == [{"x": 2}, {"x": 2}, {"x": None}]


@pytest.mark.parametrize(
    ("writer", "wanted", "value", "out"),
    [
        (["string"], ["null", "string", "double"], "a", {"string": "a"}),
        (["int"], ["string", "double"], 5, {"double": 5.0}),
        (["null", "string", FAULT], ["null", FAULT, "string"], {"code": 7}, {"Fault": {"code": 7}}),
        ([FAULT], ["string", FAULT], {"code": 7}, {"Fault": {"code": 7}}),
        (["null", "string", FAULT], [FAULT], {"code": 7}, {"code": 7}),
        ([STATE], ["string", STATE], "ON", {"State": "ON"}),
        (STATE, [STATE, "long"], "ON", {"State": "ON"}),
        (STATE, ["string", STATE], "ON", {"string": "ON"}),
        (
            FAULT,
            [FAULT | {"name": "acme.Other"}, FAULT],
            {"code": 7},
            "x: it does not tell which type it is of: Other",
        ),
        (["null", "string", FAULT], [FAULT], "a", "cannot be read"),
        (["string", "double"], ["string", "long"], 1.5, "cannot be read"),
    ],
)
def test_a_union_of_another_version_is_read_as_its_own(writer: Any, wanted: Any, value: Any, out: Any) -> None:
    old = of_any(*writer) if isinstance(writer, list) else of_any() | {"fields": [{"name": "x", "type": writer}]}
    new = of_any(*wanted)
    schema = RegisteredSchema(1, "AVRO", json.dumps(old))
    read = Registered(Path(), "avro", json.dumps(new), is_subject=True, of_all=schema).reader()
    if isinstance(out, str):
        with pytest.raises(RecordProblem, match=out):
            read(any_bytes(old, value), 0.0)
    else:
        assert read(any_bytes(old, value), 0.0) == [{"x": out}]


def test_a_type_that_the_other_version_defines_elsewhere_is_told_by_its_fields() -> None:
    first = of_any(FAULT)
    first["fields"].append({"name": "y", "type": ["null", "string", "acme.Fault"]})
    second = {"type": "record", "name": "R", "fields": [{"name": "y", "type": ["null", "string", FAULT]}]}
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(first), {"x": {"code": 1}, "y": {"code": 2}})
    schema = RegisteredSchema(1, "AVRO", json.dumps(first))
    read = Registered(Path(), "avro", json.dumps(second), is_subject=True, of_all=schema).reader()
    assert read(file.getvalue(), 0.0) == [{"y": {"Fault": {"code": 2}}}]


@given(st.binary(max_size=60))
def test_whatever_comes_for_a_union_gives_a_row_or_a_problem(content: bytes) -> None:
    schema = json.dumps(of_any(*ANY))
    try:
        shaper(avro_columns(schema))(avro_reader(schema)(content))
    except RecordProblem as problem:
        assert str(problem)  # noqa: PT017  # nearly everything is a problem


def names_and(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in ("name", *columns)) for row in rows]


def test_senml_is_resolved_as_in_the_specifications_examples() -> None:
    # RFC 8428 5.1.2 and 5.1.3.
    rows = read_senml(
        b"""[
        {"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":5,"n":"voltage","u":"V","v":120.1},
        {"n":"current","t":-5,"v":1.2}, {"n":"current","t":-4,"v":1.3}, {"n":"current","v":1.7}]""",
        ACCEPTED_S,
    )
    assert names_and(rows, "unit", "time", "value") == [
        ("urn:dev:ow:10e2073a0108006:voltage", "V", 1.276020076001e09, 120.1),
        ("urn:dev:ow:10e2073a0108006:current", "A", 1.276020071001e09, 1.2),
        ("urn:dev:ow:10e2073a0108006:current", "A", 1.276020072001e09, 1.3),
        ("urn:dev:ow:10e2073a0108006:current", "A", 1.276020076001e09, 1.7),
    ]


def test_senml_of_several_types_has_a_column_for_each() -> None:
    # RFC 8428 5.1.5, and a base value and sum.
    rows = read_senml(
        b"""[{"bn":"urn:dev:ow:1:","n":"temp","u":"Cel","v":23.1},{"n":"label","vs":"Machine Room"},
        {"n":"open","vb":false},{"n":"nfv","vd":"aGkgCg"},{"bv":10,"bs":5,"n":"x","v":1,"s":2,"ut":60}]""",
        ACCEPTED_S,
    )
    columns = ("value", "string_value", "bool_value", "data_value", "sum", "update_time")
    assert names_and(rows, *columns) == [
        ("urn:dev:ow:1:temp", 23.1, None, None, None, None, None),
        ("urn:dev:ow:1:label", None, "Machine Room", None, None, None, None),
        ("urn:dev:ow:1:open", None, None, False, None, None, None),
        ("urn:dev:ow:1:nfv", None, None, None, b"hi \n", None, None),
        ("urn:dev:ow:1:x", 11.0, None, None, None, 7.0, 60.0),
    ]
    assert {row["time"] for row in rows} == {ACCEPTED_S}


def test_senml_in_cbor_is_the_same() -> None:
    # RFC 8428 6, the pack of its table in CBOR.
    content = bytes.fromhex(
        "87a721781b75726e3a6465763a6f773a3130653230373361303130383030363a22fb41d303a15b00106223614120050067766f6c"
        "7461676501615602fb405e066666666666a3006763757272656e74062402fb3ff3333333333333a3006763757272656e74062302"
        "fb3ff4cccccccccccda3006763757272656e74062202fb3ff6666666666666a3006763757272656e74062102f93e00a300676375"
        "7272656e74062002fb3ff999999999999aa3006763757272656e74060002fb3ffb333333333333"
    )
    rows = read_senml(content, ACCEPTED_S)
    assert len(rows) == 7
    assert names_and(rows[:2], "unit", "time", "value") == [
        ("urn:dev:ow:10e2073a0108006:voltage", "V", 1276020076.001, 120.1),
        ("urn:dev:ow:10e2073a0108006:current", "A", 1276020071.001, 1.2),
    ]


@pytest.mark.parametrize(
    ("pack", "problem"),
    [
        (b"[]", "at least one record"),
        (b'{"n":"a","v":1}', "not CBOR|list of at least"),
        (b"[1]", "record 0: expected a map"),
        (b'[{"n":"a"}]', "expected a value"),
        (b'[{"v":1}]', "expected a name"),
        (b'[{"n":"-a","v":1}]', "expected a name"),
        (b'[{"n":"a","v":1,"vs":"x"}]', "one value, got v and vs"),
        (b'[{"n":"a","v":"1"}]', "v: expected a number"),
        (b'[{"n":"a","v":NaN}]', "NaN is no number"),
        (b'[{"n":"a","v":1e999}]', "out of range"),
        (b'[{"n":"a","v":true}]', "v: expected a number"),
        (b'[{"n":"a","vb":1}]', "vb: expected true or false"),
        (b'[{"n":"a","vd":"*"}]', "base64url"),
        (b'[{"n":"a","v":1,"must_":1}]', "'must_' is not known"),
        (b'[{"bver":11,"n":"a","v":1}]', "bver: expected at most 10"),
        (b'[{"n":"a","v":1},{"n":3,"v":1}]', "record 1: n: expected a text"),
        (b'[{"n":"a","v":1}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'[{"n":"\xff","v":1}]', "not JSON"),
    ],
)
def test_a_pack_that_is_wrong_is_wrong_as_a_whole(pack: bytes, problem: str) -> None:
    with pytest.raises(RecordProblem, match=problem):
        read_senml(pack, ACCEPTED_S)


def test_a_record_of_base_fields_alone_gives_no_row() -> None:
    rows = read_senml(b'[{"bn":"a:","bt":1700000000},{"n":"b","v":1},{"bn":"c","v":2}]', ACCEPTED_S)
    assert names_and(rows, "time") == [("a:b", 1_700_000_000), ("c", 1_700_000_000)]


SENML_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
RECORDS = st.dictionaries(
    st.sampled_from(["bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut"])
    | st.integers(-7, 9),
    SENML_VALUES,
    max_size=5,
)


@given(st.binary(max_size=60) | st.lists(RECORDS, max_size=3).map(cbor2.dumps))
def test_whatever_comes_gives_records_or_a_problem(content: bytes) -> None:
    shape = shaper(SENML_COLUMNS)
    avro = avro_reader(json.dumps(AVRO))
    for read in (read_cbor, avro, lambda some: [shape(row) for row in read_senml(some, ACCEPTED_S)]):
        try:
            read(content)
        except RecordProblem as problem:
            assert str(problem)  # noqa: PT017  # nearly everything is a problem


@given(st.data())
def test_a_damaged_message_gives_a_record_or_a_problem(data: st.DataObject) -> None:
    content = bytearray(avro_bytes(READING))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        record = avro_reader(json.dumps(AVRO))(bytes(content))
    except RecordProblem:
        return
    assert record.keys() == READING.keys()
