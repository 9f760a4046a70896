"""The kinds as schemas of OpenAPI 3.0, made from the classes.

The schemas are structural in the sense of Kubernetes: everything is written out
in place, so that they serve CRDs, OpenAPI and the reference alike. Lists whose
entries have keys say so, for server-side apply. The descriptions are the docstrings
of the classes and below their fields, read from the source.
"""

from __future__ import annotations

import ast
import inspect
import sys
import types
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo

from enmasse.model.schema.kinds import KINDS
from enmasse.model.schema.objects import class_of
from enmasse.model.schema.schema import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from enmasse.model.schema.kinds import Kind


def class_text(model: type) -> str:
    """Return the docstring of a class, as one line for each paragraph."""
    return _plain(inspect.cleandoc(model.__doc__ or ""))


@cache
def field_texts(model: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, by the field's name."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if base.__module__.startswith("enmasse."):
            found |= _of_module(base.__module__).get(base.__qualname__, {})
    return found


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[name]))
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(tree: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, following in zip(tree.body, tree.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as text)),
            ):
                found[name] = _plain(inspect.cleandoc(text))
    return found


def _plain(text: str) -> str:
    paragraphs = text.replace("``", "`").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


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
    """Return the schema of every kind in each of its versions, by name; shared, and not to be changed."""
    return {schema_name(kind, version): kind_schema(kind, version) for kind in KINDS for version in kind.versions}


def kind_schema(kind: Kind, version: str) -> Schema:
    """Return the schema of a kind in one version, metadata included."""
    schema = dict(structural(class_of(kind)))
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
    """Return the schema of a class; the result is shared and must not be changed."""
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
    """Return a function that gives the keys of a list's entries, for patches and server-side apply.

    It takes the path of a list, as field names from the object down through the
    entries of other lists, and returns the keys of its entries, ``SET``, or None
    where the list is one value.
    """
    schema = structural(class_of(kind))

    @lru_cache(maxsize=1000)  # more than a kind has lists; the paths come from clients
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
