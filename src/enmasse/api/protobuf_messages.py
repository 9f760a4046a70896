"""Messages of protocol buffers, described in a line each instead of by generated code."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

__all__ = ["Messages"]

_SCALARS: Final = {
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}


class Messages:
    """The messages of one package.

    Args:
        package: its name.
        described: the fields of each message, as in ``name=1:string parts=2:Part* labels=3:{string}``; the star
            is for repeated ones, braces are for maps from strings.
    """

    def __init__(self, package: str, described: Mapping[str, str]) -> None:
        self._package = package
        self._described = described
        self._types: dict[str, type[Message]] = {}

    def type(self, name: str) -> type[Message]:
        """Return the class of a message."""
        if name not in self._types:
            found = self._pool.FindMessageTypeByName(f"{self._package}.{name}")
            self._types[name] = message_factory.GetMessageClass(found)
        return self._types[name]

    @cached_property
    def _pool(self) -> descriptor_pool.DescriptorPool:
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{self._package}.proto", package=self._package, syntax="proto3"
        )
        for name, fields in self._described.items():
            message = file.message_type.add(name=name)
            for described in fields.split():
                field, _, rest = described.partition("=")
                number, _, kind = rest.partition(":")
                item = message.field.add(name=field, number=int(number))
                item.label = item.LABEL_REPEATED if kind.endswith("*") else item.LABEL_OPTIONAL
                kind = kind.removesuffix("*")
                if kind in _SCALARS:
                    item.type = _SCALARS[kind]
                elif kind.startswith("{"):
                    entry = _add_entry(message, f"{field[0].upper()}{field[1:]}Entry", kind.strip("{}"))
                    item.label = item.LABEL_REPEATED
                    item.type, item.type_name = item.TYPE_MESSAGE, f".{self._package}.{name}.{entry}"
                else:
                    item.type, item.type_name = item.TYPE_MESSAGE, f".{self._package}.{kind}"
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(file.SerializeToString())
        return pool


def _add_entry(message: descriptor_pb2.DescriptorProto, name: str, kind: str) -> str:
    """Describe the entries of a map, which are messages within the one that has it; return their name."""
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, (field, scalar) in enumerate((("key", "string"), ("value", kind)), 1):
        item = entry.field.add(name=field, number=number, type=_SCALARS[scalar])
        item.label = item.LABEL_OPTIONAL
    return name
