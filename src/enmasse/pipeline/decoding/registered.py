"""Messages in the wire format of schema registries: each is read by the schema whose id it begins with."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastavro.read import SchemaResolutionError
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from enmasse.model.sql.avro import AvroSchemaError, avro_columns
from enmasse.model.sql.ddl import Column
from enmasse.model.sql.message_schema import schema_columns
from enmasse.model.sql.protobuf import ProtobufSchemaError, parse_protobuf
from enmasse.pipeline.decoding.avro import reading_schema, record_reader
from enmasse.pipeline.decoding.json_documents import read_json
from enmasse.pipeline.decoding.json_schema import json_schema_columns
from enmasse.pipeline.decoding.shaping import RecordProblem
from enmasse.pipeline.registry_copy import RegisteredSchema, copy_at
from enmasse.schemas.json_schemas import validator_class
from enmasse.schemas.protobuf_schemas import protobuf_file
from enmasse.schemas.wire_format import HEADER_BYTES, message_path_of, schema_id_of

Read = Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Registered:
    """The decoding of messages with ids of schemas.

    Attributes:
        copy: the copy of the registry.
        format: the format of the messages.
        schema: the schema whose columns they get; of protobuf as one is declared, with the name of the message.
        is_subject: whether it is one of the registry; else it stands in the pipeline.
        of_all: the schema of messages without an id; None: each has one.
    """

    copy: Path
    format: Literal["avro", "json", "protobuf"]
    schema: str
    is_subject: bool
    of_all: RegisteredSchema | None = None

    def columns(self) -> tuple[Column, ...]:
        """Return the columns.

        Raises:
            SchemaTextError: there are none.
        """
        if self.format == "json" and self.is_subject:
            return json_schema_columns(self.schema)
        return schema_columns(self.format, self.schema)

    def reader(self) -> Callable[[bytes, float], list[Any]]:
        """Return the reader of messages that are there by now; it raises RecordProblem, and RegistryAwayError."""
        if self.of_all is not None:
            return self._reader_of_all(self.of_all)
        began_s, copy = time.time(), copy_at(self.copy)
        readers: dict[int, Read | str] = {}

        def read(content: bytes, _: float) -> list[Any]:
            number = schema_id_of(content)
            if number is None:
                raise RecordProblem("it is not in the wire format: a zero byte, the id of a schema, and the content")
            found = readers.get(number)
            if found is None:
                found = readers[number] = self._reader_of(number, copy.schema(number, began_s))
            if isinstance(found, str):
                raise RecordProblem(found)
            return [found(content[HEADER_BYTES:])]

        return read

    def _reader_of_all(self, schema: RegisteredSchema) -> Callable[[bytes, float], list[Any]]:
        found = self._reader_of(schema.id, schema)

        def read(content: bytes, _: float) -> list[Any]:
            if isinstance(found, str):
                raise RecordProblem(found)
            return [found(content)]

        return read

    def _reader_of(self, number: int, schema: RegisteredSchema | None) -> Read | str:
        """Return the reader of messages of a schema, or why there is none."""
        if schema is None:
            return f"it is of schema {number}, which the registry does not have"
        if schema.type != self.format.upper():
            return f"it is of schema {number}, which is of type {schema.type} and not {self.format.upper()}"
        if self.format == "json":
            return json_document_reader(schema)
        if self.format == "protobuf":
            return _protobuf_reader(schema, self.schema, with_path=self.of_all is None)
        try:
            avro_columns(schema.text)
        except AvroSchemaError as error:
            return f"it is of schema {number}, which has no columns: {error}"
        return _avro_reader(schema, reading_schema(self.schema))


def _avro_reader(schema: RegisteredSchema, wanted: Any) -> Read:
    writer = reading_schema(schema.text)
    absent = _absent(writer, wanted)
    read_one = record_reader(writer, wanted)

    def read(content: bytes) -> Any:
        try:
            record = read_one(content, 0, f"it is no Avro of schema {schema.id}")
        except SchemaResolutionError as error:
            raise RecordProblem(f"it is of schema {schema.id}, which cannot be read: {error}") from error
        assert isinstance(record, dict)
        # A default is nothing that was written.
        return {name: value for name, value in record.items() if value is not None or name not in absent}

    return read


def _protobuf_reader(schema: RegisteredSchema, wanted: str, *, with_path: bool) -> Read | str:
    """Return the reader of messages by the schema that is wanted: numbers of fields are those of all versions."""
    from enmasse.pipeline.decoding.protobuf import protobuf_reader  # noqa: PLC0415  # loads the library

    read_wanted = protobuf_reader(wanted)
    name = parse_protobuf(wanted).full_name
    try:
        file = protobuf_file(schema.text)
    except ProtobufSchemaError as error:
        return f"it is of schema {schema.id}, which has no messages: {error}"

    def read(content: bytes) -> Any:
        if not with_path:
            return read_wanted(content)
        try:
            path, used = message_path_of(content)
            kind: Any = list(file.message_types_by_name.values())[path[0]]
            for index in path[1:]:
                kind = kind.nested_types[index]
        except ValueError as error:
            raise RecordProblem(f"it is of schema {schema.id}: {error}") from error
        except IndexError:
            raise RecordProblem(f"it is of schema {schema.id}, and of none of its messages: {path}") from None
        if kind.full_name != name:
            raise RecordProblem(f"it is a message {kind.full_name} of schema {schema.id}, and {name} is read")
        return read_wanted(content[used:])

    return read


def _absent(writer: Any, wanted: Any) -> set[str]:
    """Return the fields that are wanted and that no message of a schema has."""
    there = {field["name"] for field in writer["fields"]}
    names = {field["name"]: {field["name"], *field.get("aliases", ())} for field in wanted["fields"]}
    return {name for name, known in names.items() if not known & there}


def json_document_reader(schema: RegisteredSchema) -> Read:
    """Return the reader of documents of a JSON Schema; it raises RecordProblem."""
    check = json_check(schema)

    def read(content: bytes) -> Any:
        try:
            document = json.loads(content.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise RecordProblem(f"it is no JSON: {error}") from error
        if (problem := check(document)) is not None:
            raise RecordProblem(problem)
        # With the digits that were sent, which the schema's check does not know.
        return read_json(content) if type(document) is dict else document

    return read


def json_check(schema: RegisteredSchema) -> Callable[[Any], str | None]:
    """Return the function that says what of a document does not fit a JSON Schema."""
    plain = json.loads(schema.text)
    # References that lead out of the schema lead nowhere: nothing is fetched.
    validator = validator_class(plain)(plain, registry=Registry())

    def check(document: Any) -> str | None:
        try:
            error: ValidationError | None = next(validator.iter_errors(document), None)
        except (Unresolvable, RecursionError) as broken:
            return f"it does not fit schema {schema.id}: {broken}"
        if error is None:
            return None
        path = ".".join(map(str, error.absolute_path))
        return f"{path}: {error.message}" if path else f"it does not fit schema {schema.id}: {error.message}"

    return check


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
