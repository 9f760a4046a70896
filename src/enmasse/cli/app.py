"""The application of the command line: the table of commands, and errors as one line instead of a traceback."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from enmasse.cli.errors import FAILED, INTERRUPTED, USAGE, UsageError, exit_code
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer, leave_pipe
from enmasse.errors import EnmasseError
from enmasse.extras import remedy
from enmasse.version import __version__

_DEBUG = "ENMASSE_DEBUG"


def _show_version(wanted: bool) -> None:
    if wanted:
        Writer().say(f"enmasse {__version__}")
        raise typer.Exit


def _enmasse(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version


def _node(context: typer.Context) -> None:
    """Run one data-plane node alone; `enmasse node --help` shows its options."""
    from enmasse.cli.commands.run.node import run_node  # noqa: PLC0415  # for the help of this program it is not needed

    raise typer.Exit(run_node(context.args))


def _demo(
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="End after so long; 0: on Ctrl-C.")] = 0,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, help="How many nodes; by default as many as last time, or one.")
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show everything at work: the platform, simulated devices, a Spark job and alerts."""
    from enmasse.demo.main import run  # noqa: PLC0415  # the other commands need not wait for all that it uses

    raise typer.Exit(run(seconds, Path(data), nodes))


def _version(data: Data = DEFAULT_DATA) -> None:
    """Show the version of this program, and of the installation where one answers."""
    from enmasse.cli.api_client import ApiClient  # noqa: PLC0415  # the other commands need not wait for it

    writer = Writer()
    writer.say(f"Client: {__version__}")
    try:
        with ApiClient.find(data, warn=writer.warn) as api:
            writer.say(f"Server: {api.call('GET', '/version')['gitVersion'].removeprefix('v')}")
    except EnmasseError as error:
        writer.note(f"Server: unknown ({error})")


# The parser's error for wrong arguments; it exports only one of its subclasses.
_WrongUsage: type[Exception] = typer.BadParameter.__mro__[2]


class _Command(NamedTuple):
    """A command as the help lists it.

    Attributes:
        panel: the part of the help that it stands in.
        place: the module in ``commands`` and the command's name there, or a function of this module.
        summary: the first sentence of its own help.
    """

    panel: str
    place: str | Callable[..., None]
    summary: str

    def load(self) -> Any:
        """Return the function of the command, or the application of its subcommands, importing its module."""
        if not isinstance(self.place, str):
            return self.place
        module, _, attribute = self.place.partition(":")
        return getattr(importlib.import_module(f"enmasse.cli.commands.{module}"), attribute)


_RUN, _DECLARE, _ACCESS, _USE = "Run", "Declare", "Access", "Use"
_RAW = {"ignore_unknown_options": True, "allow_extra_args": True}

