"""A whole installation is copied while it runs, and comes back elsewhere with everything in it."""

from __future__ import annotations

import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.control.log_numbers import BLOCK, GIVEN
from enmasse.databases.checksums import connect
from tests.support.polling import until

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


OUTSIDE = """
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {accessKeyId: a, secretAccessKey: b, username: c, password: d, ca.crt: e}
---
apiVersion: enmasse.io/v1beta1
kind: AddressSpace
metadata: {name: far}
spec: {lake: {s3: {endpoint: "http://127.0.0.1:9", bucket: lake, prefix: far, credentialsSecret: keys}}}
---
apiVersion: enmasse.io/v1beta1
kind: Webhook
metadata: {name: shop.hook}
spec: {address: orders, url: "http://127.0.0.1:9/", paused: true}
"""
PIPELINE = """
---
apiVersion: enmasse.io/v1beta1
kind: Pipeline
metadata: {{name: {name}}}
spec:
  paused: true
  sources: [{{name: rows, address: numbers}}]
  sinks: [{{{sink}}}]
"""
DATABASE = "{type: postgresql, host: 127.0.0.1, port: 9, database: d, table: rows, credentialsSecret: keys}"
SINKS = {
    "far.objects": ("table: kept", "table kept in s3://lake/far"),
    "shop.database": (f"database: {DATABASE}", "table rows of PostgreSQL at 127.0.0.1"),
    "shop.devices": ("address: command", "address command, which brings commands to devices"),
    "shop.webhook": ("address: orders", "address orders, which a webhook posts to a URL"),
    "shop.own": ("table: kept", ""),
}
"""The sink of each pipeline, and what a backup says of it."""


def given(database: sqlite3.Connection) -> int:
    """The number beyond all log numbers that control has leased."""
    ((found,),) = database.execute("SELECT value FROM facts WHERE name = ?", (GIVEN,))
    return int(found)


def test_a_backup_brings_back_what_was_declared_and_what_was_stored(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop")
    own.ok("create", "address", "orders", "--type", "queue")
    own.ok("send", "orders", "kept", "--durable")
    own.ok(
        "apply",
        "-f",
        "-",
        stdin=OUTSIDE + "".join(PIPELINE.format(name=name, sink=sink) for name, (sink, _) in SINKS.items()),
    )
    authority = own.ok("ca")
    table = Path("default.shop") / "lake" / "files" / "kept.csv"
    (own.data / "pipelines" / table).parent.mkdir(parents=True)
    (own.data / "pipelines" / table).write_text("1")
    copy = tmp_path / "copy"
    told = own.ok("backup", str(copy))
    assert "is in" in told
    facts = json.loads((copy / "backup.json").read_text())
    assert [f"  holds {text}" for text in facts["holds"]] + [
        f"  leaves out {text}" for text in facts["leavesOut"]
    ] == told.splitlines()[1:]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in (copy, copy / "pipelines")} == {0}
    own.ok("send", "orders", "later", "--durable", "--space", "shop")
    own.ok("delete", "address", "orders", "--space", "shop")

    again = type(own)(tmp_path / "again")
    disk = tmp_path / "disk"
    restored = again.ok("restore", str(copy), "--pipelines-folder", str(disk))
    assert (disk / table).read_text() == "1"
    try:
        again.start("--pipelines-folder", str(disk))
        again.ok("status", "--wait", "150")
        taken = ("receive", "orders", "--space", "shop", "--count", "1", "--timeout")
        assert "Active" in again.ok("get", "address", "orders", "--space", "shop")
        assert again.ok(*taken, "20").strip() == "kept"
        assert "later" not in again.run(*taken, "0.5").out
        assert again.ok("ca") == authority
        for name, (_, outside) in SINKS.items():
            assert not outside or f"leaves out what pipelines have written to {outside}" in told
            assert (f"restart {name} --namespace default --from WHERE" in restored) == bool(outside)
            _goes_on_when_told(again, name, outside)
    finally:
        again.stop()


