"""Protobuf in the registry: what is a schema, which go with each other, and where a message lies in its file."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from enmasse.model.sql.protobuf import parse_protobuf
from enmasse.schemas.compatibility import Schema, problems, read_schema
from enmasse.schemas.errors import InvalidSchemaError
from enmasse.schemas.protobuf_schemas import message_path
from enmasse.schemas.wire_format import message_path_of
from tests.support.protobuf_files import field, file_of, map_entry, schema_of

PLACE = 'message_type { name: "Place" ' + field("floor", 1, "int32") + "}"


def schema(*fields: str, more: str = "", syntax: str = "proto3") -> Schema:
    imports = 'dependency: "google/protobuf/timestamp.proto" '
    made = file_of(f'{imports} message_type {{ name: "R" {" ".join(fields)} }} {more}', syntax=syntax)
    return read_schema("PROTOBUF", base64.b64encode(made.SerializeToString()).decode())


def test_a_schema_is_a_file_and_may_come_in_a_set() -> None:
    from google.protobuf import timestamp_pb2

    made = file_of('dependency: "google/protobuf/timestamp.proto" ' + PLACE)
    known = FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known.file.add())
    known.file.append(made)
    alone = read_schema("PROTOBUF", base64.b64encode(made.SerializeToString()).decode())
    assert read_schema("PROTOBUF", base64.b64encode(known.SerializeToString()).decode()) == alone
    made.source_code_info.location.add(path=[4], span=[1, 2, 3])
    described = read_schema("PROTOBUF", base64.encodebytes(made.SerializeToString()).decode())
    assert described.identity == alone.identity


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('syntax = "proto3";', "expected a descriptor set in base64"),
        ("", "expected a FileDescriptorSet"),
        ("AAAA", "expected a FileDescriptorSet"),
        (schema_of("x", file_of(PLACE), file_of("", name="b.proto")).split()[1], "expected one file"),
        (schema_of("x", file_of('dependency: "other.proto"')).split()[1], "imports other.proto, which is not there"),
        (schema_of("x", file_of(f'message_type {{ name: "R" {field("a", 1, ".acme.None")} }}')).split()[1], "acme"),
    ],
)
def test_what_is_no_file_by_itself_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidSchemaError, match=problem):
        read_schema("PROTOBUF", text)


A = field("a", 1, "int32")
ONE_NAME = 'enum_type { name: "E" value { name: "A" number: 1 } }'
OF_ONE = 'oneof_decl { name: "x" }'


@pytest.mark.parametrize(
    ("reader", "writer", "problem"),
    [
        (schema(A, field("b", 2, "string")), schema(A), None),
        (schema(A), schema(A, field("b", 2, "string")), None),
        (schema(field("renamed", 1, "int32")), schema(A), None),
        (schema(field("a", 1, "int64")), schema(A), None),
        (schema(A), schema(field("a", 1, "int64")), "acme.R.a: the type cannot be read"),
        (schema(field("a", 1, "sint32")), schema(A), "cannot be read"),
        (schema(field("a", 1, "uint64")), schema(A), "cannot be read"),
        (schema(field("a", 1, "bytes")), schema(field("a", 1, "string")), None),
        (schema(field("a", 1, "string")), schema(field("a", 1, "bytes")), "cannot be read"),
        (schema(field("a", 1, "int32", "repeated")), schema(A), None),
        (schema(A), schema(field("a", 1, "int32", "repeated")), "of a list the last value"),
        (schema(field("p", 1, ".acme.Place"), more=PLACE), schema(A, more=PLACE), "cannot be read"),
        (
            schema(field("p", 1, ".acme.Place"), more=PLACE),
            schema(field("p", 1, ".acme.Place"), more=PLACE.replace("INT32", "INT64")),
            "acme.Place.floor: the type cannot be read",
        ),
        (
            schema(field("p", 1, ".google.protobuf.Timestamp")),
            schema(field("p", 1, ".acme.Place"), more=PLACE),
            "expected acme.Place, got google.protobuf.Timestamp",
        ),
        (schema(A), schema(A, more=PLACE), "the message acme.Place is missing"),
        (schema(A, more=PLACE), schema(A), None),
        (
            schema(field("m", 1, ".acme.R.MEntry", "repeated"), map_entry("MEntry", "string", "int32")),
            schema(field("m", 1, ".acme.R.MEntry", "repeated"), map_entry("MEntry", "string", "int64")),
            "acme.R.MEntry.value: the type cannot be read",
        ),
        (
            schema(field("m", 1, ".acme.Place", "repeated"), more=PLACE),
            schema(field("m", 1, ".acme.R.MEntry", "repeated"), map_entry("MEntry", "string", "int32"), more=PLACE),
            "one is a map",
        ),
        (
            schema(field("a", 1, "int32", oneof_index=0), field("b", 2, "int32", oneof_index=0), OF_ONE),
            schema(A, field("b", 2, "int32")),
            "acme.R.x: of a, b one is read",
        ),
        (schema(field("a", 1, "int32", oneof_index=0), OF_ONE), schema(A), None),
        (schema(field("a", 1, "int32", "required"), syntax="proto2"), schema(A), "it is required, and was not"),
        (
            schema(
                field("e", 1, ":acme.E"),
                more=ONE_NAME,
                syntax="proto2",
            ),
            schema(
                field("e", 1, ":acme.E"),
                more=ONE_NAME.replace("} }", '} value { name: "B" number: 2 } }'),
                syntax="proto2",
            ),
            "acme.E lacks B",
        ),
    ],
)
def test_fields_are_read_by_their_numbers_into_types_that_take_them(
    reader: Schema, writer: Schema, problem: str | None
) -> None:
    found = problems("BACKWARD", reader, [writer])
    assert (problem or "") in "; ".join(found)
    assert bool(found) is (problem is not None)
    assert problems("FORWARD", writer, [reader]) == [
        why.replace("reading what was written before", "reading with the former schema") for why in found
    ]


def test_messages_that_hold_themselves_are_compared_too() -> None:
    tree = schema(A, field("below", 2, ".acme.R", "repeated"))
    assert problems("FULL", schema(A, field("below", 2, ".acme.R", "repeated"), field("b", 3, "int32")), [tree]) == []


def test_the_place_of_a_message_is_as_confluents_serializers_write_it() -> None:
    inner = 'nested_type { name: "Other" } nested_type { name: "Inner" ' + field("n", 1, "int32") + "}"
    file = file_of(f'message_type {{ name: "First" {A} }} message_type {{ name: "Outer" {A} {inner} }}')
    for name, place, path in (
        ("First", b"\0", (0,)),
        ("Outer", b"\x02\x02", (1,)),
        ("Outer.Inner", b"\x04\x02\x02", (1, 1)),
    ):
        assert message_path(parse_protobuf(schema_of(f"acme.{name}", file))) == place
        assert message_path_of(place + b"rest") == (path, len(place))
    for odd in (b"", b"\x02", b"\x01", b"\xff" * 9, b"\x80\x80\x80"):
        with pytest.raises(ValueError, match="place of a message"):
            message_path_of(odd)
