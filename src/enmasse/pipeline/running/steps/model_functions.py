"""Models as functions of SQL: ``model_pumps(load, speed)`` is what the model ``pumps`` predicts.

Which version counts is looked up for every few thousand rows, so that a new one, or a rollback, is used with the next
micro-batch. The type of what a model gives is that of the version that counts when the query starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import Array

from enmasse.model.sql.functions import MODEL_PREFIX, model_calls
from enmasse.pipeline.builtin.models import AnyModel, Models
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

_read: dict[Path, AnyModel] = {}
"""The newest version of each model that this process predicted with."""


def model_functions(models: Path, texts: Iterable[str]) -> dict[str, UserDefinedFunctionLike]:
    """Return the functions of the models that texts of SQL call, by name.

    Args:
        models: the folder with a folder for each model.
        texts: queries.

    Raises:
        ModelMissingError: there is no such model yet.
    """
    names = sorted({name for text in texts for name in model_calls(text)})
    return {name: _udf(models / name.removeprefix(MODEL_PREFIX)) for name in names}


def _udf(folder: Path) -> UserDefinedFunctionLike:
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415  # loaded when the session was made

    model = current(folder)
    found: UserDefinedFunctionLike = arrow_udf(predicting(folder, model.returns), model.returns)  # type: ignore[call-overload]  # the stubs have another one
    return found


def current(folder: Path) -> AnyModel:
    """Return the version of a model that counts.

    Raises:
        ModelMissingError: there is none.
    """
    models = Models(folder)
    version = models.current()
    known = _read.get(folder)
    if known is None or known.version != version:
        known = _read[folder] = models.read(version)
    return known


def predicting(folder: Path, returns: str) -> Any:
    """Return what Spark calls with a column of Arrow for each feature.

    Args:
        folder: ``models/<name>``.
        returns: the type of what it gives.
    """

    def given(*columns: Array) -> Array:
        settle()
        model = current(folder)
        if len(columns) != len(model.features):
            expected = f"{MODEL_PREFIX}{model.name}({', '.join(model.features)})"
            raise PlanError(
                f"expected {expected}, as version {model.version} takes them, got {len(columns)} arguments"
            )
        if model.returns != returns:
            raise PlanError(
                f"model {model.name}: version {model.version} gives {model.returns}, and the one before gave "
                f"{returns}: restart the pipeline"
            )
        return model.predictions(folder / model.version, columns)

    given.__annotations__ = {"columns": Array, "return": Array}  # as Spark reads them
    return given
