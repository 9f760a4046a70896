"""The table of values in the reference of decoding, of all formats that it names, at every depth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sources import Files
from enmasse.model.sql.ddl import parse_ddl
from enmasse.pipeline.decoding import decode
from enmasse.pipeline.decoding.csv_columns import csv_columns
from enmasse.pipeline.decoding.shaping import RecordProblem, shaper

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
        if found := re.fullmatch(r"\| `(.+?)` \| ([A-Z, ]+) \| `(.+)` \| (?:`(.+)`|bad|the empty text) \|", line):
            out = None if line.endswith("| bad |") else found[4] or ""
            yield Case(found[1], found[2], found[3], out)


CASES = list(table())
TYPES = list(dict.fromkeys(case.type for case in CASES))


def of_format(name: str) -> list[Case]:
    return [case for case in CASES if name in case.formats.split(", ")]


def test_the_table_names_all_types() -> None:
    assert len(CASES) > 80
    assert {"STRING", "INT", "BIGINT", "DOUBLE", "FLOAT", "BOOLEAN", "BINARY", "DATE", "TIMESTAMP"} < set(TYPES)


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
        moment = EPOCH + timedelta(microseconds=value)
        return (
            moment.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").removesuffix(".")
            if value % 1_000_000
            else (moment.strftime("%Y-%m-%d %H:%M:%S"))
        )
    if isinstance(value, date):
        return value.isoformat()
    return str(value).lower() if of == "BOOLEAN" else str(value)


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
