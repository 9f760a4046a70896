"""The steps of a pipeline, and checks of them as far as its declaration alone allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from enmasse.model.kinds.durations import Duration
from enmasse.model.kinds.pipelines.relations import (
    Expectation,
    OnError,
    column_problem,
    column_problems,
    ddl_problems,
    expectation_problems,
    function_problem,
    input_problems,
)
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem
from enmasse.model.schema.schema import Model
from enmasse.model.sql.ddl import DdlError, parse_ddl
from enmasse.model.sql.functions import model_calls
from enmasse.model.sql.sql import Columns, SqlError, checked_sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_FUNCTIONS: Final = ("input", "inputs", "state_by", "state", "schema_", "parameters", "timeout")


class KeyedState(Model):
    """The state that a function keeps of each key."""

    schema_: str = Field(alias="schema", min_length=1)
    """The columns of a key's state, as in ``count INT, last TIMESTAMP``."""
    timers: Literal["processingTime", "eventTime"] | None = None
    """The time that a function's timers go by: the clock, or the watermark of the source; left out: it has none."""
    ttl: Duration | None = None
    """The time that a state is kept without an update; left out: until it is removed."""
    order_by: tuple[str, ...] = Field(default=(), strict=False)
    """The columns in whose order the rows of a key come; left out: in that of the stream, whose partition and offset
    the rows must have."""


class StepSpec(Model):
    """A relation made of others."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """The name that later steps and sinks use."""
    sql: str | None = Field(default=None, min_length=1)
    """One query over the relations above, in Spark's SQL."""
    function: str | None = None
    """``module:function`` of Python, called with batches of rows as pandas frames."""
    drop_duplicates: tuple[str, ...] = Field(default=(), strict=False)
    """The columns of which a row with the same values as an earlier one is left out, if it comes within the delay of
    the source's watermark."""
    per_batch: bool | None = None
    """True if it is done with each micro-batch as a whole, as if that were a table: windows (``OVER``), ``ORDER BY``
    and ``LIMIT`` see the batch. What reads it is done so, too."""
    inputs: tuple[str, ...] = Field(default=(), strict=False)
    """Relations that a function gets as DataFrames of Spark; it returns one. Needs ``resources.session: own``."""
    state_by: str | None = None
    """The column that holds the key: the function is called with each key, its rows of a batch, and its state."""
    state: KeyedState | None = None
    """With ``stateBy``: what is kept of each key."""
    input: str | None = None
    """The relation that a function gets, or where duplicates are; left out: the relation above."""
    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns that a function gives."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of the function, by name."""
    expectations: tuple[Expectation, ...] = Field(default=(), strict=False)
    """The expectations of its rows; the first one that is not met decides what becomes of a row."""
    bad_records: str | None = None
    """The address that rows go to, as JSON, that an expectation, or ``onError``, sends to dead letters."""
    on_error: OnError | None = None
    """The verdict on a row for which an expression fails, as a division by zero or a text that is no number:
    ``dead-letter``: it goes to ``badRecords``; ``drop``: it is left out and counted; ``null``: the expression is
    NULL; ``fail``: the query fails. Left out: as its sources say, or the pipeline; else ``dead-letter`` where it or
    its source names ``badRecords``, and ``drop`` where not."""
    timeout: Duration | None = None
    """The longest that one micro-batch may take before it is given up; left out: ten minutes."""


def step_problems(
    path: str, step: StepSpec, relations: Mapping[str, Columns], own: frozenset[str], *, has_code: bool
) -> Iterator[Problem]:
    """Yield what is wrong with a step.

    Args:
        path: the path of the step.
        step: the step.
        relations: the columns of those above it.
        own: the names of the pipeline's functions for SQL.
        has_code: whether the pipeline has code.
    """
    yield from _kind_problems(path, step, relations, own, has_code=has_code)
    yield from expectation_problems(path, step.expectations, step.bad_records, step_columns(step, relations, own))
    yield from _dead_letter_problems(path, step)


def _kind_problems(
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
    if problem := column_problem(step.state_by, columns):
        yield Problem(f"{path}.stateBy", problem)
    if step.state is None:
        yield Problem(f"{path}.state", "required with stateBy: what is kept of each key")
        return
    yield from ddl_problems(f"{path}.state.schema", step.state.schema_)
    yield from column_problems(f"{path}.state.orderBy", step.state.order_by, columns)


def _dead_letter_problems(path: str, step: StepSpec) -> Iterator[Problem]:
    if step.bad_records is None:
        return
    if problem := address_problem(step.bad_records):
        yield Problem(f"{path}.badRecords", problem)


def _input_columns(step: StepSpec, relations: Mapping[str, Columns]) -> Columns:
    name = step.input if step.input is not None else next(reversed(list(relations)), None)
    return None if name is None else relations.get(name)


def step_columns(step: StepSpec, relations: Mapping[str, Columns], own: frozenset[str]) -> Columns:
    """Return the columns of a step; None where its declaration alone does not tell them."""
    if step.drop_duplicates:
        return _input_columns(step, relations)
    try:
        if step.sql is not None:
            return checked_sql(step.sql, relations, own | model_calls(step.sql)).columns
        return tuple(column.name for column in parse_ddl(step.schema_)) if step.schema_ is not None else None
    except (SqlError, DdlError):
        return None
