"""The sources of a pipeline, and checks of them as far as its declaration alone allows."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from enmasse.model.kinds.durations import Duration, milliseconds
from enmasse.model.kinds.pipelines.builtins import AddressPattern
from enmasse.model.kinds.pipelines.databases import Database, database_problems
from enmasse.model.kinds.pipelines.relations import (
    Expectation,
    OnError,
    RegistrySpec,
    column_problem,
    ddl_problems,
    expectation_problems,
    table_problem,
)
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.names import address_problem
from enmasse.model.schema.quantities import Quantity
from enmasse.model.schema.schema import Model, describe_value
from enmasse.model.sql.ddl import Column, DdlError, parse_ddl, path_of
from enmasse.model.sql.message_columns import PRESENT, TOMBSTONE, carried_columns, raw_columns
from enmasse.model.sql.message_schema import MessageFormat
from enmasse.model.sql.protobuf import ProtobufSchemaError, protobuf_columns
from enmasse.model.sql.sql import Columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

MAX_ADDRESSES: Final = 200
"""Streams of one source: each costs a connection and a thread."""

EACH_BATCH, ON_START = "batch", "onStart"
"""The moments at which the version of a table that batches join is looked for."""

FILES: Final = "files"
"""The folder of the lake with the files that sources read."""

_OF_MESSAGES: Final = (
    "include_properties",
    "include_headers",
    "include_topic_name",
    "include_present",
    "tombstones",
    "schema_registry",
    "degraded_above",
    "max_rows_per_batch",
    "max_bytes_per_batch",
    "fail_on_data_loss",
)
_OF_STREAMED_TABLES: Final = ("stream", "skip_change_commits")

_KINDS: Final = ("address", "addresses", "address_pattern", "table", "files", "database")

_WITH_DDL = ("json", "cbor")
_PRESENT: Final = parse_ddl(f"{PRESENT} ARRAY<STRING>")
_WITHOUT_SCHEMA = ("raw", "text", "senml")


class Watermark(Model):
    """The delay up to which late rows count."""

    column: str
    """The column with the moment of the event, a TIMESTAMP; or a path to it in a structure, ``state.reported.ts``,
    which makes a column of its last name."""
    delay: Duration
    """The most that a row may be older than the newest one."""
    late: str | None = None
    """The address that rows go to which come too late for a query with state; left out: they are counted and left
    out."""


class Files(Model):
    """Files of the space, below ``lake/files``."""

    path: str
    """A folder; files that come into it, or a folder below it, are read once each."""
    format: Literal["csv", "json", "parquet"]
    """``json``: an object on each line."""
    header: bool | None = None
    """True if the first line of CSV names the columns; left out: it does not."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """The delimiter of CSV's values; left out: a comma."""
    quote: str | None = Field(default=None, max_length=1)
    """The quote of CSV around values that hold a delimiter, twice where it is part of one; left out: ``"``; empty:
    there is none."""
    decimal: Literal[".", ","] | None = None
    """The mark of CSV before the digits after the point; left out: a point."""
    encoding: Literal["UTF-8", "UTF-16", "ISO-8859-1", "ISO-8859-15", "windows-1252"] | None = None
    """The encoding of CSV's characters; left out: UTF-8."""
    multi_line: bool | None = None
    """True if CSV's values within quotes may hold ends of lines; left out: they may. ``false`` reads one large file
    in several tasks."""
    max_files_per_batch: int | None = Field(default=None, ge=1)
    """Files of one micro-batch at most."""


