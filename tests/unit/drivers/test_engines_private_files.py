"""Secrets in files: nobody else reads them at any moment, and what others could read is worth nothing."""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from enmasse.control.access.accounts import new_secret
from enmasse.drivers.data_directory import keep_secret, make_private
from enmasse.errors import ConfigError
from enmasse.pipeline.host.space_folders import SpaceFolder

NOBODY = 65534
only_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_is_made_once_and_kept(tmp_path: Path) -> None:
    told: list[str] = []
    first = keep_secret(tmp_path / "secret", new_secret, told.append)
    assert mode(tmp_path / "secret") == 0o600
    assert keep_secret(tmp_path / "secret", new_secret, told.append) == first
    assert told == []


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("read", "read or changed by others .mode 0640"),
        ("write", "read or changed by others .mode 0602"),
        ("cut", "no whole token"),
        ("link", "cannot be read as a token"),
        ("pipe", "is no file"),
        pytest.param("given", "belonged to another user", marks=only_root),
    ],
)
def test_a_secret_that_others_may_know_is_replaced_with_a_sentence(tmp_path: Path, what: str, words: str) -> None:
    path, former, told = tmp_path / "secret", new_secret(), list[str]()
    path.write_text(former)
    path.chmod(0o600)
    if what == "cut":
        path.write_text(former[:10])
    elif what == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "pipe":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif what == "given":
        os.chown(path, NOBODY, NOBODY)
    else:
        path.chmod({"read": 0o640, "write": 0o602}[what])
    found = keep_secret(path, new_secret, told.append)
    assert found != former
    assert (path.read_text(), path.is_symlink(), mode(path), path.stat().st_uid) == (found, False, 0o600, os.getuid())
    (sentence,) = told
    assert re.search(words, sentence)
    assert "a new token is in its place" in sentence
    assert former not in sentence


def test_a_directory_that_others_could_read_is_closed(tmp_path: Path) -> None:
    for wide in (0o755, 0o777, 0o1777):
        (tmp_path / f"{wide}").mkdir()
        (tmp_path / f"{wide}").chmod(wide)
        make_private(tmp_path / f"{wide}")
        assert mode(tmp_path / f"{wide}") == 0o700


def test_the_folder_for_everybodys_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "of-somebody").touch()
    with pytest.raises(ConfigError, match=r"everybody's files.*--data"):
        make_private(tmp_path)
    assert mode(tmp_path) == 0o1777


@only_root
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(ConfigError, match=r"belongs to another user .number 65534.*--data"):
        make_private(tmp_path)


@only_root
def test_what_somebody_else_put_into_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    os.chown(tmp_path / "control", NOBODY, NOBODY)
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match=r"control belongs to another user .number 65534.*--data"):
        make_private(tmp_path)


@only_root
def test_credentials_are_their_readers_before_they_have_their_name(tmp_path: Path) -> None:
    folder = SpaceFolder(tmp_path / "space", NOBODY)
    folder.make()
    seen: list[tuple[int, int]] = []
    is_watching = True

    def look(event: str, arguments: Any) -> None:
        if is_watching and event == "os.rename":
            seen.append((Path(arguments[0]).stat().st_uid, mode(Path(arguments[0]))))

    sys.addaudithook(look)  # there is no way to take one off
    try:
        folder.write_credentials("runner", {"tls.crt": "certificate", "tls.key": "secret"})
    finally:
        is_watching = False
    assert seen == [(NOBODY, 0o600)] * 2
