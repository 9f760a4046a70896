"""Writing results: tables for people, YAML, JSON and names for programs.

Results go to standard output, everything else to standard error, so that a
command can stand in a pipe.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table


_COLOURS = {
    **dict.fromkeys(("Active", "True", "Running", "Finished"), "green"),
    **dict.fromkeys(("False", "Pending", "Waiting", "Starting", "Paused"), "yellow"),
    "Failed": "red",
}
_PIPE_WIDTH = 1000  # columns where there is no terminal: nothing is cut or wrapped


class Writer:
    """The two output streams of a command."""

    def __init__(self) -> None:
        self.out = _console(stderr=False)
        self.err = _console(stderr=True)

    def say(self, text: str) -> None:
        """Write a line of the result."""
        self.out.print(escape(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """Write something beside the result."""
        self.err.print(escape(text), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.err.print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True)

    def fail(self, text: str) -> None:
        """Write what went wrong."""
        self.err.print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a plain table; words with a meaning for readiness are coloured on a terminal."""
    from rich.table import Table  # noqa: PLC0415  most commands write lines

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        # Only the last one may be wrapped: it holds sentences.
        table.add_column(column, no_wrap=column != columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*(_coloured(cell) for cell in row))
    return table


def as_figure(value: float) -> str:
    """Return a number for people: with separators, and one decimal where that says something."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"


def as_cell(value: float | None) -> str:
    """Return a number for a table; a hyphen where there is none."""
    return "-" if value is None else as_figure(value)


def write_structured(console: Console, form: str, document: Any) -> None:
    """Write a document as ``json`` or ``yaml``."""
    if form == "json":
        text = json.dumps(document, indent=2, ensure_ascii=False)
    else:
        import yaml  # noqa: PLC0415  most commands write none

        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip("\n")
    console.print(text, markup=False, soft_wrap=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    return Console(file=stream, highlight=False, width=width, emoji=False)


def _coloured(cell: str) -> str:
    colour = _COLOURS.get(cell)
    return f"[{colour}]{cell}[/{colour}]" if colour else escape(cell)