class SourceSpec(Model):
    """An address, a table or files that the pipeline reads: a relation by its name."""

    entry_keys: ClassVar[tuple[str, ...]] = ("name",)

    name: str
    """The name that steps and sinks use."""
    address: str | None = None
    """An address of the space; a stream is read by offset, everything else is consumed."""
    addresses: tuple[str, ...] = Field(default=(), strict=False, max_length=MAX_ADDRESSES)
    """Streams of the space that are read together; the column ``_address`` says of which one a row is."""
    address_pattern: AddressPattern | None = None
    """The same of all streams whose names match, such as ``plant/#``; new ones join while the pipeline runs."""
    table: str | None = None
    """A table of the space's lake. Each batch joins it as it is then."""
    files: Files | None = None
    """Files that are read as they come."""
    database: Database | None = None
    """A table of a database. Batches join it as it was at the last look."""
    stream: bool | None = None
    """True if a Delta table's rows are read as a stream, those that are there and then those that each version
    adds; left out: batches join it."""
    skip_change_commits: bool | None = None
    """True if a stream skips a table's versions that delete or replace rows; left out: the query fails."""
    refresh: str | None = None
    """The refresh of a table: `batch` (the default): each batch looks for its present version; a duration (the
    default of a database: `1m`): it may be so old; `onStart`, not of a database: as it is when the query starts."""
    when_empty: Literal["wait", "warn"] | None = None
    """The start of a query while its table is empty: `wait` (the default) until it has some, or go on and `warn`."""
    format: MessageFormat | None = None
    """The format in which bodies are decoded; left out: as the address's ``schema`` says, or raw."""
    schema_: str | None = Field(default=None, alias="schema", min_length=1)
    """The columns, as in ``device STRING, temperature DOUBLE``; of Avro its JSON; of Protobuf the full name of the
    message and the descriptor set in base64. Left out: the address's own."""
    schema_registry: RegistrySpec | None = None
    """The registry of ``avro``, ``json`` and ``protobuf``: messages are in the wire format of schema registries."""
    starting_offsets: str | None = None
    """The start of a stream: ``earliest`` (the default), ``latest``, a moment, or JSON by partition."""
    include_properties: bool | None = None
    """True if there are columns for properties, annotations and content type."""
    include_headers: bool | None = None
    """True if there is a column ``headers``: the application properties in order, each with its type."""
    include_topic_name: bool | None = None
    """True if there is a column ``topic_name``: the name that the message was sent to, at a topic or below it."""
    include_present: bool | None = None
    """True for a column ``_present``: the names of the fields that a message has, be they null or not. A sink
    with ``update: present`` sets those to NULL that are null."""
    watermark: Watermark | None = None
    """The most that a row may be late and still count; needed where windows are to end."""
    bad_records: str | None = None
    """The address that messages go to that cannot be decoded; left out: they are counted and left out."""
    on_drift: Literal["drop", "dead-letter", "null", "fail"] | None = None
    """The fate of a message that does not fit: ``drop`` (the default): it is left out and counted; ``dead-letter``:
    it goes to ``badRecords``; ``null``: of JSON and CSV, values that do not fit are NULL; ``fail``: the query fails.
    """
    on_error: OnError | None = None
    """The verdict on a row made of its rows for which an expression of a step fails, where the step does not say:
    ``dead-letter``, ``drop``, ``null`` or ``fail``."""
    tombstones: bool | None = None
    """True if an empty message is a row in which ``_tombstone`` is true, ``_key`` is its key and all columns of the
    schema are NULL; left out: it is a bad record."""
    expectations: tuple[Expectation, ...] = Field(default=(), strict=False)
    """The expectations of rows; the first one that is not met decides what becomes of a row."""
    degraded_above: float | None = Field(default=None, ge=0, le=1)
    """The share of messages that may not fit before the pipeline is said to be degraded; left out: 0.05."""
    max_rows_per_batch: int | None = Field(default=None, ge=1)
    """Rows of one micro-batch at most; left out: all that are there."""
    max_bytes_per_batch: Quantity | None = None
    """Bytes of one micro-batch at most."""
    fail_on_data_loss: bool | None = None
    """True if the query fails when rows are gone before they were read; true if left out."""


def is_several(source: SourceSpec) -> bool:
    """Return whether a source is of more than one stream."""
    return bool(source.addresses) or source.address_pattern is not None


def reader_name(pipeline: str, source: SourceSpec) -> str:
    """Return the name of a pipeline's source at its address: of a stream's consumer, of a topic's subscription."""
    return f"{pipeline}.{source.name}"


