"""Tables of a real PostgreSQL, as a batch writes them and a copy is made of them: all that needs no Spark."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructType

from enmasse.model.kinds.pipelines.databases import Database
from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.pipeline.database.connection import transaction
from enmasse.pipeline.database.reading import refresh_copy
from enmasse.pipeline.database.statements import LOCKING_BATCHES, batches_of, making_batches
from enmasse.pipeline.database.writing import DatabaseTable
from enmasse.pipeline.errors import DatabaseAwayError, DatabaseError, RowRefusedError
from enmasse.pipeline.lake.delta_reading import open_delta
from enmasse.pipeline.lake.partial_updates import ANEW, ANEW_AT, at_of, set_of
from enmasse.pipeline.lake.reference import Pins
from enmasse.pipeline.running.planning.plans import DatabaseTarget
from tests.support.foreign_tools import require
from tests.support.keepalive import keepalive_due_s
from tests.support.polling import until
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
    rows = pa.table({"N": [3, None], "b": [3, 3], "v": [1, 1]})
    with pytest.raises(RowRefusedError, match=r'null value in column "N".*\(null, 3, 1\)'):
        table.put(rows.to_reader(), "keyed", 2)
    # Nothing of the batch is there, and it is not noted: it may come again without that row.
    assert server.rows("SELECT count(*) FROM keyed") == [(2,)]
    table.put(rows.slice(0, 1).to_reader(), "keyed", 2)
    assert server.rows("SELECT count(*) FROM keyed") == [(3,)]


def test_a_secret_for_another_table_or_database_is_named_by_the_refusal(
    server: PostgreSQL, tmp_path: Path, credentials: Path
) -> None:
    server.execute(
        "CREATE ROLE other LOGIN PASSWORD 'other'",
        "CREATE TABLE theirs (n bigint)",
        "CREATE DATABASE elsewhere",
        "REVOKE CONNECT ON DATABASE elsewhere FROM PUBLIC",
    )
    table = written(server, "theirs", tmp_path)
    table.prepare(NUMBERS)
    server.execute("GRANT SELECT, INSERT, UPDATE ON enmasse_batches TO other")
    (credentials / "warehouse.json").write_text(json.dumps({"user": "other", "password": "other"}))
    table.prepare(NUMBERS)
    denied = "permission denied for table theirs for user other, who is that of the Secret warehouse: GRANT"
    with pytest.raises(DatabaseError, match=denied):
        table.put(numbers(1), "denied", 0)
    with pytest.raises(DatabaseError, match=denied):
        copied(server, "theirs", tmp_path / "copy")
    for name, why in (("elsewhere", "permission denied for database"), ("nowhere", "does not exist")):
        told = refusal(database(server, "theirs", database=name))
        assert f"/{name} does not let user other in" in told
        assert why in told
        assert told.endswith("those of the Secret warehouse")


def test_changes_in_part_leave_what_is_newer_and_nothing_of_what_was_deleted(
    server: PostgreSQL, tmp_path: Path
) -> None:
    server.execute(
        "CREATE TABLE parts (k text PRIMARY KEY, v bigint NOT NULL, w text, at bigint)",
        "INSERT INTO parts VALUES ('a', 1, 'newer', 5), ('b', 1, 'old', 1), ('c', 1, 'old', 4), ('d', 1, 'newer', 9)",
    )
    target = DatabaseTarget(database(server, "parts"), "update", ("k",), "at", True)
    # As the rows of a batch come together: w of a is of a row from before 5, b was deleted and is there again,
    # c was deleted, and all that there is of d is older.
    staged = {
        "k": ["a", "b", "c", "d"],
        "v": [2, 2, None, 3],
        set_of("v"): [True, True, True, True],
        at_of("v"): [6, 3, 5, 8],
        "w": ["older", None, None, "older"],
        set_of("w"): [True, True, True, True],
        at_of("w"): [4, 2, 5, 8],
        "at": [6, 3, 5, 8],
        DELETED: [False, False, True, False],
        ANEW: [False, True, True, True],
        ANEW_AT: [None, 2, 5, 7],
    }
    table = DatabaseTable(target, "demo.pipeline", tmp_path)
    table.prepare(StructType().add("k", LongType()).add("v", LongType()).add("w", LongType()).add("at", LongType()))
    table.put(pa.table(staged).to_reader(), "parts", 0)
    assert server.rows("SELECT * FROM parts ORDER BY k") == [
        ("a", 2, "newer", 6),
        ("b", 2, None, 3),
        ("d", 1, "newer", 9),
    ]


def test_a_batch_that_comes_again_joins_the_rows_that_it_joined(server: PostgreSQL, tmp_path: Path) -> None:
    odd = 'public."Odd ""one"""'
    columns = 'n int, exact numeric, money numeric(8,2), "at" timestamptz, bits bytea, list int[], day date'
    values = "1, 0.1, 2.5, '2026-01-31T12:00:00Z', 'ab', '{1,NULL}', '2026-02-01'"
    server.execute(f"CREATE TABLE {odd} ({columns})", f"INSERT INTO {odd} VALUES ({values})")
    table = database(server, 'Odd "one"')
    copy, checkpoint = tmp_path / "copies" / "odd.database", tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)

    def joined_by(batch: int) -> tuple[str, list[dict[str, Any]]]:
        (checkpoint / "offsets" / str(batch)).write_text("")
        version = Pins(copy, checkpoint, "query", table).of_present_batch(0.0, ())
        files = [pq.read_table(Path(version.folder, file.path)) for file in version.files]
        return version.name, pa.concat_tables(files).to_pylist()

    first, rows = joined_by(0)
    assert rows == [
        {
            "n": 1,
            "exact": "0.1",
            "money": Decimal("2.50"),
            "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
            "bits": b"ab",
            "list": "{1,NULL}",
            "day": date(2026, 2, 1),
        }
    ]
    assert joined_by(1) == (first, rows)
    server.execute(f"UPDATE {odd} SET n = 2")
    second, changed = joined_by(2)
    assert (second != first, [row["n"] for row in changed]) == (True, [2])
    server.execute(f"DELETE FROM {odd}", f"INSERT INTO {odd} (n) VALUES (3), (4)")
    third, more = joined_by(3)
    assert (third != second, sorted(row["n"] for row in more)) == (True, [3, 4])
    # The last one is undone, as by a kill before it was begun.
    (checkpoint / "offsets" / "3").unlink()
    server.execute(f"TRUNCATE {odd}")
    assert joined_by(2) == (second, changed)


