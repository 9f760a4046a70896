"""Rows that change others in part, in Delta tables and in PostgreSQL: NULL is a value, and absent is none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.model.kinds.pipelines.databases import Database
from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.pipeline.database.writing import DatabaseTable
from enmasse.pipeline.errors import DatabaseError, TableSchemaError
from enmasse.pipeline.lake.partial_updates import SET_AT
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.running.planning.plans import DatabaseTarget
from tests.scenario.lake_stage import Lake, Rows
from tests.support.chance import SEED
from tests.support.foreign_tools import require
from tests.support.postgresql import DATABASE, PASSWORD, USER, PostgreSQL, postgresql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAIN = "k STRING, v INT, w STRING, at INT"
COLUMNS = f"{PLAIN}, _present ARRAY<STRING>, {DELETED} BOOLEAN"

Write = Callable[..., None]
"""Takes batches; ``order_by`` and ``columns`` may be given."""
Found = Callable[[], list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    require("PostgreSQL", "openssl")
    with postgresql() as running:
        yield running


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    (tmp_path / "warehouse.json").write_text(json.dumps({"user": USER, "password": PASSWORD}))
    monkeypatch.setenv("ENMASSE_CREDENTIALS", str(tmp_path))
    return Lake(spark, tmp_path)


def delta(lake: Lake, _server: PostgreSQL, name: str, *, keeps: bool = True) -> tuple[Write, Found]:
    def write(*batches: Rows, order_by: str | None = "at", columns: str = COLUMNS) -> None:
        table = open_table(lake.folder / name, mode="update", keys=["k"], order_by=order_by, is_partial=True)
        lake.write(table, *batches, columns=columns)

    if not keeps:
        # As a former version made it.
        lake.write(open_table(lake.folder / name, mode="update", keys=["k"], order_by="at"), [], columns=PLAIN)
    return write, lambda: lake.rows(name, "k", "v", "w", "at")


def database(lake: Lake, server: PostgreSQL, name: str, *, keeps: bool = True) -> tuple[Write, Found]:
    more = f", {SET_AT} jsonb" if keeps else ""
    server.execute(
        f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} (k text PRIMARY KEY, v int, w text, at int{more})"
    )
    fields = {"type": "postgresql", "host": "127.0.0.1", "port": server.port, "database": DATABASE, "table": name}
    of = Database.model_validate(fields | {"credentialsSecret": "warehouse", "tls": "off"})

    def write(*batches: Rows, order_by: str | None = "at", columns: str = COLUMNS) -> None:
        target = DatabaseTarget(of, "update", ("k",), order_by, is_partial=True)
        table = DatabaseTable(target, "o", lake.checkpoint(name))
        frame = lake.stream(name, *batches, columns=columns)
        table.prepare(frame.schema)
        query = (
            frame.writeStream.outputMode("update")
            .option("checkpointLocation", str(lake.checkpoint(name)))
            .trigger(availableNow=True)
            .foreachBatch(table.add)
        )
        query.start().awaitTermination()

    return write, lambda: server.rows(f"SELECT k, v, w, at FROM {name} ORDER BY k")


BOTH = pytest.mark.parametrize("made", [delta, database])


def change(k: str, at: int | None, *, gone: bool = False, **fields: Any) -> dict[str, Any]:
    return {"k": k, "at": at, DELETED: gone, "_present": ["k", "at", *fields]} | fields


def by_hand(changes: Rows) -> list[tuple[Any, ...]]:
    """The table after changes whose order is never the same."""
    found = []
    for k in sorted({one["k"] for one in changes}):
        of_key = sorted((one for one in changes if one["k"] == k), key=lambda one: one["at"])
        row: dict[str, Any] | None = None
        for one in of_key:
            if one[DELETED]:
                row = None
            else:
                row = (row or {"v": None, "w": None}) | {name: one[name] for name in one["_present"]}
        if row is not None:
            found.append((k, row["v"], row["w"], row["at"]))
    return found


@BOTH
def test_each_column_has_what_the_newest_change_set_in_whatever_order_they_come(
    lake: Lake, server: PostgreSQL, made: Any
) -> None:
    chance = random.Random(SEED)
    changes: list[dict[str, Any]] = []
    for at in range(40):
        fields: dict[str, Any] = {"v": chance.choice([at, None]), "w": chance.choice([f"at {at}", None])}
        some = {name: fields[name] for name in chance.sample(["v", "w"], chance.choice([0, 1, 1, 2]))}
        gone = chance.random() < 0.15
        changes.append(change(chance.choice("abc"), at, gone=gone, **({} if gone else some)))
    expected = by_hand(changes)
    write, found = made(lake, server, "mixed")
    order, size = chance.sample(changes, len(changes)), 14
    write(*[order[start : start + size] for start in range(0, len(order), size)])
    assert found() == expected, order
    # As if the driver had been killed after it wrote the table.
    commits = lake.checkpoint("mixed") / "commits"
    max(commits.glob("[0-9]*"), key=lambda one: int(one.name)).unlink()
    write()
    assert found() == expected


@BOTH
def test_what_nobody_newer_has_set_is_filled_by_a_change_that_comes_late(
    lake: Lake, server: PostgreSQL, made: Any
) -> None:
    write, found = made(lake, server, "late")
    write(
        [change("a", 3, v=1), change("b", 3, v=1), change("c", None, v=1)],
        [change("a", 9, w="newest"), change("b", 9, w=None), change("c", 9, w="x")],
        # v was set at 3 last, and w at 9: to NULL is set, too.
        [change("a", 7, v=2, w="old"), change("b", 7, v=None, w="old"), change("c", 1, v=2)],
        [change("a", 6, v=3), change("b", 6, v=3)],
    )
    assert found() == [("a", 2, "newest", 9), ("b", None, None, 9), ("c", 2, "x", 9)]


@BOTH
def test_a_table_that_does_not_know_when_columns_were_set_is_filled_where_it_is_empty(
    lake: Lake, server: PostgreSQL, made: Any
) -> None:
    write, found = made(lake, server, "plain", keeps=False)
    rows = [{"k": "a", "v": 1, "at": 9}, {"k": "b", "v": 1, "w": "x", "at": 9}]
    late = [{"k": "a", "w": "late", "at": 5}, {"k": "a", "v": 7, "at": 8}, {"k": "b", "w": "late", "at": 8}]
    write(rows, late, columns=PLAIN)
    assert found() == [("a", 1, "late", 9), ("b", 1, "x", 9)]
    if made is database:
        with pytest.raises(
            DatabaseError, match=r'no column _set_at of jsonb.* ALTER TABLE "public"."plain" ADD COLUMN'
        ):
            write([change("a", 10, w=None)])
        server.execute(f"ALTER TABLE plain ADD COLUMN {SET_AT} jsonb")
    write([change("a", 10, w=None)], [change("a", 8, v=2, w="older")])
    assert found() == [("a", 1, None, 10), ("b", 1, "x", 9)]


@BOTH
def test_without_an_order_what_comes_later_wins_and_null_is_a_value(
    lake: Lake, server: PostgreSQL, made: Any
) -> None:
    write, found = made(lake, server, "unordered")
    write(
        [change("a", 1, v=1, w="x"), change("a", 2, v=None), change("b", 1, v=1, w="x"), change("c", 1, v=1)],
        [change("a", 3, w=None), change("b", 2, gone=True), change("b", 1, w="anew"), change("c", 2, gone=True)],
        order_by=None,
    )
    assert found() == [("a", None, None, 3), ("b", None, "anew", 1)]


@BOTH
def test_names_of_columns_that_are_none_are_refused_before_anything_is_written(
    lake: Lake, server: PostgreSQL, made: Any
) -> None:
    write, _ = made(lake, server, "odd")
    said = (
        "update: present reads in _present which columns a row sets, and it comes as STRING; expected ARRAY<STRING>"
    )
    with pytest.raises(TableSchemaError, match=said):
        write([{"k": "a", "at": 1, "_present": "v"}], columns=f"{PLAIN}, _present STRING")


def test_folders_that_are_made_of_a_column_go_with_it(lake: Lake) -> None:
    table = open_table(
        lake.folder / "t", mode="update", keys=["k"], order_by="at", is_partial=True, partition_by=["day(ts)"]
    )
    first, second = "2026-01-31T12:00:00Z", "2026-02-01T12:00:00Z"
    rows = [change("a", 1, ts=first), change("b", 1, ts=first), change("c", 1, ts=first)]
    lake.write(
        table,
        rows,
        [change("a", 2, ts=None), change("b", 2), change("c", 2, ts=second)],
        columns=f"k STRING, ts TIMESTAMP, at INT, _present ARRAY<STRING>, {DELETED} BOOLEAN",
    )
    days = [(k, None if day is None else str(day), at) for k, day, at in lake.rows("t", "k", "ts_day", "at")]
    assert days == [("a", None, 2), ("b", "2026-01-31", 2), ("c", "2026-02-01", 2)]
