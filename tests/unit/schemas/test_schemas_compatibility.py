"""Which schemas are schemas, and which go with each other."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.schemas.compatibility import LEVELS, Level, Schema, problems, read_level, read_schema
from enmasse.schemas.errors import InvalidSchemaError, SchemaRegistryError
from enmasse.schemas.json_containment import json_problems
from enmasse.schemas.wire_format import header, schema_id_of


def record(*fields: dict[str, Any], name: str = "R") -> Schema:
    return read_schema("AVRO", json.dumps({"type": "record", "name": name, "fields": list(fields)}))


DEVICE = {"name": "device", "type": "string"}
OLD = record(DEVICE)
NEW_WITH_DEFAULT = record(DEVICE, {"name": "unit", "type": "string", "default": "C"})
ENUM = '{"type": "enum", "name": "E", "symbols": [%s]}'
NEW_WITHOUT = record(DEVICE, {"name": "unit", "type": "string"})


@pytest.mark.parametrize(
    ("level", "new", "former", "fits"),
    [
        ("BACKWARD", NEW_WITH_DEFAULT, [OLD], True),
        ("BACKWARD", NEW_WITHOUT, [OLD], False),
        ("FORWARD", NEW_WITHOUT, [OLD], True),
        ("FORWARD", OLD, [NEW_WITHOUT], False),
        ("FULL", NEW_WITH_DEFAULT, [OLD], True),
        ("FULL", NEW_WITHOUT, [OLD], False),
        ("NONE", read_schema("AVRO", '"int"'), [OLD], True),
        ("BACKWARD", NEW_WITHOUT, [OLD, NEW_WITHOUT], True),
        ("BACKWARD_TRANSITIVE", NEW_WITHOUT, [OLD, NEW_WITHOUT], False),
        ("FORWARD", OLD, [NEW_WITHOUT, OLD], True),
        ("FORWARD_TRANSITIVE", OLD, [NEW_WITHOUT, OLD], False),
        ("FULL_TRANSITIVE", NEW_WITHOUT, [OLD, NEW_WITHOUT], False),
        ("BACKWARD", read_schema("JSON", "{}"), [OLD], False),
    ],
)
def test_a_level_says_with_which_a_schema_must_go(
    level: Level, new: Schema, former: list[Schema], fits: bool
) -> None:
    assert (problems(level, new, former) == []) is fits


@pytest.mark.parametrize(
    ("reader", "writer", "fits"),
    [
        ('"long"', '"int"', True),
        ('"int"', '"long"', False),
        ('["null", "string"]', '"string"', True),
        ('"string"', '["null", "string"]', False),
        (ENUM % '"A", "B"', ENUM % '"A"', True),
        (ENUM % '"A"', ENUM % '"A", "B"', False),
        ('{"type": "long", "logicalType": "local-timestamp-millis"}', '"long"', True),
        ('{"type": "fixed", "name": "F", "size": 4}', '{"type": "fixed", "name": "F", "size": 5}', False),
    ],
)  # fmt: skip
def test_avro_is_read_by_the_rules_of_its_specification(reader: str, writer: str, fits: bool) -> None:
    found = problems("BACKWARD", read_schema("AVRO", reader), [read_schema("AVRO", writer)])
    assert (found == []) is fits, found


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", "{"),
        ("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "Nope"}]}'),
        ("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int", "default": "x"}]}'),
        ("AVRO", '["int", "int"]'),
        ("AVRO", "5"),
        ("AVRO", '{"type": "array", "items": ' * 2000 + '"int"' + "}" * 2000),
        ("AVRO", "nope"),
        ("JSON", "[]"),
        ("JSON", '{"type": "nothing"}'),
        ("JSON", '{"properties": {"a": {"$ref": "https://example.com/a.json"}}}'),
        ("JSON", '{"$ref": "#/definitions/none"}'),
        ("JSON", '{"$schema": "https://example.com/own"}'),
        ("JSON", '{"properties": {"a": {"$id": "https://example.com/b"}}}'),
        ("JSON", "NaN"),
        ("JSON", json.dumps({"enum": [*range(200), "a"]})),
        ("JSON", json.dumps({"anyOf": [{}] * 201})),
    ],
)
def test_what_is_no_schema_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidSchemaError):
        read_schema(kind, text)


def test_other_types_and_levels_are_refused_by_name() -> None:
    with pytest.raises(SchemaRegistryError, match="expected AVRO, JSON or PROTOBUF, got 'THRIFT'"):
        read_schema("THRIFT", "")
    with pytest.raises(SchemaRegistryError, match=LEVELS[0]):
        read_level("SOMETIMES")
    assert read_level("full") == "FULL"


def test_a_schema_is_the_same_again_whatever_its_spaces() -> None:
    assert read_schema("AVRO", "string").text == '"string"'
    one, other = '{"type": "string", "doc": "x"}', '{ "doc":"x","type":"string" }'
    assert read_schema("AVRO", one).identity == read_schema("AVRO", other).identity
    title = one.replace("doc", "title"), other.replace("doc", "title")
    assert read_schema("JSON", title[0]).identity != read_schema("JSON", title[1]).identity
    assert read_schema("JSON", title[0], normalize=True) == read_schema("JSON", title[1], normalize=True)


CLOSED: dict[str, Any] = {
    "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False,
}  # fmt: skip
OPEN = {**CLOSED, "additionalProperties": True}
TREE = {
    "$ref": "#/definitions/node",
    "definitions": {
        "node": {"type": "object", "properties": {"next": {"$ref": "#/definitions/node"}, "v": {"type": "integer"}}}
    },
}


def changed(schema: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**schema, **changes}


A_AND_B = {"a": {"type": "integer"}, "b": {"type": "string"}}


@pytest.mark.parametrize(
    ("reader", "writer", "fits"),
    [
        (CLOSED, CLOSED, True),
        (OPEN, CLOSED, True),
        (CLOSED, OPEN, False),
        (changed(CLOSED, properties=A_AND_B), CLOSED, True),
        (changed(OPEN, properties=A_AND_B), OPEN, False),
        (CLOSED, changed(CLOSED, properties=A_AND_B), False),
        (OPEN, changed(OPEN, properties=A_AND_B), True),
        (changed(CLOSED, required=[]), CLOSED, True),
        (CLOSED, changed(CLOSED, required=[]), False),
        ({"type": "number"}, {"type": "integer"}, True),
        ({"type": "integer"}, {"type": "number"}, False),
        ({"type": ["string", "null"]}, {"type": "string"}, True),
        ({"type": "string"}, {"type": ["string", "null"]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["null", "string"]}, True),
        ({"oneOf": [{"type": "string"}, {"type": "null"}]}, {"type": ["null", "string"]}, True),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, {"type": "string"}, False),
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {"const": "x"}]}, True),
        ({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, False),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, True),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, False),
        ({"enum": ["a"]}, {"const": "a"}, True),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}, True),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "exclusiveMinimum": 1}, True),
        ({"type": "integer", "minimum": 2}, {"type": "integer", "minimum": 1}, False),
        ({"type": "integer", "maximum": 2}, {"type": "integer"}, False),
        ({"type": "integer", "minLength": 3}, {"type": "integer"}, True),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^a"}, True),
        ({"type": "string", "pattern": "^a"}, {"type": "string"}, False),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}, True),
        ({"type": "array", "items": {"type": "integer"}}, {"type": "array"}, False),
        ({"items": {"type": "string"}}, {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}, False),
        ({"allOf": [OPEN, {"required": ["a"]}]}, CLOSED, True),
        (CLOSED, {"allOf": [CLOSED, {"minProperties": 1}]}, True),
        (TREE, json.loads(json.dumps(TREE).replace("definitions", "$defs")), True),
        (json.loads(json.dumps(TREE).replace("integer", "number")), TREE, True),
        (TREE, json.loads(json.dumps(TREE).replace("integer", "number")), False),
        ({"patternProperties": {"^a": {"type": "string"}}, "properties": {"abc": {"type": "integer"}}},
         {"patternProperties": {"^a": {"type": "string"}}, "additionalProperties": False}, False),
        ({"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "string"}}},
         {"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "integer"}}}, False),
        (True, {"type": "string"}, True),
        (False, {"type": "string"}, False),
        ({"unevaluatedProperties": False}, {"unevaluatedProperties": False}, True),
        ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"unevaluatedProperties": False}, False),
    ],
)  # fmt: skip
def test_every_document_of_the_writer_is_one_of_the_reader(reader: Any, writer: Any, fits: bool) -> None:
    found = json_problems(reader, writer)
    assert (found == []) is fits, found


@pytest.mark.parametrize("kind", ["JSON", "AVRO"])
@pytest.mark.parametrize("depth", [400, 2_000, 9_000])
def test_a_schema_that_nests_without_end_is_refused(kind: str, depth: int) -> None:
    leaf = '{"type": "string"}'
    text = '{"type":"array","items":' * depth + leaf + "}" * depth
    with pytest.raises(InvalidSchemaError):
        read_schema(kind, text)


def test_what_takes_too_long_to_compare_is_said_to() -> None:
    def deep(levels: int, leaf: str) -> Any:
        schema: Any = {"type": leaf}
        for level in range(levels):
            schema = {"anyOf": [{"allOf": [schema, {"minLength": level}]}, {"allOf": [schema, {"maxLength": level}]}]}
        return schema

    assert json_problems(deep(14, "string"), deep(14, "integer")) == ["the schemas are too complex to be compared"]

    def union(prefix: str) -> Schema:
        branches = [{"type": "record", "name": f"{prefix}{number}", "fields": []} for number in range(500)]
        return read_schema("AVRO", json.dumps(branches))

    (found,) = problems("BACKWARD", union("a"), [union("b")])
    assert found.endswith("the schemas are too complex to be compared")


def test_a_subject_with_more_versions_than_can_be_compared_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.schemas.compatibility.MAX_S", 0)
    with pytest.raises(SchemaRegistryError, match="set a level that is not transitive"):
        problems("BACKWARD_TRANSITIVE", NEW_WITH_DEFAULT, [OLD, OLD])


LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"type": st.sampled_from(["integer", "number", "string", "null"])}),
    st.fixed_dictionaries({"enum": st.lists(st.sampled_from([0, 1, "a", None]), min_size=1, unique=True)}),
    st.fixed_dictionaries({"minimum": st.integers(-1, 2)}),
    st.fixed_dictionaries({"maxLength": st.integers(0, 2), "type": st.just("string")}),
)
NAMES = st.sampled_from(["a", "b"])
SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    LEAVES,
    lambda below: st.one_of(
        st.fixed_dictionaries(
            {"properties": st.dictionaries(NAMES, below, max_size=2)},
            optional={
                "required": st.lists(NAMES, unique=True),
                "additionalProperties": st.one_of(st.booleans(), below),
                "type": st.just("object"),
                "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), below, max_size=1),
            },
        ),
        st.builds(lambda name, parts: {name: parts}, st.sampled_from(["anyOf", "oneOf", "allOf"]),
                  st.lists(below, min_size=1, max_size=2)),
        st.fixed_dictionaries({"type": st.just("array"), "items": below}),
    ),
    max_leaves=4,
)  # fmt: skip
VALUES = st.sampled_from([None, 0, 1, 1.5, "", "a", "abc", True])
DOCUMENTS = st.recursive(
    VALUES, lambda below: st.one_of(st.dictionaries(NAMES, below), st.lists(below, max_size=2)), max_leaves=3
)


@settings(deadline=None)
@given(reader=SCHEMAS, writer=SCHEMAS, documents=st.lists(DOCUMENTS, min_size=5, max_size=20))
def test_what_is_called_compatible_is_read_whatever_is_written(
    reader: Any, writer: Any, documents: list[Any]
) -> None:
    if json_problems(reader, writer):
        return
    accepts, writes = jsonschema.Draft7Validator(reader), jsonschema.Draft7Validator(writer)
    for document in documents:
        assert accepts.is_valid(document) or not writes.is_valid(document), (reader, writer, document)


def test_the_wire_format_is_a_zero_and_the_id() -> None:
    assert header(258) == b"\0\0\0\1\2"
    assert schema_id_of(header(258) + b"x") == 258
    assert schema_id_of(b'{"a": 1}') is None
    assert schema_id_of(b"\0\0\0") is None
