"""Avro in the registry: which texts are schemas, and whether data of one can be read with another."""

from __future__ import annotations

import json
from typing import Any

import avro.errors
import avro.schema
import fastavro
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
    SchemaIncompatibilityType,
)

from enmasse.schemas.errors import InvalidSchemaError

_WORDS = {
    SchemaIncompatibilityType.name_mismatch: "the name is another one",
    SchemaIncompatibilityType.fixed_size_mismatch: "the size is another one",
    SchemaIncompatibilityType.missing_enum_symbols: "symbols are missing, and there is no default",
    SchemaIncompatibilityType.reader_field_missing_default_value: "the field is new and has no default",
    SchemaIncompatibilityType.type_mismatch: "the type cannot be read as the other one",
    SchemaIncompatibilityType.missing_union_branch: "the union lacks a type",
}


_STEPS = 20_000
"""Comparisons of two parts: a fraction of a second. Unions alone would take as many as the product of their types."""


_MISFITS = 1_000
"""The library copies all that it has found for each further one."""
_TOLD = 5


class _TooComplexError(Exception):
    pass


class _BoundedChecker(ReaderWriterCompatibilityChecker):
    """The library's comparison, which ends."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._steps = self._misfits = 0

    def get_compatibility(
        self,
        reader: avro.schema.Schema,
        writer: avro.schema.Schema,
        reference_token: str = ReaderWriterCompatibilityChecker.ROOT_REFERENCE_TOKEN,
        location: list[str] | None = None,
    ) -> SchemaCompatibilityResult:
        self._steps += 1
        if self._steps > _STEPS:
            raise _TooComplexError
        found = super().get_compatibility(reader, writer, reference_token, location)
        if found.compatibility is SchemaCompatibilityType.incompatible:
            self._misfits += 1
            if self._misfits > _MISFITS:
                raise _TooComplexError
        return found


def check_avro(plain: Any) -> None:
    """Refuse what is no Avro schema: for two libraries, of which one checks defaults and the other names.

    Raises:
        InvalidSchemaError: it is none.
    """
    try:
        fastavro.parse_schema(plain)
        _parsed(plain)
    except fastavro.schema.UnknownType as error:
        raise InvalidSchemaError(f"unknown type {error.name}") from error
    except (
        fastavro.schema.SchemaParseException,
        avro.errors.AvroException,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise InvalidSchemaError(str(error).strip("'\"")[:500] or type(error).__name__) from error


def avro_problems(reader: Any, writer: Any) -> list[str]:
    """Return why data of one schema cannot be read with another; empty: it can.

    Args:
        reader: of who reads, a schema.
        writer: of who has written.
    """
    try:
        found = _BoundedChecker().get_compatibility(_parsed(reader), _parsed(writer))
    except (RecursionError, _TooComplexError):
        return ["the schemas are too complex to be compared"]
    if found.compatibility is not SchemaCompatibilityType.incompatible:
        return []
    reasons = ", ".join(dict.fromkeys(_WORDS[kind] for kind in found.incompatibilities))
    places, words = (", ".join(sorted(some)[:_TOLD]) for some in (found.locations, found.messages))
    return [f"at {places}: {reasons} ({words[:300]})"]


def _parsed(plain: Any) -> avro.schema.Schema:
    # Logical types do not count for compatibility, and of those that the library does not know it would warn.
    return avro.schema.parse(json.dumps(_without_logical(plain)))


def _without_logical(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_logical(value) for key, value in node.items() if key != "logicalType"}
    return [_without_logical(item) for item in node] if isinstance(node, list) else node
