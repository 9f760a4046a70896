"""``enmasse user``: the file that nodes read, made without a password on any command line."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import run
from sys import executable
from typing import TYPE_CHECKING

import pytest

from enmasse.identity.permissions import RECV, SEND
from enmasse.node.users.users_file import load_users

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Cli = Callable[..., Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.yaml"


def add(cli: Cli, path: Path, *arguments: str, password: str = "secret\n", name: str = "jo") -> tuple[int, str]:
    result = cli(
        "user", "add", name, "--space", "shop", "--users", str(path), "--iterations", "4096", *arguments,
        stdin=password.encode(),
    )  # fmt: skip
    assert password.strip() == "" or password.strip() not in result.out + result.err
    return result.code, " ".join((result.out + result.err).split())


def test_a_user_is_added_shown_and_removed(cli: Cli, path: Path) -> None:
    assert add(cli, path, "--send", "orders/#", "--recv", "replies", "--certificate", "jo.example.com")[0] == 0
    assert add(cli, path, "--send", "#", "--recv", "#", name="bo")[0] == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    users = load_users(path)
    user = users.find("default/shop", "jo")
    assert user is not None
    assert user.permissions.allow(SEND, "orders/eu")
    assert not user.permissions.allow(RECV, "orders/eu")
    assert list(user.keys) == ["SCRAM-SHA-512", "SCRAM-SHA-256"]
    shown = cli("user", "list", "--users", str(path)).out
    assert [line.split()[:4] for line in shown.splitlines()[1:]] == [
        ["default/shop", "bo", "#", "#"],
        ["default/shop", "jo", "orders/#", "replies"],
    ]
    assert cli("user", "remove", "jo", "--space", "default/shop", "--users", str(path)).code == 0
    assert [user.name for user in load_users(path)] == ["bo"]
    assert load_users(path).seed == users.seed, "what is shown of users that do not exist stays the same"
    assert cli("user", "remove", "jo", "--space", "shop", "--users", str(path)).code == 1


def test_a_user_that_exists_is_replaced_on_request_only(cli: Cli, path: Path) -> None:
    add(cli, path)
    before = path.read_text()
    code, said = add(cli, path, password="other\n")
    assert (code, "--replace" in said) == (1, True)
    assert path.read_text() == before
    assert add(cli, path, "--replace", password="other\n")[0] == 0
    assert path.read_text() != before
    assert len(load_users(path)) == 1


@pytest.mark.parametrize(
    ("arguments", "password", "message"),
    [
        ((), "", "the password is empty"),
        ((), "\n", "the password is empty"),
        ((), "bell\u0007\n", "the password cannot be used"),
        (("--no-password",), "", "needs a --certificate"),
        (("--send", "top*s"), "secret\n", "a wildcard is part of a word"),
        (("--space", "a/b/c"), "secret\n", "NAMESPACE/SPACE is expected"),
    ],
)
def test_what_cannot_be_leaves_no_file(
    cli: Cli, path: Path, arguments: tuple[str, ...], password: str, message: str
) -> None:
    code, said = add(cli, path, *arguments, password=password)
    assert (code, message in said) == (1, True), said
    assert not path.exists()


def test_a_certificate_belongs_to_one_user(cli: Cli, path: Path) -> None:
    assert add(cli, path, "--no-password", "--certificate", "x")[0] == 0
    code, said = add(cli, path, "--no-password", "--certificate", "x", name="bo")
    assert (code, "'jo' already" in said) == (1, True)
    assert [user.name for user in load_users(path)] == ["jo"]


def test_sha_1_is_for_those_who_ask(cli: Cli, path: Path) -> None:
    add(cli, path, "--scram-sha-1")
    user = load_users(path).find("default/shop", "jo")
    assert user is not None
    assert "SCRAM-SHA-1" in user.keys


def test_a_file_that_is_none_is_not_touched(cli: Cli, path: Path) -> None:
    path.write_text("users: [")
    code, said = add(cli, path)
    assert (code, "no valid YAML at line" in said) == (1, True)
    assert path.read_text() == "users: ["
    assert cli("user", "list", "--users", str(path.with_name("gone"))).code == 1
    assert cli("up", "--users", str(path)).code == 1


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_the_nodes_user_can_still_read_what_root_has_changed(cli: Cli, path: Path) -> None:
    add(cli, path)
    os.chown(path, 65534, 65533)
    assert cli("user", "remove", "jo", "--space", "shop", "--users", str(path)).code == 0
    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65534, 65533, 0o600)


def test_commands_at_the_same_time_lose_nothing(path: Path) -> None:
    def start(name: str) -> int:
        command = [executable, "-m", "enmasse", "user", "add", name, "--space", "shop", "--users", str(path)]
        return run([*command, "--iterations", "4096"], input=b"secret\n", check=False, timeout=60).returncode

    names = ["a", "b", "c"]
    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(start, names)) == [0] * len(names)
    assert sorted(user.name for user in load_users(path)) == names
