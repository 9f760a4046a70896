"""Containment of JSON Schemas: whether every document of one is one of another.

Rules:
1. What is not proved is refused: of some keywords it is only known that the same ones accept the same documents.
2. A property that a schema does not name may be anything, unless ``additionalProperties`` says otherwise: to name it
   later takes documents away.
3. No pattern is ever tried, and no reference leaves its schema: both are of tenants.
4. The work is bounded: schemas that need more are called too complex.
"""

from __future__ import annotations

import json
import operator
from typing import Any, Final

from enmasse.schemas.json_schemas import resolve

_STEPS: Final = 20_000
"""Comparisons of two parts: a fraction of a second."""
_CHARACTERS: Final = 10_000_000
"""Of all parts that are compared."""
_REASONS: Final = 20
_TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_BEFORE_SIBLINGS: Final = ("draft-04", "draft-06", "draft-07")
"""Drafts in which nothing beside a reference counts."""
_NAMES: Final = ("$schema", "$id", "id", "$anchor", "$comment", "title", "description", "default", "examples",
                 "definitions", "$defs", "readOnly", "writeOnly", "deprecated", "format", "contentEncoding",
                 "contentMediaType")  # fmt: skip
"""The keywords that take no document away."""
_LEAST: Final = {"minimum": "number", "minLength": "string", "minItems": "array", "minProperties": "object"}
_FROM_ZERO: Final = ("minLength", "minItems", "minProperties")
_MOST: Final = {"maximum": "number", "maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_SAME: Final = {
    "pattern": "string", "additionalItems": "array", "prefixItems": "array", "contains": "array",
    "minContains": "array", "maxContains": "array", "uniqueItems": "array", "patternProperties": "object",
    "propertyNames": "object", "dependencies": "object", "dependentRequired": "object",
    "dependentSchemas": "object", "not": "", "if": "", "then": "", "else": "", "$dynamicRef": "",
    "$recursiveRef": "", "exclusiveMinimum": "number", "exclusiveMaximum": "number", "multipleOf": "number",
}  # fmt: skip
"""Keywords that must be the same, and the type of what they count for."""
_WHOLE: Final = ("unevaluatedProperties", "unevaluatedItems")
"""Keywords whose meaning depends on all that is around them."""
_TOGETHER: Final = (
    ("if", "then", "else"), ("items", "prefixItems", "additionalItems"), ("contains", "minContains", "maxContains"),
)  # fmt: skip
"""Keywords that mean something together alone."""

Schema = dict[str, Any]


class _TooComplexError(Exception):
    pass


def json_problems(reader: Any, writer: Any) -> list[str]:
    """Return why documents of one schema may be none of another; empty: each is one.

    Args:
        reader: of who reads, a schema.
        writer: of who has written.
    """
    try:
        return _Comparison(reader, writer).problems(writer, reader, "#")[:_REASONS]
    except (_TooComplexError, RecursionError):
        return ["the schemas are too complex to be compared"]


