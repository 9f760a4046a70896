"""The kinds as schemas of OpenAPI 3.0, made from the classes.

The schemas are structural in the sense of Kubernetes: everything is written out
in place, so that they serve CRDs, OpenAPI and the reference alike. Lists whose
entries have keys say so, for server-side apply.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo

from enmasse.model.kinds import KINDS
from enmasse.model.schema import Model
from enmasse.model.texts import class_text, field_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.model.kinds import Kind

__all__ = ["SET", "Schema", "kind_schema", "list_keys", "schema_at", "schema_name", "schemas", "structural"]

Schema = dict[str, Any]

SET: Final[tuple[str, ...]] = ()
"""A list is a set of scalars."""

LARGEST_BOUND: Final = 1 << 53
"""Bounds beyond it are left out: API servers read them as doubles, round, and refuse every value."""

_SCALARS: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number", "format": "double"},
    bool: {"type": "boolean"},
}
_ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_BOUNDS: tuple[tuple[type, str, str, str], ...] = (
    (Ge, "ge", "minimum", "minimum"),
    (Le, "le", "maximum", "maximum"),
    (MinLen, "min_length", "minLength", "minItems"),
    (MaxLen, "max_length", "maxLength", "maxItems"),
)


def schema_name(kind: Kind, version: str) -> str:
    """Return the name of a kind's schema, as in ``io.enmasse.v1beta1.Address``."""
    if kind.is_ours:
        return f"{'.'.join(reversed(kind.group.split('.')))}.{version}.{kind.name}"
    return f"io.k8s.api.{kind.group.partition('.')[0] or 'core'}.{version}.{kind.name}"


@cache
def schemas() -> Mapping[str, Schema]:
    """Return the schema of every kind in each of its versions, by name; nobody changes what is returned."""
    return {schema_name(kind, version): kind_schema(kind, version) for kind in KINDS for version in kind.versions}


def kind_schema(kind: Kind, version: str) -> Schema:
    """Return the schema of a kind in one version, metadata included."""
    schema = dict(structural(kind.model))
    schema["properties"] = schema["properties"] | {
        "apiVersion": {
            "type": "string",
            "description": "Group and version of the kind.",
            "enum": [kind.api_version_of(version)],
        },
        "kind": {"type": "string", "description": "The kind of the object.", "enum": [kind.name]},
    }
    schema["required"] = ["apiVersion", "kind", "metadata", *schema.get("required", ())]
    gvk = {"group": kind.group, "kind": kind.name, "version": version}
    return schema | {"x-kubernetes-group-version-kind": [gvk]}


@cache
def structural(model: type[BaseModel]) -> Schema:
    """Return the schema of a class; nobody changes what is returned."""
    texts = field_texts(model)
    properties: Schema = {}
    required = []
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        alias = field.alias or name
        schema = _of_annotation(field.annotation, field.metadata)
        if isinstance(field.json_schema_extra, dict):
            schema |= field.json_schema_extra
        text = texts.get(name) or schema.get("description")
        properties[alias] = ({"description": text} if text else {}) | {
            key: value for key, value in schema.items() if key != "description"
        }
        if field.is_required():
            required.append(alias)
        elif isinstance(field.default, str | int | float) and field.default != "":
            properties[alias]["default"] = field.default
    schema = {"type": "object", "description": class_text(model), "properties": properties}
    return schema | ({"required": required} if required else {})


@cache
def list_keys(kind: Kind) -> Callable[[tuple[str, ...]], tuple[str, ...] | None]:
    """Return what tells of the lists of a kind for those who merge and apply.

    It is asked with the path of a list, as field names from the object down
    through the entries of other lists, and answers with the keys of its entries,
    with ``SET``, or with None where the list is one value.
    """
    schema = structural(kind.model)

    @lru_cache(maxsize=1000)  # more than a kind has lists; the paths may be anybody's
    def ask(path: tuple[str, ...]) -> tuple[str, ...] | None:
        found = schema_at(schema, path)
        match (found or {}).get("x-kubernetes-list-type"):
            case "map":
                return tuple((found or {})["x-kubernetes-list-map-keys"])
            case "set":
                return SET
        return None

    return ask


def schema_at(schema: Schema, path: Iterable[str]) -> Schema | None:
    """Return the part of a schema at a path of field names, None where there is none."""
    found: Schema | None = schema
    for name in path:
        while found is not None and found.get("type") == "array":
            found = found["items"]
        if found is None:
            return None
        others = found.get("additionalProperties")
        found = found.get("properties", {}).get(name) or (others if isinstance(others, dict) else None)
    return found


def _of_annotation(annotation: Any, metadata: Iterable[Any] = ()) -> Schema:
    items = list(metadata)
    for item in items:
        if isinstance(item, WithJsonSchema):
            return dict(item.json_schema or {})
    schema = _of_type(annotation)
    for item in items:
        schema = _bounded(schema, item.metadata if isinstance(item, FieldInfo) else [item])
    return schema


def _of_type(annotation: Any) -> Schema:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    if annotation is Any:
        return dict(_ANYTHING)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return dict(structural(annotation))
    if origin is Annotated:
        return _of_annotation(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        (choice,) = (choice for choice in arguments if choice is not type(None))
        return _of_annotation(choice)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is tuple:
        return _list_of(arguments[0])
    assert origin is dict, annotation
    if arguments[1] is Any:
        return dict(_ANYTHING)
    return {"type": "object", "additionalProperties": _of_annotation(arguments[1])}


def _list_of(item: Any) -> Schema:
    schema: Schema = {"type": "array", "items": _of_annotation(item)}
    if isinstance(item, type) and issubclass(item, Model) and item.entry_keys:
        return schema | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(item.entry_keys)}
    return schema | {"x-kubernetes-list-type": "atomic"}


def _bounded(schema: Schema, metadata: Iterable[Any]) -> Schema:
    bounds = {}
    for item in metadata:
        for kind, attribute, of_value, of_list in _BOUNDS:
            bound = getattr(item, attribute) if isinstance(item, kind) else None
            if bound is not None and abs(bound) <= LARGEST_BOUND:
                bounds[of_list if schema.get("type") == "array" else of_value] = bound
        if pattern := getattr(item, "pattern", None):
            bounds["pattern"] = pattern
    return schema | bounds
