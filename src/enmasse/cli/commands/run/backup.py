"""``enmasse backup`` and ``enmasse restore``: a whole installation, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from enmasse.cli.errors import FAILED
from enmasse.cli.options import DEFAULT_DATA, Data
from enmasse.cli.output import Writer
from enmasse.drivers.backup import back_up
from enmasse.drivers.backup import restore as restore_backup
from enmasse.drivers.data_directory import Layout


def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory that is absent or empty.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Copy all of an installation, also while it runs: objects, accounts, certificates, messages.

    Private keys are in it, so keep it to yourself. The exit code is 1 if something stored is damaged; it was
    named then, and left out.
    """
    writer = Writer()
    is_sound = back_up(Layout(data), target, writer.note)
    writer.say(f"{data} is in {target}")
    if not is_sound:
        raise typer.Exit(FAILED)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `enmasse backup` has made.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the installation that is there.")] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a backup an installation, in which nothing may be running."""
    writer = Writer()
    is_sound = restore_backup(source, Layout(data), writer.note, force=force)
    writer.say(f"{source} is in {data} again; start it with `enmasse up --data {data}`")
    if not is_sound:
        raise typer.Exit(FAILED)
