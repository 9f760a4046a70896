"""Checks of a pipeline's sources, steps and sinks, as far as its declaration alone allows them.

Rules:
1. A relation is known from its declaration on: steps read the relations above them.
2. The columns of a table, and of an address whose source has no schema, are not known here; then columns are not
   checked. The runner knows them and checks the rest.
3. The reading of a stream begins at ``earliest``, ``latest``, a moment, or at offsets in JSON by partition.

``pipelines`` has the classes and calls these checks; the classes are imported here for their types alone.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from enmasse.model.kinds.durations import milliseconds
from enmasse.model.kinds.partitions import partition_of
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem, is_label
from enmasse.model.schema.schema import describe_value
from enmasse.model.sql.ddl import Column, DdlError, parse_ddl
from enmasse.model.sql.message_columns import carried_columns, raw_columns
from enmasse.model.sql.sql import Columns, SqlError, checked_sql

# A pipeline and the rules for it know each other: the rules are a subject of their own.
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from enmasse.model.kinds.pipelines import PipelineSpec, SinkSpec, SourceSpec, StepSpec

AVAILABLE_NOW: Final = "availableNow"

EACH_BATCH, ON_START = "batch", "onStart"
"""When the version of a table that batches join is looked for."""

_OF_FUNCTIONS: Final = ("input", "schema_", "parameters", "timeout")
_OF_UPDATES: Final = ("order_by", "delete_when", "update", "keep_history")

_WITH_DDL = ("json", "cbor")
_WITHOUT_SCHEMA = ("raw", "text", "senml")
_MAX_SQL = 100_000  # characters of all steps: control checks them while others wait


def flow_problems(spec: PipelineSpec) -> Iterator[Problem]:
    """Yield the problems of sources, steps and sinks."""
    if not spec.sources:
        yield Problem("spec.sources", "required: what the pipeline reads; or builtin")
    if not spec.sinks:
        yield Problem("spec.sinks", "required: where the results go; or builtin")
    relations: dict[str, Columns] = {}
    for index, source in enumerate(spec.sources):
        path = f"spec.sources[{index}]"
        yield from _name_problems(path, source.name, relations)
        yield from _source_problems(path, source)
        relations[source.name] = _source_columns(source)
    if sum(len(step.sql or "") for step in spec.steps) > _MAX_SQL:
        yield Problem("spec.steps", f"expected at most {_MAX_SQL} characters of SQL in all")
        return
    for index, step in enumerate(spec.steps):
        path = f"spec.steps[{index}]"
        yield from _name_problems(path, step.name, relations)
        yield from _step_problems(path, step, relations, has_code=spec.code is not None)
        relations[step.name] = _step_columns(step, relations)
    if spec.code is not None and not any(step.function for step in spec.steps):
        yield Problem("spec.code", "only a pipeline with functions needs code, and no step has a function")
    for index, sink in enumerate(spec.sinks):
        yield from _sink_problems(f"spec.sinks[{index}]", sink, relations)
    yield from _repeated_table_problems(spec.sinks)


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


def table_problem(name: str) -> str | None:
    """Return what is wrong with the name of a table, or of a relation, or None."""
    if is_label(name.replace("_", "-")):
        return None
    return (
        "expected lower-case letters, digits and '_', beginning and ending with a letter or digit, "
        f"at most 63 characters, got {describe_value(name)}"
    )


def _name_problems(path: str, name: str, known: Mapping[str, Columns]) -> Iterator[Problem]:
    if problem := table_problem(name):
        yield Problem(f"{path}.name", problem)
    if name in known:
        yield Problem(f"{path}.name", f"there is another relation {describe_value(name)} above")


def _source_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if (source.address is None) == (source.table is None):
        yield Problem(path, f"expected either an address or a table, got {'neither' if not source.table else 'both'}")
    if source.address is not None and (problem := address_problem(source.address)):
        yield Problem(f"{path}.address", problem)
    if source.bad_records is not None:
        if problem := address_problem(source.bad_records):
            yield Problem(f"{path}.badRecords", problem)
        elif source.bad_records == source.address:
            yield Problem(f"{path}.badRecords", "expected another address than the one that is read")
    if source.table is not None:
        yield from _table_source_problems(path, source)
    else:
        for field in ("refresh", "when_empty"):
            if getattr(source, field) is not None:
                yield Problem(f"{path}.{type(source).model_fields[field].alias}", "only a table has it")
    if source.starting_offsets is not None and (problem := position_problem(source.starting_offsets)):
        yield Problem(f"{path}.startingOffsets", problem)
    yield from _schema_problems(path, source)
    yield from _drift_problems(path, source)
    yield from _watermark_problems(path, source)


def _table_source_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    assert source.table is not None
    if problem := table_problem(source.table):
        yield Problem(f"{path}.table", problem)
    of_addresses = ("format", "schema_", "starting_offsets", "include_properties", "watermark", "bad_records")
    for field in (
        *of_addresses,
        "on_drift",
        "degraded_above",
        "max_rows_per_batch",
        "max_bytes_per_batch",
        "fail_on_data_loss",
    ):
        if getattr(source, field) is not None:
            alias = type(source).model_fields[field].alias
            yield Problem(f"{path}.{alias}", "only an address has it; a table is read as it is")
    if source.refresh not in (None, EACH_BATCH, ON_START):
        try:
            milliseconds(source.refresh)
        except ValueError:
            expected = f"expected {EACH_BATCH}, {ON_START} or a duration such as 5m"
            yield Problem(f"{path}.refresh", f"{expected}, got {describe_value(source.refresh)}")


def _drift_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.on_drift == "dead-letter" and source.bad_records is None:
        yield Problem(f"{path}.badRecords", "required with onDrift dead-letter: the address that they go to")
    if source.on_drift in ("null", "fail") and source.bad_records is not None:
        yield Problem(f"{path}.badRecords", f"nothing goes there with onDrift {source.on_drift}")
    if source.on_drift == "null" and source.format not in (None, "json"):
        yield Problem(f"{path}.onDrift", f"null is for format json; a message of {source.format} is read as a whole")


def _schema_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.schema_ is None:
        return
    if source.format is None:
        yield Problem(f"{path}.format", "required where there is a schema: json, cbor or avro")
    elif source.format in _WITHOUT_SCHEMA:
        yield Problem(f"{path}.schema", f"format {source.format} has columns of its own; leave it out")
    elif source.format == "avro":
        yield from _avro_problems(path, source.schema_)
    else:
        yield from _ddl_problems(f"{path}.schema", source.schema_)


def _avro_problems(path: str, schema: str) -> Iterator[Problem]:
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("type") != "record" or not isinstance(found.get("fields"), list):
        yield Problem(f"{path}.schema", "expected the JSON of an Avro record, with type, name and fields")


def _ddl_problems(path: str, schema: str) -> Iterator[Problem]:
    try:
        parse_ddl(schema)
    except DdlError as error:
        yield Problem(path, str(error))


def _watermark_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.watermark is None or source.table is not None:
        return
    name, columns = source.watermark.column, _source_types(source)
    if columns is None:
        return
    found = next((column for column in columns if column.name.lower() == name.lower()), None)
    if found is None:
        there = ", ".join(column.name for column in columns)
        yield Problem(f"{path}.watermark.column", f"there is no column {describe_value(name)}; there are {there}")
    elif found.type.name not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        yield Problem(f"{path}.watermark.column", f"expected a TIMESTAMP, but '{name}' is {found.type}")


def _source_types(source: SourceSpec) -> tuple[Column, ...] | None:
    """Return the columns of an address with their types; None where the source does not declare them."""
    if source.format == "raw":
        return raw_columns(with_properties=bool(source.include_properties))
    if source.format not in _WITH_DDL or source.schema_ is None:
        return None
    carried = carried_columns(with_properties=bool(source.include_properties))
    names = {column.name for column in carried}
    try:
        return (*(column for column in parse_ddl(source.schema_) if column.name not in names), *carried)
    except DdlError:
        return None


def _source_columns(source: SourceSpec) -> Columns:
    types = _source_types(source) if source.table is None else None
    return None if types is None else tuple(column.name for column in types)


def _step_problems(
    path: str, step: StepSpec, relations: Mapping[str, Columns], *, has_code: bool
) -> Iterator[Problem]:
    given = [name for name in ("sql", "function", "drop_duplicates") if getattr(step, name)]
    if len(given) != 1:
        names = " and ".join(str(type(step).model_fields[name].alias) for name in given)
        yield Problem(path, f"expected one of sql, function and dropDuplicates, got {names or 'none'}")
        return
    if step.function is None:
        of_functions = ("schema_", "parameters", "timeout") if step.drop_duplicates else _OF_FUNCTIONS
        for field in of_functions:
            if getattr(step, field):
                alias = type(step).model_fields[field].alias
                yield Problem(f"{path}.{alias}", "only a step with a function has it")
    if step.drop_duplicates:
        yield from _input_problems(path, step.input, relations)
        yield from _column_problems(f"{path}.dropDuplicates", step.drop_duplicates, _input_columns(step, relations))
        return
    if step.sql is not None:
        try:
            checked_sql(step.sql, relations)
        except SqlError as error:
            yield Problem(f"{path}.sql", str(error))
        return
    assert step.function is not None
    module, colon, name = step.function.partition(":")
    if not (colon and module.isidentifier() and name.isidentifier()):
        yield Problem(f"{path}.function", f"expected module:function, got {describe_value(step.function)}")
    if not has_code:
        yield Problem("spec.code", f"required: the ConfigMap with the module of {path}.function")
    if step.schema_ is None:
        yield Problem(
            f"{path}.schema", "required: the columns that the function gives, as device STRING, score DOUBLE"
        )
    else:
        yield from _ddl_problems(f"{path}.schema", step.schema_)
    yield from _input_problems(path, step.input, relations)


def _input_columns(step: StepSpec, relations: Mapping[str, Columns]) -> Columns:
    name = step.input if step.input is not None else next(reversed(list(relations)), None)
    return None if name is None else relations.get(name)


def _step_columns(step: StepSpec, relations: Mapping[str, Columns]) -> Columns:
    if step.drop_duplicates:
        return _input_columns(step, relations)
    try:
        if step.sql is not None:
            return checked_sql(step.sql, relations).columns
        return tuple(column.name for column in parse_ddl(step.schema_)) if step.schema_ is not None else None
    except (SqlError, DdlError):
        return None


def _input_problems(path: str, name: str | None, relations: Mapping[str, Columns]) -> Iterator[Problem]:
    if name is not None and name not in relations:
        there = ", ".join(relations) or "none"
        yield Problem(f"{path}.input", f"there is no relation {describe_value(name)} above; there are {there}")


def _sink_problems(path: str, sink: SinkSpec, relations: Mapping[str, Columns]) -> Iterator[Problem]:
    yield from _input_problems(path, sink.input, relations)
    last = list(relations)[-1] if relations else None
    name = sink.input if sink.input is not None else last
    columns = relations.get(name) if name is not None else None
    if (sink.address is None) == (sink.table is None):
        yield Problem(path, f"expected either an address or a table, got {'neither' if not sink.table else 'both'}")
        return
    if sink.table is None:
        yield from _address_sink_problems(path, sink, columns)
    else:
        yield from _table_sink_problems(path, sink, columns)


def _address_sink_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.address == "*":
        if columns is not None and "address" not in columns:
            there = ", ".join(columns)
            yield Problem(f"{path}.address", f"'*' needs a column 'address' that names each row's; there are {there}")
    elif sink.address is not None and (problem := address_problem(sink.address)):
        yield Problem(f"{path}.address", problem)
    if sink.bad_records is not None and (problem := address_problem(sink.bad_records)):
        yield Problem(f"{path}.badRecords", problem)
    for field in ("format", "keys", "partition_by", "constraints", "evolve", "maintenance", *_OF_UPDATES):
        if getattr(sink, field):
            alias = type(sink).model_fields[field].alias
            yield Problem(f"{path}.{alias}", "only a table has it")
    if sink.mode == "complete":
        yield Problem(f"{path}.mode", "an address takes append or update: complete would send everything each time")


def _table_sink_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    assert sink.table is not None
    if problem := table_problem(sink.table):
        yield Problem(f"{path}.table", problem)
    for field in ("on_no_consumer", "bad_records"):
        if getattr(sink, field) is not None:
            alias = type(sink).model_fields[field].alias
            yield Problem(f"{path}.{alias}", "only an address has it")
    if sink.mode == "update":
        if sink.format == "parquet":
            yield Problem(f"{path}.mode", "rows of a Parquet table cannot change; use format delta")
        elif not sink.keys:
            yield Problem(f"{path}.keys", "required with mode update: the columns that name a row")
    else:
        for field in ("keys", *_OF_UPDATES):
            if getattr(sink, field):
                yield Problem(f"{path}.{type(sink).model_fields[field].alias}", "only mode update has it")
    yield from _column_problems(f"{path}.keys", sink.keys, columns)
    yield from _partition_problems(path, sink, columns)
    yield from _upsert_problems(path, sink, columns)
    yield from _constraint_problems(path, sink, columns)
    yield from _maintenance_problems(path, sink, _with_history(sink, columns))


def _partition_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    named = []
    for index, text in enumerate(sink.partition_by):
        try:
            partition = partition_of(text)
        except ValueError as error:
            yield Problem(f"{path}.partitionBy[{index}]", str(error))
            return
        named.append(partition.column or partition.name)
    yield from _column_problems(f"{path}.partitionBy", named, _with_history(sink, columns))


def _with_history(sink: SinkSpec, columns: Columns) -> Columns:
    """Return the columns of a table for rows with these."""
    return columns if columns is None or not sink.keep_history else (*columns, *HISTORY_COLUMNS)


def _constraint_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.constraints and sink.format == "parquet":
        yield Problem(f"{path}.constraints", "only a Delta table has them")
    for name, condition in sink.constraints.items():
        if not re.fullmatch(r"[A-Za-z_]\w{0,62}", name):
            yield Problem(
                f"{path}.constraints", f"expected a name such as positive_amount, got {describe_value(name)}"
            )
        try:
            checked_sql(deleting("rows", condition), {"rows": columns})
        except SqlError as error:
            yield Problem(f"{path}.constraints.{name}", str(error))


def _maintenance_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.maintenance is None:
        return
    if sink.format == "parquet":
        yield Problem(f"{path}.maintenance", "only a Delta table has it")
    kept = sink.maintenance.keep_rows
    if kept is not None:
        yield from _column_problems(f"{path}.maintenance.keepRows.column", [kept.column], columns)
    yield from _column_problems(f"{path}.maintenance.zOrderBy", sink.maintenance.z_order_by, columns)
    if sink.maintenance.keep_versions is not None and milliseconds(sink.maintenance.keep_versions) < 3_600_000:
        yield Problem(f"{path}.maintenance.keepVersions", "expected at least 1h, longer than any query takes")


def _upsert_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.order_by is not None and columns is not None and sink.order_by.lower() not in map(str.lower, columns):
        there = ", ".join(columns)
        yield Problem(f"{path}.orderBy", f"there is no column {describe_value(sink.order_by)}; there are {there}")
    if sink.keep_history:
        if sink.order_by is None:
            yield Problem(f"{path}.orderBy", "required with keepHistory: the column that says from when a row holds")
        if sink.update == "present":
            yield Problem(f"{path}.update", "a version of keepHistory is whole: leave it out, or say whole")
    if sink.delete_when is not None:
        try:
            checked_sql(deleting("rows", sink.delete_when), {"rows": columns})
        except SqlError as error:
            yield Problem(f"{path}.deleteWhen", str(error))


HISTORY_COLUMNS: Final = ("valid_from", "valid_to", "is_current")
"""The columns that ``keepHistory`` makes."""

DELETED: Final = "__enmasse_deleted"
"""The column that says of a row whether it deletes the one with its keys."""


def deleting(relation: str, condition: str) -> str:
    """Return the query that gives a relation with the column ``DELETED``."""
    return f"SELECT *, coalesce(({condition}), false) AS {DELETED} FROM {relation}"  # noqa: S608  # what it reads is checked by who gets it


def _column_problems(path: str, names: Sequence[str], columns: Columns) -> Iterator[Problem]:
    known = None if columns is None else {column.lower() for column in columns}
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}[{index}]", f"{describe_value(name)} stands there twice")
        if known is not None and name.lower() not in known:
            there = ", ".join(columns or ())
            yield Problem(f"{path}[{index}]", f"there is no column {describe_value(name)}; there are {there}")


def _repeated_table_problems(sinks: Sequence[SinkSpec]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, sink in enumerate(sinks):
        if sink.table in seen:
            yield Problem(f"spec.sinks[{index}].table", f"another sink writes {describe_value(sink.table)} already")
        if sink.table is not None:
            seen.add(sink.table)


_FORMS = (
    "expected earliest, latest, a moment such as 2026-01-31T12:00:00Z, "
    'or JSON by partition such as {"0": 120, "1": "latest"}'
)


def position_problem(text: str) -> str | None:
    """Return what is wrong with a starting position, or None."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return None if _is_point(stripped) else f"{_FORMS}, got {describe_value(text)}"
    try:
        given: Any = json.loads(stripped)
    except (ValueError, RecursionError):
        return f"{_FORMS}, got {describe_value(text)}"
    for partition, value in given.items():
        is_offset = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not partition.isdecimal() or not (is_offset or (isinstance(value, str) and _is_point(value.strip()))):
            return f"{_FORMS}; partition {describe_value(partition)} has {describe_value(value)}"
    return None


def _is_point(text: str) -> bool:
    if text.lower() in ("earliest", "latest"):
        return True
    try:
        return not text.isdecimal() and bool(datetime.fromisoformat(text))
    except ValueError:
        return False
