"""Messages of every format through Spark: columns of the good ones, reasons and bytes of the bad ones."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cbor2
import fastavro
import pytest

from enmasse.model.kinds.pipelines.sources import Files
from enmasse.model.sql.ddl import parse_ddl, quote_identifier
from enmasse.pipeline.decoding import COUNT_OF, bad, decode, drift_counts, filled, good, with_tombstones
from enmasse.pipeline.decoding.csv_columns import csv_columns
from enmasse.pipeline.errors import OptionError
from tests.support.protobuf_files import field, file_of, map_entry, schema_of, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

ACCEPTED = datetime(2026, 1, 31, 12, tzinfo=UTC)
RAW = "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"


def messages(spark: SparkSession, values: list[bytes], key: bytes = b"k") -> DataFrame:
    rows = [(0, n, ACCEPTED, bytearray(key), bytearray(value)) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, RAW)


def by_offset(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.orderBy("_offset").collect()]


def naive(moment: datetime) -> datetime:
    """As ``collect`` gives it in UTC."""
    return moment.replace(tzinfo=None)


JSON = (
    "d STRING, t DOUBLE, f FLOAT, n INT, b BOOLEAN, x ARRAY<INT>, s STRUCT<y: DOUBLE>, m MAP<STRING, DOUBLE>, "
    "amount DECIMAL(5,2), dt DATE, bin BINARY, ts TIMESTAMP, `odd name` STRING, "
    "at STRUCT<x: TIMESTAMP, l: ARRAY<TIMESTAMP>, m: MAP<STRING, TIMESTAMP>>, costs ARRAY<DECIMAL(5,2)>"
)
MOMENT = naive(ACCEPTED.replace(microsecond=250_000))
AT = "at: expected STRUCT<x: TIMESTAMP, l: ARRAY<TIMESTAMP>, m: MAP<STRING, TIMESTAMP>>, got "
GOOD_JSON: list[tuple[bytes, dict[str, Any]]] = [
    (
        b'{"d":"a","t":1.5,"n":3,"b":true,"x":[1,null],"s":{"y":2},"m":{"k":1},"amount":1.255,"dt":"2026-01-31"}',
        {
            "d": "a",
            "t": 1.5,
            "n": 3,
            "b": True,
            "x": [1, None],
            "s": {"y": 2.0},
            "m": {"k": 1.0},
            "amount": Decimal("1.26"),
            "dt": date(2026, 1, 31),
        },
    ),
    (b'{"unknown":[[1], NaN],"t":null}', {}),
    (
        b'{"at":{"l":[1769860800250,"2026-01-31T12:00:00.25Z"]}}',
        {"at": {"x": None, "l": [MOMENT, MOMENT], "m": None}},
    ),
    (b'{"at":{"x":1769860800.25,"m":{"k":1769860800250}}}', {"at": {"x": MOMENT, "l": None, "m": {"k": MOMENT}}}),
    (b'{"amount":"19.90","d":"1,5","x":[1,2]}', {"amount": Decimal("19.90"), "d": "1,5", "x": [1, 2]}),
    (b'{"d":"\\ud83d\\ude00 \\\\ud800"}', {"d": "\U0001f600 \\ud800"}),
    (' {"d":"grüß","bin":"AQI=","odd name":"x"}\n'.encode(), {"d": "grüß", "bin": b"\1\2", "odd name": "x"}),
    (b'{"d":{"any":1}}', {"d": '{"any":1}'}),
    (b'{"ts":1769860800250}', {"ts": naive(ACCEPTED.replace(microsecond=250_000))}),
    (b'{"ts":1769860800.25}', {"ts": naive(ACCEPTED.replace(microsecond=250_000))}),
    (b'{"ts":"2026-01-31T13:00:00.25+01:00"}', {"ts": naive(ACCEPTED.replace(microsecond=250_000))}),
    (b'{"ts":"2026-01-31"}', {"ts": datetime(2026, 1, 31)}),  # noqa: DTZ001  # as collect gives it
    (b'{"t":1,"t":2}', {"t": 2.0}),
]
BOTH = (
    'n: expected INT, got "7"; s: expected STRUCT<y: DOUBLE>, got {"y":"q"}; '
    'm: expected MAP<STRING, DOUBLE>, got {"k":{}}'
)
NO_FIELD = "it does not have any field of d, t, f, n, b, x, s, m, amount, dt, bin, ts, odd name, at, costs"
BAD_JSON: list[tuple[bytes, str]] = [
    (b"", "it is empty"),
    (b" \n", "it is empty"),
    (b"\xff\xfe", "it is no UTF-8"),
    (b'{"d":"\xff"}', "it is no UTF-8"),
    (b"null", "expected a JSON object, got null"),
    (b'[{"t":1},{"t":2}]', 'expected a JSON object, got [{"t":1},{"t":2}]'),
    (b"3", "expected a JSON object, got 3"),
    (b"{", "it is not one JSON object and nothing else"),
    (b'{"t":1', "it is not one JSON object and nothing else"),
    (b'{"t":1,}', "it is not one JSON object and nothing else"),
    (b"{'t':1}", "it is not one JSON object and nothing else"),
    (b'{"t":1}{"t":2}', "it is not one JSON object and nothing else"),
    (b'{"t":1} and more', "it is not one JSON object and nothing else"),
    (b'{"t":1}} and more', "it is not one JSON object and nothing else"),
    (b'{"t":NaN}', "t: expected DOUBLE, got NaN"),
    (b'{"m":{"k":-Infinity}}', "m: expected MAP<STRING, DOUBLE>, got what is no JSON"),
    (b"{}", NO_FIELD),
    (b'{"T":1,"D":"a"}', NO_FIELD),
    (b'{"d":"a\\ud83db"}', "d: expected STRING, got a?b"),
    (b'{"d":"\\ude00\\ud83d"}', "d: expected STRING, got ??"),
    (b'{"amount":"19,90"}', 'amount: expected DECIMAL(5,2), got "19,90"'),
    (b'{"amount":"1.234,56"}', 'amount: expected DECIMAL(5,2), got "1.234,56"'),
    (b'{"costs":["1.5","19,90"]}', 'costs: expected ARRAY<DECIMAL(5,2)>, got ["1.5","19,90"]'),
    (b'{"at":{"x":"0000-01-01T00:00:00Z"}}', AT + '{"x":"0000-01-01T00:00:00Z"}'),
    (b'{"at":{"l":[1,99999999999999999]}}', AT + '{"l":[1,99999999999999999]}'),
    (b'{"at":{"m":{"k":"12:30"}}}', AT + '{"m":{"k":"12:30"}}'),
    (b'{"t":01}', "it is not one JSON object and nothing else"),
    (b'{"z":' + b"[" * 5000 + b"]" * 5000 + b"}", "it is not one JSON object and nothing else"),
    (b'{"t":' + b"9" * 2000 + b"}", f"t: expected DOUBLE, got {'9' * 60}"),
    (b'{"t":"hot"}', "t: expected DOUBLE, got hot"),
    (b'{"t":"NaN"}', 't: expected DOUBLE, got "NaN"'),
    (b'{"t":1e999}', "t: expected DOUBLE, got 1e999"),
    (b'{"f":1e39}', "f: expected FLOAT, got 1e39"),
    (b'{"s":{"y":-1e999}}', 's: expected STRUCT<y: DOUBLE>, got {"y":-1e999}'),
    (b'{"m":{"k":1e999}}', 'm: expected MAP<STRING, DOUBLE>, got {"k":1e999}'),
    (b'{"n":99999999999}', "n: expected INT, got 99999999999"),
    (b'{"n":1.5,"b":"true"}', 'n: expected INT, got 1.5; b: expected BOOLEAN, got "true"'),
    (b'{"x":[1,"a"]}', 'x: expected ARRAY<INT>, got [1,"a"]'),
    (b'{"s":3}', "s: expected STRUCT<y: DOUBLE>, got 3"),
    (b'{"s":{"y":"q"}}', 's: expected STRUCT<y: DOUBLE>, got {"y":"q"}'),
    (b'{"n":"7","s":{"y":"q"},"m":{"k":{}}}', BOTH),
    (b'{"amount":123456}', "amount: expected DECIMAL(5,2), got 123456"),
    (b'{"dt":"gestern"}', "dt: expected DATE, got gestern"),
    (b'{"bin":"%"}', "bin: expected BINARY, got %"),
    (b'{"ts":"12:30"}', "ts: expected TIMESTAMP, got 12:30"),
    (b'{"ts":99999999999999999999}', "ts: expected TIMESTAMP, got 99999999999999999999"),
]


def test_json_becomes_columns_or_a_reason(spark: SparkSession) -> None:
    values = [value for value, _ in GOOD_JSON] + [value for value, _ in BAD_JSON]
    decoded = decode(messages(spark, values, key=b"k\xff"), format="json", schema=JSON).cache()
    rows = by_offset(decoded)
    assert [row["_offset"] for row in rows] == list(range(len(values)))
    columns = [name for name in decoded.columns if not name.startswith("_")]
    for row, (_, expected) in zip(rows, GOOD_JSON, strict=False):
        assert row["_problem"] is None
        assert {name: row[name] for name in columns if row[name] is not None} == expected
    reasons = [(bytes(row["_value"]), row["_problem"]) for row in rows[len(GOOD_JSON) :]]
    assert reasons == BAD_JSON
    assert {(row["_partition"], row["_key"], row["_timestamp"]) for row in rows} == {(0, "k\ufffd", naive(ACCEPTED))}
    # Also where only one column is wanted, and Spark would like to parse no more.
    assert good(decode(messages(spark, values), format="json", schema=JSON)).select("d").count() == len(GOOD_JSON)
    told = {int(row["properties"]["offset"]): row for row in bad(decoded, "a").collect()}
    assert sorted(told) == list(range(len(GOOD_JSON), len(values)))
    first = told[len(GOOD_JSON) + 4]
    assert (bytes(first["value"]), first["key"], first["properties"]) == (
        b"null",
        "k\ufffd",
        {
            "reason": "expected a JSON object, got null",
            "address": "a",
            "partition": "0",
            "offset": str(len(GOOD_JSON) + 4),
        },
    )
    counts = decoded.agg(*drift_counts(decoded)).first()
    assert counts is not None
    whole = [reason for _, reason in BAD_JSON if reason.startswith(("it is", "it does", "expected a JSON object"))]
    assert (counts["bad"], counts[COUNT_OF]) == (len(BAD_JSON), len(whole))
    # What fits is kept where NULL is wanted for the rest, of a value with parts as well.
    kept = {row["_offset"]: row for row in by_offset(filled(decoded))}
    nested = next(n for n, (_, reason) in enumerate(BAD_JSON, len(GOOD_JSON)) if reason == BOTH)
    assert (kept[nested]["n"], kept[nested]["s"], kept[nested]["m"]) == (None, None, None)
    assert nested - 1 in kept
    decoded.unpersist()


def test_fields_of_json_are_present_be_they_null_or_not(spark: SparkSession) -> None:
    values = [
        b'{"d": null, "t": 1}',
        b'{ "x": {"d": 1}, "t" : null, "t": null }',
        b"{}",
        b'{"d": "a", "t": "hot", "n": null}',
        b"",
    ]
    frame = decode(messages(spark, values), format="json", schema="d STRING, t DOUBLE, n INT", with_present=True)
    assert [row["_present"] for row in by_offset(good(frame))] == [["d", "t"], ["t"]]
    # A value that does not fit is not known to be NULL.
    assert [row["_present"] for row in by_offset(filled(frame))] == [["d", "t"], ["t"], ["d", "n"]]
    assert [row["_present"] for row in by_offset(good(with_tombstones(frame)))][-1:] == [[]]


def test_what_must_not_be_missing_is_a_problem_where_it_is(spark: SparkSession) -> None:
    values = [b'{"d":"a","t":1}', b'{"t":1}', b'{"d":null,"t":1}', b'{"d":"a"}']
    rows = by_offset(decode(messages(spark, values), format="json", schema="d STRING NOT NULL, t DOUBLE"))
    assert [row["_problem"] for row in rows] == [None, "d: required", "d: required", None]


@pytest.mark.parametrize("form", ["json", "cbor"])
def test_a_value_that_reads_like_a_problem_of_another_column_is_none_of_that(spark: SparkSession, form: str) -> None:
    wrong = [{"n": text, "t": 1.5} for text in ("; t: ", "a;  t: b", "t: ", ";; t: ;")]
    write = cbor2.dumps if form == "cbor" else lambda record: json.dumps(record).encode()
    whole = b"x; t: 1" if form == "json" else cbor2.dumps("x; t: 1")
    decoded = decode(messages(spark, [*map(write, wrong), whole]), format=form, schema="n INT, t DOUBLE").cache()
    (counts,) = decoded.select(*drift_counts(decoded)).collect()
    assert (counts["all"], counts["bad"], counts[f"{COUNT_OF}n"], counts[f"{COUNT_OF}t"]) == (5, 5, 4, 0)
    if form == "json":
        assert [(row["n"], row["t"]) for row in filled(decoded).collect()] == [(None, 1.5)] * 4
        both = decode(messages(spark, [b'{"n":";","t":"; n: "}']), format="json", schema="n INT, t DOUBLE")
        assert [row["_problem"] for row in by_offset(both)] == [
            "n: expected INT, got ;; t: expected DOUBLE, got , n: "
        ]


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "t", "type": ["null", "double"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}},
        {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "floor", "type": "int"}]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
    ],
}
PROTOBUF = schema_of(
    "acme.Reading",
    file_of(
        'dependency: "google/protobuf/timestamp.proto" message_type { name: "Reading" '
        + field("device", 1, "string")
        + field("t", 2, "double")
        + field("ts", 3, ".google.protobuf.Timestamp")
        + field("amount", 4, "double")
        + field("place", 5, ".acme.Place")
        + field("tags", 6, ".acme.Reading.TagsEntry", "repeated")
        + field("total", 7, "uint64")
        + map_entry("TagsEntry", "string", "int64")
        + '} message_type { name: "Place" '
        + field("floor", 1, "int32")
        + "}"
    ),
)
RECORD = {
    "device": "d1",
    "t": 21.5,
    "ts": ACCEPTED,
    "amount": Decimal("1.25"),
    "place": {"floor": 3},
    "tags": {"room": ["a", "b"]},
}


def test_a_value_that_does_not_fit_is_told_by_its_column_whatever_that_is_called(spark: SparkSession) -> None:
    names = ["a.b", "it's", 'a`b["', " lead", "*", "?", "it is hot", "expected value"]
    schema = ", ".join(
        f"{quote_identifier(name)} {'INT' if name in names[::2] else 'DECIMAL(6,2)'}" for name in names
    )
    whole = dict.fromkeys(names, 7)
    wrong = ("19,90", True, [1])
    rows = [whole, *(whole | {name: wrong[n % 3]} for n, name in enumerate(names)), {"other": 1}]
    decoded = decode(messages(spark, [json.dumps(row).encode() for row in rows]), format="json", schema=schema)
    decoded = decoded.persist()
    try:
        found = by_offset(decoded)
        assert found[0]["_problem"] is None
        assert [found[0][name] for name in names] == [7] * len(names)
        for row, name, value in zip(found[1:-1], names, wrong * len(names), strict=False):
            shown = {True: "true", "19,90": "19,90"}.get(value if isinstance(value, bool | str) else "", "[1]")
            kind = "INT" if name in names[::2] else "DECIMAL(6,2)"
            assert row["_problem"].replace('"', "") == f"{name}: expected {kind}, got {shown}".replace('"', ""), name
        kept = by_offset(filled(decoded))
        assert [[row[name] for name in names] for row in kept[1:]] == [
            [None if other == name else 7 for other in names] for name in names
        ]
        counts = decoded.agg(*drift_counts(decoded)).first()
        assert counts is not None
        assert [counts[f"{COUNT_OF}{name}"] for name in names] == [1] * len(names)
        assert (counts["bad"], counts[COUNT_OF]) == (len(names) + 1, 1)
    finally:
        decoded.unpersist()


def test_cbor_avro_protobuf_and_senml_become_the_same_kinds_of_columns(spark: SparkSession) -> None:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), RECORD)
    expected = RECORD | {"ts": naive(ACCEPTED)}
    columns = "device STRING, t DOUBLE, ts TIMESTAMP, amount DECIMAL(5,2), place STRUCT<floor: INT>, "
    columns += "tags MAP<STRING, ARRAY<STRING>>"
    nan = RECORD | {"t": float("nan")}
    simple = {name: value for name, value in RECORD.items() if name not in ("amount", "tags")}
    for form, schema, content, wrong in (
        ("cbor", columns, cbor2.dumps(RECORD), cbor2.dumps(nan)),
        ("avro", json.dumps(AVRO), file.getvalue(), file.getvalue()[:-2]),
        ("protobuf", PROTOBUF, written(PROTOBUF, **simple), written(PROTOBUF, **simple, amount=math.nan)),
    ):
        decoded = decode(messages(spark, [content, b"\xff\xff", wrong, content]), format=form, schema=schema)
        rows = by_offset(decoded)
        assert [row["_problem"] is None for row in rows] == [True, False, False, True]
        if form == "protobuf":
            assert {name: rows[0][name] for name in simple} == {name: expected[name] for name in simple}
            assert (rows[0]["total"], rows[0]["tags"]) == (Decimal(0), {})
        else:
            assert {name: rows[0][name] for name in RECORD} == expected
        assert [row["_value"] and bytes(row["_value"]) for row in rows] == [None, b"\xff\xff", wrong, None]
        assert rows[0]["_key"] == "k"
    pack = b'[{"bn":"urn:dev:1:","bt":1769860800,"n":"t","u":"Cel","v":21.5},{"n":"on","vb":true,"t":-1}]'
    records = cbor2.dumps([{-2: "urn:dev:2:", 0: "t", 2: 1}])
    decoded = decode(messages(spark, [pack, b"[]", records]), format="senml")
    found = by_offset(decoded)
    assert [(row["name"], row["unit"], row["value"], row["bool_value"], row["_offset"]) for row in found] == [
        ("urn:dev:1:t", "Cel", 21.5, None, 0),
        ("urn:dev:1:on", None, None, True, 0),
        (None, None, None, None, 1),
        ("urn:dev:2:t", None, 1.0, None, 2),
    ]
    assert [row["time"] for row in found if row["time"]][::2] == [naive(ACCEPTED)] * 2
    assert found[2]["_problem"].startswith("expected a SenML pack")


def test_text_and_raw_have_one_column(spark: SparkSession) -> None:
    text = by_offset(decode(messages(spark, [b"gr\xc3\xbc\xc3\x9f", b"\xff"]), format="text"))
    assert [(row["value"], row["_problem"]) for row in text] == [("grüß", None), (None, "it is no UTF-8")]
    raw = by_offset(decode(messages(spark, [b"\xff", b""]), format="raw"))
    assert [(bytes(row["value"]), row["_problem"]) for row in raw] == [(b"\xff", None), (b"", None)]


@pytest.mark.parametrize(
    ("form", "schema", "problem"),
    [
        ("xml", None, "format: expected one of raw, json, cbor, avro, protobuf, senml, text, got 'xml'"),
        ("json", None, "schema of format json: required for format json"),
        ("json", "a WAT", "schema of format json: character 3"),
        ("raw", "a INT", "schema of format raw: format raw has no schema"),
        ("avro", "{}", "schema of format avro: expected a record"),
    ],
)
def test_what_makes_no_columns_is_refused_before_anything_runs(
    spark: SparkSession, form: str, schema: str | None, problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        decode(messages(spark, []), format=form, schema=schema)


CSV = "a INT, b DECIMAL(8,2), c DOUBLE, t TIMESTAMP, n TIMESTAMP_NTZ, d DATE, o BOOLEAN, x BINARY, s STRING NOT NULL"
NINE = datetime(2026, 11, 28, 9)  # noqa: DTZ001  # as collect gives it
WRONG = (
    "a: expected INT, got 1.5; b: expected DECIMAL(8,2), got {}; c: expected DOUBLE, got NaN; t: expected TIMESTAMP, "
    "got 0000-01-01T00:00:00Z; n: expected TIMESTAMP_NTZ, got 2026-02-30 09:00:00; d: expected DATE, got 0000-01-01; "
    "o: expected BOOLEAN, got yes; x: expected BINARY, got AAE; s: required"
)
NOT_OF_IT = "s: a character is not of the file's encoding"


@pytest.mark.parametrize(
    ("written", "content", "expected"),
    [
        (
            {},
            (
                "\ufeff1.0,19.90,1e3,2026-11-28T10:00:00+01:00,2026-11-28 09:00,2026-11-28,TRUE,AAEC,x\n"
                '-7,,.5,1795856400000,,,false,,"a ""b"",\nc"\n\n'
            ),
            [
                [1, Decimal("19.90"), 1000.0, NINE, NINE, NINE.date(), True, b"\0\1\2", "x"],
                [-7, None, 0.5, NINE, None, None, False, None, 'a "b",\nc'],
            ],
        ),
        (
            {"delimiter": ";", "decimal": ",", "quote": "'", "header": True},
            "a;b;c;t;n;d;o;x;s\n1,0;19,90;1,5e3;1795856400,0;;;;;'it''s; so'\n",
            [[1, Decimal("19.90"), 1500.0, NINE, None, None, None, None, "it's; so"]],
        ),
        ({"quote": ""}, ',,,,,,,,5"\n', [[*[None] * 8, '5"']]),
        ({"multiLine": False}, ',,,,,,,,"5\n6"\n', [[*[None] * 8, "5"], "it does not have 9 values"]),
        ({"encoding": "windows-1252"}, ",,,,,,,,5 € Müller\n", [[*[None] * 8, "5 € Müller"]]),
        ({"encoding": "UTF-16"}, ",,,,,,,,Müller\n", [[*[None] * 8, "Müller"]]),
        ({}, b",,,,,,,,M\xfcller\n", [NOT_OF_IT]),
        (
            {},
            "1.5,19;90,NaN,0000-01-01T00:00:00Z,2026-02-30 09:00:00,0000-01-01,yes,AAE,\n1,2\n1,2,3,4,5,6,7,8,9,10\n",
            [WRONG.format("19;90"), "it does not have 9 values", "it does not have 9 values"],
        ),
        (
            {"delimiter": ";", "decimal": ","},
            "1,5;1.234,56;NaN;0000-01-01T00:00:00Z;2026-02-30 09:00:00;0000-01-01;yes;AAE;\n",
            [WRONG.format("1.234,56").replace("1.5", "1,5")],
        ),
        (
            {},
            '1,"19,90",Infinity,,,,,,x\n',
            ["b: expected DECIMAL(8,2), got 19,90; c: expected DOUBLE, got Infinity"],
        ),
    ],
)
def test_a_value_of_csv_comes_as_it_is_written_or_says_why_not(
    spark: SparkSession, tmp_path: Path, written: dict[str, Any], content: str | bytes, expected: list[Any]
) -> None:
    files = Files.model_validate({"path": "a", "format": "csv"} | written)
    lines = content if isinstance(content, bytes) else content.encode(files.encoding or "UTF-8")
    (tmp_path / "a.csv").write_bytes(lines)
    frame = csv_columns(spark.read, str(tmp_path), parse_ddl(CSV), files)
    rows = [row.asDict() for row in frame.collect()]
    found = [row["_problem"] or [row[name] for name in frame.columns[:9]] for row in rows]
    assert [one if isinstance(one, str) else one[-9:] for one in found] == expected
    bad_lines = b"".join(row["_value"] for row in rows if row["_problem"] and NOT_OF_IT not in row["_problem"])
    assert bad_lines in lines.replace(b"\n", b"")
