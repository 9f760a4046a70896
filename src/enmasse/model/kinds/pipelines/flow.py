"""Checks of a pipeline's sources, steps and sinks, as far as its declaration alone allows them.

Rules:
1. A relation is known from its declaration on: steps read the relations above them.
2. The columns of a table, and of an address whose source has no schema, are not known here; then columns are not
   checked. The runner knows them and checks the rest.
3. The reading of a stream begins at ``earliest``, ``latest``, a moment, or at offsets in JSON by partition.

``pipelines`` has the classes and calls these checks; the classes are imported here for their types alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.pipelines.relations import (
    column_problems,
    ddl_problems,
    expectation_problems,
    function_problem,
    input_problems,
    name_problems,
)
from enmasse.model.kinds.pipelines.sinks import repeated_table_problems, sink_problems
from enmasse.model.kinds.pipelines.sources import source_columns, source_problems
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem
from enmasse.model.schema.schema import describe_value
from enmasse.model.sql.ddl import DdlError, parse_ddl
from enmasse.model.sql.functions import ALLOWED_FUNCTIONS, MODEL_PREFIX, REASONS, model_calls
from enmasse.model.sql.sql import Columns, SqlError, checked_sql

# A pipeline and the rules for it know each other: the rules are a subject of their own.
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from enmasse.model.kinds.pipelines.pipeline import PipelineSpec, StepSpec

AVAILABLE_NOW: Final = "availableNow"

_OF_FUNCTIONS: Final = ("input", "inputs", "state_by", "state", "schema_", "parameters", "timeout")
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
        yield from _step_problems(path, step, relations, own, has_code=spec.code is not None)
        columns = _step_columns(step, relations, own)
        yield from expectation_problems(path, step, columns)
        yield from _dead_letter_problems(path, step)
        relations[step.name] = columns
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


def _dead_letter_problems(path: str, step: StepSpec) -> Iterator[Problem]:
    if step.bad_records is None:
        return
    if problem := address_problem(step.bad_records):
        yield Problem(f"{path}.badRecords", problem)
    if not any(one.action == "dead-letter" for one in step.expectations):
        yield Problem(f"{path}.badRecords", "nothing goes there without an expectation with action dead-letter")


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


def _step_problems(
    path: str, step: StepSpec, relations: Mapping[str, Columns], own: frozenset[str], *, has_code: bool
) -> Iterator[Problem]:
    given = [name for name in ("sql", "function", "drop_duplicates") if getattr(step, name)]
    if len(given) != 1:
        names = " and ".join(str(type(step).model_fields[name].alias) for name in given)
        yield Problem(path, f"expected one of sql, function and dropDuplicates, got {names or 'none'}")
        return
    if step.function is None:
        of_functions = (
            ("inputs", "state_by", "state", "schema_", "parameters", "timeout")
            if step.drop_duplicates
            else _OF_FUNCTIONS
        )
        for field in of_functions:
            if getattr(step, field):
                alias = type(step).model_fields[field].alias
                yield Problem(f"{path}.{alias}", "only a step with a function has it")
    if step.per_batch and step.drop_duplicates:
        yield Problem(f"{path}.perBatch", "duplicates are left out over batches, not within one")
    if step.per_batch and step.expectations:
        yield Problem(f"{path}.expectations", "not with perBatch: have the step before it hold them")
    if step.drop_duplicates:
        yield from input_problems(path, step.input, relations)
        yield from column_problems(f"{path}.dropDuplicates", step.drop_duplicates, _input_columns(step, relations))
        return
    if step.sql is not None:
        try:
            checked_sql(step.sql, relations, own | model_calls(step.sql))
        except SqlError as error:
            yield Problem(f"{path}.sql", str(error))
        return
    assert step.function is not None
    if problem := function_problem(step.function):
        yield Problem(f"{path}.function", problem)
    if not has_code:
        yield Problem("spec.code", f"required: the ConfigMap with the module of {path}.function")
    if step.inputs:
        for field in ("input", "state_by", "state", "schema_", "timeout"):
            if getattr(step, field) is not None:
                alias = type(step).model_fields[field].alias
                yield Problem(f"{path}.{alias}", "a function of whole relations (inputs) does not have it")
        for name in step.inputs:
            yield from input_problems(path, name, relations)
        return
    if step.schema_ is None:
        yield Problem(
            f"{path}.schema", "required: the columns that the function gives, as device STRING, score DOUBLE"
        )
    else:
        yield from ddl_problems(f"{path}.schema", step.schema_)
    yield from input_problems(path, step.input, relations)
    yield from _state_problems(path, step, _input_columns(step, relations))


def _state_problems(path: str, step: StepSpec, columns: Columns) -> Iterator[Problem]:
    if step.state_by is None:
        if step.state is not None:
            yield Problem(f"{path}.stateBy", "required with state: the column that holds the key")
        return
    if step.per_batch:
        yield Problem(f"{path}.perBatch", "a state is kept over batches, not within one")
    yield from column_problems(f"{path}.stateBy", (step.state_by,), columns)
    if step.state is None:
        yield Problem(f"{path}.state", "required with stateBy: what is kept of each key")
        return
    yield from ddl_problems(f"{path}.state.schema", step.state.schema_)
    yield from column_problems(f"{path}.state.orderBy", step.state.order_by, columns)


def _input_columns(step: StepSpec, relations: Mapping[str, Columns]) -> Columns:
    name = step.input if step.input is not None else next(reversed(list(relations)), None)
    return None if name is None else relations.get(name)


def _step_columns(step: StepSpec, relations: Mapping[str, Columns], own: frozenset[str]) -> Columns:
    if step.drop_duplicates:
        return _input_columns(step, relations)
    try:
        if step.sql is not None:
            return checked_sql(step.sql, relations, own | model_calls(step.sql)).columns
        return tuple(column.name for column in parse_ddl(step.schema_)) if step.schema_ is not None else None
    except (SqlError, DdlError):
        return None
