"""``enmasse pipeline query`` and ``tables``: what SQL answers about a space, and the tables that it may ask."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.charts import AnswerForm, write_answer, write_file
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, as_cell, make_table, write_structured
from enmasse.cli.targets import find_space
from enmasse.model.schema.kinds import PIPELINE

_PARQUET: Final = "application/vnd.apache.parquet"
QUERY_TIMEOUT_S: Final = 180.0  # the API gives up before; Spark may have to start first


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="A SELECT, SHOW TABLES or DESCRIBE; - for standard input.")
    ],
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
        space = find_space(api, place, space)
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
        space = find_space(api, place, space)
        path = f"{kind.base_path()}/namespaces/{place}/addressspaces/{space}/tables"
        with writer.err.status("asking ..."):
            answer = api.call("GET", path, timeout=QUERY_TIMEOUT_S)
    heads = [column["name"] for column in answer["columns"]]
    found = [dict(zip(heads, row, strict=True)) for row in answer["rows"]]
    if output is not StructuredOutput.TABLE:
        write_structured(writer, output.value, found)
        return
    if not found:
        writer.note(f"Space {space} has no table yet: a pipeline makes those that it writes.")
        return
    shown = [
        [
            row["table"],
            row["format"] or "-",
            *[as_cell(row[head]) for head in ("rows", "files", "bytes")],
            ", ".join(f"{it['name']} {it['type']}" for it in row["columns"] or ()),
        ]
        for row in found
    ]
    writer.out.print(make_table(("TABLE", "FORMAT", "ROWS", "FILES", "BYTES", "COLUMNS"), shown))
