"""``train``: a model over a table of the lake, trained with pyspark.ml, again and again.

Rules:
1. Features are made numbers and scaled first, if not said otherwise by mean and deviation, so that none counts for
   more because of its unit.
2. The score above which a message is an anomaly is a quantile of the training rows' own scores.
3. Whether it is time to train is read from the model that is there: a restart trains nothing anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import TrainParameters
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.builtin.features import encoder_of, feature_stages, scaling_of
from enmasse.pipeline.builtin.models import Model, Models
from enmasse.pipeline.builtin.plans import checked, seconds
from enmasse.pipeline.builtin.telemetry import messages_of
from enmasse.pipeline.errors import ModelMissingError, PlanError, TableSchemaError
from enmasse.pipeline.running.planning.plans import JobPlan, QueryPlan

if TYPE_CHECKING:
    from pyspark.ml import PipelineModel
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.planning.plans import PlanContext

LOOK_S: Final = 20.0
"""Seconds between two checks whether it is time: a file is read for each."""
SEED: Final = 7
"""The same rows give the same model."""
_TIMES: Final = ("time", "window_end", "timestamp")
"""Columns that hold the time of a row, the first that is there."""


def build(context: PlanContext, parameters: TrainParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return the job that trains.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(TrainParameters, parameters)
    every_s = LOOK_S if wanted.every is None else min(LOOK_S, seconds(wanted.every))
    return [JobPlan(f"train-{wanted.model}", lambda: _train_if_due(context, wanted), every_s)]


def _train_if_due(context: PlanContext, wanted: TrainParameters) -> str:
    models = Models(context.place.models / wanted.model)
    try:
        there = models.read(models.current())
    except ModelMissingError:
        return train(context, wanted)
    age_s = (datetime.now(UTC) - datetime.fromisoformat(there.trained_at)).total_seconds()
    if wanted.every is not None and age_s >= seconds(wanted.every):
        return train(context, wanted)
    return f"model {wanted.model}: version {there.version} counts"


def train(context: PlanContext, wanted: TrainParameters) -> str:
    """Train now, whatever there is.

    Returns:
        What came of it.

    Raises:
        PlanError: the table has not what the model needs.
    """
    try:
        table = context.read_table(wanted.table)
    except (PlanError, TableSchemaError) as error:
        return f"model {wanted.model}: waits for rows: {error}"
    rows = training_rows(table, wanted)
    chosen = rows.cache()
    try:
        count = chosen.count()
        if count > wanted.max_rows:
            chosen = rows.sample(fraction=wanted.max_rows / count, seed=SEED)
        if count < wanted.min_rows:
            return (
                f"model {wanted.model}: waits for rows: table {wanted.table} has {count} with "
                f"{', '.join(rows.columns)}, and {wanted.min_rows} are needed"
            )
        held = None
        if wanted.held_back:
            chosen, held = chosen.randomSplit([1 - wanted.held_back, wanted.held_back], SEED)
        fitted, model = _fit(chosen, wanted)
        if held is not None:
            model = replace(model, quality=_quality(held, model))
    finally:
        rows.unpersist()
    models = Models(context.place.models / wanted.model)
    made = models.add(model, lambda folder: _save(fitted, folder), wanted.keep)
    measured = ", ".join(f"{name} {value:.4g}" for name, value in made.quality.items() if name != "rows")
    of_held = f"; of {made.quality['rows']:.0f} held back: {measured}" if made.quality else ""
    return f"model {wanted.model}: version {made.version}, trained with {made.rows} rows{of_held}"


def training_rows(table: DataFrame, wanted: TrainParameters) -> DataFrame:
    """Return a column of numbers or text for each field, from columns of the table or from the messages in it.

    Raises:
        PlanError: the table has neither.
    """
    fields = wanted.features if wanted.target is None else (*wanted.features, wanted.target)
    lacking = [name for name in fields if name not in table.columns]
    if not lacking:
        texts = {name: F.col(quote_identifier(name)).cast("string") for name in fields}
        frame = table
    elif {"value", "key", "timestamp", "partition", "offset"} <= set(table.columns):
        frame = messages_of(table)
        texts = {name: F.try_element_at("message", F.lit(name)) for name in fields}
    else:
        raise PlanError(
            f"spec.builtin.parameters.features: table {wanted.table} has no column {', '.join(lacking)}; it has "
            f"{', '.join(table.columns)}"
        )
    if wanted.within is not None:
        time = next((name for name in _TIMES if name in frame.columns), None)
        if time is None:
            raise PlanError(
                f"spec.builtin.parameters.within: table {wanted.table} has none of the columns {', '.join(_TIMES)}"
            )
        since = datetime.now(UTC) - timedelta(seconds=seconds(wanted.within))
        frame = frame.where(F.col(time) >= F.lit(since))
    columns = [text if _is_text(wanted, name) else text.try_cast("double") for name, text in texts.items()]
    rows = frame.select(*[column.alias(name) for name, column in zip(texts, columns, strict=True)])
    for name in fields:
        column = F.col(quote_identifier(name))
        if not _is_text(wanted, name):
            rows = rows.withColumn(name, F.when(F.abs(column) < float("inf"), column))
        if wanted.impute is None or name == wanted.target:
            rows = rows.where(column.isNotNull())
    return rows


def _is_text(wanted: TrainParameters, name: str) -> bool:
    return name in wanted.one_hot or name in wanted.index


def _quality(held: DataFrame, model: Model) -> dict[str, float]:
    """Return how good a model is for rows that it was not trained with."""
    scored = held.mapInArrow(_TrainingScores(model), "score DOUBLE, target DOUBLE")
    found = scored.selectExpr(
        "count(*) AS rows", "avg(score) AS score", "avg(score * score) AS square", "var_pop(target) AS variance",
        f"avg(if(score > {model.threshold!r}, 1.0, 0.0)) AS anomalies",
    ).first()  # fmt: skip
    if found is None or not found["rows"]:
        return {"rows": 0.0}
    told = {"rows": float(found["rows"]), "anomalies": float(found["anomalies"])}
    if model.kind == "kmeans":
        return told | {"score": float(found["score"])}
    mean_square = float(found["square"]) * model.deviation**2
    told["rmse"] = float(np.sqrt(mean_square))
    if found["variance"]:
        told["r2"] = 1 - mean_square / float(found["variance"])
    return told


def _fit(rows: DataFrame, wanted: TrainParameters) -> tuple[PipelineModel, Model]:
    from pyspark.ml import Pipeline  # noqa: PLC0415  # slow to load, and only here
    from pyspark.ml.clustering import KMeans  # noqa: PLC0415
    from pyspark.ml.regression import LinearRegression  # noqa: PLC0415

    if wanted.target is None:
        last: Any = KMeans(featuresCol="_scaled", predictionCol="_cluster", k=wanted.clusters, seed=SEED)
    else:
        last = LinearRegression(featuresCol="_scaled", labelCol=wanted.target, predictionCol="_prediction")
    fitted = Pipeline(stages=[*feature_stages(wanted), last]).fit(rows)
    stages: list[Any] = fitted.stages[:-1]
    found: Any = fitted.stages[-1]
    numbers = found.clusterCenters()[0] if wanted.target is None else found.coefficients.toArray()
    mean, scale = scaling_of(stages, len(numbers))
    model = Model(
        name=wanted.model,
        kind=wanted.kind,
        features=wanted.features,
        target=wanted.target,
        mean=_floats(mean),
        scale=_floats(scale),
        encoder=encoder_of(wanted, stages),
        rows=rows.count(),
        trained_at=datetime.now(UTC).isoformat(),
    )
    if wanted.kind == "kmeans":
        # What never changed is at one place for all.
        centres = [np.where(scale > 0, centre, 0.0) for centre in found.clusterCenters()]
        model = replace(model, centres=tuple(_floats(centre) for centre in centres))
    else:
        model = replace(
            model,
            weights=_floats(found.coefficients.toArray()),
            intercept=float(found.intercept),
            # A perfect fit leaves no unit for residuals; then they are their own.
            deviation=float(found.summary.rootMeanSquaredError) or 1.0,
        )
    scored = rows.mapInArrow(_TrainingScores(model), "score DOUBLE, target DOUBLE")
    threshold = scored.agg(F.percentile_approx("score", wanted.quantile, 10_000)).first()
    assert threshold is not None
    return fitted, replace(model, threshold=float(threshold[0]))


@dataclass(frozen=True)
class _TrainingScores:
    model: Model

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in self.model.features]
            target = None if self.model.target is None else batch.column(self.model.target).to_numpy()
            scores = self.model.scores(self.model.encoded(columns), target)
            told = [None] * len(scores.score) if target is None else target
            yield pa.record_batch({"score": scores.score, "target": pa.array(told, pa.float64())})


def _save(fitted: PipelineModel, folder: Path) -> None:
    fitted.write().overwrite().save((folder / "pipeline").resolve().as_uri())


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)
