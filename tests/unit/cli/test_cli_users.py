"""Messaging users from the command line: created, shown, given passwords, and no password seen on the way."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Cli

SECRET = "correct horse battery"


@pytest.fixture
def shop(cli: Cli, api: str) -> Cli:
    assert cli("create", "space", "shop", "--authentication", "standard", "--wait", "0").code == 0
    return cli


def create(cli: Cli, name: str, *arguments: str, password: str | None = SECRET) -> Any:
    stdin = b"" if password is None else f"{password}\n".encode()
    return cli("create", "user", name, *arguments, "--wait", "0", stdin=stdin)


def read(cli: Cli, name: str) -> dict[str, Any]:
    result = cli("get", "user", name, "-o", "json")
    assert result.code == 0, result.err
    found: dict[str, Any] = json.loads(result.out)
    return found


def test_a_user_is_created_with_what_it_may_do(shop: Cli, tmp_path: Path) -> None:
    result = create(shop, "maker", "--send", "orders/#", "--recv", "own/${username}", "--view")
    assert (result.code, result.out) == (0, "messaginguser/shop.maker created\n"), result.err
    spec = read(shop, "maker")["spec"]
    assert spec == {
        "username": "maker",
        "authentication": {"type": "password"},
        "authorization": [
            {"operations": ["send"], "addresses": ["orders/#"]},
            {"operations": ["recv"], "addresses": ["own/${username}"]},
            {"operations": ["view"]},
        ],
    }
    assert SECRET.encode() not in (tmp_path / "data" / "resources.db-wal").read_bytes()
    listed = shop("get", "users")
    assert listed.out.split()[:5] == ["NAME", "USERNAME", "TYPE", "PHASE", "AGE"]
    assert "maker" in listed.out
    assert (
        "There are no messagingusers"
        in shop("get", "users", "--space", "other").err + shop("get", "users", "-n", "other").err
    )
    assert "Username" not in shop("describe", "user", "shop.maker").err
    assert shop("delete", "user", "maker", "--space", "shop").code == 0
    assert shop("get", "user", "maker").code == 3


def test_a_password_is_set_and_set_anew(shop: Cli) -> None:
    assert create(shop, "maker", "--no-password", password=None).code == 0
    ids = []
    for password in ("one", "two", "two"):
        result = shop("passwd", "shop.maker", stdin=f"{password}\n".encode())
        assert result.code == 0, result.err
        assert password not in result.out + result.err.replace("password", "")
        ids.append(read(shop, "shop.maker")["metadata"]["annotations"]["enmasse.io/credentials"])
    assert ids[0] != ids[1] == ids[2]
    assert shop("passwd", "maker", stdin=b"\n").code == 1
    assert shop("passwd", "nobody", stdin=b"x\n").code == 3


def test_a_password_is_made_up_and_shown_once(shop: Cli) -> None:
    result = create(shop, "maker", "--generate", password=None)
    password = result.out.removesuffix("\n")  # alone, as nobody is at a terminal
    assert re.fullmatch("[A-Za-z0-9]{24}", password)
    assert result.err == "messaginguser/shop.maker created\n"
    assert password not in json.dumps(read(shop, "maker"))
    again = shop("passwd", "shop.maker", "--generate")
    assert again.out.strip() != password
    assert re.fullmatch("[A-Za-z0-9]{24}", again.out.strip())


def test_others_prove_themselves_without_a_password(shop: Cli) -> None:
    assert create(shop, "card", "--certificate", "card.example.com", password=None).code == 0
    assert read(shop, "card")["spec"]["authentication"] == {"type": "certificate", "subject": "card.example.com"}
    assert create(shop, "fed", "--federated", password=None).code == 0
    assert read(shop, "fed")["spec"]["authentication"] == {"type": "federated"}
    assert "has no password" in shop("passwd", "shop.fed", stdin=b"x\n").err


def test_what_cannot_be_is_said(shop: Cli) -> None:
    wrong: list[tuple[tuple[str, ...], str | None, int, str]] = [
        ((), "", 1, "the password is empty"),
        (("--generate", "--no-password"), None, 2, "exclude each other"),
        (("--send", "a*b"), SECRET, 1, "'*' stands for a whole word"),
        (("--send", "in/${username}*"), SECRET, 1, "a wildcard follows a name"),
        (("--send", "a#b"), SECRET, 1, "part of a word"),
    ]
    for arguments, password, code, message in wrong:
        result = create(shop, "maker", *arguments, password=password)
        assert (result.code, message in result.err) == (code, True), result.err
        assert SECRET not in result.err
    assert shop("get", "user", "maker").code == 3


def test_applying_a_manifest_says_whether_the_password_was_another(shop: Cli, tmp_path: Path) -> None:
    path = tmp_path / "user.yaml"
    for password, done in (("b25l", "created"), ("b25l", "unchanged"), ("dHdv", "configured"), ("dHdv", "unchanged")):
        path.write_text(
            "apiVersion: user.enmasse.io/v1beta1\nkind: MessagingUser\nmetadata: {name: shop.maker}\n"
            f"spec: {{username: maker, authentication: {{type: password, password: {password}}}}}\n"
        )
        result = shop("apply", "-f", str(path))
        assert (result.code, result.out.split()[-1]) == (0, done), result.err
