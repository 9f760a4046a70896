"""The space that a command means: the one named, which must be there, or the only one; harmful ones choose none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from typer.main import get_command

from enmasse.cli.app import COMMANDS, _make_app

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

    Cli = Callable[..., Any]

# Every command that has --space, but for those that follow, with what else it needs.
WORDS = {
    "top": ["--count", "1"],
    "create address": ["orders", "--type", "queue"],
    "create user": ["ada", "--no-password"],
    "passwd": ["ada", "--generate"],
    "get": ["addresses"],
    "describe": ["address", "orders"],
    "delete": ["address", "orders"],
    "wait": ["address", "orders"],
    "check user": ["ada", "--may", "send", "--address", "orders"],
    "address purge": ["orders"],
    "address move": ["orders", "late"],
    "address replay": ["orders"],
    "address browse": ["orders"],
    "tail": ["orders"],
    "connector test": ["mill"],
    "retained list": [],
    "retained get": ["lamps", "--user", "ada"],
    "retained clear": ["#"],
    "pipeline run": ["--builtin", "archive", "--set", "address=orders"],
    "pipeline backfill": ["hot", "--from", "2026-01-01", "--to", "2026-01-02"],
    "pipeline replay": ["orders", "--user", "ada"],
    "pipeline query": ["SELECT 1"],
    "pipeline tables": [],
    "pipeline list": [],
    "pipeline status": ["hot"],
    "pipeline logs": ["hot"],
    "pipeline pause": ["hot"],
    "pipeline resume": ["hot"],
    "pipeline restart": ["hot"],
    "pipeline ui": ["hot"],
    "table list": [],
    "table history": ["readings"],
    "table describe": ["readings"],
    "table optimize": ["readings"],
    "table restore": ["readings", "--version", "1"],
    "model list": [],
    "model rollback": ["odd"],
    "schema list": [],
    "schema get": ["orders"],
    "schema register": ["orders", "-f", "FILE"],
    "schema check": ["orders", "-f", "FILE"],
    "schema level": ["orders"],
    "schema delete": ["orders"],
    "send": ["orders", "hello", "--user", "ada"],
    "receive": ["orders", "--user", "ada"],
    "request": ["orders", "hello", "--user", "ada"],
}
ASK_NO_API = {
    "user add": "writes a file",
    "user remove": "writes a file",
    "import": "declares the space",
    "model import": "reads the model first",
    "bench": "asks the node, which may be any that speaks AMQP",
}


def commands_with_a_space() -> Iterator[str]:
    def walk(command: Any, path: str) -> Iterator[str]:
        for name, below in getattr(command, "commands", {}).items():
            yield from walk(below, f"{path} {name}")
        if any("--space" in option.opts for option in command.params):
            yield path

    for name in COMMANDS:
        if name not in ("node", "demo"):
            yield from walk(get_command(_make_app(name)).commands[name], name)  # type: ignore[attr-defined]


def test_all_commands_are_tried() -> None:
    assert sorted(commands_with_a_space()) == sorted([*WORDS, *ASK_NO_API])


@pytest.fixture
def spaces(cli: Cli, api: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Two spaces, and a queue in the first."""
    monkeypatch.delenv("ENMASSE_PASSWORD", raising=False)
    for name in ("bakery", "workshop"):
        assert cli("create", "space", name, "--wait", "0").code == 0
    assert cli("create", "address", "orders", "-s", "bakery", "--type", "queue", "--wait", "0").code == 0
    return cli


def test_a_misspelt_space_is_told_as_such(spaces: Cli, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("{}")
    said = "error: there is no address space 'bakey' in namespace default; did you mean bakery?\n"
    others = {}
    for command, words in WORDS.items():
        given = [str(file) if word == "FILE" else word for word in words]
        told = spaces(*command.split(), *given, "--space", "bakey")
        if (told.code, told.err) != (3, said):
            others[command] = (told.code, told.err)
    assert others == {}


@pytest.mark.parametrize(
    "command",
    [
        ("address", "purge", "orders"),
        ("address", "move", "orders", "late"),
        ("address", "replay", "orders"),
        ("delete", "address", "orders"),
        ("passwd", "ada", "--generate"),
        ("retained", "clear", "#"),
    ],
)
def test_what_cannot_be_undone_is_done_in_no_space_that_was_not_named(spaces: Cli, command: tuple[str, ...]) -> None:
    told = spaces(*command)
    assert (told.code, told.err) == (
        2,
        "error: there are several address spaces, name one with --space: bakery, workshop\n",
    )


def test_an_object_of_another_space_than_the_one_named_is_not_meant(spaces: Cli) -> None:
    told = spaces("delete", "address", "bakery.orders", "--space", "workshop")
    assert (told.code, told.err) == (
        3,
        "error: there is no Address 'bakery.orders' in space workshop of namespace default; there is none at all\n",
    )
    assert spaces("delete", "address", "orders", "-s", "bakery").out == "address/bakery.orders deleted\n"


def test_all_of_a_kind_are_awaited_in_the_space_alone(spaces: Cli) -> None:
    # No node is here: the queue of the other space is never ready.
    assert spaces("wait", "addresses", "--space", "workshop", "--timeout", "0").code == 0
    assert "bakery.orders" in spaces("wait", "addresses", "--space", "bakery", "--timeout", "0").err


@pytest.mark.parametrize(
    ("command", "question", "done"),
    [
        (("purge", "orders"), "Delete 1 message of 'orders' in space bakery, namespace default?", "deleted from"),
        (
            ("move", "orders", "late"),
            "Move 1 message of 'orders' to 'late' in space bakery, namespace default?",
            "moved from",
        ),
    ],
)
def test_at_a_terminal_purge_and_move_ask(
    spaces: Cli, command: tuple[str, ...], question: str, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(text: str, **options: Any) -> bool:
        asked.append(text)
        if len(asked) == 1:
            raise typer.Abort
        return True

    monkeypatch.setattr("typer.confirm", answer)
    monkeypatch.setattr("enmasse.cli.commands.use.address.is_at_terminal", lambda: True)
    refused = spaces("address", *command, "-s", "bakery")
    assert (refused.code, refused.out, asked) == (130, "", [question])
    assert done in spaces("address", *command, "-s", "bakery").out
    assert len(asked) == 2
    assert done in spaces("address", *command, "-s", "bakery", "--yes").out
    assert spaces("address", *command, "-s", "bakery", "--dry-run").code == 0
    assert len(asked) == 2
