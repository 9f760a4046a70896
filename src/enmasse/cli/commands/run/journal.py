"""``enmasse journal``: look at, repair, back up and restore what a node stores."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import FAILED, INTERRUPTED, UNREACHABLE, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.drivers.backup import run_journal_tool
from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.node_count import kept_nodes
from enmasse.storage.tools import CANNOT, IN_USE

journal = typer.Typer(
    no_args_is_help=True,
    help="Look at, repair, back up and restore what a node stores.",
    epilog="Exit codes: 0 done and all sound, 1 damaged or failed, 2 wrong usage, 4 a node uses the journal.",
)

_CODES = {CANNOT: FAILED, IN_USE: UNREACHABLE, -signal.SIGINT: INTERRUPTED}

Directory = Annotated[
    Path | None,
    typer.Argument(metavar="[DIRECTORY]", help="The journal's directory; by default that of --data and --name."),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NODE", help="Whose journal; need not be named where there is one node."),
]


def _place(directory: Path | None, data: Path, name: str | None) -> str:
    return str(directory or data / "nodes" / _node(data, name) / "journal")


def _node(data: Path, name: str | None) -> str:
    """Return the node that is named, or the only one.

    Raises:
        UsageError: none is named, and there are several.
    """
    nodes = kept_nodes(Layout(data)) if name is None else [name]
    if len(nodes) > 1:
        raise UsageError(
            f"there are {len(nodes)} nodes, each with a journal: name one with --name: {', '.join(nodes)}"
        )
    return nodes[0]


def _run(*arguments: str) -> None:
    """Run a tool in a process of its own and end as it did."""
    code = run_journal_tool(*arguments)
    raise typer.Exit(_CODES.get(code, code))


@journal.command()
def check(directory: Directory = None, name: Name = None, data: Data = DEFAULT_DATA) -> None:
    """Read every page and record; report what there is and what is damaged.

    Without a name the journals of all nodes are read, which may be running. The exit code is 1 if one is damaged.
    """
    if directory is not None or name is not None:
        _run("check", _place(directory, data, name))
    codes = [run_journal_tool("check", _place(None, data, node)) for node in kept_nodes(Layout(data))]
    first = next(filter(None, codes), 0)
    raise typer.Exit(_CODES.get(first, first))


@journal.command()
def dump(
    directory: Directory = None,
    messages: Annotated[bool, typer.Option("--messages", help="Decode the messages, too.")] = False,
    name: Name = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Print every record as one line of JSON."""
    _run("dump", _place(directory, data, name), *(["--messages"] if messages else []))


@journal.command()
def salvage(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The damaged journal's directory.")],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory that is absent or empty.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Copy what can be read of a damaged journal into a fresh directory; name what is lost.

    SOURCE is not changed. The exit code is 1 if anything is lost.
    """
    del data
    _run("salvage", str(source), str(target))


@journal.command()
def compact(directory: Directory = None, name: Name = None, data: Data = DEFAULT_DATA) -> None:
    """Write a journal anew without free pages, so that its file becomes as small as what it holds.

    The node must be stopped. The file is replaced at once, or not at all.
    """
    _run("compact", _place(directory, data, name))


@journal.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory that is absent or empty.")],
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="The journal's directory.", file_okay=False)
    ] = None,
    name: Name = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Copy a journal as of its last commit, also while the node runs."""
    _run("backup", _place(directory, data, name), str(target))


@journal.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `backup` or `salvage` has made.")],
    directory: Annotated[
        Path | None, typer.Option("--directory", metavar="DIR", help="The journal's directory.", file_okay=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a journal that is there already.")] = False,
    name: Name = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a backup the journal of a node, which must be stopped."""
    _run("restore", _place(directory, data, name), str(source), *(["--force"] if force else []))


@journal.command()
def init(directory: Directory = None, name: Name = None, data: Data = DEFAULT_DATA) -> None:
    """Begin a journal anew where the former one is gone for good, so that its node starts again.

    A journal that is there is left alone, and this fails.
    """
    _run("init", _place(directory, data, name))


@journal.command()
def adopt(
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it the journal is only described.")] = False,
    name: Name = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Take in the journal of a node that belongs to another installation, which must be running.

    What it holds is declared here as it is there. Until then nothing of it is changed.
    """
    writer = Writer()
    name = _node(data, name)
    with ApiClient.find(data, warn=writer.warn) as api:
        found = api.call("GET", f"/nodes/{name}/journal")
        if found["installation"] == found["own"]:
            writer.say(f"The journal of {name} belongs to this installation, {found['own']}, already.")
            return
        writer.say(
            f"The journal of {name} belongs to installation {found['installation']}, since {found['since']}: "
            f"{found['spaces']} spaces, {found['addresses']} addresses, {found['messages']} messages. "
            f"This installation is {found['own']}."
        )
        if not yes:
            raise UsageError("nothing was done: with --yes it belongs to this installation from now on")
        api.call("POST", f"/nodes/{name}/adopt", json={"installation": found["installation"]})
        writer.say("It belongs to this installation now; what is in it comes to be declared here.")