class _Comparison:
    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader = reader
        self._writer = writer
        self._steps = self._characters = 0
        self._under_way: set[tuple[str, str]] = set()
        self._are_roots_same = reader == writer

    def problems(self, writer: Any, reader: Any, path: str) -> list[str]:
        """Return why documents of a part of the writer's schema may be none of a part of the reader's."""
        self._steps += 1
        if self._steps > _STEPS:
            raise _TooComplexError
        if writer is False or reader is True or (self._are_roots_same and writer == reader):
            return []
        key = _text(writer), _text(reader)
        self._characters += len(key[0]) + len(key[1])
        if self._characters > _CHARACTERS:
            raise _TooComplexError
        if key in self._under_way:
            return []  # it refers to itself, and is right if all the rest is
        self._under_way.add(key)
        try:
            return self._compare(_dereferenced(writer, self._writer), _dereferenced(reader, self._reader), path)
        finally:
            self._under_way.discard(key)

    def _compare(self, writer: Schema, reader: Schema, path: str) -> list[str]:
        if not reader:
            return []
        if reader == {"not": {}}:
            return [f"{path}: nothing is accepted there any more"]
        for whole in _WHOLE:
            if whole in reader and not (writer == reader and self._is_same(writer, reader)):
                return [f"{path}: schemas with {whole} are compatible only if they are the same"]
        writer = self._without_all_of(writer)
        for choice in ("anyOf", "oneOf"):
            if choice in writer:
                rest = {name: value for name, value in writer.items() if name != choice}
                branches = [_merged(rest, _dereferenced(item, self._writer)) for item in writer[choice]]
                return self._first(self.problems(branch, reader, path) for branch in branches)
        if "allOf" in reader:
            rest = {name: value for name, value in reader.items() if name != "allOf"}
            return [why for part in (rest, *reader["allOf"]) for why in self.problems(writer, part, path)]
        for choice in ("anyOf", "oneOf"):
            if choice in reader:
                rest = {name: value for name, value in reader.items() if name != choice}
                return self.problems(writer, rest, path) + self._choice_problems(writer, reader, choice, path)
        return self._plain_problems(writer, reader, path)

    def _without_all_of(self, writer: Schema) -> Schema:
        while "allOf" in writer:
            self._steps += 1
            if self._steps > _STEPS:
                raise _TooComplexError
            parts = writer["allOf"]
            writer = {name: value for name, value in writer.items() if name != "allOf"}
            for part in parts:
                writer = _merged(writer, _dereferenced(part, self._writer))
        return writer

    def _first(self, found: Any) -> list[str]:
        return next((problems for problems in found if problems), [])

    def _choice_problems(self, writer: Schema, reader: Schema, choice: str, path: str) -> list[str]:
        types = _types(writer)
        if len(types) > 1:
            parts = [writer | {"type": name} for name in sorted(types)]
            return self._first(self._choice_problems(part, reader, choice, path) for part in parts)
        branches = [_dereferenced(item, self._reader) for item in reader[choice]]
        for index, branch in enumerate(branches):
            if not self.problems(writer, branch, path):
                others = [other for number, other in enumerate(branches) if number != index]
                if choice == "anyOf" or all(_are_disjoint(writer, other) for other in others):
                    return []
                return [f"{path}: documents may be of several of oneOf"]
        return [f"{path}: {choice} has nothing for {' or '.join(sorted(types))} as it was"]

    def _plain_problems(self, writer: Schema, reader: Schema, path: str) -> list[str]:
        found = []
        types, accepted = _types(writer), _types(reader, of_values=False)
        if missing := sorted(name for name in types if not _is_accepted(name, accepted)):
            found.append(f"{path}: {' and '.join(missing)} is not accepted any more")
        accepted_values = _values(reader)
        if accepted_values is not None:
            values = _values(writer)
            if values is None or not {_text(value) for value in values} <= {_text(it) for it in accepted_values}:
                found.append(f"{path}: not every value that was accepted still is")
        found += self._bound_problems(writer, reader, types, path)
        if "array" in types:
            found += self._item_problems(writer, reader, path)
        if "object" in types:
            found += self._property_problems(writer, reader, path)
        return found

    def _bound_problems(self, writer: Schema, reader: Schema, types: frozenset[str], path: str) -> list[str]:
        found = []
        for bounds, is_within in ((_LEAST, operator.le), (_MOST, operator.ge)):
            for name, of in bounds.items():
                if name in reader and _is_of(types, of) and (reader[name] != 0 or name not in _FROM_ZERO):
                    old = writer.get(name, _exclusive(writer, name))
                    if old is None or not is_within(reader[name], old):
                        found.append(f"{path}: {name} is narrower")
        for name, of in _SAME.items():
            if name not in reader or not _is_of(types, of) or (name, reader[name]) == ("uniqueItems", False):
                continue
            if name not in writer or not self._is_same(writer[name], reader[name]):
                found.append(f"{path}: {name} is new, or another one")
        return found

    def _item_problems(self, writer: Schema, reader: Schema, path: str) -> list[str]:
        if "items" not in reader:
            return []
        old, new = writer.get("items", True), reader["items"]
        first = writer.get("prefixItems"), reader.get("prefixItems")
        if isinstance(old, list) or isinstance(new, list) or first != (None, None):
            return [] if self._is_same([old, first[0]], [new, first[1]]) else [f"{path}/items: it is another one"]
        return self.problems(old, new, f"{path}/items")

    def _property_problems(self, writer: Schema, reader: Schema, path: str) -> list[str]:
        old, new = writer.get("properties", {}), reader.get("properties", {})
        old_rest, new_rest = writer.get("additionalProperties", True), reader.get("additionalProperties", True)
        patterns = writer.get("patternProperties")
        if patterns and not self._is_same(patterns, reader.get("patternProperties")):
            old_rest = True
        found = [
            f"{path}: property '{name}' is required, and was not"
            for name in _names(reader.get("required"))
            if name not in _names(writer.get("required"))
        ]
        for name, of in new.items():
            place = f"{path}/properties/{name}"
            if name in old:
                found += self.problems(old[name], of, place)
            elif self.problems(True if patterns else old_rest, of, place):
                found.append(f"{place}: it is new, and could be anything before: additionalProperties allowed that")
        for name, of in old.items():
            if name not in new and self.problems(of, new_rest, f"{path}/properties/{name}"):
                found.append(f"{path}/properties/{name}: it is gone, and additionalProperties does not allow it")
        return found + self.problems(old_rest, new_rest, f"{path}/additionalProperties")

    def _is_same(self, old: Any, new: Any) -> bool:
        """Return whether two parts mean the same, what they refer to included."""
        if _text(old) != _text(new):
            return False
        return self._are_roots_same or not any(f'"{name}"' in _text(old) for name in ("$ref", "$dynamicRef"))


