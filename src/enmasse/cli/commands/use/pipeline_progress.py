"""The progress of a pipeline on the command line: a table on a terminal, and lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from enmasse.cli.output import Writer, as_cell, as_figure, make_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from enmasse.cli.api_client import Document

_POLL_S: Final = 1.0
"""Runners report once a second at most."""

_HEADS: Final = (
    *("QUERY", "STATE", "BATCH", "TOOK", "ROWS", "ROWS/S", "LAG"),
    *("WATERMARK AGE", "LATE ROWS", "STATE ROWS", "BAD", "ERROR"),
)
_ENDED: Final = ("Finished",)


def follow(writer: Writer, read: Callable[[], Document], *, seconds: float = 0) -> Document:
    """Show a pipeline until it has finished, the time is over, or Ctrl-C is pressed.

    Args:
        writer: the output.
        read: returns the pipeline as it is now.
        seconds: the seconds to follow; 0: without end.

    Returns:
        The pipeline as it was seen last.
    """
    deadline = time.monotonic() + seconds if seconds else float("inf")
    found = read()
    try:
        if writer.out.is_terminal:
            with Live(show(found), console=writer.out, auto_refresh=False) as live:
                while not _is_over(found) and time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    found = read()
                    live.update(show(found), refresh=True)
            return found
        written = ""
        while True:
            if (line := summary(found)) != written:
                writer.say(line)
                written = line
            if _is_over(found) or time.monotonic() >= deadline:
                return found
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))
            found = read()
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
    drift = {
        (item["source"], item.get("field") or "the message", item["count"], item.get("example", ""))
        for query in status.get("queries", ())
        for item in query.get("drift", ())
    }
    parts += [
        Text(f"  source {source}: {count:,} did not fit by {field}, as {example}", style="yellow")
        for source, field, count, example in sorted(drift)
    ]
    failed = {
        (item["relation"], item["count"], item.get("example", ""))
        for query in status.get("queries", ())
        for item in query.get("failedRows", ())
    }
    parts += [
        Text(f"  {relation}: an expression failed for {count:,} rows, as {example}", style="yellow")
        for relation, count, example in sorted(failed)
    ]
    unmet = {
        (item["relation"], item["name"], item["failed"], item["rows"])
        for query in status.get("queries", ())
        for item in query.get("expectations", ())
        if item.get("failed")
    }
    parts += [
        Text(f"  {relation}: {failed:,} of {rows:,} rows do not meet {name}", style="yellow")
        for relation, name, failed, rows in sorted(unmet)
    ]
    joined = {
        (table["name"], table["version"], table["at"])
        for query in status.get("queries", ())
        for table in query.get("tables", ())
    }
    parts += [
        Text(f"  joins version {version} of the table {name}, found at {at}", style="dim")
        for name, version, at in sorted(joined)
    ]
    return Group(*parts)


def summary(found: Document) -> str:
    """Return one line: name, phase, and figures over all queries."""
    status = found.get("status") or {}
    facts = [f"{found['metadata']['name']}: {status.get('phase', 'Pending')}"]
    if status.get("queries"):
        facts.append(f"{status.get('rows', 0):,} rows")
    facts += [f"{as_figure(status['rate'])} rows/s"] if status.get("rate") is not None else []
    facts += [f"lag {status['lag']:,}"] if status.get("lag") is not None else []
    facts += [f"last error: {status['lastError']}"] if status.get("lastError") else []
    return ", ".join(facts)


def _row(query: Document) -> list[str]:
    took, delay = query.get("batchDurationMs"), query.get("watermarkDelayMs")
    return [
        query["name"],
        query.get("state", "Starting"),
        as_cell(query.get("batch")),
        "-" if took is None else f"{took / 1000:,.2f}s",
        as_cell(query.get("rows")),
        as_cell(query.get("inputRowsPerSecond")),
        as_cell(query.get("lag")),
        "-" if delay is None else f"{delay / 1000:,.1f}s",
        as_cell(query.get("lateRows")),
        as_cell(query.get("stateRows")),
        as_cell(query.get("badRecords")),
        query.get("error") or "",
    ]


def _is_over(found: Document) -> bool:
    return (found.get("status") or {}).get("phase") in _ENDED
