"""``enmasse pipeline``: run pipelines, see how far they are, and ask their tables."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.cli.manifests import read_manifests
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
from enmasse.cli.pipeline_answer import AnswerForm, write_answer
from enmasse.cli.pipeline_builtins import builtin_document, complete_builtins
from enmasse.cli.pipeline_progress import follow, show
from enmasse.cli.spaces import only_space
from enmasse.model.kinds import kind_named
from enmasse.model.positions import position_problem

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document
    from enmasse.model.kinds import Kind

__all__ = ["pipeline"]

pipeline = typer.Typer(
    no_args_is_help=True,
    help="Run pipelines over the addresses of a space, see how far they are, and query their tables.",
)

_QUERY_TIMEOUT_S = 180.0  # the API gives up before; Spark may have to start first

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the pipeline, with or without its space.")]


@pipeline.command("list")
def list_pipelines(
    space: Space = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List pipelines with their rates."""
    writer, kind = Writer(), _kind()
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        items = api.select(kind, None if all_namespaces else place)
    items = [item for item in items if space is None or item["metadata"]["name"].startswith(f"{space}.")]
    if not items and output in (Output.TABLE, Output.WIDE):
        writer.note(f"There are no pipelines{'' if all_namespaces else f' in namespace {place}'}.")
        return
    write_objects(writer, output, kind, items, with_namespace=all_namespaces)


@pipeline.command("run")
def run(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="YAML or JSON with a pipeline; - for standard input.")
    ] = None,
    builtin: Annotated[
        str | None,
        typer.Option(
            "--builtin", "-b", metavar="NAME", help="A built-in pipeline instead.", autocompletion=complete_builtins
        ),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the built-in pipeline.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Of a built-in pipeline; its own by default.")
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option("--credentials", metavar="SECRET", help="Secret with username and password of whom it runs as."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Do not wait to see how it goes.")] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Look so long; 0: until Ctrl-C.")
    ] = 0,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Declare a pipeline, from a file or a built-in one, and see how it goes.

    Ctrl-C ends the looking; the pipeline goes on.
    """
    if (file is None) == (builtin is None):
        raise UsageError("name either a FILE with a pipeline, or a built-in one with --builtin")
    if builtin is None and (settings or name or secret or space):
        raise UsageError("--set, --name, --credentials and --space are for --builtin: a file says all that itself")
    writer, kind = Writer(), _kind()
    with ApiClient.find(data, warn=writer.warn) as api:
        if builtin is not None:
            place = namespace or kind.default_namespace
            space = space or only_space(api, place)
            documents = [builtin_document(builtin, settings or [], f"{space}.{name or builtin}", place, secret)]
        else:
            assert file is not None
            documents = [resource.to_dict() for resource in read_manifests([file], namespace)]
        results = api.apply_all(documents)
        for item, done in results:
            writer.note(f"{object_label(item)} {done}")
        found = [item for item, _ in results if item["kind"] == kind.name]
        if not found:
            raise UsageError(f"there is no pipeline in {file}, only {', '.join(object_label(i) for i, _ in results)}")
        if detach or len(found) > 1:
            return
        metadata = found[0]["metadata"]
        follow(writer, lambda: api.get(kind, metadata["namespace"], metadata["name"]), seconds=seconds)


@pipeline.command("status")
def status(
    name: Name,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until it has finished, or Ctrl-C.")] = False,
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show how far a pipeline is: its queries with rows, rates, lag, watermark and errors."""
    writer, kind = Writer(), _kind()
    with ApiClient.find(data, warn=writer.warn) as api:
        found = _find(api, name, space, namespace)
        if output is not StructuredOutput.TABLE:
            write_structured(writer.out, output.value, found.get("status") or {})
        elif watch:
            metadata = found["metadata"]
            follow(writer, lambda: api.get(kind, metadata["namespace"], metadata["name"]))
        else:
            writer.out.print(show(found))


@pipeline.command("logs")
def logs(
    name: Name,
    follow_on: Annotated[bool, typer.Option("--follow", "-f", help="Go on with lines as they come.")] = False,
    lines: Annotated[int, typer.Option("--lines", metavar="N", min=0, help="How many lines of the past.")] = 100,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what a pipeline's runner has said about it."""
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        metadata = _find(api, name, space, namespace)["metadata"]
        path = f"{_kind().base_path()}/namespaces/{metadata['namespace']}/pipelines/{metadata['name']}/log"
        for line in api.lines(path, {"tail": str(lines), "follow": str(follow_on).lower()}):
            writer.say(line)


@pipeline.command("pause")
def pause(name: Name, space: Space = None, namespace: Namespace = None, data: Data = DEFAULT_DATA) -> None:
    """Have a pipeline rest; it keeps its place."""
    _change(name, space, namespace, data, {"paused": True}, "paused")


@pipeline.command("resume")
def resume(name: Name, space: Space = None, namespace: Namespace = None, data: Data = DEFAULT_DATA) -> None:
    """Have a pipeline go on where it was."""
    _change(name, space, namespace, data, {"paused": None}, "goes on")


@pipeline.command("restart")
def restart(
    name: Name,
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


@pipeline.command("query")
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT in Spark's SQL; - for standard input.")],
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Rows at most.")] = 1000,
    secret: Annotated[
        str | None,
        typer.Option("--credentials", metavar="SECRET", help="Secret with username and password of whom to read as."),
    ] = None,
    space: Space = None,
    namespace: Namespace = None,
    output: Annotated[AnswerForm, typer.Option("--output", "-o", help="Form of the answer.")] = AnswerForm.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Ask the tables and addresses of a space with SQL.

    A table is called by its name, and so is an address; one with other characters stands in backticks.
    """
    writer, kind = Writer(), _kind()
    place = namespace or kind.default_namespace
    text = sys.stdin.read() if sql == "-" else sql
    with ApiClient.find(data, warn=writer.warn) as api:
        space = space or only_space(api, place)
        asked: dict[str, Any] = {"sql": text, "limit": limit} | ({"credentialsSecret": secret} if secret else {})
        path = f"{kind.base_path()}/namespaces/{place}/addressspaces/{space}/query"
        with writer.err.status("asking ..."):
            answer = api.call("POST", path, json=asked, timeout=_QUERY_TIMEOUT_S)
    write_answer(writer, output, answer)


def _kind() -> Kind:
    kind = kind_named("pipeline")
    assert kind is not None
    return kind


def _change(name: str, space: str | None, namespace: str | None, data: Data, spec: dict[str, Any], done: str) -> None:
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        changed = api.merge(_find(api, name, space, namespace), {"spec": spec})
    writer.say(f"{object_label(changed)} {done}")


def _find(api: ApiClient, name: str, space: str | None, namespace: str | None) -> Document:
    """Return the pipeline that a user means.

    Raises:
        NotFoundError: there is none.
        UsageError: there are several.
    """
    kind = _kind()
    place = namespace or kind.default_namespace
    if "." in name and (exact := api.find_object(kind, place, name)) is not None:
        return exact
    items = api.select(kind, place)
    ours = [item for item in items if space is None or item["metadata"]["name"].startswith(f"{space}.")]
    found = [item for item in ours if item["metadata"]["name"].partition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(item["metadata"]["name"] for item in (found or items)[:10])
    if found:
        raise UsageError(f"pipeline {name} exists in several spaces: name one with --space, or give one of {names}")
    there = f"there are {names}" if names else "there is none at all"
    raise NotFoundError(f"there is no pipeline '{name}' in namespace {place}; {there}")
