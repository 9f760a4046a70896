"""Usage, exit codes, and what is said when nothing runs."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

import enmasse.cli
from enmasse.cli.app import COMMANDS
from enmasse.cli.commands.run.node import run_node
from enmasse.cli.errors import (
    UNREACHABLE,
    ApiError,
    CliError,
    NotFoundError,
    UnreachableError,
    UsageError,
    exit_code,
)
from enmasse.cli.messages import explain, parse_properties, to_json, to_text
from enmasse.client import LinkRefusedError, Message
from enmasse.client.options import GIVE, RISK
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.errors import ConfigError, EnmasseError, RemoteError, UnavailableError
from enmasse.message.types import UInt
from tests.unit.node.line_protocol import LINES

if TYPE_CHECKING:
    from collections.abc import Callable

    Cli = Callable[..., Any]

EVERY_COMMAND = (
    ["up"],
    ["demo"],
    ["control"],
    ["node"],
    ["status"],
    ["trace"],
    ["nodes"],
    ["nodes", "cordon"],
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
    ("arguments", "words"),
    [
        (["receive", "a", "--count", "0"], "--count / -c: expected 1 or more, got '0'; `enmasse receive --help`"),
        (
            ["receive", "a", "--count", "x"],
            "--count / -c: expected a whole number, got 'x'; `enmasse receive --help`",
        ),
        (["up", "--ports", "any"], "--ports: 'any' is not one of 'customary', 'auto'; `enmasse up --help`"),
        (["send"], "missing argument 'ADDRESS'; `enmasse send --help`"),
        (["gett"], "no such command 'gett'. Did you mean 'get'? `enmasse --help`"),
        (["send", "a", "b", "--ttl", "1e300"], "--ttl: expected 0.001 to 4294967.295, got '1e+300'"),
        (["send", "a", "b", "--ttl", "x"], "--ttl: expected a number, got 'x'"),
    ],
)
def test_wrong_arguments_are_explained_in_one_line(cli: Cli, arguments: list[str], words: str) -> None:
    told = cli(*arguments).err
    assert told.startswith(f"error: {words}")
    assert told.count("\n") == 1


def test_the_list_says_of_a_command_what_its_own_help_begins_with() -> None:
    for name, listed in COMMANDS.items():
        command = listed.load()
        text = command.info.help if isinstance(command, typer.Typer) else inspect.getdoc(command)
        assert listed.summary == " ".join((text or "").split("\n\n")[0].split()), name


def test_every_command_is_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text()
    for name in COMMANDS:
        assert re.search(rf"`(enmasse )?{name}\b", page), f"docs/reference/cli.md does not have {name}"


def test_a_command_is_asked_for_where_two_dashes_hide_it(cli: Cli) -> None:
    done = cli("--", "get")
    assert (done.code, "`enmasse --help`" in done.err) == (2, True)


@pytest.mark.parametrize("hint", [GIVE, RISK, ": give TlsOptions(ca_file=...) with that authority's certificate"])
def test_errors_name_options_of_the_command_line_not_arguments_of_python(hint: str) -> None:
    told = explain(UnavailableError(f"amqp://host: the server offers PLAIN{hint}"))
    assert "=" not in str(told)
    assert (str(told).startswith("amqp://host: the server offers PLAIN"), exit_code(told)) == (True, UNREACHABLE)


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


@pytest.mark.parametrize("given", ["gopher=70", "lines", "lines=0", "lines=65536", "lines=x"])
def test_a_port_of_a_protocol_that_cannot_be_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    assert "; PROTOCOL is stomp" in cli("up", "--port", given).err
    monkeypatch.setattr("enmasse.cli.commands.run.up.further_protocols", tuple)
    assert "; no protocol beside AMQP is spoken" in cli("up", "--port", given).err
    monkeypatch.setattr("enmasse.cli.commands.run.up.further_protocols", lambda: (LINES,))
    found = cli("up", "--port", given)
    assert (found.code, f"--port {given}: PROTOCOL=PORT is expected" in found.err) == (1, True)
    assert "; PROTOCOL is lines" in found.err


@pytest.mark.parametrize(
    "words",
    [("send", "a", "body"), ("receive", "a"), ("request", "a", "body"), ("bench", "a"), ("bench", "a", "--url", "x")],
)
def test_a_namespace_without_a_space_is_not_taken_for_another_space(cli: Cli, words: tuple[str, ...]) -> None:
    found = cli(*words, "-n", "team-a")
    assert (found.code, found.err) == (2, "error: name the space in namespace team-a as well, with --space\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "strangers"),
    [
        ("node", {"typer", "rich", "httpx", "pydantic", "starlette", "yaml"}),
        (
            "send",
            {
                "enmasse.cli.commands.declare.get",
                "enmasse.model.schema.resource",
                "enmasse.model.schema.schema",
                "pydantic",
                "cryptography",
                "starlette",
                "pyspark",
                "httpx._main",
                "yaml",
            },
        ),
        (
            "get",
            {
                "enmasse.client",
                "enmasse.model.schema.resource",
                "cryptography",
                "starlette",
                "pydantic",
                "pyspark",
                "yaml",
            },
        ),
        ("status", {"enmasse.client", "cryptography", "starlette", "pyspark", "yaml"}),
        (
            "--help",
            {
                "enmasse.cli.commands.declare.get",
                "enmasse.cli.commands.run.up",
                "enmasse.client",
                "enmasse.model.schema.resource",
                "httpx",
                "pydantic",
                "yaml",
            },
        ),
    ],
)
def test_a_command_starts_without_what_only_others_use(command: str, strangers: set[str]) -> None:
    script = (
        f"import sys; sys.argv = ['enmasse', '{command}', '--help']\n"
        "from enmasse.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print(sorted(name for name in {strangers!r} if sys.modules.get(name)))"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "addresses", "-n", "default"),
        ("get", "addresses", "-A", "-o", "name"),
        ("get", "address", "shop.orders", "--data", "."),
        ("endpoints",),
        ("events",),
    ],
)
def test_a_command_loads_nothing_slow_that_it_does_not_need(arguments: tuple[str, ...], tmp_path: Path) -> None:
    script = (
        f"import sys; sys.argv = ['enmasse', *{arguments!r}]\n"
        "from enmasse.cli.app import run_app\n"
        "slow = 'pydantic', 'yaml', 'rich.table', 'importlib.metadata'\n"
        "print(run_app(), [name for name in slow if name in sys.modules])"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ENMASSE_")}
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path, env=clean
    )
    assert told.stdout.splitlines()[-1] == "4 []", "nothing runs there, and that is all that went wrong"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("create", {"space", "namespace", "address", "user"}),
        ("journal", {"check", "dump", "salvage", "compact", "backup", "restore", "init"}),
        (
            "pipeline",
            {"list", "run", "logs", "status", "pause", "resume", "restart", "query", "tables", "ui", "backfill"},
        ),
    ],
)
def test_a_group_that_is_loaded_alone_has_all_its_commands(group: str, members: set[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "enmasse", group, "--help"], capture_output=True, text=True, check=True
    )
    assert members <= set(told.stdout.split())


PAST_THE_WRITER = {
    "output.py": {"Console"},  # the writer itself
    "commands/run/node.py": {"print"},  # before arguments are known
    "commands/run/certificate.py": {"stdout.write"},  # certificates of ours
    "commands/declare/explain.py": {"file.write"},  # definitions of ours
    "commands/run/trace.py": {"file.write"},  # a capture file
    "charts.py": {"buffer.write"},  # a file, never to a terminal
}


def test_nothing_is_written_past_the_function_that_masks_what_strangers_sent() -> None:
    """Whatever reaches a terminal goes through ``Writer``, or stands in the list above with its reason."""
    folder = Path(enmasse.cli.__file__).parent
    ways = re.compile(r"\b(print|stdout\.write|stderr\.write|buffer\.write|file\.write|typer\.echo|Console)\(")
    found = {}
    for path in folder.rglob("*.py"):
        code = re.sub(r"(?<!\w)(self\.|writer\.|_writer\.)*(out|err)\.print\(", "", path.read_text())
        if used := {match[1] for match in ways.finditer(code)}:
            found[str(path.relative_to(folder))] = used
    found["output.py"] -= {"file.write"}
    assert found == PAST_THE_WRITER
