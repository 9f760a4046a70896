"""Measures an imported model with rows of a table that it was not trained with."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from enmasse.pipeline.builtin.onnx_model import OnnxModel, saved
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.lake.delta_reading import existing_delta
from enmasse.pipeline.lake.objects import LakePath

MAX_ROWS: Final = 100_000


def measured(model: OnnxModel, content: bytes, table: LakePath, target: str) -> dict[str, float]:
    """Return the quality of a model: ``rows``, and of numbers ``rmse`` and ``r2``, of anything else ``accuracy``.

    Args:
        model: the model that is to be imported.
        content: its file.
        table: a Delta table that has its features, of which up to ``MAX_ROWS`` rows with a target are taken.
        target: the column with what is right.

    Raises:
        TableSchemaError: there is no such table.
        PlanError: there is no such column, or the model does not take its rows.
    """
    dataset = existing_delta(table).to_pyarrow_dataset()
    wanted = list(dict.fromkeys([*model.features, target]))
    if missing := next((name for name in wanted if name not in dataset.schema.names), None):
        there = ", ".join(dataset.schema.names)
        raise PlanError(f"the table {table.name} has no column {missing!r}; it has {there}")
    rows = dataset.filter(pc.field(target).is_valid()).head(MAX_ROWS, columns=wanted)
    if not rows.num_rows:
        raise PlanError(f"the table {table.name} has no row with a value of {target!r}")
    with tempfile.TemporaryDirectory(prefix="enmasse-model-") as place:
        saved(content, Path(place))
        columns = [rows[name].combine_chunks() for name in model.features]
        predicted = model.predictions(Path(place), columns)
    right = rows[target].combine_chunks()
    found = {"rows": float(rows.num_rows)}
    if _is_number(predicted.type) and _is_number(right.type):
        wrong = pc.subtract(pc.cast(right, pa.float64()), pc.cast(predicted, pa.float64()))
        square = pc.mean(pc.multiply(wrong, wrong)).as_py()
        if square is None:
            raise PlanError(f"model {model.name}: it predicts nothing of the rows of table {table.name}")
        spread = pc.variance(pc.cast(right, pa.float64())).as_py()
        return found | {"rmse": square**0.5} | ({"r2": 1 - square / spread} if spread else {})
    if not (_is_number(right.type) or pa.types.is_string(right.type) or pa.types.is_boolean(right.type)):
        raise PlanError(f"the column {target!r} is {right.type}, and the model predicts {model.returns}")
    if pa.types.is_nested(predicted.type):
        raise PlanError(f"model {model.name} gives {model.returns}: name an output with one value for --output-name")
    same = pc.equal(pc.cast(right, pa.string()), pc.cast(predicted, pa.string()))
    return found | {"accuracy": pc.mean(pc.cast(pc.fill_null(same, False), pa.int8())).as_py()}


def _is_number(of: pa.DataType) -> bool:
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of))
