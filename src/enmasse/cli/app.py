"""The command line put together: commands, and errors as one line instead of a traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.account import account
from enmasse.cli.address import address
from enmasse.cli.apply import apply
from enmasse.cli.backup import backup, restore
from enmasse.cli.bench import bench
from enmasse.cli.certificate import ca, certificate
from enmasse.cli.control import control
from enmasse.cli.create import create
from enmasse.cli.create_user import passwd
from enmasse.cli.delete import delete
from enmasse.cli.describe import describe
from enmasse.cli.endpoints import endpoints
from enmasse.cli.errors import FAILED, INTERRUPTED, exit_code
from enmasse.cli.events import events
from enmasse.cli.explain import explain
from enmasse.cli.get import get
from enmasse.cli.journal import journal
from enmasse.cli.kube import kube
from enmasse.cli.login import login, logout
from enmasse.cli.logs import logs
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.cli.pipeline import pipeline
from enmasse.cli.receive import receive
from enmasse.cli.request import request
from enmasse.cli.send import send
from enmasse.cli.status import status
from enmasse.cli.token import token
from enmasse.cli.top import top
from enmasse.cli.trace import trace
from enmasse.cli.two_files import import_files
from enmasse.cli.up import up
from enmasse.cli.user import user
from enmasse.errors import EnmasseError
from enmasse.version import __version__

__all__ = ["app", "run_app"]

_DEBUG = "ENMASSE_DEBUG"

app = typer.Typer(
    name="enmasse",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Messaging as a service: declare addresses, get messaging, read the stream as a table.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 timed out or not reachable.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        Writer().say(f"enmasse {__version__}")
        raise typer.Exit


@app.callback()
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


_RUN, _DECLARE, _ACCESS, _USE = "Run", "Declare", "Access", "Use"
_RAW = {"ignore_unknown_options": True, "allow_extra_args": True}

app.command("up", rich_help_panel=_RUN)(up)
app.command("demo", rich_help_panel=_RUN)(_demo)
app.command("status", rich_help_panel=_RUN)(status)
app.command("endpoints", rich_help_panel=_RUN)(endpoints)
app.command("ca", rich_help_panel=_RUN)(ca)
app.command("top", rich_help_panel=_RUN)(top)
app.command("events", rich_help_panel=_RUN)(events)
app.command("logs", rich_help_panel=_RUN)(logs)
app.command("trace", rich_help_panel=_RUN)(trace)
app.command("backup", rich_help_panel=_RUN)(backup)
app.command("restore", rich_help_panel=_RUN)(restore)
app.command("control", rich_help_panel=_RUN)(control)
app.command("node", rich_help_panel=_RUN, context_settings=_RAW, add_help_option=False)(_node)
app.add_typer(journal, name="journal", rich_help_panel=_RUN)
app.add_typer(kube, name="kube", rich_help_panel=_RUN)
app.add_typer(create, name="create", rich_help_panel=_DECLARE)
app.add_typer(certificate, name="certificate", rich_help_panel=_DECLARE)
app.add_typer(user, name="user", rich_help_panel=_DECLARE)
app.command("apply", rich_help_panel=_DECLARE)(apply)
app.command("passwd", rich_help_panel=_DECLARE)(passwd)
app.command("get", rich_help_panel=_DECLARE)(get)
app.command("describe", rich_help_panel=_DECLARE)(describe)
app.command("delete", rich_help_panel=_DECLARE)(delete)
app.command("explain", rich_help_panel=_DECLARE)(explain)
app.command("import", rich_help_panel=_DECLARE)(import_files)
app.command("login", rich_help_panel=_ACCESS)(login)
app.command("logout", rich_help_panel=_ACCESS)(logout)
app.add_typer(account, name="account", rich_help_panel=_ACCESS)
app.add_typer(token, name="token", rich_help_panel=_ACCESS)
app.add_typer(address, name="address", rich_help_panel=_USE)
app.add_typer(pipeline, name="pipeline", rich_help_panel=_USE)
app.command("send", rich_help_panel=_USE)(send)
app.command("receive", rich_help_panel=_USE)(receive)
app.command("request", rich_help_panel=_USE)(request)
app.command("bench", rich_help_panel=_USE)(bench)


def run_app() -> int:
    """Run the command that the arguments name; return the exit code."""
    try:
        app(prog_name="enmasse")
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
