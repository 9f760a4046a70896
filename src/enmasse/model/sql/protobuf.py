"""Protobuf descriptors of messages, and the columns that they come to.

Rules:
1. A schema is the full name of a message, and a FileDescriptorSet in base64 with the files that it needs; those of
   ``google/protobuf`` are known.
2. The fields of the message are the columns, by their names in the .proto file. Well-known types are types of
   columns; a message without fields is a BOOLEAN, true where it is there.
3. Descriptors are of tenants: the text, the depth and the number of columns have bounds.
"""

from __future__ import annotations

import base64
import binascii
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from enmasse.model.sql.ddl import Column, ColumnType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

_MAX_CHARACTERS: Final = 100_000
_MAX_DEPTH: Final = 20
_MAX_FIELDS: Final = 10_000
"""Fields of all structures: types that are used again and again would make any number of them."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:[.][A-Za-z_]\w*)*", re.ASCII)
_TOLD: Final = 10
_KNOWN_FILES: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
}
"""The library's modules of the files that come with every compiler."""
_SIMPLE: Final = {
    1: "DOUBLE",
    2: "FLOAT",
    3: "BIGINT",
    4: "DECIMAL",
    5: "INT",
    6: "DECIMAL",
    7: "BIGINT",
    8: "BOOLEAN",
    9: "STRING",
    12: "BINARY",
    13: "BIGINT",
    14: "STRING",
    15: "INT",
    16: "BIGINT",
    17: "INT",
    18: "BIGINT",
}
"""By the numbers of FieldDescriptorProto.Type; 10 and 11 are messages."""
_MESSAGES: Final = (10, 11)
_OF_64_BITS: Final = (20, 0)
_OF_SECONDS: Final = (21, 9)
"""All that a Duration can be, to the nanosecond."""
WRAPPERS: Final = {
    f"google.protobuf.{name}Value": ColumnType(of, arguments)
    for name, of, arguments in (
        ("Double", "DOUBLE", ()),
        ("Float", "FLOAT", ()),
        ("Int64", "BIGINT", ()),
        ("UInt64", "DECIMAL", _OF_64_BITS),
        ("Int32", "INT", ()),
        ("UInt32", "BIGINT", ()),
        ("Bool", "BOOLEAN", ()),
        ("String", "STRING", ()),
        ("Bytes", "BINARY", ()),
    )
}
JSON_TYPES: Final = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
"""Types that are the JSON they stand for."""
_WELL_KNOWN: Final = {
    "google.protobuf.Timestamp": ColumnType("TIMESTAMP"),
    "google.protobuf.Duration": ColumnType("DECIMAL", _OF_SECONDS),
    **WRAPPERS,
    **dict.fromkeys(JSON_TYPES, ColumnType("STRING")),
}


class ProtobufSchemaError(ValueError):
    """Raised when a text is no descriptor of messages; the message names the place in it."""


def parse_protobuf(text: str) -> Descriptor:
    """Return the message that a schema names, as Google's library knows it.

    Args:
        text: its full name, white space, and the FileDescriptorSet, or the FileDescriptorProto, in base64.

    Raises:
        ProtobufSchemaError: it is no such schema.
    """
    name, *rest = text.split(maxsplit=1)[:2] or [""]
    if not _NAME.fullmatch(name) or not rest:
        raise ProtobufSchemaError(
            "expected the full name of a message and a descriptor set in base64, as in 'acme.Reading CpkBCg...', "
            "made by protoc --include_imports --descriptor_set_out"
        )
    files = descriptor_files(rest[0])
    pool = pool_of(files)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        own = [f"{file.package}.{one.name}".lstrip(".") for file in files for one in file.message_type]
        there = ", ".join(own[-_TOLD:]) or "none"
        raise ProtobufSchemaError(f"there is no message {name}; there are {there}") from None


def descriptor_files(text: str) -> list[FileDescriptorProto]:
    """Return the files of a FileDescriptorSet in base64; a FileDescriptorProto is the only one of its own.

    Raises:
        ProtobufSchemaError: it is neither.
    """
    if len(text) > _MAX_CHARACTERS:
        raise ProtobufSchemaError(f"expected at most {_MAX_CHARACTERS} characters, got {len(text)}")
    from google.protobuf import descriptor_pb2  # noqa: PLC0415  # only where there is such a schema
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtobufSchemaError(f"expected a descriptor set in base64: {error}") from error
    alone, several = descriptor_pb2.FileDescriptorProto(), descriptor_pb2.FileDescriptorSet()
    for message in (several, alone):
        try:
            message.ParseFromString(content)
        except DecodeError:
            continue
        found = list(several.file) if message is several else [alone]
        if found and all(file.name for file in found) and not message.FindInitializationErrors():
            return found
    raise ProtobufSchemaError("expected a FileDescriptorSet, as protoc --descriptor_set_out writes it")


