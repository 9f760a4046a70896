"""Checks of a pipeline's sources, steps and sinks together, as far as its declaration alone allows them.

Rules:
1. A relation is known from its declaration on: steps read the relations above them.
2. The columns of a table, and of an address whose source has no schema, are not known here; then columns are not
   checked. The runner knows them and checks the rest.
3. The reading of a stream begins at ``earliest``, ``latest``, a moment, or at offsets in JSON by partition.

``pipeline`` has the class of all of it and calls these checks; it is imported here for its type alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.relations import (
    ddl_problems,
    function_problem,
    name_problems,
)
from enmasse.model.kinds.pipelines.row_errors import row_error_problems
from enmasse.model.kinds.pipelines.sinks import repeated_table_problems, sink_problems
from enmasse.model.kinds.pipelines.sources import source_columns, source_problems
from enmasse.model.kinds.pipelines.steps import step_columns, step_problems
from enmasse.model.kinds.pipelines.streaming import streaming_problems
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.schema import describe_value
from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, MODEL_PREFIX, REASONS
from enmasse.model.sql.sql import Columns, SqlError, checked_sql

# A pipeline and the rules for it know each other: the rules are a subject of their own.
if TYPE_CHECKING:
    from collections.abc import Iterator

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec

AVAILABLE_NOW: Final = "availableNow"

_MAX_SQL = 100_000  # characters of all steps: control checks them while others wait


def flow_problems(spec: PipelineSpec) -> Iterator[Problem]:
    """Yield the problems of sources, steps and sinks."""
    if not spec.sources:
        yield Problem("spec.sources", "required: what the pipeline reads; or builtin")
    if not spec.sinks:
        yield Problem("spec.sinks", "required: where the results go; or builtin")
    yield from _code_problems(spec)
    relations: dict[str, Columns] = {}
    own = frozenset(one.name for one in spec.code.functions) if spec.code is not None else frozenset()
    for index, source in enumerate(spec.sources):
        path = f"spec.sources[{index}]"
        yield from name_problems(path, source.name, relations)
        yield from source_problems(path, source)
        relations[source.name] = source_columns(source)
    if sum(len(step.sql or "") for step in spec.steps) > _MAX_SQL:
        yield Problem("spec.steps", f"expected at most {_MAX_SQL} characters of SQL in all")
        return
    for index, step in enumerate(spec.steps):
        path = f"spec.steps[{index}]"
        yield from name_problems(path, step.name, relations)
        yield from step_problems(path, step, relations, own, has_code=spec.code is not None)
        relations[step.name] = step_columns(step, relations, own)
    yield from streaming_problems(spec, relations, own)
    yield from row_error_problems(spec)
    for index, sink in enumerate(spec.sinks):
        yield from sink_problems(f"spec.sinks[{index}]", sink, relations)
    yield from repeated_table_problems(spec.sinks)


def _code_problems(spec: PipelineSpec) -> Iterator[Problem]:
    is_own = spec.resources is not None and spec.resources.session == "own"
    if any(step.inputs for step in spec.steps) and not is_own:
        yield Problem("spec.resources.session", "expected own: a step has a function of whole relations (inputs)")
    if spec.code is None:
        return
    if spec.code.functions and not is_own:
        yield Problem("spec.resources.session", "expected own: code has functions for SQL")
    if not spec.code.functions and not any(step.function for step in spec.steps):
        yield Problem("spec.code", "only a pipeline with functions needs code, and no step has a function")
    names = [one.name for one in spec.code.functions]
    for index, one in enumerate(spec.code.functions):
        path = f"spec.code.functions[{index}]"
        if one.name in names[:index]:
            yield Problem(f"{path}.name", f"there is another function {describe_value(one.name)} above")
        elif problem := _sql_name_problem(one.name):
            yield Problem(f"{path}.name", problem)
        if problem := function_problem(one.function):
            yield Problem(f"{path}.function", problem)
        yield from ddl_problems(f"{path}.returns", f"given {one.returns}")


def _sql_name_problem(name: str) -> str | None:
    """Return why SQL cannot call a function of the user's own so, or None."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
        return (
            f"expected a name such as to_celsius, of lower-case letters, digits and '_', got {describe_value(name)}"
        )
    if name.startswith(MODEL_PREFIX):
        return f"{name}() is the model {describe_value(name.removeprefix(MODEL_PREFIX))}: expected another name"
    if name in ALLOWED_FUNCTIONS or name in REASONS:
        return f"Spark has a function {name}(): expected another name"
    try:
        checked_sql(f"SELECT {name}(1) AS given", {}, (name,))  # that is what is checked
    except SqlError:
        return f"{describe_value(name)} is a word of SQL: expected another name"
    return None


def trigger_problem(trigger: str) -> str | None:
    """Return what is wrong with the trigger of a pipeline, or None."""
    if trigger == AVAILABLE_NOW:
        return None
    try:
        milliseconds(trigger)
    except ValueError:
        expected = f"expected a duration such as 1s, 0s for at once, or {AVAILABLE_NOW}"
        return f"{expected}, got {describe_value(trigger)}"
    return None
