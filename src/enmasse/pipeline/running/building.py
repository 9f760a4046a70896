"""From a declared pipeline to its queries."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from enmasse.model.durations import milliseconds
from enmasse.model.pipelines import Builtin, Pipeline, SinkSpec, StepSpec
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.functions import FunctionCall, check_function
from enmasse.pipeline.running.plans import AddressTarget, JobPlan, QueryPlan, TableTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from enmasse.pipeline.running.guard import Guard
    from enmasse.pipeline.running.scene import RunningScene

__all__ = ["build_plans"]

DEFAULT_TIMEOUT: Final = "10m"


def build_plans(
    scene: RunningScene, pipeline: Pipeline, guard: Guard, code: Mapping[str, str]
) -> list[QueryPlan | JobPlan]:
    """Return the queries of a pipeline.

    Args:
        scene: what they are made with.
        pipeline: as it was declared.
        guard: judges SQL.
        code: the pipeline's Python, source by module name.

    Raises:
        PlanError: it cannot be run as declared; the message names the place.
    """
    spec = pipeline.spec
    if spec.builtin is not None:
        return [*_builtin(spec.builtin, scene), *scene.bad_records]
    relations: dict[str, DataFrame] = {source.name: scene.read(source) for source in spec.sources}
    for index, step in enumerate(spec.steps):
        place = f"spec.steps[{index}] ({step.name})"
        if step.sql is not None:
            relations[step.name] = _sql(scene, guard, f"{place}.sql", step.sql, relations)
        else:
            relations[step.name] = _function(step, place, relations, code)
    plans: list[QueryPlan | JobPlan] = []
    for index, sink in enumerate(spec.sinks):
        frame = _relation(f"spec.sinks[{index}].input", sink.input, relations)
        plans.append(QueryPlan(_sink_name(sink, spec.sinks[:index]), frame, _target(sink)))
    return [*plans, *scene.bad_records]


def _builtin(builtin: Builtin, scene: RunningScene) -> Sequence[QueryPlan | JobPlan]:
    name = builtin.name.replace("-", "_")
    try:
        module = importlib.import_module(f"enmasse.pipeline.builtin.{name}")
    except ModuleNotFoundError as error:
        if error.name in (f"enmasse.pipeline.builtin.{name}", "enmasse.pipeline.builtin"):
            raise PlanError(f"spec.builtin.name: there is no built-in pipeline {builtin.name!r}") from None
        raise PlanError(f"built-in pipeline {builtin.name}: the module {error.name!r} is not installed") from None
    plans: Sequence[QueryPlan | JobPlan] = module.build(scene, builtin.parameters)
    return plans


def _relation(place: str, name: str | None, relations: Mapping[str, DataFrame]) -> DataFrame:
    if name is None:
        return relations[list(relations)[-1]]
    if name not in relations:
        raise PlanError(f"{place}: there is no relation {name!r} above; there are {', '.join(relations)}")
    return relations[name]


def _sql(scene: RunningScene, guard: Guard, place: str, text: str, relations: Mapping[str, DataFrame]) -> DataFrame:
    canonical = guard.check(place, text, {name: frame.schema for name, frame in relations.items()})
    for name, frame in relations.items():
        frame.createOrReplaceTempView(name)
    return scene.spark.sql(canonical)


def _function(step: StepSpec, place: str, relations: Mapping[str, DataFrame], code: Mapping[str, str]) -> DataFrame:
    if step.function is None or step.schema_ is None:
        raise PlanError(f"{place}: expected sql, or function with schema")
    module, function = check_function(f"{place}.function", step.function, code)
    frame = _relation(f"{place}.input", step.input, relations)
    call = FunctionCall(
        module=module,
        function=function,
        modules=code,
        columns=_columns_of(step.schema_, f"{place}.schema"),
        timeout_s=milliseconds(step.timeout or DEFAULT_TIMEOUT) / 1000,
        parameters=step.parameters,
    )
    return frame.mapInPandas(call.over, step.schema_)


def _columns_of(schema: str, place: str) -> tuple[str, ...]:
    from pyspark.errors import PySparkException  # noqa: PLC0415  # loaded by whoever made the frame
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        columns = StructType.fromDDL(schema)
    except PySparkException:
        expected = "expected columns such as device STRING, score DOUBLE"
        raise PlanError(f"{place}: {expected}, got {schema!r}") from None
    if not isinstance(columns, StructType):
        raise PlanError(f"{place}: expected columns with names and types, got {schema!r}")
    return tuple(columns.names)


def _target(sink: SinkSpec) -> AddressTarget | TableTarget:
    mode = sink.mode or "append"
    if sink.address is not None:
        return AddressTarget(sink.address, mode, sink.on_no_consumer or "fail", sink.bad_records)
    if sink.table is None:
        raise PlanError("a sink has neither address nor table")
    return TableTarget(sink.table, sink.format or "delta", mode, sink.keys, sink.partition_by)


def _sink_name(sink: SinkSpec, before: Sequence[SinkSpec]) -> str:
    """A name that stays while other sinks come and go: what it writes, and a number for the same again."""
    name = _base_name(sink)
    same = sum(_base_name(other) == name for other in before)
    return f"{name}-{same + 1}" if same else name


def _base_name(sink: SinkSpec) -> str:
    if sink.table is not None:
        return f"table-{sink.table}"
    return "to-" + (re.sub(r"[^A-Za-z0-9._-]+", "_", sink.address or "").strip("._") or "any")