def source_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    """Yield what is wrong with a source."""
    given = [name for name in _KINDS if getattr(source, name) not in (None, ())]
    if len(given) != 1:
        aliases = " and ".join(str(type(source).model_fields[name].alias) for name in given)
        expected = "expected one of address, addresses, addressPattern, table, files and database"
        yield Problem(path, f"{expected}, got {aliases or 'none'}")
    for index, address in enumerate(source.addresses):
        if problem := address_problem(address):
            yield Problem(f"{path}.addresses[{index}]", problem)
    if is_several(source) and (source.starting_offsets or "").lstrip().startswith("{"):
        yield Problem(f"{path}.startingOffsets", "expected earliest, latest or a moment: there are several streams")
    if source.address is not None and (problem := address_problem(source.address)):
        yield Problem(f"{path}.address", problem)
    if source.bad_records is not None:
        if problem := address_problem(source.bad_records):
            yield Problem(f"{path}.badRecords", problem)
        elif source.bad_records == source.address:
            yield Problem(f"{path}.badRecords", "expected another address than the one that is read")
    if source.files is not None:
        yield from _files_problems(path, source, source.files)
        return
    if source.table is not None or source.database is not None:
        yield from _table_source_problems(path, source)
    else:
        of_tables = ("refresh", "when_empty", *_OF_STREAMED_TABLES)
        yield from _alien_problems(path, source, of_tables, "only a table has it")
        if source.starting_offsets is not None and (problem := position_problem(source.starting_offsets)):
            yield Problem(f"{path}.startingOffsets", problem)
    yield from _schema_problems(path, source)
    yield from _registry_problems(path, source)
    yield from _drift_problems(path, source)
    yield from _content_problems(path, source)
    yield from _watermark_problems(path, source)
    yield from expectation_problems(path, source.expectations, source.bad_records, source_columns(source))


def _alien_problems(path: str, source: SourceSpec, fields: Sequence[str], said: str) -> Iterator[Problem]:
    """Yield the fields that are given, and that such a source does not have."""
    for field in fields:
        if getattr(source, field) is not None:
            yield Problem(f"{path}.{type(source).model_fields[field].alias}", said)


def _csv_problems(path: str, source: SourceSpec, files: Files) -> Iterator[Problem]:
    delimiter, quote = files.delimiter or ",", '"' if files.quote is None else files.quote
    if delimiter == quote or any(sign in "\r\n" for sign in delimiter + quote):
        expected = "delimiter and quote: expected two characters that are no end of a line"
        yield Problem(f"{path}.files", f"{expected}, got {delimiter!r} and {quote!r}")
    try:
        columns = parse_ddl(source.schema_ or "")
    except DdlError:
        return
    for column in columns:
        if column.type.name in ("ARRAY", "MAP", "STRUCT"):
            yield Problem(f"{path}.schema", f"{column.name}: a value of csv is no {column.type.name}; read a STRING")


def _files_problems(path: str, source: SourceSpec, files: Files) -> Iterator[Problem]:
    parts = files.path.split("/")
    if any(not part or part.startswith((".", "_")) or "\\" in part or not part.isprintable() for part in parts):
        expected = "expected a folder below lake/files, without ., .. and names that begin with . or _"
        yield Problem(f"{path}.files.path", f"{expected}, got {describe_value(files.path)}")
    said = "files do not have it"
    of_messages = [field for field in _OF_MESSAGES if field not in ("degraded_above", "include_present")]
    aliens = (*of_messages, "format", "starting_offsets", "refresh", "when_empty", *_OF_STREAMED_TABLES)
    yield from _alien_problems(path, source, aliens, said)
    if source.schema_ is None:
        yield Problem(f"{path}.schema", "required: the columns of the files, as device STRING, temperature DOUBLE")
    else:
        yield from ddl_problems(f"{path}.schema", source.schema_)
    if files.format == "csv":
        yield from _csv_problems(path, source, files)
    else:
        for field in ("header", "delimiter", "quote", "decimal", "encoding", "multi_line"):
            if getattr(files, field) is not None:
                name = to_camel(field)
                yield Problem(f"{path}.files.{name}", f"{name} is of csv, and the format is {files.format}")
    if files.format == "parquet":
        if source.on_drift or source.bad_records:
            yield Problem(f"{path}.onDrift", "rows of parquet have their types; csv and json can be told not to fit")
        if source.include_present:
            yield Problem(f"{path}.includePresent", "rows of parquet have all columns; only csv and json have fields")
    if source.on_drift == "dead-letter" and source.bad_records is None:
        yield Problem(f"{path}.badRecords", "required with onDrift dead-letter: the address that they go to")
    yield from _watermark_problems(path, source)
    yield from expectation_problems(path, source.expectations, source.bad_records, source_columns(source))


