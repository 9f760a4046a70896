"""The columns that a message of an address has in Spark, beside those of its content: each is one row of ``COLUMNS``.

Everything else is derived: what the source gives Spark and Arrow (``pipeline/source/columns``), which filters are
always true, which columns a decoded row carries under another name (``pipeline/decoding``), which names no schema of
messages may have (``message_schema``), which columns SQL of a pipeline may use (``model/kinds/pipelines``), and the
table in ``docs/reference/spark-source.md``.

Without pydantic, as Spark's workers load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from enmasse.model.sql.ddl import Column, parse_ddl


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """One column.

    Attributes:
        column: its name and type; the source's DDL calls all nullable, as Spark does.
        meaning: its content, for the reference, in Markdown.
        option: it is there with this option alone; empty: always.
        is_null: it may be null.
        carried_as: the type of the column that a decoded row carries, where it is another one.
    """

    column: Column
    meaning: str
    option: str = ""
    is_null: bool = False
    carried_as: str = ""

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name

    @property
    def carried(self) -> Column:
        """The column that a decoded row carries."""
        return parse_ddl(f"_{self.name} {self.carried_as or self.column.type}")[0]


def _row(ddl: str, meaning: str, *, option: str = "", is_null: bool = False, carried_as: str = "") -> MessageColumn:
    return MessageColumn(parse_ddl(ddl)[0], meaning, option, is_null, carried_as)


_PROPERTIES, _HEADERS, _TOPIC_NAME = "includeProperties", "includeHeaders", "includeTopicName"


COLUMNS: Final = (
    _row("partition INT", "the stream's partition"),
    _row("offset BIGINT", "the row's number in its partition; never given twice"),
    _row(
        "timestamp TIMESTAMP",
        "when the stream accepted the message, in microseconds; never goes back within a partition",
    ),
    _row(
        "key BINARY",
        "the partition key: the message annotation `x-opt-partition-key`, else the subject; "
        "empty where there is none",
        carried_as="STRING",
    ),
    _row("value BINARY", "the message's content, see below"),
    _row("content_type STRING", "the message's content type", option=_PROPERTIES, is_null=True),
    _row("properties MAP<STRING, STRING>", "the application properties, a map of texts", option=_PROPERTIES),
    _row("annotations MAP<STRING, STRING>", "the message annotations, a map of texts", option=_PROPERTIES),
    _row(
        "address STRING",
        "where the sender sent it (`to`); where it does not say, the stream's address",
        option=_PROPERTIES,
    ),
    _row(
        "headers ARRAY<STRUCT<key: STRING, value: STRING, type: STRING>>",
        "the application properties in order, with [their types](#headers)",
        option=_HEADERS,
    ),
    _row(
        "topic_name STRING",
        "the name that the message was sent to, at a topic or below it; null where it came by no topic",
        option=_TOPIC_NAME,
        is_null=True,
    ),
)
"""In the order in which Spark has them."""

CARRIED: Final = tuple(row.name for row in COLUMNS if row.name != "value")
"""Columns that a decoded row keeps, with an underscore before their names."""

TOMBSTONE: Final = "_tombstone"
"""The column that says of a row that its message was empty, where a source has ``tombstones``."""

PRESENT: Final = "_present"
"""The column with the names of the fields that a message has, where a source has ``includePresent``; a sink with
``update: present`` reads it."""

RESERVED: Final = (*(f"_{name}" for name in CARRIED), "_problem", "_value", TOMBSTONE, PRESENT)
"""Columns beside those of a schema."""

NEVER_NULL: Final = frozenset(row.name for row in COLUMNS if not row.is_null)


def _given(with_properties: bool, with_headers: bool, with_topic_name: bool) -> Iterator[MessageColumn]:
    options = {"": True, _PROPERTIES: with_properties, _HEADERS: with_headers, _TOPIC_NAME: with_topic_name}
    return (row for row in COLUMNS if options[row.option])


def raw_columns(
    *, with_properties: bool, with_headers: bool = False, with_topic_name: bool = False
) -> tuple[Column, ...]:
    """Return the columns of messages whose bodies are left as they are."""
    return tuple(row.column for row in _given(with_properties, with_headers, with_topic_name))


def carried_columns(
    *, with_properties: bool, with_headers: bool = False, with_topic_name: bool = False
) -> tuple[Column, ...]:
    """Return the columns that a decoded row has beside those of its content."""
    found = _given(with_properties, with_headers, with_topic_name)
    return tuple(row.carried for row in found if row.name in CARRIED)
