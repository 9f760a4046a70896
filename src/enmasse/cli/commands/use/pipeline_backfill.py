"""``enmasse pipeline backfill``: a pipeline computes partitions of its table again."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import CliError, UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.targets import PipelineName, find_pipeline
from enmasse.model.schema.kinds import PIPELINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.cli.api_client import Document

_POLL_S: Final = 0.5


def backfill(
    name: PipelineName,
    start: Annotated[
        str | None, typer.Option("--from", metavar="MOMENT", help="Such as 2026-01-31T00:00:00Z; with --to.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="MOMENT", help="The time ends before it.")] = None,
    partitions: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="COLUMN=VALUE", help="Only partitions with this value."),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="Where the pipeline writes several.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait to see how it goes.")] = False,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Compute partitions of a pipeline's table again, by the pipeline as it is now, and replace them.

    All partitions that the time touches are computed as a whole, from the messages that the stream keeps. The
    pipeline goes on meanwhile, and the table changes at once when all is done. Ctrl-C ends the looking only.
    """
    values = dict(_pair(text) for text in partitions or ())
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    writer, kind = Writer(), PIPELINE
    with ApiClient.find(data, warn=writer.warn) as api:
        found = find_pipeline(api, name, space, namespace)
        if found["spec"].get("paused"):
            called = found["metadata"]["name"]
            raise UsageError(f"pipeline {called} is paused, and computes nothing: `enmasse pipeline resume {called}`")
        former = (found["spec"].get("backfill") or {}).get("partitions") or {}
        # What is not named would be left as it was.
        chosen: dict[str, str | None] = {**dict.fromkeys(former), **values}
        wanted = {"at": at, "table": table, "from": start, "to": end, "partitions": chosen if values else None}
        changed = api.merge(found, {"spec": {"backfill": wanted}})
        metadata = changed["metadata"]
        if detach:
            writer.say(f"backfill {at} of {metadata['name']} is asked for")
            return
        try:
            _follow(writer, lambda: api.get(kind, metadata["namespace"], metadata["name"]), at)
        except KeyboardInterrupt:
            writer.note(
                f"the backfill goes on; `enmasse get pipeline {metadata['name']} -o yaml` shows how far it is"
            )


def _pair(text: str) -> tuple[str, str]:
    column, separator, value = text.partition("=")
    if not (column and separator):
        raise UsageError(f"--partition: expected COLUMN=VALUE, such as site=north, got '{text}'")
    return column, value


def _follow(writer: Writer, read: Callable[[], Document], at: str) -> None:
    """Write how far a backfill is, until it is done.

    Raises:
        CliError: it is refused.
    """
    written = ""
    while True:
        found: Document = (read().get("status") or {}).get("backfill") or {}
        if found.get("at") == at:
            if found["state"] == "Refused":
                raise CliError(found.get("message") or "it is refused")
            if (line := progress_line(found)) != written:
                writer.say(line)
                written = line
            if found["state"] == "Done":
                return
        time.sleep(_POLL_S)


def progress_line(backfill: Document) -> str:
    """Return a line about how far a backfill is."""
    table = backfill.get("table") or "the table"
    if backfill["state"] == "Done":
        if backfill.get("rows") is None:
            return f"{table}: done"
        return (
            f"{table}: {backfill['rows']:,} rows replaced {backfill['rowsBefore']:,} in {backfill['partitions']:,} "
            "partitions"
        )
    parts = f", {backfill['tasksDone']:,} of {backfill['tasks']:,} parts done" if backfill.get("tasks") else ""
    why = f": {backfill['message']}" if backfill.get("message") else ""
    return f"{table}: {backfill['state'].lower()}{parts}{why}"
