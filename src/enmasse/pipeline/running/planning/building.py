"""Turns a declared pipeline into the plans of its queries.

Makers of plans see the pipeline through a ``RunningContext``: its session, its folders, and a frame for each
source.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from enmasse.extras import remedy
from enmasse.model.kinds.pipelines.pipeline import Builtin, Pipeline
from enmasse.model.kinds.pipelines.sinks import SinkSpec
from enmasse.model.kinds.pipelines.sources import SourceSpec
from enmasse.model.kinds.pipelines.steps import StepSpec
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.lake.batches import Layout
from enmasse.pipeline.running.planning.plans import (
    AddressTarget,
    DatabaseTarget,
    JobPlan,
    QueryPlan,
    TableTarget,
    Target,
)
from enmasse.pipeline.running.planning.relations import Relations

if TYPE_CHECKING:
    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec
    from enmasse.pipeline.running.planning.context import RunningContext
    from enmasse.pipeline.running.planning.guard import Guard


def build_plans(
    context: RunningContext, pipeline: Pipeline, guard: Guard, code: Mapping[str, str]
) -> list[QueryPlan | JobPlan]:
    """Return the queries of a pipeline.

    Args:
        context: the context of the pipeline.
        pipeline: the pipeline as it was declared.
        guard: judges SQL.
        code: the pipeline's Python, source by module name.

    Raises:
        PlanError: it cannot be run as declared; the message names the place.
    """
    spec = pipeline.spec
    if spec.builtin is not None:
        return [*_builtin(spec.builtin, context), *context.bad_records]
    relations = Relations(context, spec, guard, code)
    plans: list[QueryPlan | JobPlan] = []
    failed: set[str] = set()
    for index, sink in enumerate(spec.sinks):
        name = _sink_name(sink, spec.sinks[:index])
        with context.going_on(failed, name):
            plan = relations.plan_of(name, f"spec.sinks[{index}]", sink, _target(sink, context))
            if not plan.frame.isStreaming:
                raise PlanError(
                    f"spec.sinks[{index}]: nothing that its rows come from is a stream: tables are joined with one; "
                    "with stream: true the rows of a table are a stream themselves"
                )
            plans.append(plan)
    parts: list[SourceSpec | StepSpec] = [*spec.sources, *spec.steps]
    for part in parts:
        if any(one.action == "dead-letter" for one in part.expectations):
            target = AddressTarget(str(part.bad_records))
            with context.going_on(failed, part.name):
                plans.append(relations.plan_of_dead(f"{part.name}-unmet", part.name, target))
    if not context.problems:
        relations.check_late()
    return [*plans, *context.bad_records]


def build_once(
    context: RunningContext, pipeline: Pipeline, guard: Guard, code: Mapping[str, str], name: str
) -> QueryPlan:
    """Return the plan of one query of a pipeline, over what its stream keeps and not as a stream.

    Args:
        context: with ``between``.
        pipeline: the pipeline as it was declared.
        guard: judges SQL.
        code: the pipeline's Python, source by module name.
        name: the name of the query.

    Raises:
        PlanError: there is no such query, or it needs a stream.
    """
    spec = pipeline.spec
    for index, sink in enumerate(spec.sinks):
        if _sink_name(sink, spec.sinks[:index]) == name:
            relations = Relations(context, spec, guard, code)
            return relations.plan_of(name, f"spec.sinks[{index}]", sink, _target(sink, context))
    raise PlanError(f"the pipeline has no query {name}")


def places_of(spec: PipelineSpec) -> dict[str, str]:
    """Return where the queries of sinks are declared, by their names."""
    names = [_sink_name(sink, spec.sinks[:index]) for index, sink in enumerate(spec.sinks)]
    return {name: f"spec.sinks[{index}] ({name})" for index, name in enumerate(names)}


def _builtin(builtin: Builtin, context: RunningContext) -> Sequence[QueryPlan | JobPlan]:
    name = builtin.name.replace("-", "_")
    try:
        module = importlib.import_module(f"enmasse.pipeline.builtin.{name}")
    except ModuleNotFoundError as error:
        if error.name in (f"enmasse.pipeline.builtin.{name}", "enmasse.pipeline.builtin"):
            raise PlanError(f"spec.builtin.name: there is no built-in pipeline {builtin.name!r}") from None
        missing = remedy(error) or f"the module {error.name!r} is not installed"
        raise PlanError(f"built-in pipeline {builtin.name}: {missing}") from None
    plans: Sequence[QueryPlan | JobPlan] = module.build(context, builtin.parameters)
    return plans


def _target(sink: SinkSpec, context: RunningContext) -> Target:
    mode = sink.mode or "append"
    if sink.address is not None:
        encoding = context.encoding_of(sink)
        return AddressTarget(sink.address, mode, sink.on_no_consumer or "fail", sink.bad_records, encoding)
    if sink.database is not None:
        return DatabaseTarget(sink.database, mode, sink.keys, sink.order_by, sink.update == "present")
    if sink.table is None:
        raise PlanError("a sink has neither address, table nor database")
    layout = Layout(
        format=sink.format or "delta",
        mode=mode,
        keys=sink.keys,
        partition_by=sink.partition_by,
        order_by=sink.order_by,
        is_partial=sink.update == "present",
        keeps_history=bool(sink.keep_history),
        evolve=sink.evolve is not None,
        constraints=sink.constraints,
    )
    return TableTarget(sink.table, layout, sink.maintenance)


def _sink_name(sink: SinkSpec, before: Sequence[SinkSpec]) -> str:
    """Return a name that stays while other sinks come and go: what it writes, and a number for the same again."""
    name = _base_name(sink)
    same = sum(_base_name(other) == name for other in before)
    return f"{name}-{same + 1}" if same else name


def _base_name(sink: SinkSpec) -> str:
    if sink.table is not None:
        return f"table-{sink.table}"
    kind, name = ("to", sink.address) if sink.database is None else ("database", sink.database.table)
    return f"{kind}-" + (re.sub(r"[^A-Za-z0-9._-]+", "_", name or "").strip("._") or "any")
