"""Descriptors of Protobuf, as protoc writes them, for tests."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass

from enmasse.model.sql.protobuf import parse_protobuf

_LABELS = {"optional": "LABEL_OPTIONAL", "repeated": "LABEL_REPEATED", "required": "LABEL_REQUIRED"}


def field(name: str, number: int, of: str, label: str = "optional", **more: Any) -> str:
    """Return a field in the text format; a type with a dot is a message, one with a colon an enum."""
    kind = f"type: TYPE_{of.upper()}"
    if of.startswith("."):
        kind = f'type: TYPE_MESSAGE type_name: "{of}"'
    elif of.startswith(":"):
        kind = f'type: TYPE_ENUM type_name: ".{of[1:]}"'
    options = " ".join(f"{key}: {value}" for key, value in more.items())
    return f'field {{ name: "{name}" number: {number} label: {_LABELS[label]} {kind} {options} }}'


def map_entry(name: str, key: str, value: str) -> str:
    """Return the nested type of a field that is a map."""
    fields = field("key", 1, key) + field("value", 2, value)
    return f'nested_type {{ name: "{name}" {fields} options {{ map_entry: true }} }}'


def file_of(content: str, *, name: str = "acme.proto", syntax: str = "proto3") -> FileDescriptorProto:
    """Return a file of the package ``acme`` by what is in it, in the text format."""
    made = FileDescriptorProto(name=name, package="acme", syntax=syntax)
    text_format.Merge(content, made)
    return made


def schema_of(message: str, *files: FileDescriptorProto) -> str:
    """Return a schema as it is declared."""
    return f"{message}\n{base64.b64encode(FileDescriptorSet(file=files).SerializeToString()).decode()}"


def written(schema: str, **fields: Any) -> bytes:
    """Return a message in binary, as Google's library writes it."""
    return bytes(GetMessageClass(parse_protobuf(schema))(**fields).SerializeToString())