def pool_of(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """Return a pool of these files alone, each after those that it imports.

    Raises:
        ProtobufSchemaError: one is missing, or they do not fit together.
    """
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    pool, added = descriptor_pool.DescriptorPool(), set[str]()

    def add(name: str, content: bytes) -> None:
        try:
            pool.AddSerializedFile(content)
        except (TypeError, ValueError) as error:
            raise ProtobufSchemaError(f"{name}: {error}") from error
        added.add(name)

    def add_known(name: str) -> None:
        known = import_module(_KNOWN_FILES[name]).DESCRIPTOR
        for other in known.dependencies:
            if other.name not in added:
                add_known(other.name)
        add(name, known.serialized_pb)

    for file in files:
        for name in (*file.dependency, file.name):
            if name in _KNOWN_FILES and name not in added:
                add_known(name)  # the library's own, whatever is sent under its name
            elif name not in added and name != file.name:
                raise ProtobufSchemaError(
                    f"{file.name} imports {name}, which is not there before it: use protoc --include_imports"
                )
        if file.name not in _KNOWN_FILES:
            add(file.name, file.SerializeToString())
    return pool


def protobuf_columns(text: str) -> tuple[Column, ...]:
    """Return the columns of messages with this schema.

    Raises:
        ProtobufSchemaError: as ``parse_protobuf``; or a field has no type that a column can have.
    """
    columns = _Reading().fields(parse_protobuf(text), "", 0)
    names = [column.name.lower() for column in columns]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ProtobufSchemaError(
                f"there are two fields {columns[index].name!r}; case does not tell columns apart"
            )
    return columns


def well_known_type(message: Descriptor) -> ColumnType | None:
    """Return the type of column that a message of ``google/protobuf`` comes to; None: a structure of its fields."""
    return _WELL_KNOWN.get(message.full_name) if message.file.name in _KNOWN_FILES else None


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a repeated field is a map."""
    return field.type in _MESSAGES and bool(field.message_type.GetOptions().map_entry)


class _Reading:
    """Messages that are being read, and how many fields that came to."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._count = 0

    def fields(self, message: Descriptor, path: str, depth: int) -> tuple[Column, ...]:
        if depth > _MAX_DEPTH:
            raise ProtobufSchemaError(f"{path}: expected at most {_MAX_DEPTH} types in each other")
        if message.full_name in self._open:
            raise ProtobufSchemaError(f"{path}: {message.full_name} holds itself, which no column can")
        if not message.fields:
            raise ProtobufSchemaError(f"{message.full_name}: expected at least one field")
        self._count += len(message.fields)
        if self._count > _MAX_FIELDS:
            raise ProtobufSchemaError(f"{path}: expected at most {_MAX_FIELDS} fields in all")
        self._open.add(message.full_name)
        columns = tuple(
            Column(field.name, self.type(field, f"{path}.{field.name}".strip("."), depth + 1))
            for field in message.fields
        )
        self._open.discard(message.full_name)
        return columns

    def type(self, field: FieldDescriptor, path: str, depth: int) -> ColumnType:
        if is_map(field):
            entry: Any = field.message_type.fields_by_name
            inner = tuple(self._one(entry[name], f"{path}[]", depth + 1) for name in ("key", "value"))
            return ColumnType("MAP", inner=inner)
        if field.is_repeated:
            return ColumnType("ARRAY", inner=(self._one(field, f"{path}[]", depth + 1),))
        return self._one(field, path, depth)

    def _one(self, field: FieldDescriptor, path: str, depth: int) -> ColumnType:
        if field.type not in _MESSAGES:
            name = _SIMPLE[field.type]
            return ColumnType(name, _OF_64_BITS if name == "DECIMAL" else ())
        if (known := well_known_type(field.message_type)) is not None:
            return known
        if not field.message_type.fields:
            return ColumnType("BOOLEAN")
        return ColumnType("STRUCT", fields=self.fields(field.message_type, path, depth))
