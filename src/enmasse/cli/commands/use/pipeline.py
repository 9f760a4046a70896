"""``enmasse pipeline``: run pipelines, see how far they are, and ask their tables.

A built-in pipeline is made from words of the command line: parameters by name, read as their types say. The progress
of a pipeline is a table on a terminal, and lines elsewhere.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from enmasse.cli.api_client import ApiClient
from enmasse.cli.charts import AnswerForm, write_answer, write_file
from enmasse.cli.commands.use.pipeline_backfill import backfill
from enmasse.cli.commands.use.pipeline_spark import spark_ui
from enmasse.cli.commands.use.pipeline_tryout import check, test
from enmasse.cli.commands.use.replay import replay
from enmasse.cli.errors import UsageError
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
from enmasse.cli.output import Writer, make_table, write_structured
from enmasse.cli.targets import PipelineName, find_pipeline, only_space
from enmasse.model.kinds.builtins import BUILTINS
from enmasse.model.kinds.sources import position_problem
from enmasse.model.schema.kinds import PIPELINE
from enmasse.model.schema.objects import decode
from enmasse.model.schema.openapi import structural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import RenderableType

    from enmasse.cli.api_client import Document

pipeline = typer.Typer(
    no_args_is_help=True,
    help="Run pipelines over the addresses of a space, see how far they are, and query their tables.",
)

pipeline.command("replay")(replay)
pipeline.command("check")(check)
pipeline.command("test")(test)
pipeline.command("ui")(spark_ui)
pipeline.command("backfill")(backfill)

_PARQUET = "application/vnd.apache.parquet"
QUERY_TIMEOUT_S = 180.0  # the API gives up before; Spark may have to start first


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
        typer.Option("--credentials", metavar="SECRET", help="Secret with the credentials of whom it runs as."),
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
    writer, kind = Writer(), PIPELINE
    with ApiClient.find(data, warn=writer.warn) as api:
        if builtin is not None:
            place = namespace or kind.default_namespace
            space = space or only_space(api, place)
            documents = [builtin_document(builtin, settings or [], f"{space}.{name or builtin}", place, secret)]
            refuse_another(api.find_present(documents).values(), documents[0], builtin)
        else:
            assert file is not None
            documents = [resource.to_dict() for resource in read_manifests([file], namespace)]
        results = api.apply_all(documents, api.find_present(documents))
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
            write_structured(writer.out, output.value, found.get("status") or {})
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
            writer.say(line)


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


@pipeline.command("query")
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT in Spark's SQL; - for standard input.")],
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="Rows at most.")] = 1000,
    secret: Annotated[
        str | None,
        typer.Option("--credentials", metavar="SECRET", help="Secret with the credentials of whom to read as."),
    ] = None,
    space: Space = None,
    namespace: Namespace = None,
    output: Annotated[AnswerForm, typer.Option("--output", "-o", help="Form of the answer.")] = AnswerForm.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Ask the tables and addresses of a space with SQL.

    A table is called by its name, and so is an address; one with other characters stands in backticks.
    """
    writer, kind = Writer(), PIPELINE
    place = namespace or kind.default_namespace
    text = sys.stdin.read() if sql == "-" else sql
    with ApiClient.find(data, warn=writer.warn) as api:
        space = space or only_space(api, place)
        asked: dict[str, Any] = {"sql": text, "limit": limit} | ({"credentialsSecret": secret} if secret else {})
        path = f"{kind.base_path()}/namespaces/{place}/addressspaces/{space}/query"
        with writer.err.status("asking ..."):
            if output is AnswerForm.PARQUET:
                content = api.content("POST", path, accept=_PARQUET, json=asked, timeout=QUERY_TIMEOUT_S)
            else:
                answer = api.call("POST", path, json=asked, timeout=QUERY_TIMEOUT_S)
    if output is AnswerForm.PARQUET:
        write_file(content)
    else:
        write_answer(writer, output, answer)


