"""The features of a model as numbers: text by a number for each value, or by its place; what lacks by a usual value.

``pyspark.ml`` finds values, places and usual values where a model is trained. Scoring goes by what it found, kept in
``model.json``, and does the same without Spark.

Rules:
1. A text that was not there when the model was trained has a place of its own, behind all others; as one number
   for each value it is all zeros.
2. A feature that lacks is filled in where the model says so. A row is not scored that lacks one of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from enmasse.pipeline.errors import PlanError

if TYPE_CHECKING:
    import numpy.typing as npt

    from enmasse.model.kinds.pipelines.builtins import TrainParameters

MAX_VALUES: Final = 1_000
"""Of a feature of text: more is a name and no category."""


@dataclass(frozen=True)
class Encoder:
    """Makes numbers of features."""

    one_hot: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By feature, the texts that have a number each."""
    index: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By feature, the texts whose place is the number."""
    missing: Mapping[str, float] = field(default_factory=dict)
    """By feature, the number that one is taken for which lacks."""
    imputes: bool = False
    """True if features may lack."""

    def is_text(self, name: str) -> bool:
        """Return whether a feature is text, and not a number."""
        return name in self.one_hot or name in self.index

    def encoded(self, names: Sequence[str], columns: Sequence[Sequence[Any]]) -> npt.NDArray[np.float64]:
        """Return a row of numbers for each row; what lacks and is not filled in is NaN.

        Args:
            names: the names of the features.
            columns: one for each: texts, or numbers; None and NaN lack.
        """
        parts = [self._encoded(name, column) for name, column in zip(names, columns, strict=True)]
        return np.column_stack(parts)

    def _encoded(self, name: str, column: Sequence[Any]) -> npt.NDArray[np.float64]:
        if not self.is_text(name):
            numbers = np.asarray(column, dtype=np.float64)
            if name in self.missing:
                numbers = np.where(np.isnan(numbers), self.missing[name], numbers)
            return numbers
        texts = self.one_hot.get(name) or self.index.get(name) or ()
        places = {text: float(place) for place, text in enumerate(texts)}
        lacking = float(len(texts)) if self.imputes else float("nan")
        found = np.asarray([lacking if text is None else places.get(text, float(len(texts))) for text in column])
        if name in self.index:
            return found
        hot: npt.NDArray[np.float64] = (found[:, None] == np.arange(len(texts))).astype(np.float64)
        hot[np.isnan(found)] = np.nan
        return hot


def feature_stages(wanted: TrainParameters) -> list[Any]:
    """Return the stages of ``pyspark.ml`` that make the column ``_scaled`` of the features."""
    from pyspark.ml import feature  # noqa: PLC0415  # slow to load, and only where models are trained

    texts = [name for name in wanted.features if name in (*wanted.one_hot, *wanted.index)]
    numbers = [name for name in wanted.features if name not in texts]
    columns = {name: name for name in numbers} | {name: f"_index_{name}" for name in texts}
    stages: list[Any] = []
    if wanted.impute is not None and numbers:
        columns |= {name: f"_filled_{name}" for name in numbers}
        filled = [columns[name] for name in numbers]
        stages.append(feature.Imputer(strategy=wanted.impute, inputCols=numbers, outputCols=filled))
    if texts:
        indices = [f"_index_{name}" for name in texts]
        stages.append(feature.StringIndexer(inputCols=texts, outputCols=indices, handleInvalid="keep"))
    if hot := [name for name in texts if name in wanted.one_hot]:
        columns |= {name: f"_hot_{name}" for name in hot}
        # The last place is that of texts which were not there.
        stages.append(
            feature.OneHotEncoder(
                inputCols=[f"_index_{name}" for name in hot],
                outputCols=[columns[name] for name in hot],
                dropLast=True,
            )
        )
    inputs = [columns[name] for name in wanted.features]
    stages.append(feature.VectorAssembler(inputCols=inputs, outputCol="_assembled"))
    if wanted.scale == "standard":
        stages.append(feature.StandardScaler(inputCol="_assembled", outputCol="_scaled", withMean=True, withStd=True))
    elif wanted.scale == "minMax":
        stages.append(feature.MinMaxScaler(inputCol="_assembled", outputCol="_scaled"))
    else:
        stages.append(feature.VectorAssembler(inputCols=["_assembled"], outputCol="_scaled"))
    return stages


def encoder_of(wanted: TrainParameters, stages: Sequence[Any]) -> Encoder:
    """Return what fitted stages do.

    Raises:
        PlanError: a feature of text has too many values.
    """
    from pyspark.ml import feature  # noqa: PLC0415  # loaded when they were made

    places: dict[str, tuple[str, ...]] = {}
    missing: dict[str, float] = {}
    for stage in stages:
        if isinstance(stage, feature.StringIndexerModel):
            places = dict(zip(stage.getInputCols(), map(tuple, stage.labelsArray), strict=True))
        elif isinstance(stage, feature.ImputerModel):
            (row,) = stage.surrogateDF.collect()
            missing = {name: float(row[name]) for name in stage.getInputCols()}
    if many := next((name for name, texts in places.items() if len(texts) > MAX_VALUES), None):
        raise PlanError(
            f"spec.builtin.parameters.features: {many} has {len(places[many])} values, and {MAX_VALUES} are the most "
            "of a feature of text"
        )
    return Encoder(
        one_hot={name: texts for name, texts in places.items() if name in wanted.one_hot},
        index={name: texts for name, texts in places.items() if name in wanted.index},
        missing=missing,
        imputes=wanted.impute is not None,
    )


def scaling_of(stages: Sequence[Any], width: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return what fitted stages take from each number, and what they multiply it with."""
    from pyspark.ml import feature  # noqa: PLC0415  # loaded when they were made

    scaler = stages[-1]
    if isinstance(scaler, feature.StandardScalerModel):
        mean, unit = scaler.mean.toArray(), scaler.std.toArray()
    elif isinstance(scaler, feature.MinMaxScalerModel):
        mean, unit = scaler.originalMin.toArray(), scaler.originalMax.toArray() - scaler.originalMin.toArray()
    else:
        return np.zeros(width), np.ones(width)
    return mean, np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0)
