"""``score``: a trained model, applied to every message.

Rules:
1. Which version counts is looked up for every few thousand rows, so that a new one is used with the next
   micro-batch and nothing is started anew. Each row has its version.
2. Without a model the query waits, and its status says so.
3. A message that lacks a field of the model is left out, if the model does not fill it in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.builtins import ScoreParameters
from enmasse.pipeline.builtin.models import Model, Models
from enmasse.pipeline.builtin.plans import as_json_messages, checked, compaction_of
from enmasse.pipeline.builtin.telemetry import messages_of, telemetry_messages
from enmasse.pipeline.running.planning.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from enmasse.pipeline.running.planning.plans import PlanContext

_SCHEMA: Final = pa.schema(
    [
        ("device", pa.string()),
        ("time", pa.timestamp("us", "UTC")),
        ("model", pa.string()),
        ("version", pa.string()),
        ("score", pa.float64()),
        ("threshold", pa.float64()),
        ("anomalous", pa.bool_()),
        ("prediction", pa.float64()),
        ("cluster", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_DDL: Final = (
    "device STRING, time TIMESTAMP, model STRING, version STRING, score DOUBLE, threshold DOUBLE, "
    "anomalous BOOLEAN, prediction DOUBLE, cluster INT, partition INT, offset BIGINT"
)

_loaded: dict[Path, Model] = {}
"""The newest version of each model that this process scored with."""


def build(context: PlanContext, parameters: ScoreParameters | Mapping[str, Any]) -> Sequence[QueryPlan | JobPlan]:
    """Return a query for the table and one for the address, as wanted.

    Raises:
        PlanError: a parameter is wrong.
    """
    wanted = checked(ScoreParameters, parameters)
    folder = context.place.models / wanted.model
    messages = messages_of(telemetry_messages(context, wanted), wanted.device_field, wanted.time_field).where(
        "message IS NOT NULL"
    )
    narrow = messages.select("device", "time", F.to_json("message").alias("fields"), "partition", "offset")
    scored = narrow.mapInArrow(Scoring(folder, only_anomalies=wanted.only == "anomalies"), _DDL)

    def require_model() -> None:
        models = Models(folder)
        models.load(models.current())

    plans: list[QueryPlan | JobPlan] = []
    if wanted.table is not None:
        plans.append(QueryPlan("table", scored, TableTarget(wanted.table), on_start=require_model))
        plans.append(compaction_of(context, wanted.table))
    if wanted.to is not None:
        message_id = F.concat_ws("/", "model", F.concat_ws("-", "partition", "offset"))
        messages = as_json_messages(scored, message_id, ("partition", "offset"))
        plans.append(QueryPlan("messages", messages, AddressTarget(wanted.to), on_start=require_model))
    return plans


@dataclass(frozen=True)
class Scoring:
    """The function for ``mapInArrow``: messages in, scores out."""

    folder: Path
    only_anomalies: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Score batch by batch.

        Raises:
            ModelMissingError: there is no model any more.
        """
        for batch in batches:
            scored = self._score(batch, self._model())
            if scored.num_rows:
                yield scored

    def _model(self) -> Model:
        models = Models(self.folder)
        version = models.current()
        known = _loaded.get(self.folder)
        if known is None or known.version != version:
            known = _loaded[self.folder] = models.load(version)
        return known

    def _score(self, batch: pa.RecordBatch, model: Model) -> pa.RecordBatch:
        messages = [json.loads(text) for text in batch.column("fields").to_pylist()]
        table = model.encoded(
            [_column(messages, name, is_text=model.encoder.is_text(name)) for name in model.features]
        )
        target = None if model.target is None else np.asarray(_column(messages, model.target, is_text=False))
        is_whole = np.isfinite(table).all(axis=1) & (True if target is None else np.isfinite(target))
        rows = np.flatnonzero(is_whole)
        if not len(rows):
            return _empty()
        scores = model.scores(table[rows], None if target is None else target[rows])
        kept = batch.take(pa.array(rows))
        count = len(rows)
        scored = pa.record_batch(
            [
                kept.column("device"),
                kept.column("time"),
                pa.array([model.name] * count),
                pa.array([model.version] * count),
                pa.array(scores.score),
                pa.array([model.threshold] * count),
                pa.array(scores.score > model.threshold),
                pa.nulls(count, pa.float64()) if scores.prediction is None else pa.array(scores.prediction),
                pa.nulls(count, pa.int32()) if scores.cluster is None else pa.array(scores.cluster, pa.int32()),
                kept.column("partition"),
                kept.column("offset"),
            ],
            schema=_SCHEMA,
        )
        return scored.filter(scored.column("anomalous")) if self.only_anomalies else scored


def _empty() -> pa.RecordBatch:
    return pa.record_batch([pa.array([], field.type) for field in _SCHEMA], schema=_SCHEMA)


def _column(messages: Sequence[Mapping[str, Any]], name: str, *, is_text: bool) -> list[Any]:
    """Return a field of each message, as text or as a number; None or NaN where it is missing or is none."""
    values = [message.get(name) for message in messages]
    return values if is_text else [_number(value) for value in values]


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan
