"""How far a pipeline is, as a table that a person watches, or as lines where nobody looks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from enmasse.cli.output import make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from enmasse.cli.output import Writer

__all__ = ["follow", "show", "summary"]

Document = dict[str, Any]

LOOK_S: Final = 1.0
"""Runners report once a second at most."""

_HEADS: Final = ("QUERY", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "LATE BY", "STATE ROWS", "BAD", "ERROR")
_ENDED: Final = ("Finished",)


def follow(writer: Writer, look: Callable[[], Document], *, seconds: float = 0) -> Document:
    """Show a pipeline until it has finished, the time is over, or somebody presses Ctrl-C.

    Args:
        writer: where to.
        look: gives the pipeline as it is now.
        seconds: how long; 0: without end.

    Returns:
        The pipeline as it was seen last.
    """
    deadline = time.monotonic() + seconds if seconds else float("inf")
    found = look()
    try:
        if writer.out.is_terminal:
            with Live(show(found), console=writer.out, auto_refresh=False) as live:
                while not _is_over(found) and time.monotonic() < deadline:
                    time.sleep(LOOK_S)
                    found = look()
                    live.update(show(found), refresh=True)
            return found
        told = ""
        while True:
            if (line := summary(found)) != told:
                writer.say(line)
                told = line
            if _is_over(found) or time.monotonic() >= deadline:
                return found
            time.sleep(min(LOOK_S, max(0.0, deadline - time.monotonic())))
            found = look()
    except KeyboardInterrupt:
        writer.note(f"{found['metadata']['name']} goes on; `enmasse pipeline pause` stops it")
        return found


def show(found: Document) -> RenderableType:
    """Return a pipeline's state: a line, what it waits for, and a table of its queries."""
    status = found.get("status") or {}
    parts: list[RenderableType] = [Text(summary(found), style="bold")]
    parts += [Text(f"  {message}", style="yellow") for message in status.get("messages", ())]
    parts += [Text(f"  {warning}", style="dim") for warning in status.get("warnings", ())]
    rows = [_row(query) for query in status.get("queries", ())]
    if rows:
        parts.append(make_table(_HEADS, rows))
    return Group(*parts)


def summary(found: Document) -> str:
    """Return one line: name, phase, and figures over all queries."""
    status = found.get("status") or {}
    facts = [f"{found['metadata']['name']}: {status.get('phase', 'Pending')}"]
    if status.get("queries"):
        facts.append(f"{status.get('rows', 0):,} rows")
    facts += [f"{_figure(status['rate'])} rows/s"] if status.get("rate") is not None else []
    facts += [f"lag {status['lag']:,}"] if status.get("lag") is not None else []
    facts += [f"last error: {status['lastError']}"] if status.get("lastError") else []
    return ", ".join(facts)


def _row(query: Document) -> list[str]:
    cells: Iterator[str] = map(
        _cell,
        (
            query.get("batch"),
            query.get("rows"),
            query.get("inputRowsPerSecond"),
            query.get("lag"),
        ),
    )
    delay = query.get("watermarkDelayMs")
    return [
        query["name"],
        query.get("state", "Starting"),
        *cells,
        "-" if delay is None else f"{delay / 1000:,.1f}s",
        _cell(query.get("stateRows")),
        _cell(query.get("badRecords")),
        query.get("error") or "",
    ]


def _cell(value: float | None) -> str:
    return "-" if value is None else _figure(value)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"


def _is_over(found: Document) -> bool:
    return (found.get("status") or {}).get("phase") in _ENDED
