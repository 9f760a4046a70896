"""``enmasse pipeline``: list pipelines, see how far they are, stop and start them.

Its longer commands have files of their own beside this one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.commands.use.pipeline_backfill import backfill
from enmasse.cli.commands.use.pipeline_progress import follow, show
from enmasse.cli.commands.use.pipeline_query import query, tables
from enmasse.cli.commands.use.pipeline_run import run
from enmasse.cli.commands.use.pipeline_tryout import check, test
from enmasse.cli.commands.use.replay import replay
from enmasse.cli.errors import UsageError
from enmasse.cli.objects import object_label, write_objects
from enmasse.cli.options import (
    DEFAULT_DATA,
    AllNamespaces,
    Data,
    Namespace,
    Output,
    OutputChoice,
    Space,
    StructuredChoice,
    StructuredOutput,
)
from enmasse.cli.output import Writer, write_structured
from enmasse.cli.targets import PipelineName, find_pipeline, find_space, is_in
from enmasse.model.kinds.pipelines.sources import position_problem
from enmasse.model.schema.kinds import PIPELINE

pipeline = typer.Typer(
    no_args_is_help=True,
    help="Run pipelines over the addresses of a space, see how far they are, and query their tables.",
)

pipeline.command("run")(run)
pipeline.command("check")(check)
pipeline.command("test")(test)
pipeline.command("backfill")(backfill)
pipeline.command("replay")(replay)
pipeline.command("query")(query)
pipeline.command("tables")(tables)


@pipeline.command("list")
def list_pipelines(
    space: Space = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List pipelines with their rates."""
    writer, kind = Writer(), PIPELINE
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        items = [item for item in api.select(kind, None if all_namespaces else place) if is_in(item, space)]
        if space is not None and not items and not all_namespaces:
            find_space(api, place, space)
    if not items and output in (Output.TABLE, Output.WIDE):
        writer.note(f"There are no pipelines{'' if all_namespaces else f' in namespace {place}'}.")
        return
    write_objects(writer, output, kind, items, with_namespace=all_namespaces)


@pipeline.command("status")
def status(
    name: PipelineName,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until it has finished, or Ctrl-C.")] = False,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show how far a pipeline is: its queries with rows, rates, lag, watermark and errors."""
    writer, kind = Writer(), PIPELINE
    with ApiClient.find(data, warn=writer.warn) as api:
        found = find_pipeline(api, name, space, namespace)
        if output is not StructuredOutput.TABLE:
            write_structured(writer, output.value, found.get("status") or {})
        elif watch:
            metadata = found["metadata"]
            follow(writer, lambda: api.get(kind, metadata["namespace"], metadata["name"]))
        else:
            writer.out.print(show(found))


@pipeline.command("logs")
def logs(
    name: PipelineName,
    follow_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on with lines as they come.")] = False,
    lines: Annotated[int, typer.Option("--lines", metavar="N", min=0, help="How many lines of the past.")] = 100,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what a pipeline's runner has logged about it."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        metadata = find_pipeline(api, name, space, namespace)["metadata"]
        path = f"{PIPELINE.base_path()}/namespaces/{metadata['namespace']}/pipelines/{metadata['name']}/log"
        for line in api.lines(path, {"tail": str(lines), "follow": str(follow_on).lower()}):
            writer.say_line(line)


@pipeline.command("pause")
def pause(name: PipelineName, space: Space = None, namespace: Namespace = None, data: Data = DEFAULT_DATA) -> None:
    """Have a pipeline rest; it keeps its place."""
    _change(name, space, namespace, data, {"paused": True}, "paused")


@pipeline.command("resume")
def resume(name: PipelineName, space: Space = None, namespace: Namespace = None, data: Data = DEFAULT_DATA) -> None:
    """Have a pipeline go on where it was."""
    _change(name, space, namespace, data, {"paused": None}, "goes on")


@pipeline.command("restart")
def restart(
    name: PipelineName,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help='earliest, latest, a moment such as 2026-01-31T12:00:00Z, or JSON such as {"0": 120}; '
            "where it was by default.",
        ),
    ] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Start a pipeline again, from where it was or from another point.

    From another point its state begins anew, and rows that are read again are written again.
    """
    if start is not None and (problem := position_problem(start)):
        raise UsageError(f"--from: {problem}")
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    _change(name, space, namespace, data, {"restart": {"at": at, "from": start}, "paused": None}, "starts again")


@pipeline.command("ui")
def spark_ui(name: PipelineName, space: Space = None, namespace: Namespace = None, data: Data = DEFAULT_DATA) -> None:
    """Print the address at which a browser finds Spark's pages of the session that a pipeline runs in.

    Whoever has the address sees the pages, for half an hour after the last look and as long as your login lasts. The
    space has to show them: spec.spark.ui.
    """
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        metadata = find_pipeline(api, name, space, namespace)["metadata"]
        writer.say(
            api.place(f"{PIPELINE.base_path()}/namespaces/{metadata['namespace']}/pipelines/{metadata['name']}/ui")
        )


def _change(name: str, space: str | None, namespace: str | None, data: Data, spec: dict[str, Any], done: str) -> None:
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        changed = api.merge(find_pipeline(api, name, space, namespace), {"spec": spec})
    writer.say(f"{object_label(changed)} {done}")
