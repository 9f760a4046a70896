"""The sinks of a pipeline, and checks of them as far as its declaration alone allows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from enmasse.model.kinds.durations import Duration, milliseconds
from enmasse.model.kinds.pipelines.databases import Database, database_problems
from enmasse.model.kinds.pipelines.partitions import partition_of
from enmasse.model.kinds.pipelines.relations import (
    RegistrySpec,
    column_problem,
    column_problems,
    input_problems,
    table_problem,
)
from enmasse.model.kinds.pipelines.sources import FILES
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem
from enmasse.model.schema.schema import Model, describe_value
from enmasse.model.sql.ddl import quote_identifier
from enmasse.model.sql.sql import Columns, SqlError, checked_sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OutputMode = Literal["append", "update", "complete"]
TableFormat = Literal["delta", "parquet"]

_OF_UPDATES: Final = ("order_by", "delete_when", "update", "keep_history")

_OF_TABLES: Final = ("format", "partition_by", "constraints", "evolve", "maintenance")
_OF_ADDRESSES: Final = ("on_no_consumer", "bad_records", "schema_registry")

HISTORY_COLUMNS: Final = ("valid_from", "valid_to", "is_current")
"""The columns that ``keepHistory`` makes."""

DELETED: Final = "__enmasse_deleted"
"""The column that says of a row whether it deletes the one with its keys."""


class KeepRows(Model):
    """The greatest age of a table's rows."""

    column: str
    """A TIMESTAMP or a DATE of the row."""
    duration: Duration = Field(alias="for")
    """The time that rows are kept."""


class TableMaintenance(Model):
    """The upkeep that keeps a table quick to read, and no larger than it is to be."""

    compact: Literal["auto", "off"] | None = None
    """``auto`` (the default) joins small files as they come."""
    keep_versions: Duration | None = None
    """The time that files stay which are in the table no more, for readers of older versions; left out: 24h."""
    keep_rows: KeepRows | None = None
    """Rows that are older are deleted; left out: none is."""
    z_order_by: tuple[str, ...] = Field(default=(), strict=False)
    """Columns by which rows are laid beside each other, so that readers who ask for some of their values open few
    files: each hour in partitions that have new files."""


class SinkSpec(Model):
    """The target of a relation."""

    input: str | None = None
    """The relation; left out: the last one."""
    address: str | None = None
    """An address of the space; ``*``: each row's column ``address`` names it."""
    table: str | None = None
    """A table of the space's lake."""
    database: Database | None = None
    """A table of a database, which is there already."""
    format: TableFormat | None = None
    """Of a table; left out: delta."""
    trigger: str | None = None
    """The time between this sink's queries for new rows, ``0s`` for at once; left out: as the pipeline says."""
    schema_registry: RegistrySpec | None = None
    """The encoding for an address: rows become messages by a schema of the space's registry, in its wire format."""
    mode: OutputMode | None = None
    """``append`` (the default): rows that are final; ``update``: what changed; ``complete``: all, each time."""
    keys: tuple[str, ...] = Field(default=(), strict=False)
    """With mode ``update``: the columns that name a row."""
    order_by: str | None = None
    """The column of a table with mode ``update`` whose greater value wins, so that an older row never replaces a
    newer one; left out: what comes later wins."""
    delete_when: str | None = Field(default=None, min_length=1)
    """The condition, for a table with mode ``update``, in SQL over the relation; rows for which it holds delete those
    with their keys."""
    update: Literal["whole", "present"] | None = None
    """Of a table with mode ``update``: whether a row replaces the ``whole`` one that is there (the default), or only
    the columns that are ``present`` in it: those that are not NULL, and those that its column ``_present`` names."""
    keep_history: bool | None = None
    """Of a table with mode ``update``, ``keys`` and ``orderBy``: rows do not replace those with their keys, but end
    them. The columns ``valid_from``, ``valid_to`` and ``is_current`` say when each held (type 2 of slowly changing
    dimensions)."""
    constraints: dict[str, str] = Field(default_factory=dict)
    """Conditions of a Delta table in SQL by name, for which every row must be true; one that is not fails its
    batch."""
    evolve: Literal["add"] | None = None
    """Of a table: ``add`` adds columns that are new; left out: they are refused."""
    partition_by: tuple[str, ...] = Field(default=(), strict=False)
    """The columns that lay out a table's folders, or ``year(c)``, ``month(c)``, ``day(c)``, ``hour(c)`` of a
    TIMESTAMP or ``bucket(16, c)``, which make a column ``c_year`` and so on."""
    maintenance: TableMaintenance | None = None
    """The upkeep of a Delta table."""
    on_no_consumer: Literal["fail", "skip"] | None = None
    """The fate of a direct address's rows while nobody listens; left out: the batch is tried again."""
    bad_records: str | None = None
    """The address that rows go to which the target refuses; left out: the batch fails."""


def deleting(relation: str, condition: str) -> str:
    """Return the query that gives a relation with the column ``DELETED``."""
    return f"SELECT *, coalesce(({condition}), false) AS {DELETED} FROM {relation}"  # noqa: S608  # what it reads is checked by who gets it


def sink_problems(path: str, sink: SinkSpec, relations: Mapping[str, Columns]) -> Iterator[Problem]:
    """Yield what is wrong with a sink."""
    yield from input_problems(path, sink.input, relations)
    last = list(relations)[-1] if relations else None
    name = sink.input if sink.input is not None else last
    columns = relations.get(name) if name is not None else None
    given = [name for name in ("address", "table", "database") if getattr(sink, name) is not None]
    if len(given) != 1:
        yield Problem(path, f"expected one of address, table and database, got {' and '.join(given) or 'none'}")
    elif sink.database is not None:
        yield from _database_sink_problems(path, sink, sink.database, columns)
    elif sink.table is None:
        yield from _address_sink_problems(path, sink, columns)
    else:
        yield from _table_sink_problems(path, sink, columns)


