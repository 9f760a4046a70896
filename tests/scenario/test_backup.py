"""A whole installation is copied while it runs, and comes back elsewhere with everything in it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


def test_a_backup_brings_back_what_was_declared_and_what_was_stored(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop")
    own.ok("create", "address", "orders", "--type", "queue")
    own.ok("send", "orders", "kept", "--durable")
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
    own.ok("send", "orders", "later", "--durable")
    own.ok("delete", "address", "orders")

    again = type(own)(tmp_path / "again")
    disk = tmp_path / "disk"
    again.ok("restore", str(copy), "--pipelines-folder", str(disk))
    assert (disk / table).read_text() == "1"
    try:
        again.start("--pipelines-folder", str(disk))
        again.ok("status", "--wait", "150")
        assert "Active" in again.ok("get", "address", "orders")
        assert again.ok("receive", "orders", "--count", "1", "--timeout", "20").strip() == "kept"
        assert "later" not in again.run("receive", "orders", "--count", "1", "--timeout", "0.5").out
        assert again.ok("ca") == authority
    finally:
        again.stop()


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
    own.ok("restore", str(tmp_path / "copy"), "--force")
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
