"""Protobuf in the registry: which texts are schemas, and whether data of one can be read with another.

A schema is a file as its compiler describes it, in base64. Confluent's clients write that, or the text of the .proto
file, which would need the compiler here.

Rules:
1. A file imports nothing but those of ``google/protobuf``, for schemas have no references.
2. Fields are told apart by their numbers. A reader's type takes all values of the writer's, and is sent alike.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from enmasse.model.sql.protobuf import ProtobufSchemaError, descriptor_files, is_map, pool_of
from enmasse.schemas.errors import InvalidSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

_KNOWN: Final = "google/protobuf/"
_TOLD: Final = 5
_MAX_COMPARED: Final = 10_000
"""Pairs of messages: a fraction of a second."""
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_WIDER: Final = {
    _INT32: {_INT64},
    _UINT32: {_UINT64, _INT64},
    _BOOL: {_INT32, _UINT32, _INT64, _UINT64},
    _ENUM: {_INT32, _INT64},
    _SINT32: {_SINT64},
    _STRING: {_BYTES},
}
"""Types by those whose values they read as they are."""


def canonical_protobuf(text: str) -> str:
    """Return a schema as it is kept: a FileDescriptorProto in base64.

    Args:
        text: the same, or a FileDescriptorSet with one file beside those of ``google/protobuf``.

    Raises:
        InvalidSchemaError: it is none.
    """
    try:
        own = [file for file in descriptor_files(text) if not file.name.startswith(_KNOWN)]
        if len(own) != 1:
            names = ", ".join(file.name for file in own[:_TOLD]) or "none"
            raise InvalidSchemaError(f"expected one file that imports google/protobuf alone, got {names}")
        pool_of(own)
    except ProtobufSchemaError as error:
        raise InvalidSchemaError(str(error)[:500]) from error
    own[0].ClearField("source_code_info")
    return base64.b64encode(own[0].SerializeToString(deterministic=True)).decode()


def protobuf_file(text: str) -> FileDescriptor:
    """Return the file that a registered schema is.

    Raises:
        ProtobufSchemaError: it is none.
    """
    (file,) = descriptor_files(text)
    return pool_of([file]).FindFileByName(file.name)


def first_message(file: FileDescriptor) -> Descriptor | None:
    """Return the message of a file that data is of if nothing else is said, or None."""
    return next(iter(file.message_types_by_name.values()), None)


def message_path(message: Descriptor) -> bytes:
    """Return what stands before a message in the wire format, after the id: its place in its file."""
    path: list[int] = []
    above: Descriptor | None = message
    while above is not None:
        outer: Descriptor | None = above.containing_type
        beside = above.file.message_types_by_name.values() if outer is None else outer.nested_types
        path.insert(0, [one.full_name for one in beside].index(above.full_name))
        above = outer
    # Numbers in zigzag; the first message of all has a short form.
    return b"\0" if path == [0] else bytes(byte for number in (len(path), *path) for byte in _varint(number << 1))


def _varint(number: int) -> list[int]:
    made = []
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return [*made, number]


def protobuf_problems(reader: str, writer: str) -> list[str]:
    """Return why data of one schema cannot be read with another; empty: it can.

    Args:
        reader: of who reads, a schema.
        writer: of who has written.
    """
    mine, yours = protobuf_file(reader), protobuf_file(writer)
    comparing = _Comparing()
    found = []
    for name, message in yours.message_types_by_name.items():
        there = mine.message_types_by_name.get(name)
        if there is None or mine.package != yours.package:
            found.append(f"the message {message.full_name} is missing")
        else:
            found += comparing.messages(there, message)
        if len(found) >= _TOLD:
            break
    return found[:_TOLD]


class _Comparing:
    """Pairs of messages that have been compared, or are."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def messages(self, reader: Descriptor, writer: Descriptor) -> Iterator[str]:
        pair = reader.full_name, writer.full_name
        if pair in self._known:
            return
        self._known.add(pair)
        if len(self._known) > _MAX_COMPARED:
            yield "the schemas are too complex to be compared"
            return
        written = writer.fields_by_number
        for field in reader.fields:
            other = written.get(field.number)
            if field.is_required and (other is None or not other.is_required):
                yield f"{field.full_name}: it is required, and was not"
            if other is not None:
                yield from self._fields(field, other)
        for choice in reader.oneofs:
            there = [written[field.number] for field in choice.fields if field.number in written]
            of = {one.containing_oneof.name if one.containing_oneof else None for one in there}
            if len(there) > 1 and (len(of) > 1 or None in of):
                names = ", ".join(field.name for field in there)
                yield f"{reader.full_name}.{choice.name}: of {names} one is read, and several were written"
        for name, message in writer.nested_types_by_name.items():
            if not message.GetOptions().map_entry and (inner := reader.nested_types_by_name.get(name)) is not None:
                yield from self.messages(inner, message)

    def _fields(self, reader: FieldDescriptor, writer: FieldDescriptor) -> Iterator[str]:
        where = reader.full_name
        if is_map(reader) != is_map(writer):
            yield f"{where}: one is a map"
            return
        if writer.is_repeated and not reader.is_repeated:
            yield f"{where}: of a list the last value would be read"
        if writer.type == reader.type or reader.type in _WIDER.get(writer.type, ()):
            if reader.type in (_MESSAGE, _GROUP):
                yield from self._of_messages(reader, writer)
            elif reader.type == _ENUM and reader.enum_type.is_closed:
                known, new = reader.enum_type.values_by_number, writer.enum_type.values_by_number
                if odd := [value.name for number, value in new.items() if number not in known]:
                    yield f"{where}: {reader.enum_type.full_name} lacks {', '.join(odd[:_TOLD])}"
        else:
            yield f"{where}: the type cannot be read as the other one"

    def _of_messages(self, reader: FieldDescriptor, writer: FieldDescriptor) -> Iterator[str]:
        mine, yours = reader.message_type, writer.message_type
        if mine.full_name != yours.full_name and (_is_known(mine) or _is_known(yours)):
            yield f"{reader.full_name}: expected {yours.full_name}, got {mine.full_name}"
        elif not _is_known(mine):
            yield from self.messages(mine, yours)


def _is_known(message: Descriptor) -> bool:
    return bool(message.file.name.startswith(_KNOWN))
