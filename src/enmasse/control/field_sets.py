"""Sets of an object's fields, and what merging, comparing and removing mean for them.

Rules:
1. A field is named by a path: ``f:`` and a name in a map, ``k:`` and the values
   of its keys for an entry of a keyed list, ``v:`` and a value for one of a set.
2. Leaves are scalars, empty maps and lists without keys, which only change as a
   whole. Entries of keyed lists and of sets are members of their own.
3. Nothing here changes what it is given.

Names and form are those of Kubernetes' ``FieldsV1``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "SET",
    "FieldPath",
    "FieldSet",
    "ListType",
    "describe_path",
    "leaves",
    "members",
    "merge",
    "remove",
    "to_v1",
]

Document = dict[str, Any]
FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]

ListType = Callable[[tuple[str, ...]], "tuple[str, ...] | None"]
"""Says for a list at a path of field names: the keys of its entries, ``SET``, or None if it is one value."""

SET: tuple[str, ...] = ()
"""The list is a set of scalars."""

_ENTRY = object()  # stands for the value of an entry: that it is there


def leaves(document: Document, list_type: ListType) -> dict[FieldPath, Any]:
    """Return all fields of an object that have a value of their own."""
    return dict(_walk(document, (), (), list_type)) if document else {}


def members(fields: Document) -> FieldSet:
    """Return the set that a ``fieldsV1`` writes down.

    Raises:
        ValueError: when it is none.
    """
    return frozenset(_read(fields, ()))


def to_v1(fields: FieldSet) -> Document:
    """Return a set as ``fieldsV1`` has it."""
    tree: Document = {}
    for path in sorted(fields):
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place["."] = {}
    return _without_lone_dots(tree)


def merge(live: Any, config: Any, list_type: ListType, names: tuple[str, ...] = ()) -> Any:
    """Return ``live`` with all that ``config`` says put into it."""
    if isinstance(live, dict) and isinstance(config, dict):
        merged = dict(live)
        for key, value in config.items():
            merged[key] = merge(live[key], value, list_type, (*names, key)) if key in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list):
        keys = list_type(names)
        if keys is None:
            return config
        entries = {_entry(item, keys): item for item in live}
        for item in config:
            entry = _entry(item, keys)
            entries[entry] = merge(entries[entry], item, list_type, names) if entry in entries and keys else item
        return list(entries.values())
    return config


def remove(document: Document, fields: FieldSet, list_type: ListType) -> Document:
    """Return an object without some fields, and without what was left empty by that."""
    tree: Document = {}
    for path in fields:
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place["."] = {}
    result: Document = _remove(document, tree, (), list_type)
    return result


def describe_path(path: FieldPath) -> str:
    """Return a path for people, as in ``.spec.forwarders[name="a"].remoteAddress``."""
    text = ""
    for part in path:
        kind, _, rest = part.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            pairs = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            text += f"[{pairs}]"
        else:
            text += f"[={rest}]"
    return text


def _walk(
    value: Any, path: FieldPath, names: tuple[str, ...], list_type: ListType
) -> Iterator[tuple[FieldPath, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _walk(item, (*path, f"f:{key}"), (*names, key), list_type)
        return
    keys = list_type(names) if isinstance(value, list) and value else None
    if keys is None:
        yield path, value
        return
    for item in value:
        inner = (*path, _entry(item, keys))
        yield inner, _ENTRY
        if isinstance(item, dict):
            yield from _walk(item, inner, names, list_type)


def _entry(item: Any, keys: tuple[str, ...]) -> str:
    if keys and isinstance(item, dict):
        found = {key: item[key] for key in sorted(keys) if key in item}
        return f"k:{json.dumps(found, separators=(',', ':'))}"
    return f"v:{json.dumps(item, separators=(',', ':'))}"


def _read(fields: Document, path: FieldPath) -> Iterator[FieldPath]:
    if not isinstance(fields, dict):
        raise ValueError("expected a map of fields")  # noqa: TRY004  # one error for all that is wrong
    if (not fields or "." in fields) and path:
        yield path
    for part, inner in fields.items():
        if part != ".":
            if part[:2] not in ("f:", "k:", "v:"):
                raise ValueError(f"expected f:, k: or v: at the beginning of '{part}'")
            yield from _read(inner, (*path, part))


def _without_lone_dots(tree: Document) -> Document:
    if tree.keys() == {"."}:
        return {}
    return {part: inner if part == "." else _without_lone_dots(inner) for part, inner in tree.items()}


def _remove(value: Any, tree: Document, names: tuple[str, ...], list_type: ListType) -> Any:
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            below = tree.get(f"f:{key}")
            if below is None:
                kept[key] = item
            elif "." not in below:
                left = _remove(item, below, (*names, key), list_type)
                if left not in ({}, []):
                    kept[key] = left
        return kept
    keys = list_type(names) if isinstance(value, list) else None
    if keys is None:
        return value
    left_over = []
    for item in value:
        below = tree.get(_entry(item, keys))
        if below is None:
            left_over.append(item)
        elif "." not in below:
            left_over.append(_remove(item, below, names, list_type))
    return left_over
