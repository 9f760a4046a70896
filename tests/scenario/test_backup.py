"""A whole installation is copied while it runs, and comes back elsewhere with everything in it."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


def test_a_backup_brings_back_what_was_declared_and_what_was_stored(own: Installation, tmp_path: Path) -> None:
    own.ok("create", "space", "shop")
    own.ok("create", "address", "orders", "--type", "queue")
    own.ok("send", "orders", "kept", "--durable")
    authority = own.ok("ca")
    copy = tmp_path / "copy"
    assert "is in" in own.ok("backup", str(copy))
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    own.ok("send", "orders", "later", "--durable")
    own.ok("delete", "address", "orders")

    again = type(own)(tmp_path / "again")
    again.ok("restore", str(copy))
    try:
        again.start()
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
