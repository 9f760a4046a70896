"""``enmasse model``: the versions of a space's models, their quality, and which ones count."""

from __future__ import annotations

from typing import Annotated

import typer

from enmasse.cli.charts import AnswerForm, write_answer
from enmasse.cli.commands.use.table import Output, ask_space
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer

model = typer.Typer(no_args_is_help=True, help="The versions of a space's models: list them, roll back.")

_MOST = 1000


@model.command("list")
def list_models(
    space: Space = None,
    namespace: Namespace = None,
    output: Output = AnswerForm.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List the versions of all models, the newest first, with what was measured with rows that were held back."""
    if output is AnswerForm.PARQUET:
        raise UsageError("expected a form other than parquet")
    asked = {"sql": "SELECT * FROM `models:` ORDER BY model, version DESC", "limit": _MOST}
    write_answer(Writer(), output, ask_space("query", asked, space, namespace, data))


@model.command("rollback")
def rollback(
    name: Annotated[str, typer.Argument(metavar="MODEL")],
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="Which one; by default the one before.")
    ] = None,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Have another version of a model count; pipelines that score take it with their next batch."""
    if "/" in name:
        raise UsageError(f"expected the name of a model, got '{name}'")
    answer = ask_space(f"models/{name}/rollback", {"version": version} if version else {}, space, namespace, data)
    Writer().say(f"model {name}: {answer['rows'][0][0]}")
