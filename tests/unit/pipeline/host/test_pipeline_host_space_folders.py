from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from enmasse.errors import ConfigError
from enmasse.pipeline.host.space_folders import USERS, SpaceFolders, UserNumbers

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")


def test_a_folder_is_closed_to_others(tmp_path: Path) -> None:
    folder = SpaceFolders(tmp_path / "pipelines").folder("default/shop", "u1", is_separated=False)
    assert folder.path == tmp_path / "pipelines" / "default.shop"
    for path in (folder.path.parent, folder.path, *folder.path.iterdir()):
        assert path.stat().st_mode & 0o077 == 0, path


@as_root
def test_each_space_has_a_number_of_its_own_that_stays_and_owns_only_what_it_writes(tmp_path: Path) -> None:
    numbers = UserNumbers(tmp_path / "locks")
    folders = SpaceFolders(tmp_path / "p", numbers)
    shop = folders.folder("default/shop", "u1", is_separated=True)
    plant = folders.folder("default/plant", "u2", is_separated=True)
    assert shop.user in USERS
    assert plant.user in USERS
    assert shop.user != plant.user
    owners = {path.name: path.stat().st_uid for path in shop.path.iterdir()}
    theirs = {name for name, owner in owners.items() if owner == shop.user}
    assert theirs == {"lake", "checkpoints", "spool", "models", "work", "events", "runner.lock"}
    assert owners["logs"] == owners["credentials"] == owners["code"] == shop.path.stat().st_uid == 0
    assert (shop.path / "logs").stat().st_mode & 0o077 == 0
    assert shop.path.stat().st_mode & 0o027 == 0
    again = SpaceFolders(tmp_path / "p", numbers).folder("default/shop", "u1", is_separated=True)
    assert again.user == shop.user


@as_root
def test_a_number_that_another_installation_took_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    locks = tmp_path / "locks"
    own, other = UserNumbers(locks), UserNumbers(locks)
    first = SpaceFolders(tmp_path / "p", own).folder("default/shop", "u1", is_separated=True)
    assert first.user is not None
    assert not other.take(first.user)
    own.close()
    assert other.take(first.user)
    (first.path / "lake" / "part").write_text("rows")
    again = SpaceFolders(tmp_path / "p", UserNumbers(locks))
    assert again.users() == [], "nothing of the other's is ended"
    moved = again.folder("default/shop", "u1", is_separated=True)
    assert moved.user not in (None, first.user)
    assert (moved.path / "lake" / "part").stat().st_uid == moved.user


@as_root
def test_what_was_written_before_spaces_were_separated_is_given_to_the_space_and_no_link_followed(
    tmp_path: Path,
) -> None:
    folders = SpaceFolders(tmp_path / "p")
    before = folders.folder("default/shop", "u1", is_separated=False)
    (before.path / "lake" / "t").mkdir()
    (before.path / "lake" / "t" / "part").write_text("rows")
    outside = tmp_path / "outside"
    outside.write_text("ours")
    (before.path / "lake" / "link").symlink_to(outside)
    after = folders.folder("default/shop", "u1", is_separated=True)
    assert (after.path / "lake" / "t" / "part").stat().st_uid == after.user
    assert outside.stat().st_uid == 0


def test_a_space_of_the_same_name_gets_nothing_of_the_former_one(tmp_path: Path) -> None:
    folders = SpaceFolders(tmp_path)
    former = folders.folder("default/shop", "u1", is_separated=False)
    (former.path / "lake" / "secret").write_text("of the former")
    folders.claim("default/shop", "shop.hot", "p1")
    new = folders.folder("default/shop", "u2", is_separated=False)
    assert list((new.path / "lake").iterdir()) == []
    assert folders.claimed() == []
    assert (tmp_path / "former" / "default.shop.u1" / "lake" / "secret").read_text() == "of the former"


def test_claims_are_remembered_until_the_place_is_removed_and_tables_stay(tmp_path: Path) -> None:
    folders = SpaceFolders(tmp_path)
    folder = folders.folder("default/shop", "u1", is_separated=False)
    folders.claim("default/shop", "shop.hot", "p1")
    for kind in ("checkpoints", "spool"):
        (folder.path / kind / "shop.hot" / "1").mkdir(parents=True)
    (folder.path / "lake" / "hot").mkdir()
    folder.write_code("shop.hot", {"a.py": "x = 1", "b.py": "y = 2"})
    folder.write_code("shop.hot", {"a.py": "x = 3"})
    assert [path.name for path in (folder.path / "code" / "shop.hot").iterdir()] == ["a.py"]
    assert SpaceFolders(tmp_path).claimed() == [("default/shop", "shop.hot", "p1")]
    folders.purge("default/shop", "shop.hot")
    assert SpaceFolders(tmp_path).claimed() == []
    assert [path for kind in ("checkpoints", "spool", "code") for path in (folder.path / kind).iterdir()] == []
    assert (folder.path / "lake" / "hot").is_dir()


def test_a_place_that_is_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    folders = SpaceFolders(tmp_path / "p")
    folder = folders.folder("default/shop", "u1", is_separated=False)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("stays")
    (folder.path / "checkpoints" / "shop.hot").symlink_to(victim)
    folders.purge("default/shop", "shop.hot")
    assert (victim / "file").read_text() == "stays"
    assert not (folder.path / "checkpoints" / "shop.hot").is_symlink()


def test_credentials_are_for_the_space_alone(tmp_path: Path) -> None:
    folder = SpaceFolders(tmp_path).folder("default/shop", "u1", is_separated=False)
    for entries, content in (
        ({"username": "ann", "password": "secret"}, {"user": "ann", "password": "secret"}),
        ({"token": "ey.J"}, {"token": "ey.J"}),
        ({"tls.crt": "CRT\n", "tls.key": "KEY"}, {"tlsCertificate": "analyst.pem"}),
    ):
        folder.write_credentials("analyst", entries)
        path = folder.path / "credentials" / "analyst.json"
        assert json.loads(path.read_text()) == content
        assert path.stat().st_mode & 0o777 == 0o600
    pem = path.with_suffix(".pem")
    assert pem.read_text() == "CRT\nKEY\n"
    assert pem.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "spaces.json").write_text("{")
    with pytest.raises(ConfigError, match=r"spaces\.json cannot be read"):
        SpaceFolders(tmp_path)