def _address_sink_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.schema_registry is not None and sink.schema_registry.subject is None:
        yield Problem(f"{path}.schemaRegistry.subject", "required: the subject whose schema messages are written by")
    if sink.schema_registry is not None and sink.schema_registry.message is not None:
        yield Problem(f"{path}.schemaRegistry.message", "only a source has it; a sink writes Avro or JSON")
    if sink.address == "*":
        if columns is not None and "address" not in columns:
            there = ", ".join(columns)
            yield Problem(f"{path}.address", f"'*' needs a column 'address' that names each row's; there are {there}")
    elif sink.address is not None and (problem := address_problem(sink.address)):
        yield Problem(f"{path}.address", problem)
    if sink.bad_records is not None and (problem := address_problem(sink.bad_records)):
        yield Problem(f"{path}.badRecords", problem)
    yield from _alien_problems(path, sink, ("keys", *_OF_TABLES, *_OF_UPDATES), "only a table has it")
    if sink.mode == "complete":
        yield Problem(f"{path}.mode", "an address takes append or update: complete would send everything each time")


def _alien_problems(path: str, sink: SinkSpec, fields: Sequence[str], said: str) -> Iterator[Problem]:
    """Yield the fields that are given, and that such a sink does not have."""
    for field in fields:
        if getattr(sink, field):
            yield Problem(f"{path}.{type(sink).model_fields[field].alias}", said)


def _database_sink_problems(path: str, sink: SinkSpec, database: Database, columns: Columns) -> Iterator[Problem]:
    yield from database_problems(f"{path}.database", database)
    yield from _alien_problems(path, sink, _OF_ADDRESSES, "only an address has it")
    yield from _alien_problems(path, sink, (*_OF_TABLES, "keep_history"), "only a table of the lake has it")
    if sink.mode == "complete":
        yield Problem(f"{path}.mode", "a database takes append or update: complete would write everything each time")
    yield from _upsert_problems(path, sink, columns)


def _table_sink_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    assert sink.table is not None
    if problem := table_problem(sink.table):
        yield Problem(f"{path}.table", problem)
    if sink.table == FILES:
        yield Problem(f"{path}.table", f"expected another name: {FILES} holds the files that sources read")
    yield from _alien_problems(path, sink, _OF_ADDRESSES, "only an address has it")
    if sink.mode == "update" and sink.format == "parquet":
        yield Problem(f"{path}.mode", "rows of a Parquet table cannot change; use format delta")
    yield from _upsert_problems(path, sink, columns)
    yield from _partition_problems(path, sink, columns)
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
    yield from column_problems(f"{path}.partitionBy", named, _with_history(sink, columns))


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


def z_order_problem(name: str) -> str | None:
    """Return why rows cannot be laid beside each other by a column, or None."""
    if "." not in name:
        return None
    other = f"SELECT {quote_identifier(name)} AS {quote_identifier(name.replace('.', '_'))}"
    return f"rows are not laid out by a column with a dot in its name: call it otherwise, as {other}"


def _maintenance_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.maintenance is None:
        return
    if sink.format == "parquet":
        yield Problem(f"{path}.maintenance", "only a Delta table has it")
    kept = sink.maintenance.keep_rows
    if kept is not None and (problem := column_problem(kept.column, columns)):
        yield Problem(f"{path}.maintenance.keepRows.column", problem)
    yield from column_problems(f"{path}.maintenance.zOrderBy", sink.maintenance.z_order_by, columns)
    for index, name in enumerate(sink.maintenance.z_order_by):
        if problem := z_order_problem(name):
            yield Problem(f"{path}.maintenance.zOrderBy[{index}]", problem)
    if sink.maintenance.keep_versions is not None and milliseconds(sink.maintenance.keep_versions) < 3_600_000:
        yield Problem(f"{path}.maintenance.keepVersions", "expected at least 1h, longer than any query takes")


def _upsert_problems(path: str, sink: SinkSpec, columns: Columns) -> Iterator[Problem]:
    if sink.mode != "update":
        yield from _alien_problems(path, sink, ("keys", *_OF_UPDATES), "only mode update has it")
    elif not sink.keys:
        yield Problem(f"{path}.keys", "required with mode update: the columns that name a row")
    yield from column_problems(f"{path}.keys", sink.keys, columns)
    if sink.order_by is not None and (problem := column_problem(sink.order_by, columns)):
        yield Problem(f"{path}.orderBy", problem)
    if sink.keep_history:
        if sink.order_by is None:
            yield Problem(f"{path}.orderBy", "required with keepHistory: the column that says from when a row holds")
        if sink.update == "present":
            why = "a version of keepHistory is whole, as a late row would change all after it, too"
            yield Problem(f"{path}.update", f"{why}: leave it out, and have a function with state make whole rows")
    if sink.delete_when is not None:
        try:
            checked_sql(deleting("rows", sink.delete_when), {"rows": columns})
        except SqlError as error:
            yield Problem(f"{path}.deleteWhen", str(error))


def repeated_table_problems(sinks: Sequence[SinkSpec]) -> Iterator[Problem]:
    """Yield the tables that more than one sink writes."""
    seen: set[str] = set()
    for index, sink in enumerate(sinks):
        if sink.table in seen:
            yield Problem(f"spec.sinks[{index}].table", f"another sink writes {describe_value(sink.table)} already")
        if sink.table is not None:
            seen.add(sink.table)
