"""JSON Schema in the registry: which texts are schemas, with references within themselves alone."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft3Validator, Draft7Validator, validator_for

from enmasse.schemas.errors import InvalidSchemaError

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords below which there are documents, and no schemas."""


def validator_class(plain: Any) -> Any:
    """Return the validator of the draft that a schema names; draft 7 where it names none."""
    return validator_for(plain, default=Draft7Validator)


def check_json_schema(plain: Any) -> None:
    """Refuse what is no JSON Schema.

    Raises:
        InvalidSchemaError: it is none, or it refers to something outside of itself.
    """
    if not isinstance(plain, dict | bool):
        raise InvalidSchemaError("expected a JSON object, or true or false")
    if (
        isinstance(plain, dict)
        and "$schema" in plain
        and validator_for(plain, default=None) in (None, Draft3Validator)
    ):
        raise InvalidSchemaError(
            f"$schema: expected draft 4, 6, 7, 2019-09 or 2020-12, got {plain['$schema']!r:.100}"
        )
    _check_lists(plain)
    try:
        validator_class(plain).check_schema(plain)
        _check_references(plain, plain)
    except SchemaError as error:
        place = "/".join(map(str, error.absolute_path))
        raise InvalidSchemaError(f"{place or 'the schema'}: {error.message[:300]}") from error
    except RecursionError:
        raise InvalidSchemaError("it is nested too deeply") from None


_MAX_MIXED: Final = 200
"""Of a list: whether its items are different is found by comparing each with each, unless they can be sorted."""


def _check_lists(root: Any) -> None:
    left = [root]
    while left:
        node = left.pop()
        if isinstance(node, list) and len(node) > _MAX_MIXED and len(set(map(type, node))) > 1:
            raise InvalidSchemaError(f"a list has {len(node)} items of several types: expected {_MAX_MIXED} at most")
        if isinstance(node, list) and len(node) > _MAX_MIXED and isinstance(node[0], dict | list):
            raise InvalidSchemaError(f"a list has {len(node)} schemas or the like: expected {_MAX_MIXED} at most")
        if isinstance(node, list | dict):
            left.extend(node if isinstance(node, list) else node.values())


def resolve(root: Any, reference: str) -> Any:
    """Return what a reference within a schema leads to.

    Raises:
        LookupError: it leads out of the schema, or to nothing.
    """
    if reference not in ("", "#") and not reference.startswith("#/"):
        raise LookupError(reference)
    node = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        node = node[int(key)] if isinstance(node, list) and key.isdecimal() else node[key]
    return node


def _check_references(root: Any, node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _check_references(root, item)
    if not isinstance(node, dict):
        return
    if node is not root and isinstance(node.get("$id"), str):
        raise InvalidSchemaError("$id: expected at the top of the schema alone")
    for key, value in node.items():
        if key in _REFERENCES and isinstance(value, str):
            try:
                resolve(root, value)
            except (LookupError, TypeError, ValueError):
                raise InvalidSchemaError(
                    f"{key}: expected a place in the schema itself, such as #/$defs/NAME, got {value!r:.100}"
                ) from None
        elif key == "properties" and isinstance(value, dict):
            for below in value.values():  # whatever the properties are called
                _check_references(root, below)
        elif key not in _VALUES:
            _check_references(root, value)
