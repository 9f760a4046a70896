"""The content of an address's messages: a format, and the columns that it comes to.

Rules:
1. Columns of a pipeline's own begin with an underscore (``RESERVED``); messages may not have those.
2. Fields that a schema does not name are left out; a column whose field is missing is null, unless NOT NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

from enmasse.model.schema.errors import Problem
from enmasse.model.schema.schema import Model, describe_value
from enmasse.model.sql.avro import AvroSchemaError, avro_columns
from enmasse.model.sql.ddl import Column, ColumnType, DdlError, parse_ddl
from enmasse.model.sql.message_columns import RESERVED
from enmasse.model.sql.protobuf import ProtobufSchemaError, protobuf_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


MessageFormat = Literal["raw", "json", "cbor", "avro", "protobuf", "senml", "text"]
MESSAGE_FORMATS: Final[tuple[MessageFormat, ...]] = get_args(MessageFormat)

SENML_COLUMNS: Final = (
    Column("name", ColumnType("STRING"), is_nullable=False),
    Column("unit", ColumnType("STRING")),
    Column("time", ColumnType("TIMESTAMP")),
    Column("value", ColumnType("DOUBLE")),
    Column("string_value", ColumnType("STRING")),
    Column("bool_value", ColumnType("BOOLEAN")),
    Column("data_value", ColumnType("BINARY")),
    Column("sum", ColumnType("DOUBLE")),
    Column("update_time", ColumnType("DOUBLE")),
)
"""A resolved record of RFC 8428: names whole, times absolute, base values added."""

_NEEDS_SCHEMA: Final = ("json", "cbor", "avro", "protobuf")
_READERS: Final[Mapping[str, Callable[[str], tuple[Column, ...]]]] = {
    "avro": avro_columns,
    "protobuf": protobuf_columns,
}
_FIXED: Final = {
    "raw": (Column("value", ColumnType("BINARY")),),
    "text": (Column("value", ColumnType("STRING")),),
}


class SchemaTextError(ValueError):
    """Raised when a format and a schema do not make columns; the message says why."""


def schema_columns(message_format: MessageFormat, text: str | None) -> tuple[Column, ...]:
    """Return the columns that messages of a format come to.

    Args:
        message_format: the format in which they are encoded.
        text: of ``json`` and ``cbor`` columns as Spark writes them, needed; of ``senml`` the same, which of its
            columns are wanted; of ``avro`` the schema in JSON, needed; others have none.

    Raises:
        SchemaTextError: the text is missing, is no such schema, or is not wanted.
    """
    if message_format in _FIXED:
        if text is not None:
            raise SchemaTextError(f"format {message_format} has no schema: its only column is value")
        return _FIXED[message_format]
    if text is None:
        if message_format in _NEEDS_SCHEMA:
            raise SchemaTextError(f"required for format {message_format}: {_example(message_format)}")
        return SENML_COLUMNS
    try:
        columns = _READERS.get(message_format, parse_ddl)(text)
    except (AvroSchemaError, ProtobufSchemaError, DdlError) as error:
        raise SchemaTextError(str(error)) from error
    for column in columns:
        if column.name.lower() in RESERVED:
            raise SchemaTextError(f"column {column.name!r} is one that every address has; choose another name")
    return _of_senml(columns) if message_format == "senml" else columns


def _example(message_format: MessageFormat) -> str:
    if message_format == "protobuf":
        return "the full name of the message and the descriptor set in base64, as in 'acme.Reading CpkBCg...'"
    if message_format == "avro":
        example = '{"type": "record", "name": "Reading", "fields": [{"name": "device", "type": "string"}]}'
    else:
        example = "'device STRING, temperature DOUBLE'"
    return f"the columns, as in {example}"


def _of_senml(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    known = {column.name: column for column in SENML_COLUMNS}
    for column in columns:
        there = known.get(column.name)
        if there is None or there.type != column.type:
            wanted = f"{there.name} {there.type}" if there else f"one of {', '.join(known)}"
            raise SchemaTextError(f"expected {wanted}, got {column.name} {column.type}; SenML has columns of its own")
    return columns


class MessageSchema(Model):
    """The encoding and the content of messages; pipelines read them by it."""

    format: MessageFormat
    """`json`, `cbor`, `avro`, `protobuf`, `senml`, `text` or `raw`."""
    definition: str | None = None
    """Of json and cbor the columns, as in `device STRING, temperature DOUBLE`; of avro the schema in JSON; of
    protobuf the full name of the message and the descriptor set in base64."""

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield what is wrong with the schema.

        Args:
            path: the place of it.
        """
        try:
            schema_columns(self.format, self.definition)
        except SchemaTextError as error:
            shown = "" if self.definition is None else f", in {describe_value(self.definition)}"
            yield Problem(f"{path}.definition", f"{error}{shown}")