def _dereferenced(schema: Any, root: Any) -> Schema:
    """Return a schema as a map, without a reference at its top and without what does not count."""
    for _ in range(100):
        if isinstance(schema, bool):
            return {} if schema else {"not": {}}
        if not isinstance(schema.get("$ref"), str):
            return {name: value for name, value in schema.items() if name not in _NAMES}
        siblings = {name: value for name, value in schema.items() if name not in (*_NAMES, "$ref")}
        try:
            schema = resolve(root, schema["$ref"])
        except (LookupError, TypeError, ValueError):
            raise _TooComplexError from None
        if siblings and not _is_before_siblings(root):
            return {"allOf": [schema, siblings]}
    raise _TooComplexError


def _is_before_siblings(root: Any) -> bool:
    named = root.get("$schema", "draft-07") if isinstance(root, dict) else "draft-07"
    return any(draft in str(named) for draft in _BEFORE_SIBLINGS)


def _merged(one: Schema, other: Schema) -> Schema:
    """Return a schema of all documents that both have, and perhaps of more."""
    if {"not": {}} in (one, other):
        return {"not": {}}
    both = {**other, **one}
    for name in {*one} & {*other}:
        mine, yours = one[name], other[name]
        if name == "type":
            types = sorted(_types({"type": mine}) & _types({"type": yours}))
            if {"number", "integer"} <= {*_names(mine), *_names(yours)}:
                types.append("integer")
            both[name] = types
        elif name == "allOf":
            both[name] = [*mine, *yours]
        elif name == "properties":
            both[name] = yours | mine | {key: {"allOf": [mine[key], yours[key]]} for key in {*mine} & {*yours}}
        elif name == "required":
            both[name] = sorted({*_names(mine), *_names(yours)})
        elif name in _LEAST:
            both[name] = max(mine, yours)
        elif name in _MOST:
            both[name] = min(mine, yours)
    if "patternProperties" in one and "patternProperties" in other and "additionalProperties" not in one:
        both.pop("additionalProperties", None)  # it does not count for the other's patterns
    for names in _TOGETHER:
        if any(name in one for name in names):
            for name in names:
                both.pop(name, None)
            both |= {name: one[name] for name in names if name in one}
    return both


def _types(schema: Schema, *, of_values: bool = True) -> frozenset[str]:
    """Return the types of a schema's documents; a whole number is a number."""
    named = schema.get("type")
    types = _TYPES - {"integer"} if named is None else frozenset(_names(named))
    if "number" in types:
        types -= {"integer"}
    values = _values(schema) if of_values else None
    if values is None:
        return types
    return frozenset(map(_type_of, values)) if named is None else types


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _is_accepted(name: str, accepted: frozenset[str]) -> bool:
    return name in accepted or (name == "integer" and "number" in accepted)


def _is_of(types: frozenset[str], of: str) -> bool:
    return not of or of in types or (of == "number" and "integer" in types)


def _values(schema: Schema) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _are_disjoint(one: Schema, other: Schema) -> bool:
    mine, yours = _values(one), _values(other)
    if mine is not None and yours is not None:
        return {_text(value) for value in mine}.isdisjoint(_text(value) for value in yours)
    ours, theirs = _types(one), _types(other)
    numbers = {"number", "integer"}
    return ours.isdisjoint(theirs) and not (ours & numbers and theirs & numbers)


def _exclusive(schema: Schema, name: str) -> Any:
    found = schema.get({"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}.get(name, ""))
    return None if isinstance(found, bool) else found


def _names(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