COMMANDS = {
    "up": _Command(_RUN, "run.up:up", "Start everything on this machine and keep it alive until Ctrl-C."),
    "demo": _Command(
        _RUN, _demo, "Show everything at work: the platform, simulated devices, a Spark job and alerts."
    ),
    "status": _Command(
        _RUN, "run.status:status", "Show spaces, addresses and nodes, and whether all of them are ready."
    ),
    "overview": _Command(
        _RUN, "run.overview:overview", "Show what is wrong and how to mend it, and sums of all that you may see."
    ),
    "nodes": _Command(_RUN, "run.nodes:nodes", "List the nodes, and say which of them get new spaces."),
    "endpoints": _Command(_RUN, "run.status:endpoints", "Show every URL that the installation serves."),
    "console": _Command(_RUN, "run.console:console", "Open the console in the browser."),
    "ca": _Command(
        _RUN,
        "run.certificate:ca",
        "Print the certificate (PEM) of the authority that vouches for this installation.",
    ),
    "top": _Command(_RUN, "run.top:top", "Show the busiest addresses with their rates, again and again."),
    "events": _Command(_RUN, "run.events:events", "Show what has happened to objects, what came last at the end."),
    "logs": _Command(
        _RUN,
        "run.events:logs",
        "Show what the processes of an installation have logged, the last lines first in each log.",
    ),
    "audit": _Command(
        _RUN,
        "run.overview:audit",
        "Show who did what through the API, what came last at the end; for administrators.",
    ),
    "trace": _Command(_RUN, "run.trace:trace", "Show the frames of connections while they run, until Ctrl-C."),
    "backup": _Command(
        _RUN,
        "run.backup:backup",
        "Copy an installation, also while it runs: objects, accounts, certificates, messages, pipelines and tables.",
    ),
    "restore": _Command(
        _RUN, "run.backup:restore", "Make a backup an installation, in which nothing may be running."
    ),
    "control": _Command(
        _RUN,
        "run.control:control",
        "Run the control process alone: resource store, API and controllers, for its nodes.",
    ),
    "service": _Command(
        _RUN, "run.service:service", "Run `enmasse up` as a service of systemd, of this machine or of a user."
    ),
    "node": _Command(_RUN, _node, "Run one data-plane node alone; `enmasse node --help` shows its options."),
    "journal": _Command(_RUN, "run.journal:journal", "Look at, repair, back up and restore what a node stores."),
    "kube": _Command(_RUN, "declare.explain:kube", "Write what a Kubernetes cluster needs to know of EnMasse."),
    "version": _Command(
        _RUN, _version, "Show the version of this program, and of the installation where one answers."
    ),
    "create": _Command(_DECLARE, "declare.create:create", "Create a space, an address, a user or a namespace."),
    "certificate": _Command(
        _DECLARE, "run.certificate:certificate", "Certificates by which clients prove who they are."
    ),
    "user": _Command(_DECLARE, "declare.user:user", "Make and change the file of users that `up` and `node` read."),
    "apply": _Command(_DECLARE, "declare.apply:apply", "Create or change objects as files declare them."),
    "passwd": _Command(
        _DECLARE,
        "declare.create_user:passwd",
        "Set the password of a messaging user; it is asked for, or is the first line of standard input.",
    ),
    "get": _Command(
        _DECLARE,
        "declare.get:get",
        "List the objects of kinds, or show some; also `connections`, `links`, `sessions`, `wills` and `nodes`.",
    ),
    "describe": _Command(
        _DECLARE,
        "declare.get:describe",
        "Show everything about one object: what was declared, what was found, and why.",
    ),
    "delete": _Command(
        _DECLARE,
        "declare.delete:delete",
        "Delete objects. A space takes its addresses with it, an address its messages.",
    ),
    "wait": _Command(
        _DECLARE,
        "declare.wait:wait",
        "Wait until objects are ready, are gone, or have come so far; the exit code is 4 if they were not in time.",
    ),
    "explain": _Command(
        _DECLARE,
        "declare.explain:explain",
        "Show what the fields of a kind mean. Nothing needs to be running for it.",
    ),
    "import": _Command(
        _DECLARE,
        "declare.apply:import_files",
        "Turn a file of addresses, with its file of flavors, into a space, its plans and its addresses.",
    ),
    "iot": _Command(_DECLARE, "use.iot:iot", "Tenants, devices and credentials of the device registry."),
    "login": _Command(
        _ACCESS,
        "access.login:login",
        "Log in; every command to come that names no data directory uses this installation.",
    ),
    "logout": _Command(_ACCESS, "access.login:logout", "Log out: the token is revoked and forgotten."),
    "account": _Command(_ACCESS, "access.account:account", "Who may use the API, and for what."),
    "token": _Command(_ACCESS, "access.account:token", "Tokens by which programs use the API."),
    "check": _Command(_ACCESS, "access.check:check", "Check whether somebody may do something."),
    "address": _Command(_USE, "use.address:address", "Look at, delete, move or send back what an address stores."),
    "tail": _Command(
        _USE,
        "use.tail:tail",
        "Show what comes to an address from now on, and take nothing away, until Ctrl-C.",
    ),
    "connector": _Command(_USE, "use.connector:connector", "Connections of spaces to other messaging services."),
    "retained": _Command(
        _USE, "use.retained:retained", "List, read and clear the values that topics keep of each name."
    ),
    "pipeline": _Command(
        _USE,
        "use.pipeline:pipeline",
        "Run pipelines over the addresses of a space, see how far they are, and query their tables.",
    ),
    "table": _Command(_USE, "use.table:table", "The tables of a space's lake: list, look back, compact, restore."),
    "model": _Command(_USE, "use.model:model", "The versions of a space's models: list, import, roll back."),
    "schema": _Command(_USE, "use.schema:schema", "The schema registry of a space: its subjects and their versions."),
    "send": _Command(_USE, "use.send:send", "Send a message to an address and print its outcome."),
    "receive": _Command(
        _USE,
        "use.receive:receive",
        "Print the messages of an address as they come, and accept each once it is printed.",
    ),
    "request": _Command(
        _USE,
        "use.send:request",
        "Send a request to an address and print the reply, which comes over an address of its own.",
    ),
    "bench": _Command(
        _USE,
        "use.bench:bench",
        "Put load on an address of this installation or of any AMQP 1.0 peer, and print its figures.",
    ),
}
"""Every command, in the order in which the help lists them."""