@pipeline.command("tables")
def tables(
    space: Space = None,
    namespace: Namespace = None,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List the tables of a space's lake with their formats, rows, files, bytes and columns."""
    writer, kind = Writer(), PIPELINE
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        space = space or only_space(api, place)
        path = f"{kind.base_path()}/namespaces/{place}/addressspaces/{space}/tables"
        with writer.err.status("asking ..."):
            answer = api.call("GET", path, timeout=QUERY_TIMEOUT_S)
    heads = [column["name"] for column in answer["columns"]]
    found = [dict(zip(heads, row, strict=True)) for row in answer["rows"]]
    if output is not StructuredOutput.TABLE:
        write_structured(writer.out, output.value, found)
        return
    if not found:
        writer.note(f"Space {space} has no table yet: a pipeline makes those that it writes.")
        return
    shown = [
        [
            row["table"],
            row["format"] or "-",
            *[_cell(row[head]) for head in ("rows", "files", "bytes")],
            ", ".join(f"{it['name']} {it['type']}" for it in row["columns"] or ()),
        ]
        for row in found
    ]
    writer.out.print(make_table(("TABLE", "FORMAT", "ROWS", "FILES", "BYTES", "COLUMNS"), shown))


def _change(name: str, space: str | None, namespace: str | None, data: Data, spec: dict[str, Any], done: str) -> None:
    writer = Writer()
    with ApiClient.find(data, warn=writer.warn) as api:
        changed = api.merge(find_pipeline(api, name, space, namespace), {"spec": spec})
    writer.say(f"{object_label(changed)} {done}")


def complete_builtins(incomplete: str) -> list[str]:
    """Return the built-in pipelines that begin so."""
    return [name for name in BUILTINS if name.startswith(incomplete)]


def refuse_another(present: Iterable[Document], wanted: Document, builtin: str) -> None:
    """Refuse to put a built-in pipeline in the place of something else of its name."""
    name = wanted["metadata"]["name"]
    for found in present:
        held = (found["spec"].get("builtin") or {}).get("name")
        if found["metadata"]["name"] == name and held != builtin:
            what = f"the built-in pipeline '{held}'" if held else "a pipeline of your own"
            raise UsageError(f"pipeline {name} is there, and is {what}: choose another --name, or delete it")


def builtin_document(
    builtin: str, settings: Sequence[str], name: str, namespace: str, secret: str | None = None
) -> Document:
    """Return the declaration of a built-in pipeline.

    Args:
        builtin: which one.
        settings: ``key=value`` for each parameter.
        name: of the pipeline, with its space.
        namespace: where it lies.
        secret: of whom it runs as.

    Raises:
        UsageError: there is no such pipeline or parameter, or a value is none.
        InvalidResourceError: the parameters do not fit together.
    """
    if builtin not in BUILTINS:
        known = ", ".join(f"{key} ({kind.does})" for key, kind in BUILTINS.items())
        raise UsageError(f"there is no built-in pipeline '{builtin}'; there are {known}")
    spec: Document = {"builtin": {"name": builtin, "parameters": _parameters(builtin, settings)}}
    document = {
        "apiVersion": PIPELINE.api_version,
        "kind": PIPELINE.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec | ({"credentialsSecret": secret} if secret else {}),
    }
    return decode(document).to_dict()


def _parameters(builtin: str, settings: Sequence[str]) -> Document:
    known = structural(BUILTINS[builtin])["properties"]
    found: Document = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not '{setting}'")
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"--set {key}: {builtin} has no such parameter; {hint}")
        found[key] = _value(key, text, str(known[key].get("type", "")))
    return found


def _value(key: str, text: str, kind: str) -> Any:
    """Return what a text means for a parameter of a type; lists may be given by commas."""
    if kind == "string":
        return text
    if kind == "array" and not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        return json.loads(text)
    except ValueError:
        expected = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "array": "a list"}
        raise UsageError(f"--set {key}: expected {expected.get(kind, 'JSON')}, got '{text}'") from None


_POLL_S: Final = 1.0
"""Runners report once a second at most."""

_HEADS: Final = ("QUERY", "STATE", "BATCH", "ROWS", "ROWS/S", "LAG", "LATE BY", "STATE ROWS", "BAD", "ERROR")
_ENDED: Final = ("Finished",)


def follow(writer: Writer, read: Callable[[], Document], *, seconds: float = 0) -> Document:
    """Show a pipeline until it has finished, the time is over, or Ctrl-C is pressed.

    Args:
        writer: where to.
        read: returns the pipeline as it is now.
        seconds: how long; 0: without end.

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
