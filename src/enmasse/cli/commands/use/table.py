"""``enmasse table``: the tables of a space's lake, their versions, and what is done to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.charts import AnswerForm, write_answer
from enmasse.cli.commands.use.pipeline_query import QUERY_TIMEOUT_S, tables
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.targets import find_space
from enmasse.model.schema.kinds import ADDRESS_SPACE

if TYPE_CHECKING:
    from pathlib import Path

table = typer.Typer(no_args_is_help=True, help="The tables of a space's lake: list, look back, compact, restore.")
table.command("list")(tables)

Name = Annotated[str, typer.Argument(metavar="TABLE", help="Of the lake.")]
Output = Annotated[AnswerForm, typer.Option("--output", "-o", help="Form of the answer.")]
_STATISTICS: Final = "SELECT * FROM `statistics:{}`"
_MAX_COLUMNS: Final = 1000
_HISTORY: Final = "SELECT * FROM `history:{}` ORDER BY version DESC"


@table.command("history")
def history(
    name: Name,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Versions at most.")] = 20,
    space: Space = None,
    namespace: Namespace = None,
    output: Output = AnswerForm.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the versions of a table, the newest first."""
    _show(name, _HISTORY, limit, output, space, namespace, data)


@table.command("describe")
def describe(
    name: Name,
    space: Space = None,
    namespace: Namespace = None,
    output: Output = AnswerForm.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show the columns of a table, with their least and greatest values."""
    _show(name, _STATISTICS, _MAX_COLUMNS, output, space, namespace, data)


def _show(
    name: str, query: str, limit: int, output: AnswerForm, space: str | None, namespace: str | None, data: Path
) -> None:
    if "`" in name or output is AnswerForm.PARQUET:
        raise UsageError("expected the name of a table, and a form other than parquet")
    asked = {"sql": query.format(name), "limit": limit}
    write_answer(Writer(), output, ask_space("query", asked, space, namespace, data))


@table.command("optimize")
def optimize(
    name: Name,
    z_order_by: Annotated[
        str | None, typer.Option("--z-order-by", metavar="COLUMN[,COLUMN...]", help="Put rows in order by these.")
    ] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Join the small files of a table now, and delete those that no version needs."""
    columns = [column.strip() for column in (z_order_by or "").split(",") if column.strip()]
    _do(name, "optimize", {"zOrderBy": columns} if columns else {}, space, namespace, data)


@table.command("restore")
def restore(
    name: Name,
    version: Annotated[int | None, typer.Option("--version", metavar="N", min=0, help="The version.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="MOMENT", help="As it was then, RFC 3339.")] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Have a table be as it was, as a new version.

    What pipelines have written since is in it no more, and they do not write it again; what they write from now on is
    added. To bring that back restore the version before this one.
    """
    if (version is None) == (at is None):
        raise UsageError("name either a --version or a moment with --at; `enmasse table history` lists versions")
    _do(name, "restore", {"version": version} if at is None else {"at": at}, space, namespace, data)


def _do(name: str, action: str, body: dict[str, Any], space: str | None, namespace: str | None, data: Path) -> None:
    if "/" in name:
        raise UsageError(f"expected the name of a table, got '{name}'")
    answer = ask_space(f"tables/{name}/{action}", body, space, namespace, data)
    Writer().say(f"table {name}: {answer['rows'][0][0]}")


def ask_space(
    path: str, body: dict[str, Any] | bytes, space: str | None, namespace: str | None, data: Path
) -> dict[str, Any]:
    """Ask the API something about a space, with a map or a file, and return the answer."""
    sent: dict[str, Any] = {"json": body}
    if isinstance(body, bytes):
        sent = {"content": body, "headers": {"content-type": "application/octet-stream"}}
    writer, kind = Writer(), ADDRESS_SPACE
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        space = find_space(api, place, space)
        root = f"{kind.base_path()}/namespaces/{place}/addressspaces/{space}"
        with writer.err.status("asking ..."):
            found: dict[str, Any] = api.call("POST", f"{root}/{path}", timeout=QUERY_TIMEOUT_S, **sent)
    return found
