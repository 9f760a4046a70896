"""``python -m enmasse.pipeline check``: what Spark itself says of pipelines, without running them.

Addresses and tables need not be there: a source has the columns that its declaration gives it, a table those that it
is said to have. What Spark would refuse when a query starts is found with its place.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from enmasse.model.kinds.pipelines.databases import as_lake_tables
from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.model.kinds.pipelines.sinks import TableMaintenance
from enmasse.pipeline.builtin.models import Models
from enmasse.pipeline.builtin.onnx_model import OnnxModel
from enmasse.pipeline.errors import ModelMissingError, PlanError, TableSchemaError
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.registry_copy import FILE, write_copy
from enmasse.pipeline.running.failures import sentence_of
from enmasse.pipeline.running.logical_plans import analyzed
from enmasse.pipeline.running.planning.building import build_plans, places_of
from enmasse.pipeline.running.planning.context import RunningContext
from enmasse.pipeline.running.planning.guard import SPARKS_WORDS, Guard
from enmasse.pipeline.running.planning.plans import AddressFacts, AddressTarget, Place, QueryPlan, TableTarget
from enmasse.pipeline.running.planning.targets import as_messages, upkeep_of
from enmasse.pipeline.session import start_session

_INSTEAD = {
    "STREAMING_OUTPUT_MODE": "give the source a watermark and group by window(...), or the sink mode update; ",
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": "set perBatch on the step; ",
}
"""The words that say what to write instead, by Spark's name of the problem."""

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKER = "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker"
_MODES = "org.apache.spark.sql.streaming.OutputMode"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line: JSON on standard input says the rest."""
    parser.description = (
        "check pipelines as Spark does: [{pipeline, addresses, code, tables, schemas, models}] on standard input"
    )


def run(_options: argparse.Namespace, _arguments: Any) -> int:
    """Print the problems of each pipeline, as JSON."""
    given = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="enmasse-check-") as folder:
        spark = start_session("check", Path(folder, "work"), cores=1, quick=True)
        try:
            found = [problems(spark, Path(folder, str(number)), one) for number, one in enumerate(given)]
        finally:
            spark.stop()
    json.dump(found, sys.stdout)
    return 0


def problems(spark: SparkSession, folder: Path, given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a pipeline: of each part that reads nothing that is wrong itself.

    Args:
        spark: a session.
        folder: for what is made on the way.
        given: the ``pipeline``; ``addresses``, type and schema by name; ``code``, source by module; ``tables``,
            columns by name; ``schemas``, versions of subjects as the schema registry lists them; ``models``, types of
            what they give by name.
    """
    # No database is asked: the columns of its table are given as those of one of the lake.
    document = as_lake_tables(given["pipeline"])
    for source in document["spec"].get("sources") or ():
        if source.get("table") and not source.get("stream"):
            source["whenEmpty"] = "warn"  # here all are empty
    pipeline = Pipeline.model_validate(document)
    for name, columns in (given.get("tables") or {}).items():
        _make_table(spark, folder / "lake" / name, columns)
    for name, returns in (given.get("models") or {}).items():
        # Spark need not know what they take.
        Models(folder / "models" / name).add(OnnxModel(name, (), (), "", returns), lambda _: None, keep=1)
    write_copy(folder / "schemas" / FILE, given.get("schemas") or [])
    told = (given.get("addresses") or {}).items()
    facts = {name: AddressFacts(one["type"], one.get("schema")) for name, one in told}
    # As with other sources, the file need not declare what is read.
    patterns = filter(None, (source.address_pattern for source in pipeline.spec.sources))
    facts |= {pattern.replace("*", "any").replace("#", "any"): AddressFacts("stream", None) for pattern in patterns}
    context = RunningContext(
        spark=spark,
        place=Place("amqp://127.0.0.1", "", folder),
        pipeline=pipeline.metadata.name,
        addresses=facts,
        credentials="",
        checkpoint_of=lambda query: folder / "checkpoints" / query,
        spool=folder / "spool",
        log=lambda _: None,
        problems=[],
    )
    try:
        plans = build_plans(context, pipeline, Guard(spark), given.get("code") or {})
    except (PlanError, ModelMissingError, AnalysisException) as error:
        return [*(context.problems or ()), sentence_of(error)]
    queries = [plan for plan in plans if isinstance(plan, QueryPlan)]
    places = places_of(pipeline.spec)
    found = [
        f"{places.get(plan.name, f'query {plan.name}')}: {said}"
        for plan in queries
        if (said := refusal(spark, plan) or _misfit(plan, folder / "written"))
    ]
    return [*(context.problems or ()), *found]


def _misfit(plan: QueryPlan, folder: Path) -> str:
    """Return why there can be no table for a query's rows; empty if it writes none, or there can."""
    schema = plan.frame.schema if plan.per_batch is None else plan.per_batch.schema
    if not isinstance(plan.target, TableTarget):
        return ""
    table = open_table(folder / plan.target.table, plan.target.layout)
    try:
        table.prepare(schema, owner=plan.name, checkpoint=folder / plan.name)
        upkeep_of(plan.target.table, plan.target.maintenance or TableMaintenance(), schema)
    except TableSchemaError as error:
        return str(error)
    return ""


def refusal(spark: SparkSession, plan: QueryPlan) -> str:
    """Return why Spark would not start a query; empty if it would."""
    if isinstance(plan.target, AddressTarget) and plan.target.encoding is not None and plan.per_batch is None:
        try:
            as_messages(plan.frame, plan.target)
        except PlanError as error:
            return str(error)
    jvm: Any = spark._jvm  # Spark asks this itself only once a query starts
    checker = getattr(jvm, _CHECKER)
    mode = getattr(getattr(jvm, _MODES), plan.target.mode.capitalize())
    try:
        checker.checkForStreaming(analyzed(plan.frame), mode())
    except AnalysisException as error:
        condition = str(error.getCondition()).partition(".")[0]
        return f"{_INSTEAD.get(condition, '')}{SPARKS_WORDS}{sentence_of(error)}"
    return ""


def _make_table(spark: SparkSession, path: Path, columns: str) -> None:
    """Have an empty table be there, with a row's worth of columns."""
    from deltalake import write_deltalake  # noqa: PLC0415  # slow to load, and few pipelines join tables
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    schema = to_arrow_schema(spark.createDataFrame([], columns).schema, timezone="UTC")
    write_deltalake(path, schema.empty_table())