def test_what_a_column_has_no_value_for_is_null(server: PostgreSQL, tmp_path: Path) -> None:
    server.execute(
        "CREATE TABLE odd (n int, day date, at timestamptz, local timestamp(3), price numeric(8,2), share float8)",
        "INSERT INTO odd VALUES (1, 'infinity', '-infinity', 'infinity', 'NaN', 'NaN')",
        "INSERT INTO odd VALUES (2, '2026-02-01', '2026-02-01T12:00:00Z', '2026-02-01T12:00:00', 1.5, 'infinity')",
    )
    first, second = sorted(copied(server, "odd", tmp_path / "copy"), key=lambda row: int(row["n"]))
    assert str(first.pop("share")) == "nan"
    assert first == {"n": 1, "day": None, "at": None, "local": None, "price": None}
    noon = datetime(2026, 2, 1, 12, tzinfo=UTC)
    assert str(second.pop("local")).startswith("2026-02-01 12:00:00")
    assert second == {
        "n": 2,
        "day": date(2026, 2, 1),
        "at": noon,
        "price": Decimal("1.50"),
        "share": float("inf"),
    }


def refusal(table: Database) -> str:
    with pytest.raises((DatabaseError, DatabaseAwayError)) as refused, transaction(table, "test"):
        pytest.fail("there is no connection")
    return f"{type(refused.value).__name__}: {refused.value}"


def test_who_is_not_in_pg_hba_is_told_so_over_tls(server: PostgreSQL, credentials: Path) -> None:
    (credentials / "warehouse.crt").write_text(server.authorities)
    rules = server.folder / "data" / "pg_hba.conf"
    former = rules.read_text()
    try:
        rules.write_text("host all nobody 127.0.0.1/32 scram-sha-256\n")
        server.reload()
        until(lambda: "no pg_hba.conf entry" in refusal(database(server, "t", tls="verify")))
        told = refusal(database(server, "t", tls="verify"))
    finally:
        rules.write_text(former)
        server.reload()
    assert told.startswith("DatabaseError")
    assert f"does not let user {USER} in: no pg_hba.conf entry" in told
    assert "SSL encryption" in told


@pytest.mark.parametrize("answer", [b"", b"S"])
def test_a_server_that_hangs_up_is_away(server: PostgreSQL, credentials: Path, answer: bytes) -> None:
    (credentials / "warehouse.crt").write_text(server.authorities)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(8)
                connection.sendall(answer)
                if answer:
                    connection.recv(5)

        thread = threading.Thread(target=hang_up)
        thread.start()
        told = refusal(database(server, "t", tls="verify", port=listening.getsockname()[1]))
        thread.join()
    assert told.startswith("DatabaseAwayError")
    assert "cannot be reached" in told


def test_a_host_that_vanishes_is_noticed_while_an_answer_is_awaited(server: PostgreSQL) -> None:
    with transaction(database(server, "t"), "test") as cursor:
        cursor.execute("SELECT 1")
        assert until(lambda: keepalive_due_s(server.port)) <= 10


def test_two_first_starts_at_once_make_one_table_of_batches(server: PostgreSQL, tmp_path: Path) -> None:
    server.execute("CREATE SCHEMA first", "CREATE TABLE first.rows (n bigint)")
    table = written(server, "first.rows", tmp_path)
    with ThreadPoolExecutor(1) as threads:
        with transaction(database(server, "first.rows"), "one") as cursor:
            cursor.execute(LOCKING_BATCHES, (batches_of("first.rows"),))
            cursor.execute(making_batches("first.rows"))
            other = threads.submit(table.prepare, NUMBERS)
            until(lambda: server.rows("SELECT 1 FROM pg_locks WHERE NOT granted") or other.done())
            assert not other.done()
        other.result(30)
    table.put(numbers(1), "query", 0)
    assert server.rows("SELECT n FROM first.rows") == [(1,)]


def test_who_may_not_make_the_table_of_batches_is_told_what_to_run(
    server: PostgreSQL, tmp_path: Path, credentials: Path
) -> None:
    server.execute(
        "CREATE ROLE \"a guest\" LOGIN PASSWORD 'guest'",
        "CREATE SCHEMA closed",
        "CREATE TABLE closed.rows (n bigint)",
        'GRANT USAGE ON SCHEMA closed TO "a guest"',
        'GRANT SELECT, INSERT ON closed.rows TO "a guest"',
    )
    (credentials / "warehouse.json").write_text(json.dumps({"user": "a guest", "password": "guest"}))
    table = written(server, "closed.rows", tmp_path)
    with pytest.raises(DatabaseError, match='the user "a guest" may not make the table') as refused:
        table.prepare(NUMBERS)
    server.execute(*str(refused.value).partition("who may: ")[2].split("; "))
    table.prepare(NUMBERS)
    table.put(numbers(1), "query", 0)
    assert server.rows("SELECT n FROM closed.rows") == [(1,)]