def _make_app(named: str | None) -> typer.Typer:
    """Return the application: with one command, or as a list of all, whose modules are not loaded."""
    app = typer.Typer(
        name="enmasse",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Messaging as a service: declare addresses, get messaging, read the stream as a table.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 timed out or not reachable.",
    )
    app.callback()(_enmasse)
    if named is not None:
        _add(app, named)
        return app
    for name, command in COMMANDS.items():
        app.command(name, help=command.summary, rich_help_panel=command.panel, add_help_option=False)(_listed)
    return app


def _add(app: typer.Typer, name: str) -> None:
    found = COMMANDS[name].load()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    elif found is _node:
        app.command(name, context_settings=_RAW, add_help_option=False)(found)
    else:
        app.command(name)(found)


def _listed() -> None:
    raise UsageError("name the command first, as in `enmasse get addresses`; `enmasse --help` lists all")


_OUT_OF_RANGE = re.compile(r"(?P<value>\S+) is not in the range ((?P<least>\S+?)<=)?x((<=|>=)(?P<other>\S+?))?")
_NO_NUMBER = re.compile(r"'(?P<value>.*)' is not a valid (?P<type>int|float)( range)?")


def _words_of(error: Any) -> str:
    """Return what was wrong with the arguments, in one line."""
    text = error.format_message().strip().rstrip(".")
    if not text:
        return ""
    if (param := getattr(error, "param", None)) is not None and error.message:
        text = f"{' / '.join(param.opts)}: {_expected(error.message.strip().rstrip('.'))}"
    command = error.ctx.command_path if error.ctx is not None else "enmasse"
    return f"{text[0].lower()}{text[1:]}{'' if text.endswith('?') else ';'} `{command} --help` shows what it takes"


def _expected(text: str) -> str:
    """Return what is wrong with a value, in our words."""
    if found := _NO_NUMBER.fullmatch(text):
        return f"expected a {'whole ' * (found['type'] == 'int')}number, got '{found['value']}'"
    if found := _OUT_OF_RANGE.fullmatch(text):
        least, other, value = found["least"], found["other"], found["value"]
        if least and other:
            return f"expected {least} to {other}, got '{value}'"
        return f"expected {least or other} or {'less' if '<=' in text else 'more'}, got '{value}'"
    return text


def run_app() -> int:
    """Run the command that the arguments name; return the exit code."""
    # A shell that asks for completions calls without arguments, and gives the typed words in a variable.
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    named = sys.argv[1:2] or typed.split()[1:2]
    # The HTTP library would load a command line of its own, and all that it draws with.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    try:
        # A single command starts without the modules of the others.
        app = _make_app(named[0] if named and named[0] in COMMANDS else None)
        if not gc.isenabled():  # since the process began
            gc.freeze()
            gc.enable()
        return int(app(prog_name="enmasse", standalone_mode=False) or 0)
    except EnmasseError as error:
        Writer().fail(str(error))
        return exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        leave_pipe()
        return FAILED
    except _WrongUsage as error:
        if text := _words_of(error):  # none where help was shown because nothing was asked for
            Writer().fail(text)
        return USAGE
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (missing := remedy(error)):
            Writer().fail(missing)
            return FAILED
        if os.environ.get(_DEBUG):
            raise
        Writer().fail(
            f"this is a bug in enmasse: {type(error).__name__}: {error}\n"
            f"Run it again with {_DEBUG}=1 to see where it comes from."
        )
        return FAILED
