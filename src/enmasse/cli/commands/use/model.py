"""``enmasse model``: the versions of a space's models, their quality, and which ones count."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

import typer

from enmasse.cli.charts import AnswerForm, write_answer
from enmasse.cli.commands.use.model_file import as_onnx, read_features
from enmasse.cli.commands.use.table import Output, ask_space
from enmasse.cli.errors import UsageError
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.model.kinds.pipelines.relations import table_problem

model = typer.Typer(no_args_is_help=True, help="The versions of a space's models: list, import, roll back.")

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


@model.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".onnx, or of scikit-learn .skops, .joblib or .pkl.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="MODEL", help="What it is called; by default as the file.")
    ] = None,
    features: Annotated[
        str,
        typer.Option(
            "--features",
            metavar="NAME[:TYPE][,...]",
            help="What it takes, in order; of scikit-learn with types, float (the default), string or int.",
        ),
    ] = "",
    output: Annotated[
        str | None, typer.Option("--output-name", metavar="NAME", help="Of ONNX: which output; by default the first.")
    ] = None,
    held_back: Annotated[
        str | None,
        typer.Option("--held-back", metavar="TABLE", help="A table that it was not trained with, to measure it."),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", metavar="COLUMN", help="Of that table: the column with what is right.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load a pickle, which runs as code, here and as you.")
    ] = False,
    space: Space = None,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Import a model as a new version, which counts; steps call it in SQL as model_NAME(features).

    Of a model of scikit-learn, ONNX is made on this machine: the platform never loads a pickle.
    """
    called = name if name is not None else file.stem.lower().replace("-", "_")
    if (problem := table_problem(called)) is not None:
        raise UsageError(f"--name: {problem}")
    if (held_back is None) != (target is None):
        raise UsageError("--held-back TABLE and --target COLUMN go together")
    content, named = as_onnx(file, read_features(features), trust=trust)
    asked = {"features": ",".join(named)} | ({"output": output} if output else {})
    if held_back is not None and target is not None:
        asked |= {"heldBack": held_back, "target": target}
    answer = ask_space(f"models/{called}/import?{urlencode(asked)}", content, space, namespace, data)
    Writer().say(f"model {called}: {answer['rows'][0][0]}")


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
