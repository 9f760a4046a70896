"""Avro: one record in binary, as it is or with the header of the single-object encoding."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

import fastavro

from enmasse.model.sql.avro import parse_avro
from enmasse.pipeline.decoding.shaping import RecordProblem

_SINGLE_OBJECT: Final = b"\xc3\x01"


def avro_reader(schema_text: str) -> Callable[[bytes], Any]:
    """Return the reader of messages of one schema; it raises RecordProblem.

    Raises:
        AvroSchemaError: the text is no schema.
    """
    schema = parse_avro(schema_text)
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    fingerprint = fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")
    # Written least byte first, and given most byte first.
    header = _SINGLE_OBJECT + bytes.fromhex(fingerprint)[::-1]

    def read(content: bytes) -> Any:
        file = io.BytesIO(content)
        if content.startswith(header):
            file.seek(len(header))
        try:
            record = fastavro.schemaless_reader(file, schema, None)
        except EOFError as error:
            raise RecordProblem("not Avro of this schema: it ends too soon") from error
        except (ValueError, LookupError, OverflowError, TypeError, ArithmeticError, MemoryError) as error:
            raise RecordProblem(f"not Avro of this schema: {error}") from error
        if file.tell() != len(content):
            raise RecordProblem(f"expected one Avro record, got {len(content) - file.tell()} more bytes")
        return record

    return read
