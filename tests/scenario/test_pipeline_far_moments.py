"""Tables with moments beyond the years 1 to 9999, as earlier versions wrote them: all that reads them."""

from __future__ import annotations

import base64
import io
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructType

from enmasse.model.kinds.pipelines.pipeline import Code
from enmasse.pipeline.far_moments import as_numbers, beyond_pandas
from enmasse.pipeline.lake.compaction import compact, drop_rows
from enmasse.pipeline.lake.relation import facts, relation, statistics
from enmasse.pipeline.running.querying import as_file, as_rows
from enmasse.pipeline.running.steps.functions import FunctionCall
from enmasse.pipeline.running.steps.judged_functions import for_pandas, judged_functions, judged_rows
from enmasse.pipeline.running.steps.sql_functions import sql_functions
from enmasse.pipeline.running.steps.verdicts import Judging, Verdicts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MICROS = (1_795_856_400_000_000, 1_795_856_400_000_000_000, -62_135_596_800_000_001, None)
DAYS = (20_785, 2_932_897, -719_163, None)
TEXTS = ("2026-11-28T09:00:00", "+58878-06-04T00:00:00", "0000-12-31T23:59:59.999999", None)
DATES = ("2026-11-28", "+10000-01-01", "0000-12-31", None)
LEAVES = {"ts": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us"), "d": pa.date32()}
OFFSETS = pa.array([0, 1, 2, 3, 4], pa.int32())


def leaf(name: str) -> pa.Array:
    return pa.array(DAYS, pa.int32()).cast(LEAVES[name]) if name == "d" else pa.array(MICROS).cast(LEAVES[name])


def column(name: str, depth: str) -> pa.Array:
    values = leaf(name)
    match depth:
        case "struct":
            return pa.StructArray.from_arrays([values], ["x"])
        case "array":
            return pa.ListArray.from_arrays(OFFSETS, values)
        case "map":
            return pa.MapArray.from_arrays(OFFSETS, pa.array(["k"] * 4), values)
    return values


COLUMNS = {f"{name}_{depth}": column(name, depth) for name in LEAVES for depth in ("top", "struct", "array", "map")}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "far"
    write_deltalake(str(path), pa.table({"n": pa.array(range(4)), **COLUMNS}))
    return path


def expected(name: str) -> list[Any]:
    kind, _, depth = name.partition("_")
    texts = DATES if kind == "d" else [text and text + ("Z" if kind == "ts" else "") for text in TEXTS]
    make: dict[str, Any] = {"struct": lambda x: {"x": x}, "array": lambda x: [x], "map": lambda x: {"k": x}}
    return [make[depth](text) if depth in make else text for text in texts]


def test_a_query_gives_them_as_text_and_says_how_many_there_are(spark: SparkSession, table: Path) -> None:
    frame = relation(spark, table).orderBy("n").drop("n")
    answer = as_rows(frame.schema, as_numbers(frame).toLocalIterator(), 10)
    found = dict(zip(frame.columns, zip(*answer["rows"], strict=True), strict=True))
    assert {name: list(values) for name, values in found.items()} == {name: expected(name) for name in COLUMNS}
    said = "{}: 2 of its moments are beyond the years 1 to 9999, such as {}"
    examples = {"ts": "+58878-06-04T00:00:00Z", "ntz": "+58878-06-04T00:00:00", "d": "+10000-01-01"}
    assert answer["warnings"] == [said.format(name, examples[name.partition("_")[0]]) for name in COLUMNS]


def test_a_file_of_parquet_has_them_as_they_are(spark: SparkSession, table: Path) -> None:
    frame = relation(spark, table).orderBy("n").drop("n")
    answer = as_file(frame.schema, as_numbers(frame).toLocalIterator(), 10)
    found = pq.read_table(io.BytesIO(base64.b64decode(answer["file"])))
    assert len(answer["warnings"]) == len(COLUMNS)
    for name, values in COLUMNS.items():
        assert found[name].cast(values.type).combine_chunks().equals(values), name


def test_what_pandas_does_not_hold_is_known_of_each_column(spark: SparkSession, table: Path) -> None:
    frame = relation(spark, table).orderBy("n")
    beyond = beyond_pandas(frame)
    assert set(beyond) == set(COLUMNS)
    (found,) = {tuple(values) for values in zip(*frame.select(*beyond.values()).collect(), strict=True)}
    assert found == (False, True, True, False)
    # Days are dates of Python, which go on for longer.
    later = spark.sql("SELECT timestamp'2500-01-01' AS ts, date'2500-01-01' AS d")
    assert tuple(later.select(*beyond_pandas(later).values()).collect()[0]) == (True, False)


def test_a_function_of_frames_is_not_called_with_them(spark: SparkSession, table: Path) -> None:
    call = FunctionCall("own", "same", {"own": "def same(rows):\n    return rows"}, ("n",), 60.0)
    of_n = StructType().add("n", LongType())
    frame = relation(spark, table)
    left_out = judged_rows(frame, call, of_n, Judging("far", 0, is_null=False))
    assert sorted(left_out.collect()) == [(0,), (3,)]
    with_null = for_pandas(frame, Judging("far", 0, is_null=True))
    rows = {row["n"]: row for row in as_numbers(with_null).collect()}
    assert {
        n: {row[name] for name in ("ts_top", "d_top", "ntz_array")} for n, row in rows.items() if n in (1, 2)
    } == {
        1: {None},
        2: {None},
    }
    assert rows[0]["ts_map"] == {"k": MICROS[0]}
    assert sorted(judged_rows(frame, call, of_n, Judging("far", 0, is_null=True)).collect()) == [
        (0,),
        (1,),
        (2,),
        (3,),
    ]
    with pytest.raises(PySparkException, match="ts_top: got a moment that pandas does not hold: "):
        for_pandas(frame.select("n", "ts_top"), None).collect()


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_a_vectorized_function_is_not_called_with_them(spark: SparkSession, kind: str) -> None:
    declared = {"name": "same", "function": "own:same", "returns": "INT", "vectorized": True}
    code = Code.model_validate({"configMap": "own", "functions": [declared]})
    modules = {"own": "def same(days, numbers):\n    assert days.notna().all()\n    return numbers"}
    for name, udf in sql_functions(code, modules).items():
        spark.udf.register(name, udf)
    moments = ["2026-11-28", "0000-12-31", "10000-01-01" if kind == "DATE" else "2262-04-12", "1677-09-22"]
    rows = ", ".join(f"({number}, {kind.partition('_')[0]}'{text}')" for number, text in enumerate(moments))
    given = spark.sql(f"SELECT same(CAST(at AS {kind}), n) AS n FROM VALUES {rows} AS rows(n, at)")
    left_out = Verdicts(Judging("far", 0, is_null=False), judged_functions(code, modules)).over(given)
    assert sorted(left_out.collect()) == [(0,), (3,)]
    with_null = Verdicts(Judging("far", 0, is_null=True), judged_functions(code, modules)).over(given)
    assert sorted(row["n"] for row in with_null.collect() if row["n"] is not None) == [0, 3]
    assert with_null.count() == 4


def test_columns_of_an_answer_may_have_one_name(spark: SparkSession) -> None:
    frame = spark.sql("SELECT timestamp'2026-11-28 09:00:00' AS a, date'2026-11-28' AS a, 1 AS `b.c`")
    answer = as_rows(frame.schema, as_numbers(frame).toLocalIterator(), 10)
    assert (answer["rows"], answer["warnings"]) == ([["2026-11-28T09:00:00Z", "2026-11-28", 1]], [])


def test_facts_and_statistics_of_the_table(spark: SparkSession, table: Path) -> None:
    assert facts(table).rows == 4
    found = {row["column"]: (row["min"], row["max"], row["nulls"]) for row in statistics(spark, table).collect()}
    assert found["n"] == ("0", "3", 0)
    assert found["d_top"] == ("0000-12-31", "+10000-01-01", 1)
    # Delta's library reads no moment beyond the year 9999 in the log: the greatest one is not known.
    assert found["ts_top"] == ("0000-12-31T23:59:59.999000Z", None, 1)


@pytest.mark.parametrize("name", LEAVES)
def test_old_rows_go_and_files_are_joined(tmp_path: Path, name: str) -> None:
    path = tmp_path / "far"
    for _ in range(10):
        write_deltalake(str(path), pa.table({"at": leaf(name), "n": pa.array(range(4))}), mode="append")
    assert compact(path).made == 1
    assert drop_rows(path, "at", datetime(2026, 1, 1, tzinfo=UTC)) == 10  # those of the year 0
    assert facts(path).rows == 30
