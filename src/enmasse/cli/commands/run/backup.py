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
from enmasse.drivers.pipelines_folder import OPTION
from enmasse.pipeline.backup.snapshot import PipelinesPart


def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A directory that is absent or empty.")],
    data: Data = DEFAULT_DATA,
) -> None:
    """Copy an installation, also while it runs: objects, accounts, certificates, messages, pipelines and tables.

    What is in it and what is left out is printed. Private keys are in it, so keep it to yourself. The exit code is 1
    if something stored is damaged; it was named then, and left out.
    """
    writer = Writer()
    outcome = back_up(Layout(data), target, PipelinesPart(), writer.note)
    writer.say(f"{data} is in {target}")
    for text in outcome.held:
        writer.say_line(f"  holds {text}")
    for text in outcome.left_out:
        writer.say_line(f"  leaves out {text}")
    if not outcome.is_sound:
        raise typer.Exit(FAILED)


def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `enmasse backup` has made.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the installation that is there.")] = False,
    pipelines_folder: Annotated[
        Path | None,
        typer.Option(OPTION, metavar="DIR", help="Where tables and checkpoints go; by default below DATA."),
    ] = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Make a backup an installation, in which nothing may be running.

    Pipelines whose tables or receivers are elsewhere wait for `enmasse pipeline restart --from`; they are named.
    """
    writer = Writer()
    outcome = restore_backup(source, Layout(data), PipelinesPart(), writer.note, force=force, folder=pipelines_folder)
    option = f" {OPTION} {pipelines_folder}" if pipelines_folder is not None else ""
    writer.say(f"{source} is in {data} again; start it with `enmasse up --data {data}{option}`")
    for text in outcome.left_out:
        writer.say_line(f"  is without {text}")
    for text in outcome.waiting:
        writer.say_line(f"  {text}")
    if not outcome.is_sound:
        raise typer.Exit(FAILED)