def _goes_on_when_told(again: Installation, name: str, outside: str) -> None:
    """See that a pipeline that writes to what was not restored waits, and says the command that ends that."""

    def rules() -> dict[str, dict[str, str]]:
        found = json.loads(again.ok("get", "pipeline", name, "-o", "json")).get("status", {})
        return {item["type"]: item for item in found.get("conditions", ())}

    if not outside:
        assert "SinksRestored" not in until(rules)
        return
    waits = until(lambda: rules().get("SinksRestored"), rules)
    assert (waits["status"], waits["reason"]) == ("False", "RestoredBehindSink")
    assert outside in waits["message"]
    command = waits["message"].split("`")[1]
    again.ok(*command.removeprefix("enmasse ").replace("WHERE", "latest").split())
    until(lambda: "SinksRestored" not in rules(), rules)


def test_a_running_installation_is_not_replaced(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop")
    own.ok("backup", str(tmp_path / "copy"))
    refused = own.run("restore", str(tmp_path / "copy"))
    assert (refused.code, "use --force" in refused.err) == (1, True)
    refused = own.run("restore", str(tmp_path / "copy"), "--force")
    assert (refused.code, "in use" in refused.err) == (1, True)
    assert "shop" in own.ok("get", "spaces")


def test_a_backup_of_what_is_stopped_takes_the_place_of_what_is_there(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop")
    file = own.data / "pipelines" / "default.shop" / "checkpoints" / "shop.p" / "standing.json"
    file.parent.mkdir(parents=True)
    (own.data / "pipelines" / "default.shop" / "lake").mkdir(exist_ok=True)
    file.write_text("before")
    own.ok("status", "--wait", "150")
    own.stop()
    own.ok("backup", str(tmp_path / "copy"))
    file.write_text("after")
    # Whose folder it is counts, wherever it lies.
    other = type(own)(tmp_path / "other")
    refused = other.run("restore", str(tmp_path / "copy"), "--pipelines-folder", str(own.data / "pipelines"))
    assert (refused.code, "has the pipelines of" in refused.err) == (1, True)
    store = own.data / "control" / "resources.db"
    with closing(connect(store, timeout=1)) as database:
        leased = given(database) + 5 * BLOCK
        database.execute("UPDATE facts SET value = ? WHERE name = ?", (leased, GIVEN))
    own.ok("restore", str(tmp_path / "copy"), "--force")
    # What was leased since the backup is not leased again.
    with closing(connect(store, timeout=1)) as database:
        assert given(database) == leased
    assert file.read_text() == "before"
    own.start()
    assert "shop" in own.ok("get", "spaces")


def test_a_backup_of_a_version_that_left_pipelines_out_says_so(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop")
    copy = tmp_path / "copy"
    own.ok("backup", str(copy))
    facts = json.loads((copy / "backup.json").read_text())
    former = {name: facts[name] for name in ("version", "created", "nodes")} | {"format": 1}
    (copy / "backup.json").write_text(json.dumps(former))
    again = type(own)(tmp_path / "again")
    assert "is without tables, checkpoints and models of pipelines" in again.ok("restore", str(copy))
    owner = json.loads((own.data / "pipelines.json").read_text())
    assert json.loads((again.data / "pipelines.json").read_text()) == owner


def test_what_is_no_backup_is_refused_by_name(own: Installation, tmp_path: Path) -> None:
    refused = own.run("restore", str(tmp_path))
    assert refused.code == 1
    assert "is no backup of an installation" in refused.err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    refused = own.run("backup", str(tmp_path / "full"))
    assert refused.code == 1
    assert "not an empty directory" in refused.err


def test_the_logs_of_all_processes_can_be_read(own: Installation) -> None:
    assert "API at http://" in own.ok("logs", "control")
    both = own.ok("logs")
    assert "control: " in both
    assert "node-0: " in both
    unknown = own.run("logs", "nobody")
    assert (unknown.code, "there are control, node-0" in unknown.err) == (3, True)


def test_a_journal_that_is_gone_is_missed_by_a_backup(own: Installation, tmp_path: Path) -> None:
    journal = own.data / "nodes" / "node-0" / "journal"
    journal.rename(tmp_path / "elsewhere")
    refused = own.run("backup", str(tmp_path / "copy"))
    (tmp_path / "elsewhere").rename(journal)
    assert refused.code == 1
    assert "nodes/node-0/journal was not copied" in refused.err
    assert not (tmp_path / "copy").exists()
