"""The command line put together: commands, and errors as one line instead of a traceback."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.errors import FAILED, INTERRUPTED, exit_code
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.errors import EnmasseError
from enmasse.version import __version__

__all__ = ["run_app"]

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
    """Run one data-plane node alone; `enmasse node --help` tells how."""
    from enmasse.cli.node import run_node  # noqa: PLC0415  # for the help of this program it is not needed

    raise typer.Exit(run_node(context.args))


def _demo(
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="End after so long; 0: on Ctrl-C.")] = 0,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show everything at work: the platform, simulated devices, a Spark job and alerts."""
    from enmasse.demo.main import run  # noqa: PLC0415  # the other commands need not wait for all that it uses

    raise typer.Exit(run(seconds, Path(data)))


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


_RUN, _DECLARE, _ACCESS, _USE = "Run", "Declare", "Access", "Use"
_RAW = {"ignore_unknown_options": True, "allow_extra_args": True}

_COMMANDS = {
    "up": (_RUN, "up:up"),
    "demo": (_RUN, "app:_demo"),
    "status": (_RUN, "status:status"),
    "endpoints": (_RUN, "endpoints:endpoints"),
    "ca": (_RUN, "certificate:ca"),
    "top": (_RUN, "top:top"),
    "events": (_RUN, "events:events"),
    "logs": (_RUN, "logs:logs"),
    "trace": (_RUN, "trace:trace"),
    "backup": (_RUN, "backup:backup"),
    "restore": (_RUN, "backup:restore"),
    "control": (_RUN, "control:control"),
    "node": (_RUN, "app:_node"),
    "journal": (_RUN, "journal:journal"),
    "kube": (_RUN, "kube:kube"),
    "version": (_RUN, "app:_version"),
    "create": (_DECLARE, "create:create"),
    "certificate": (_DECLARE, "certificate:certificate"),
    "user": (_DECLARE, "user:user"),
    "apply": (_DECLARE, "apply:apply"),
    "passwd": (_DECLARE, "create_user:passwd"),
    "get": (_DECLARE, "get:get"),
    "describe": (_DECLARE, "describe:describe"),
    "delete": (_DECLARE, "delete:delete"),
    "wait": (_DECLARE, "wait:wait"),
    "explain": (_DECLARE, "explain:explain"),
    "import": (_DECLARE, "two_files:import_files"),
    "login": (_ACCESS, "login:login"),
    "logout": (_ACCESS, "login:logout"),
    "account": (_ACCESS, "account:account"),
    "token": (_ACCESS, "token:token"),
    "address": (_USE, "address:address"),
    "pipeline": (_USE, "pipeline:pipeline"),
    "send": (_USE, "send:send"),
    "receive": (_USE, "receive:receive"),
    "request": (_USE, "request:request"),
    "bench": (_USE, "bench:bench"),
}
"""Each command, where the help lists it, and the module of this package and the name that it is there."""


def _make_app(names: Iterable[str]) -> typer.Typer:
    """Put these commands together; the modules of others are not loaded."""
    app = typer.Typer(
        name="enmasse",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Messaging as a service: declare addresses, get messaging, read the stream as a table.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 timed out or not reachable.",
    )
    app.callback()(_enmasse)
    for name in names:
        panel, place = _COMMANDS[name]
        module, _, attribute = place.partition(":")
        found = getattr(importlib.import_module(f"enmasse.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, rich_help_panel=panel)
        elif found is _node:
            app.command(name, rich_help_panel=panel, context_settings=_RAW, add_help_option=False)(found)
        else:
            app.command(name, rich_help_panel=panel)(found)
    return app


def run_app() -> int:
    """Run the command that the arguments name; return the exit code."""
    # A shell that wants completions calls without arguments, and says in its own way how far its user has come.
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    named = sys.argv[1:2] or typed.split()[1:2]
    try:
        # Who names a command does not wait for all that the others use.
        _make_app(named if named and named[0] in _COMMANDS else _COMMANDS)(prog_name="enmasse")
    except EnmasseError as error:
        Writer().fail(str(error))
        return exit_code(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; nothing can be written there any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        Writer().fail(
            f"this is a bug in enmasse: {type(error).__name__}: {error}\n"
            f"Run it again with {_DEBUG}=1 to see where it comes from."
        )
        return FAILED
    return 0