def _table_source_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.table is not None and (problem := table_problem(source.table)):
        yield Problem(f"{path}.table", problem)
    if source.database is not None:
        yield from database_problems(f"{path}.database", source.database)
        yield from _alien_problems(path, source, _OF_STREAMED_TABLES, "only a table of the lake has it")
    said = "only an address has it; a table is read as it is"
    yield from _alien_problems(path, source, (*_OF_MESSAGES, "format", "schema_", "bad_records", "on_drift"), said)
    if source.stream:
        yield from _alien_problems(path, source, ("refresh", "when_empty"), "only a table that is joined has it")
        if source.starting_offsets not in (None, "earliest", "latest"):
            expected = "expected earliest, with the rows that are there, or latest"
            yield Problem(f"{path}.startingOffsets", f"{expected}, got {describe_value(source.starting_offsets)}")
    else:
        of_streams = ("starting_offsets", "watermark", "skip_change_commits")
        yield from _alien_problems(path, source, of_streams, "only an address has it, or a table with stream: true")
    words = (EACH_BATCH,) if source.database is not None else (EACH_BATCH, ON_START)
    if source.refresh is not None and source.refresh not in words:
        try:
            milliseconds(source.refresh)
        except ValueError:
            expected = f"expected {', '.join(words)} or a duration such as 5m"
            yield Problem(f"{path}.refresh", f"{expected}, got {describe_value(source.refresh)}")


def _drift_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.on_drift == "dead-letter" and source.bad_records is None:
        yield Problem(f"{path}.badRecords", "required with onDrift dead-letter: the address that they go to")
    if source.on_drift == "null" and source.format not in (None, "json"):
        yield Problem(f"{path}.onDrift", f"null is for format json; a message of {source.format} is read as a whole")


def _content_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.include_present and source.format in ("raw", "text"):
        yield Problem(f"{path}.includePresent", f"a message of format {source.format} has no fields")
    is_whole = source.format in ("raw", "text")
    if source.tombstones and (is_whole or (source.format == "protobuf" and source.schema_registry is None)):
        yield Problem(f"{path}.tombstones", f"an empty message is one like others with format {source.format}")


def _schema_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.schema_ is None:
        return
    if source.format is None:
        yield Problem(f"{path}.format", "required where there is a schema: json, cbor, avro or protobuf")
    elif source.format in _WITHOUT_SCHEMA:
        yield Problem(f"{path}.schema", f"format {source.format} has columns of its own; leave it out")
    elif source.format == "avro":
        yield from _avro_problems(path, source.schema_)
    elif source.format == "protobuf":
        try:
            protobuf_columns(source.schema_)
        except ProtobufSchemaError as error:
            yield Problem(f"{path}.schema", str(error))
    else:
        yield from ddl_problems(f"{path}.schema", source.schema_)


def _registry_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    registry = source.schema_registry
    if registry is None or source.table is not None:
        return
    if source.format not in ("avro", "json", "protobuf"):
        yield Problem(f"{path}.format", "required with schemaRegistry: avro, json or protobuf")
    if registry.message is not None and (source.format != "protobuf" or registry.subject is None):
        yield Problem(
            f"{path}.schemaRegistry.message", "only a subject of format protobuf has messages to choose from"
        )
    if (registry.subject is None) == (source.schema_ is None):
        got = "neither" if source.schema_ is None else "both"
        expected = "expected either a subject, whose schema has the columns, or the source's schema"
        yield Problem(f"{path}.schemaRegistry.subject", f"{expected}, got {got}")
    if registry.subject is None and registry.version is not None:
        yield Problem(f"{path}.schemaRegistry.version", "only a subject has it")
    if registry.subject is None and not registry.wire_format:
        said = "messages without ids need a subject; or leave the registry out"
        yield Problem(f"{path}.schemaRegistry.wireFormat", said)
    if source.on_drift == "null":
        yield Problem(f"{path}.onDrift", "null is for messages without a registered schema")


