"""The table of values in the reference of decoding, of all formats that it names, at every depth."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import cbor2
import pytest
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Value
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sources import Files
from enmasse.model.sql.ddl import parse_ddl
from enmasse.model.sql.message_schema import SENML_COLUMNS, schema_columns
from enmasse.pipeline.decoding import decode
from enmasse.pipeline.decoding.arrow_stage import records_reader
from enmasse.pipeline.decoding.csv_columns import csv_columns
from enmasse.pipeline.decoding.registered import Registered
from enmasse.pipeline.decoding.senml import read_senml
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper
from enmasse.pipeline.registry_copy import RegisteredSchema
from tests.support.protobuf_files import field, file_of, map_entry, schema_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "decoding.md"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Case(NamedTuple):
    type: str
    formats: str
    value: str
    out: str | None
    """None: it is bad."""


def table() -> Iterator[Case]:
    lines = PAGE.read_text().split("## Values, one by one")[1].split("## ")[0].splitlines()
    for line in lines:
        if found := re.fullmatch(
            r"\| `(.+?)` \| ([A-Za-z0-9, -]+) \| `(.+)` \| (?:`(.+)`|bad|the empty text) \|", line
        ):
            out = None if line.endswith("| bad |") else found[4] or ""
            yield Case(found[1], found[2], found[3], out)


CASES = list(table())
TYPES = list(dict.fromkeys(case.type for case in CASES))


def of_format(name: str) -> list[Case]:
    return [case for case in CASES if name in case.formats.split(", ")]


def with_labels(name: str) -> Iterator[tuple[Case, str]]:
    """Yield the cases of a format whose values have a type or label of their own, with that."""
    for case in CASES:
        for one in case.formats.split(", "):
            if one.startswith(f"{name} "):
                yield case, one.partition(" ")[2]


def test_the_table_names_all_types() -> None:
    assert len(CASES) > 80
    assert {"STRING", "INT", "BIGINT", "DOUBLE", "FLOAT", "BOOLEAN", "BINARY", "DATE", "TIMESTAMP"} < set(TYPES)
    formats = {name.split()[0] for case in CASES for name in case.formats.split(", ")}
    assert formats == {"JSON", "CBOR", "CSV", "Avro", "Protobuf", "SenML", "text", "raw"}


def shown(column: Column, of: str) -> Column:
    return F.hex(column) if of == "BINARY" else column.cast("string")


def of_type(spark: SparkSession, of: str, cases: list[Case]) -> DataFrame:
    """Return for each case its number, what came out at three depths, and the problems of the two messages."""
    nested = '{"s":{"a":[%s],"m":[{"k":%s}]}}'
    rows = [
        (CASES.index(case), depth, bytearray(text.encode()))
        for case in cases
        for depth, text in enumerate((f'{{"c":{case.value}}}', nested % (case.value, case.value)))
    ]
    frame = spark.createDataFrame(rows, "partition INT, offset BIGINT, value BINARY")
    schema = f"c {of}, s STRUCT<a: ARRAY<{of}>, m: ARRAY<MAP<STRING, {of}>>>"
    decoded = decode(frame, format="json", schema=schema)
    places = (F.col("c"), F.col("s")["a"][0], F.col("s")["m"][0]["k"])
    return decoded.select("_partition", "_offset", *(shown(place, of) for place in places), "_problem")


@pytest.mark.spark
@pytest.mark.slow
def test_json_gives_what_the_table_says_at_every_depth(spark: SparkSession) -> None:
    cases = of_format("JSON")
    frames = [of_type(spark, of, [case for case in cases if case.type == of]) for of in TYPES]
    found: dict[tuple[Case, int], Any] = {}
    for row in reduce(lambda one, other: one.unionAll(other), frames).collect():
        case, depth, top, in_array, in_map, problem = tuple(row)
        assert problem is None or problem
        values = (top,) if depth == 0 else (in_array, in_map)
        found[CASES[case], depth] = None if problem else values
    expected = {
        (case, depth): None if case.out is None else (case.out,) * (depth + 1) for case in cases for depth in (0, 1)
    }
    assert found == expected


def test_cbor_gives_what_the_table_says() -> None:
    for case in of_format("CBOR"):
        shape = shaper(parse_ddl(f"c {case.type}, s STRUCT<a: ARRAY<{case.type}>>"))
        value = json.loads(case.value)
        if case.out is None:
            for record in ({"c": value}, {"s": {"a": [value]}}):
                with pytest.raises(RecordProblem):
                    shape(record)
            continue
        made, nested = shape({"c": value, "s": {"a": [value]}})
        assert nested == {"a": [made]}
        assert as_text(made, case.type) == case.out, case


def as_text(value: Any, of: str) -> str:
    """Return what ``CAST`` gives of a value for Arrow."""
    if of.startswith("TIMESTAMP"):
        text = (EPOCH + timedelta(microseconds=value)).replace(tzinfo=None).isoformat(" ")
        return text.rstrip("0") if value % 1_000_000 else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex().upper()
    return str(value).lower() if of == "BOOLEAN" else str(value)


SYMBOLS = ["ON", "OFF"]


def avro_type(of: str, label: str) -> Any:
    """Return a type of Avro by its name and that of its column."""
    if label == "enum":
        return {"type": "enum", "name": "E", "symbols": SYMBOLS}
    if label == "fixed":
        return {"type": "fixed", "name": "F", "size": 2}
    if label == "fixed-uuid":
        return {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}
    if label.endswith("decimal"):
        precision, scale = re.findall("[0-9]+", of)
        fixed = {"type": "fixed", "name": "F", "size": 5}
        return (fixed if label == "fixed-decimal" else {"type": "bytes"}) | {
            "logicalType": "decimal",
            "precision": int(precision),
            "scale": int(scale),
        }
    kinds = {"uuid": "string", "date": "int", "time-millis": "int"}
    kind = kinds.get(label) or ("long" if "-" in label else None)
    return {"type": kind, "logicalType": label} if kind else label


def avro_bytes(kind: Any, value: Any) -> bytes:
    """Return a value in binary, as it is, which libraries do not where it is none of the type."""
    kind = kind["type"] if isinstance(kind, dict) else kind
    if kind == "enum":
        kind, value = "int", SYMBOLS.index(value) if value in SYMBOLS else len(SYMBOLS)
    if isinstance(value, str):
        data = value.encode(errors="surrogatepass") if kind == "string" else value.encode("latin-1")
        return data if kind == "fixed" else avro_bytes("long", len(data)) + data
    if kind == "boolean":
        return bytes([value])
    if kind in ("float", "double"):
        return struct.pack(f"<{kind[0]}", value)
    value, made = (value << 1) ^ (value >> 63), b""
    while value > 0x7F:
        made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
    return made + bytes([value])


def test_avro_gives_what_the_table_says_at_every_depth() -> None:
    for case, label in with_labels("Avro"):
        kind = avro_type(case.type, label)
        again = kind.get("name", kind) if isinstance(kind, dict) else kind
        places = [["null", kind], {"type": "array", "items": again}, {"type": "map", "values": ["null", again]}]
        inner = [{"name": name, "type": place} for name, place in zip("cam", places, strict=True)]
        outer = [{"name": "s", "type": {"type": "record", "name": "S", "fields": inner}}]
        schema = json.dumps({"type": "record", "name": "R", "fields": outer})
        (column,) = schema_columns("avro", schema)
        assert str(column.type.fields[0].type) == case.type
        one = avro_bytes(kind, json.loads(case.value))
        content = b"\x02" + one + b"\x02" + one + b"\x00" + b"\x02\x02k\x02" + one + b"\x00"
        registered = Registered(
            Path("none"), "avro", schema, is_subject=False, of_all=RegisteredSchema(1, "AVRO", schema)
        )
        for read in (records_reader("avro", schema), registered.reader()):
            if case.out is None:
                with pytest.raises(RecordProblem):
                    shaper([column])(read(content, 0.0)[0])
                continue
            (made,) = shaper([column])(read(content, 0.0)[0])
            assert (made["a"], made["m"]) == ([made["c"]], [("k", made["c"])]), (case, label)
            assert as_text(made["c"], case.type) == case.out, (case, label)


NUMBERS = {"double": "<d", "float": "<f", "fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q"}


def varint(value: int) -> bytes:
    value, made = value & (1 << 64) - 1, b""
    while value > 0x7F:
        made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
    return made + bytes([value])


def tagged(number: int, label: str, value: Any) -> bytes:
    """Return a field of Protobuf in binary; of a message by its JSON or its fields."""
    if (form := NUMBERS.get(label)) is not None:
        content = struct.pack(form, value)
        return varint(number << 3 | (1 if len(content) == 8 else 5)) + content
    if label in ("string", "bytes"):
        content = value.encode("utf-8" if label == "string" else "latin-1", errors="surrogatepass")
    elif label == "Value":
        content = json_format.Parse(json.dumps(value), Value()).SerializeToString()
    elif label.endswith("Value"):
        content = tagged(1, label.removesuffix("Value").lower(), value)
    elif label in ("Timestamp", "Duration"):
        content = b"".join(
            tagged(place, "int64", value.get(name, 0)) for place, name in ((1, "seconds"), (2, "nanos"))
        )
    else:
        return varint(number << 3) + varint(value << 1 ^ value >> 63 if label.startswith("sint") else int(value))
    return varint(number << 3 | 2) + varint(len(content)) + content


def test_protobuf_gives_what_the_table_says_at_every_depth() -> None:
    for case, label in with_labels("Protobuf"):
        of = label
        if label == "enum":
            of = ":acme.E"
        elif label[0].isupper():
            of = f".google.protobuf.{label}"
        content = (
            'enum_type { name: "E" value { name: "OFF" number: 0 } value { name: "ON" number: 1 } } '
            'message_type { name: "S" '
            + field("c", 1, of, oneof_index=0)
            + field("a", 2, of, "repeated")
            + field("m", 3, ".acme.S.MEntry", "repeated")
            + 'oneof_decl { name: "_c" } '
            + map_entry("MEntry", "string", of)
            + '} message_type { name: "R" '
            + field("s", 1, ".acme.S")
            + "}"
        )
        known = (f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers", "struct"))
        imports = " ".join(f'dependency: "{name}"' for name in known)
        schema = schema_of("acme.R", file_of(f"{imports} {content}"))
        (column,) = schema_columns("protobuf", schema)
        assert str(column.type.fields[0].type) == case.type
        value = json.loads(case.value)
        entry = tagged(1, "string", "k") + tagged(2, label, value)
        inner = tagged(1, label, value) + tagged(2, label, value) + tagged(3, "bytes", entry.decode("latin-1"))
        read = records_reader("protobuf", schema)
        message = tagged(1, "bytes", inner.decode("latin-1"))
        if case.out is None:
            with pytest.raises(RecordProblem):
                shaper([column])(read(message, 0.0)[0])
            continue
        (made,) = shaper([column])(read(message, 0.0)[0])
        assert (made["a"], made["m"]) == ([made["c"]], [("k", made["c"])]), (case, label)
        assert as_text(made["c"], case.type) == case.out, (case, label)


def test_senml_in_json_and_in_cbor_gives_what_the_table_says() -> None:
    names = {"n": "name", "u": "unit", "t": "time", "v": "value", "vs": "string_value", "vb": "bool_value"}
    names |= {"vd": "data_value", "s": "sum", "ut": "update_time"}
    for case, label in with_labels("SenML"):
        rest = {"n": "a"} | ({} if label in ("v", "vs", "vb", "vd") else {"v": 1})
        place = [column.name for column in SENML_COLUMNS].index(names[label])
        assert str(SENML_COLUMNS[place].type) == case.type
        text = f'[{json.dumps(rest)[:-1]}, "{label}": {case.value}}}]'
        value = json.loads(case.value)
        contents = [text.encode()]
        if case.value != '"\\ud83d"':  # which CBOR cannot even write
            contents.append(cbor2.dumps([rest | {label: value}]))
        if isinstance(value, float):
            contents.append(cbor2.dumps([rest | {label: Decimal(repr(value))}]))
        for content in contents:
            if case.out is None:
                with pytest.raises(RecordProblem):
                    shaper(SENML_COLUMNS)(read_senml(content, 0.0)[0])
            else:
                made = shaper(SENML_COLUMNS)(read_senml(content, 0.0)[0])[place]
                assert as_text(made, case.type) == case.out, (case, label)


@pytest.mark.spark
@pytest.mark.slow
def test_text_and_raw_give_what_the_table_says(spark: SparkSession) -> None:
    for name, of in (("text", "STRING"), ("raw", "BINARY")):
        cases = of_format(name)
        rows = [(number, bytearray.fromhex(case.value)) for number, case in enumerate(cases)]
        frame = spark.createDataFrame(rows, "offset BIGINT, value BINARY")
        decoded = decode(frame, format=name).select("_offset", shown(F.col("value"), of), "_problem", "_value")
        for number, out, problem, value in decoded.collect():
            assert out == cases[number].out
            assert (problem is None) == (value is None) == (out is not None)


@pytest.mark.spark
@pytest.mark.slow
def test_csv_gives_what_the_table_says(spark: SparkSession, tmp_path: Path) -> None:
    cases = of_format("CSV")
    lines = []
    for number, case in enumerate(cases):
        values = [f'"{case.value}"' if of == case.type else "" for of in TYPES]
        lines.append(",".join([str(number), *values]))
    (tmp_path / "a.csv").write_text("\n".join(lines))
    schema = ", ".join(f"c{n} {of}" for n, of in enumerate(TYPES))
    files = Files.model_validate({"path": "a", "format": "csv"})
    rows = csv_columns(spark.read, str(tmp_path), parse_ddl(f"n INT, {schema}"), files)
    columns = [shown(F.col(f"c{n}"), of) for n, of in enumerate(TYPES)]
    found = {row[0]: row for row in rows.select("n", "_problem", *columns).collect()}
    for number, case in enumerate(cases):
        problem, out = found[number][1], found[number][2 + TYPES.index(case.type)]
        assert (out if problem is None else None) == case.out, (case, problem)
