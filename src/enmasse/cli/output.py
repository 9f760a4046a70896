"""Writing results: tables for people, YAML, JSON and names for programs.

Rules:
1. Results go to standard output, everything else to standard error, so that a command can stand in a pipe.
2. Names, bodies and errors are of whoever has sent them. On a terminal their letters act on nothing: those that would
   are shown as codes by ``printable``. A cell or a line has no end but its own; a text keeps its line ends and tabs.
   Where there is no terminal, everything is written as it is.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from enmasse.net.logs import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment
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
        """Write a text of the result, and a line end."""
        if isinstance(self.out, _Terminal):
            self.out.print(text, soft_wrap=True, markup=False)
        else:
            # As it is: the library would leave letters out, and make spaces of tabs.
            self.out.file.write(f"{text}\n")
            self.out.file.flush()  # who reads a pipe waits for what has come, and for it before an error

    def say_line(self, text: str) -> None:
        """Write one line of the result, whatever is in it."""
        self.say(printable(text) if isinstance(self.out, _Terminal) else text)

    def say_json(self, document: Any, *, indent: int | None = None, head: str = "") -> None:
        """Write a document as JSON; on a terminal without letters that act on it.

        Args:
            document: the document that is written.
            indent: spaces for each level; None: all in one line.
            head: text before it.
        """
        text = json.dumps(document, indent=indent, ensure_ascii=False)
        if isinstance(self.out, _Terminal) and printable(text, keep="\n") != text:
            text = json.dumps(document, indent=indent)
        self.say(f"{head}{text}")

    def note(self, text: str) -> None:
        """Write something beside the result."""
        self.err.print(escape(text), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Write a warning."""
        self.err.print(f"[yellow]warning:[/yellow] {escape(text)}", soft_wrap=True)

    def fail(self, text: str) -> None:
        """Write what went wrong."""
        self.err.print(f"[red]error:[/red] {escape(text)}", soft_wrap=True)


class _Terminal(Console):
    """A console on a terminal, which strangers' letters do not act on."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a text to be rendered; it keeps its line ends and tabs."""
        return super().render_str(printable(text.replace("\r\n", "\n"), keep="\n\t"), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render one thing; a cell of a table is a line without an end of its own."""
        if isinstance(renderable, str):
            renderable = printable(renderable)
        elif isinstance(renderable, Text) and (shown := printable(renderable.plain, keep="\n\t")) != renderable.plain:
            renderable = Text(shown, renderable.style, justify=renderable.justify, end=renderable.end)
        return super().render(renderable, options)


def leave_pipe() -> None:
    """Write to nobody from now on: the reader of our output has closed it, and to write more would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_at_terminal() -> bool:
    """Return whether somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a plain table; words with a meaning for readiness are coloured on a terminal."""
    from rich.table import Table  # noqa: PLC0415  most commands write lines

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        # Only the last one may be wrapped: it holds sentences.
        table.add_column(escape(column), no_wrap=column != columns[-1], overflow="fold")
    for row in rows:
        table.add_row(*(_coloured(cell) for cell in row))
    return table


def as_figure(value: float) -> str:
    """Return a number for people: with separators, and one decimal where that says something."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"


def as_cell(value: float | None) -> str:
    """Return a number for a table; a hyphen where there is none."""
    return "-" if value is None else as_figure(value)


def write_structured(writer: Writer, form: str, document: Any) -> None:
    """Write a document as ``json`` or ``yaml``."""
    if form == "json":
        writer.say_json(document, indent=2)
        return
    import yaml  # noqa: PLC0415  most commands write none

    def dump(*, is_unicode: bool) -> str:
        text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=is_unicode)
        return text.rstrip("\n")

    text = dump(is_unicode=True)
    if isinstance(writer.out, _Terminal) and printable(text, keep="\n") != text:
        text = dump(is_unicode=False)
    writer.say(text)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_WIDTH
    found = _Terminal(file=stream, highlight=False, width=width, emoji=False)
    if stream.isatty() or found.is_terminal:
        return found
    return Console(file=stream, highlight=False, width=width, emoji=False)


def _coloured(cell: str) -> str:
    colour = _COLOURS.get(cell)
    return f"[{colour}]{cell}[/{colour}]" if colour else escape(cell)