def _avro_problems(path: str, schema: str) -> Iterator[Problem]:
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("type") != "record" or not isinstance(found.get("fields"), list):
        yield Problem(f"{path}.schema", "expected the JSON of an Avro record, with type, name and fields")


def _watermark_problems(path: str, source: SourceSpec) -> Iterator[Problem]:
    if source.watermark is None:
        return
    if source.watermark.late is not None:
        if problem := address_problem(source.watermark.late):
            yield Problem(f"{path}.watermark.late", problem)
        elif source.watermark.late in (source.address, *source.addresses):
            yield Problem(f"{path}.watermark.late", "expected another address than the one that is read")
    if source.table is not None:
        return
    name, columns = source.watermark.column, _declared_types(source)
    if columns is None:
        return
    names = [column.name for column in columns]
    found = columns[names.index(name)] if name in names else _at_path(name, columns)
    if found is None:
        yield Problem(f"{path}.watermark.column", str(column_problem(name, tuple(names))))
    elif name not in names and found.name.lower() in map(str.lower, names):
        said = f"'{name}' makes the column {found.name}, and the source has one: call that otherwise"
        yield Problem(f"{path}.watermark.column", said)
    elif found.type.name not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        yield Problem(f"{path}.watermark.column", f"expected a TIMESTAMP, but '{name}' is {found.type}")


def event_path(watermark: Watermark, columns: Collection[str]) -> tuple[str, ...]:
    """Return the path to the moment of the event: the name of a column, or names from structure to structure."""
    return (watermark.column,) if watermark.column in columns else path_of(watermark.column)


def _at_path(path: str, columns: tuple[Column, ...]) -> Column | None:
    """Return the field that a path leads to from columns, or None."""
    *above, last = path_of(path)
    fields = columns if above else ()
    for name in above:
        fields = next((field.type.fields for field in fields if field.name == name), ())
    return next((field for field in fields if field.name == last), None)


def _source_types(source: SourceSpec) -> tuple[Column, ...] | None:
    """Return the columns of an address or of files with their types; None where the source does not declare them."""
    columns = _declared_types(source)
    if columns is None or source.watermark is None:
        return columns
    path = event_path(source.watermark, [column.name for column in columns])
    made = _at_path(source.watermark.column, columns) if len(path) > 1 else None
    return columns if made is None else (*columns, made)


def _declared_types(source: SourceSpec) -> tuple[Column, ...] | None:
    """Return those columns without the one that a watermark makes."""
    if source.files is not None:
        more = _PRESENT if source.include_present else ()
        try:
            return (*parse_ddl(source.schema_ or ""), *parse_ddl("_file STRING"), *more)
        except DdlError:
            return None
    has_address = is_several(source) and not source.include_properties
    given = {
        "with_properties": bool(source.include_properties),
        "with_headers": bool(source.include_headers),
        "with_topic_name": bool(source.include_topic_name),
    }
    if source.format == "raw":
        columns = raw_columns(**given)
        return (*columns, *parse_ddl("address STRING")) if has_address else columns
    if source.format not in _WITH_DDL or source.schema_ is None:
        return None
    carried = carried_columns(**given)
    if has_address:
        carried = (*carried, *parse_ddl("_address STRING"))
    if source.tombstones:
        carried = (*carried, *parse_ddl(f"{TOMBSTONE} BOOLEAN"))
    if source.include_present:
        carried = (*carried, *_PRESENT)
    names = {column.name for column in carried}
    try:
        return (*(column for column in parse_ddl(source.schema_) if column.name not in names), *carried)
    except DdlError:
        return None


def is_joined(source: SourceSpec) -> bool:
    """Return whether a source is a table that each batch joins as it is then."""
    return source.database is not None or (
        source.table is not None and not source.stream and source.refresh != ON_START
    )


def source_columns(source: SourceSpec) -> Columns:
    """Return the columns of a source; None where its declaration alone does not tell them."""
    types = _source_types(source) if source.table is None and source.database is None else None
    return None if types is None else tuple(column.name for column in types)


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
