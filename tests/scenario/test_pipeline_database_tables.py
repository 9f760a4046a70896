"""Tables of a real PostgreSQL, as a batch writes them and a copy is made of them: all that needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from enmasse.model.kinds.databases import Database
from enmasse.pipeline.database.reading import refresh_copy
from enmasse.pipeline.database.writing import DatabaseTable
from enmasse.pipeline.errors import DatabaseError
from enmasse.pipeline.lake.delta_reading import open_delta
from enmasse.pipeline.running.plans import DatabaseTarget
from tests.support.foreign_tools import require
from tests.support.postgresql import DATABASE, PASSWORD, USER, PostgreSQL, postgresql

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    require("PostgreSQL", "openssl")
    with postgresql() as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the host of pipelines writes what a Secret holds."""
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "warehouse.json").write_text(json.dumps({"user": USER, "password": PASSWORD}))
    monkeypatch.setenv("ENMASSE_CREDENTIALS", str(folder))
    return folder


def database(server: PostgreSQL, table: str, **more: Any) -> Database:
    fields = {"type": "postgresql", "host": "127.0.0.1", "port": server.port, "database": DATABASE, "table": table}
    return Database.model_validate(fields | {"credentialsSecret": "warehouse", "tls": "off"} | more)


def written(server: PostgreSQL, table: str, folder: Path, *keys: str) -> DatabaseTable:
    target = DatabaseTarget(database(server, table), "update" if keys else "append", keys)
    return DatabaseTable(target, "demo.pipeline", folder)


NUMBERS = StructType().add("n", LongType())


def numbers(*values: int | None) -> pa.RecordBatchReader:
    return pa.table({"n": pa.array(values, pa.int64())}).to_reader()


def copied(server: PostgreSQL, table: str, folder: Path) -> list[dict[str, Any]]:
    refresh_copy(database(server, table), folder, "test", is_linked=True)
    delta = open_delta(folder)
    assert delta is not None
    rows: list[dict[str, Any]] = delta.to_pyarrow_table().to_pylist()
    return rows


def test_a_batch_that_comes_again_adds_nothing(server: PostgreSQL, tmp_path: Path) -> None:
    server.execute("CREATE TABLE once (n bigint)")
    table = written(server, "once", tmp_path)
    table.prepare(NUMBERS)
    table.put(numbers(1, 2), "query", 7)
    for batch in (7, 6):
        table.put(numbers(1, 2), "query", batch)
    assert server.rows("SELECT n FROM once ORDER BY n") == [(1,), (2,)]
    assert server.rows("SELECT batch FROM enmasse_batches WHERE query LIKE 'query/%'") == [(7,)]
    table.put(numbers(3), "query", 8)
    table.put(numbers(4), "another query", 0)
    assert server.rows("SELECT n FROM once ORDER BY n") == [(1,), (2,), (3,), (4,)]


def test_a_column_with_the_name_of_the_row_is_a_column(server: PostgreSQL, tmp_path: Path) -> None:
    server.execute("CREATE TABLE letters (t text, n int)", "INSERT INTO letters VALUES ('a', 1)")
    assert copied(server, "letters", tmp_path / "copy") == [{"t": "a", "n": 1}]
    server.execute("UPDATE letters SET n = 2")
    assert copied(server, "letters", tmp_path / "copy") == [{"t": "a", "n": 2}]


def test_a_key_that_may_be_null_is_none(server: PostgreSQL, tmp_path: Path) -> None:
    server.execute('CREATE TABLE keyed ("N" bigint, b bigint, v bigint)')
    schema = StructType().add("N", LongType()).add("b", LongType()).add("v", LongType())
    table = written(server, "keyed", tmp_path, "N", "b")
    for wrong in ("", "CREATE UNIQUE INDEX ON keyed (b)", 'CREATE UNIQUE INDEX ON keyed (b, "N") WHERE b > 0'):
        server.execute(*filter(None, [wrong]))
        with pytest.raises(DatabaseError, match="has no primary key or unique index") as missing:
            table.prepare(schema)
    server.execute(str(missing.value).rpartition(": ")[2])
    server.execute("ALTER TABLE keyed ALTER COLUMN b SET NOT NULL")
    with pytest.raises(DatabaseError, match="lets N be NULL") as nullable:
        table.prepare(schema)
    server.execute(str(nullable.value).rpartition(": ")[2])
    table.prepare(schema)
    rows = pa.table({"N": [1, 2], "b": [1, 2], "v": [1, 1]})
    for batch in (0, 1):
        table.put(rows.to_reader(), "keyed", batch)
    assert server.rows("SELECT count(*) FROM keyed") == [(2,)]
