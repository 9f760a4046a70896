"""Pipelines write into tables of a real PostgreSQL and join them, whatever is killed and whoever is away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.test_pipeline_running import STREAM, send
from tests.support.foreign_tools import require
from tests.support.postgresql import DATABASE, PASSWORD, USER, PostgreSQL, make_certificate, postgresql
from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("runner"),
]


BATCH = 60
"""Rows."""

ODD_NAMES = ("a.b", 'say "hi"', "back`tick", "it's [1]; --", "50% of $1")
"""Columns as machines call them."""


def in_backticks(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def in_quotes(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    require("PostgreSQL", "openssl")
    with postgresql() as running:
        yield running


def write_secret(place: RunnerPlace, server: PostgreSQL, password: str = PASSWORD) -> None:
    """As the host of pipelines writes what a Secret holds."""
    folder = place.folder / "credentials"
    folder.mkdir(exist_ok=True)
    (folder / "warehouse.json").write_text(json.dumps({"user": USER, "password": password}))
    (folder / "warehouse.crt").write_text(server.authorities)


def other_authority(folder: Path) -> str:
    other = folder / "other"
    other.mkdir()
    make_certificate(other)
    return (other / "server.crt").read_text()


def database(server: PostgreSQL, table: str, **more: Any) -> dict[str, Any]:
    fields = {"type": "postgresql", "host": "127.0.0.1", "port": server.port, "database": DATABASE, "table": table}
    return fields | {"credentialsSecret": "warehouse"} | more


def upsert(server: PostgreSQL, address: str, table: str) -> dict[str, Any]:
    nested = r"named_struct('n', n) AS seen, array(device, 'it\'s') AS tags"
    odd = ", ".join(f"n + {place} AS {in_backticks(name)}" for place, name in enumerate(ODD_NAMES))
    return {
        "sources": [
            {
                "name": "readings",
                "address": address,
                "format": "json",
                "schema": "device STRING, n INT, gone BOOLEAN",
                "maxRowsPerBatch": BATCH,
            }
        ],
        "steps": [{"name": "all", "sql": f"SELECT device AS `device.id`, n, {nested}, gone, {odd} FROM readings"}],
        "sinks": [
            {
                "database": database(server, table),
                "mode": "update",
                "keys": ["device.id"],
                "orderBy": "n",
                "deleteWhen": "gone",
            },
            {"database": database(server, f"{table}_log", tls="off")},
        ],
    }


def readings(numbers: range) -> list[str]:
    return [json.dumps({"device": f"d{n % 7}", "n": n, "gone": n % 7 == 3}) for n in numbers]


def test_a_batch_that_spark_repeats_is_written_once(node: StreamNode, place: RunnerPlace, server: PostgreSQL) -> None:
    odd = ", ".join(map(in_quotes, ODD_NAMES))
    columns = f"n int, seen jsonb, tags text[], gone boolean, {odd.replace(',', ' int,')} int"
    server.execute(
        f'CREATE TABLE devices ("device.id" text PRIMARY KEY, {columns})',
        f'CREATE TABLE devices_log ("device.id" text, {columns})',
    )
    write_secret(place, server)
    node.create("devices", "stream")
    send(node, "devices", *readings(range(BATCH)))
    spec = upsert(server, "devices", "devices")
    place.put("demo.devices", spec, {"devices": STREAM})
    place.until(lambda: server.rows("SELECT count(*) FROM devices_log") == [(BATCH,)])
    place.put("demo.devices", spec | {"paused": True}, {"devices": STREAM})
    place.until(lambda: place.statuses["demo.devices"]["conditions"][0]["reason"] == "Paused")
    # As if the runner had been killed between what it wrote and what Spark notes.
    noted = [*(place.folder / "checkpoints" / "demo.devices").rglob("commits/[0-9]*")]
    assert noted
    for commit in noted:
        commit.unlink()
    rows = 3 * BATCH
    send(node, "devices", *readings(range(BATCH, rows)))
    place.put("demo.devices", spec, {"devices": STREAM})
    place.until(lambda: server.rows("SELECT count(*) FROM devices_log")[0][0] >= rows)
    place.until(lambda: server.rows("SELECT max(n) FROM devices") == [(rows - 1,)])
    assert server.rows("SELECT count(*), count(DISTINCT n), max(n) FROM devices_log") == [(rows, rows, rows - 1)]
    newest = {f"d{n % 7}": n for n in range(rows) if n % 7 != 3}
    assert dict(server.rows('SELECT "device.id", n FROM devices')) == newest
    for table in ("devices", "devices_log"):
        for n, *others in server.rows(f"SELECT n, {odd} FROM {table}"):
            assert others == [n + place for place in range(len(ODD_NAMES))]
    found = server.rows("SELECT seen->>'n', tags[1], tags[2] FROM devices WHERE \"device.id\" = 'd0'")
    assert found == [(str(newest["d0"]), "d0", "it's")]
    place.send(command="delete", name="demo.devices", purge=True)


def joined(server: PostgreSQL, address: str, table: str, **more: Any) -> dict[str, Any]:
    return {
        "sources": [
            {"name": "readings", "address": address, "format": "json", "schema": "device STRING, n INT"},
            {"name": "machines", "database": database(server, "plant.machines"), "refresh": "batch"},
        ],
        "steps": [
            {
                "name": "placed",
                "sql": "SELECT device, n, hall, `kg. ``net``` AS weight FROM readings JOIN machines USING (device)",
            }
        ],
        "sinks": [{"table": table}],
        **more,
    }


def test_batches_join_a_table_that_changes(node: StreamNode, place: RunnerPlace, server: PostgreSQL) -> None:
    server.execute(
        "CREATE SCHEMA plant",
        "CREATE TABLE plant.machines "
        '(device text PRIMARY KEY, hall uuid, "kg. `net`" numeric(10,2), since timestamp)',
    )
    write_secret(place, server)
    node.create("placed", "stream")
    place.put("demo.placed", joined(server, "placed", "placed"), {"placed": STREAM})
    place.until(lambda: "is empty" in place.statuses["demo.placed"]["lastError"])
    first, second = "0d1f6b1e-2f65-4d52-8b83-9ad4a0a1c001", "0d1f6b1e-2f65-4d52-8b83-9ad4a0a1c002"
    server.execute(f"INSERT INTO plant.machines VALUES ('d1', '{first}', 12.50, now())")
    send(node, "placed", json.dumps({"device": "d1", "n": 1}))
    place.until(lambda: place.count("placed") == 1)
    server.execute(f"UPDATE plant.machines SET hall = '{second}', \"kg. `net`\" = NULL")
    send(node, "placed", json.dumps({"device": "d1", "n": 2}))
    rows = place.until(lambda: len(found := place.rows("placed")) == 2 and sorted(found, key=lambda row: row["n"]))
    assert [(row["hall"], row["weight"]) for row in rows] == [(first, Decimal("12.50")), (second, None)]

    def joined_version() -> tuple[int, str]:
        (query,) = place.statuses["demo.placed"]["queries"]
        (table,) = query["tables"]
        assert table["name"] == "machines.database"
        return query["rows"], table["version"]

    _, version = place.until(lambda: (found := joined_version())[0] == 2 and found)
    send(node, "placed", json.dumps({"device": "d1", "n": 3}))
    # Nothing has changed, and nothing is copied.
    assert place.until(lambda: (found := joined_version())[0] == 3 and found) == (3, version)
    place.send(command="delete", name="demo.placed", purge=True)
    place.until(lambda: not (place.folder / "spool" / "demo.placed").exists())


def test_who_is_not_let_in_or_finds_nobody_goes_on_when_it_is_mended(
    node: StreamNode, place: RunnerPlace, server: PostgreSQL
) -> None:
    server.execute("CREATE TABLE public.tried (device text, n int CONSTRAINT small CHECK (n < 5))")
    write_secret(place, server, password="wrong")
    send(node, node.create("tried", "stream"), json.dumps({"device": "d1", "n": 1}))
    source = {"name": "readings", "address": "tried", "format": "json", "schema": "device STRING, n INT"}
    step = {"name": "numbers", "sql": "SELECT device, n FROM readings"}
    spec = {"sources": [source], "steps": [step], "sinks": [{"database": database(server, "tried")}]}
    place.put("demo.tried", spec, {"tried": STREAM})

    def error() -> str:
        return str(place.statuses["demo.tried"]["lastError"])

    def written() -> list[int]:
        return [n for (n,) in server.rows("SELECT n FROM public.tried ORDER BY n")]

    place.until(lambda: "does not let user plant in" in error())
    assert "those of the Secret warehouse" in error()
    assert "wrong" not in "".join(place.log)
    authority = place.folder / "credentials" / "warehouse.crt"
    authority.write_text(other_authority(place.folder))
    place.until(lambda: "does not prove its name" in error())
    write_secret(place, server)
    place.until(lambda: written() == [1])
    server.stop()
    send(node, "tried", json.dumps({"device": "d1", "n": 2}))
    place.until(lambda: "cannot be reached: Connection refused" in error())
    server.start()
    place.until(lambda: written() == [1, 2])
    send(node, "tried", json.dumps({"device": "odd one", "n": 9}))
    place.until(lambda: "does not take a row" in error())
    assert '"small"' in error()
    assert "(odd one, 9)" in error()
    server.execute("ALTER TABLE public.tried DROP CONSTRAINT small")
    place.until(lambda: written() == [1, 2, 9])
    place.send(command="delete", name="demo.tried", purge=True)
