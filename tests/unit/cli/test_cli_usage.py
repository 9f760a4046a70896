"""Usage, exit codes, and what is said when nothing runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.cli.errors import ApiError, CliError, NotFoundError, UnreachableError, UsageError, exit_code
from enmasse.cli.messages import parse_properties, to_json, to_text
from enmasse.cli.node import run_node
from enmasse.client import LinkRefusedError, Message
from enmasse.engines.embedded.paths import Layout
from enmasse.engines.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.errors import ConfigError, EnmasseError, RemoteError, UnavailableError
from enmasse.wire.amqp.types import UInt

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., Any]

EVERY_COMMAND = (
    ["up"],
    ["demo"],
    ["control"],
    ["node"],
    ["status"],
    ["trace"],
    ["endpoints"],
    ["apply"],
    ["get"],
    ["describe"],
    ["delete"],
    ["create", "space"],
    ["create", "address"],
    ["address", "purge"],
    ["address", "move"],
    ["address", "replay"],
    ["address", "browse"],
    ["send"],
    ["receive"],
    ["request"],
)


@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_every_command_takes_the_data_directory_and_has_help(cli: Cli, command: list[str]) -> None:
    result = cli(*command, "--help")
    assert result.code == 0
    assert "--data" in result.out


def test_the_help_lists_every_command_and_the_exit_codes(cli: Cli) -> None:
    told = cli("--help").out
    for command in EVERY_COMMAND:
        assert f" {command[0]} " in told
    assert "3 not found" in " ".join(told.split())


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").out.startswith("enmasse 0.")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["get"], ["get", "pods"], ["delete"], ["delete", "space"], ["send"], ["get", "space", "-o", "x"]],
)
def test_wrong_usage_is_exit_code_2(cli: Cli, arguments: list[str]) -> None:
    assert cli(*arguments).code == 2


@pytest.mark.parametrize(
    "arguments", [["status"], ["endpoints"], ["get", "spaces"], ["send", "a", "b"], ["receive", "a"]]
)
def test_where_nothing_runs_the_way_to_start_it_is_told(cli: Cli, arguments: list[str]) -> None:
    result = cli(*arguments)
    assert result.code == 4
    assert "Start it with `enmasse up --data" in result.err


def test_an_installation_that_does_not_answer_is_told_so(cli: Cli, tmp_path: Path) -> None:
    layout = Layout(tmp_path / "data")
    layout.data.mkdir()
    endpoints = Endpoints((Endpoint("api", "http://127.0.0.1:1"), Endpoint("amqp", "amqp://127.0.0.1:1")))
    write_endpoints(layout.endpoints, endpoints)
    result = cli("get", "spaces")
    assert (result.code, "is `enmasse up` still running?" in result.err) == (4, True)
    assert cli("send", "a", "b").code == 4
    assert "amqp://127.0.0.1:1" in cli("endpoints", "-o", "yaml").out


def test_status_waits_no_longer_than_asked(cli: Cli) -> None:
    assert cli("status", "--wait", "0.2").code == 4


@pytest.mark.usefixtures("api")
def test_status_is_not_ready_while_no_node_serves(cli: Cli) -> None:
    assert "no endpoint for amqp" in cli("status").err
    cli("create", "space", "shop", "--wait", "0")
    result = cli("status", "--wait", "0.2", "-o", "json")
    assert result.code == 4
    assert '"ready": false' in result.out


def test_an_interface_that_others_can_reach_is_refused(cli: Cli) -> None:
    result = cli("up", "--host", "0.0.0.0")
    assert (result.code, "there are no users" in result.err) == (1, True)


def test_a_node_alone_is_refused_such_an_interface_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_node(["--listen", "127.0.0.1:0", "--listen", "0.0.0.0:5672"]) == 1
    assert "there are no users" in capsys.readouterr().err


def test_a_bug_is_one_line_and_a_traceback_only_on_request(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_path: Path) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("enmasse.cli.installation.read_endpoints", fail)
    result = cli("endpoints")
    assert result.code == 1
    assert "this is a bug in enmasse: ZeroDivisionError: oh" in result.err
    assert "Traceback" not in result.err
    monkeypatch.setenv("ENMASSE_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli("endpoints")


def test_ctrl_c_is_exit_code_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("enmasse.cli.installation.read_endpoints", interrupt)
    result = cli("endpoints")
    assert (result.code, "Traceback" in result.err) == (130, False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CliError("x"), 1),
        (UsageError("x"), 2),
        (NotFoundError("x"), 3),
        (UnreachableError("x"), 4),
        (ApiError(404, "x"), 3),
        (ApiError(422, "x"), 1),
        (LinkRefusedError("amqp:not-found", "x"), 3),
        (RemoteError("amqp:not-allowed", "x"), 1),
        (UnavailableError("x"), 4),
        (ConfigError("x"), 1),
    ],
)
def test_an_error_has_its_exit_code(error: EnmasseError, code: int) -> None:
    assert exit_code(error) == code


def test_properties_are_key_value_words() -> None:
    assert parse_properties(["a=b", "c=d=e", "f="]) == {"a": "b", "c": "d=e", "f": ""}
    typed = parse_properties(["n:=5", "x:=1.5", "t:=true", 's:="5"', "z:=null", "a:b=c"])
    assert typed == {"n": 5, "x": 1.5, "t": True, "s": "5", "z": None, "a:b": "c"}
    for wrong in ("a", "=b", ":=5", "a:=", "a:=red", "a:=[1]", "a:={}"):
        with pytest.raises(UsageError):
            parse_properties([wrong])


def test_bodies_are_shown_as_text() -> None:
    bodies = ["text", b"bytes", b"\xff\x00", None, {"a": [1, b"b"]}]
    assert [to_text(Message(body)) for body in bodies] == [
        "text",
        "bytes",
        "base64:/wA=",
        "",
        '{"a": [1, "b"]}',
    ]


def test_messages_are_shown_in_full_without_what_they_leave_out() -> None:
    message = Message("x", subject="s", properties={"k": 1}, durable=True)
    assert to_json(message) == {"subject": "s", "durable": True, "properties": {"k": 1}, "body": "x"}
    dead = Message("x", annotations={"x-opt-delivery-count": UInt(3)}, group_id="g", delivery_count=2)
    told = to_json(dead)
    assert told == {"groupId": "g", "deliveryCount": 2, "annotations": {"x-opt-delivery-count": 3}, "body": "x"}
    assert type(told["annotations"]["x-opt-delivery-count"]) is int


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "strangers"),
    [
        ("node", {"typer", "rich", "httpx", "pydantic", "fastapi", "yaml"}),
        ("send", {"enmasse.cli.get", "enmasse.cli.up", "enmasse.cli.bench", "cryptography", "fastapi", "pyspark"}),
        ("get", {"enmasse.cli.send", "enmasse.cli.up", "enmasse.bench", "cryptography", "fastapi", "pyspark"}),
    ],
)
def test_a_command_starts_without_what_only_others_use(command: str, strangers: set[str]) -> None:
    script = (
        f"import sys; sys.argv = ['enmasse', '{command}', '--help']\n"
        "from enmasse.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted({strangers!r} & set(sys.modules)))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("create", {"space", "namespace", "address", "user"}),
        ("journal", {"check", "dump", "salvage", "compact", "backup", "restore", "init"}),
        ("pipeline", {"list", "run", "logs", "status", "pause", "resume", "restart", "query"}),
    ],
)
def test_a_group_that_is_loaded_alone_has_all_its_commands(group: str, members: set[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "enmasse", group, "--help"], capture_output=True, text=True, check=True
    )
    assert members <= set(told.stdout.split())
