"""Field ownership: ``metadata.managedFields``, and server-side apply of Kubernetes, with its names.

Rules of ownership:
1. A write owns the fields that it changed; no other manager owns them any more.
2. An applied configuration owns all the fields in it. Fields that several
   managers apply with the same value belong to all of them.
3. Applying another value for a field that another manager owns is a conflict,
   unless it is forced: then the other managers lose the field.
4. A field that a manager applied before and applies no more is removed, unless others own it.
5. The fields of ``status`` that controllers write have no owner, unless they were written through the API.

Rules of field sets (the names and form are those of Kubernetes' ``FieldsV1``):
1. A field is named by a path: ``f:`` and a name in a map, ``k:`` and the values
   of its keys for an entry of a keyed list, ``v:`` and a value for one of a set.
2. Leaves are scalars, empty maps and lists without keys, which only change as a
   whole. Entries of keyed lists and of sets are members of their own.
3. Functions of field sets do not change their arguments.

``kubectl apply`` keeps a copy of the manifest in an annotation; ``redacted`` takes secrets out of it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from enmasse.control.errors import FieldConflictError
from enmasse.model.schema.kinds import kind_named
from enmasse.model.schema.openapi import list_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Document = dict[str, Any]

_MAX_UPDATERS = 10
_ANCIENT = "ancient-changes"
_BEFORE = "before-first-apply"

_NOT_MANAGED = frozenset(
    {("f:apiVersion",), ("f:kind",)}
    | {
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "generateName",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        )
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    """A program that writes.

    Attributes:
        name: its own.
        api_version: the version of the kind that it speaks.
        operation: the way in which it writes.
        subresource: ``status``, or empty for the object itself.
    """

    name: str
    api_version: str
    operation: Literal["Apply", "Update"] = "Update"
    subresource: str = ""


@dataclass(slots=True)
class _Entry:
    manager: Manager
    fields: FieldSet
    time: str


def track(
    former: Document | None, changed: Document, manager: Manager, now: str, list_type: ListType
) -> list[Document]:
    """Return the managed fields after a write that was no apply.

    Args:
        former: the object as it was, with its managed fields; None: there was none.
        changed: the object as it should be.
        manager: the writer.
        now: RFC 3339 in UTC.
        list_type: the type of the lists of this kind.
    """
    entries = _entries(former or {"metadata": {}})
    before = _leaves(former or {}, manager, list_type)
    after = _leaves(changed, manager, list_type)
    written = {path for path, value in after.items() if path not in before or before[path] != value}
    removed = frozenset(before.keys() - after.keys())
    if not written and not removed:
        return _written_down(entries)
    own = next((entry for entry in entries if entry.manager == manager), None)
    if own is None:
        own = _Entry(manager, frozenset(), now)
        entries.append(own)
    for entry in entries:
        entry.fields -= removed if entry is own else removed | written
    own.fields |= written
    own.time = now
    return _written_down(_capped(entries))


def apply(
    live: Document | None, config: Document, manager: Manager, now: str, list_type: ListType, *, force: bool = False
) -> tuple[Document, list[Document]]:
    """Return the object after a configuration was applied to it, and its managed fields.

    Args:
        live: the object as it is, with its managed fields; None: there is none.
        config: the object that is applied; nulls are left out already.
        manager: the manager that applies it.
        now: RFC 3339 in UTC.
        list_type: the type of the lists of this kind.
        force: take fields from others who own them.

    Raises:
        FieldConflictError: when others own fields that would change.
    """
    config = _part(config, manager)
    wanted = frozenset(_leaves(config, manager, list_type))
    if live is None:
        return config, _written_down([_Entry(manager, wanted, now)])
    entries = _entries(live)
    if not entries:
        before = Manager(_BEFORE, manager.api_version)
        entries = [_Entry(before, frozenset(_leaves(live, before, list_type)), now)]
    own = next((entry for entry in entries if entry.manager == manager), None)
    if own is None:
        own = _Entry(manager, frozenset(), now)
        entries.append(own)
    others = [entry for entry in entries if entry is not own]
    merged = merge(live, config, list_type)
    before_leaves, after_leaves = (_leaves(document, manager, list_type) for document in (live, merged))
    written = frozenset(
        path for path, value in after_leaves.items() if path not in before_leaves or before_leaves[path] != value
    )
    found = [(entry, path) for entry in others for path in sorted(entry.fields & written)]
    if found and not force:
        raise FieldConflictError(
            [(entry.manager.name, entry.manager.api_version, describe_path(path)) for entry, path in found]
        )
    for entry in others:
        entry.fields -= written
    kept = wanted.union(*(entry.fields for entry in others))
    left = remove(merged, frozenset(_removable(own.fields - wanted, kept)), list_type)
    merged = merge(left, config, list_type)  # maps that are empty now, and that the configuration has as such
    if own.fields != wanted or written:
        own.time = now
    own.fields = wanted
    return merged, _written_down(entries)


def settle(managed: list[Document], live: Document | None, stored: Document, list_type: ListType) -> list[Document]:
    """Return managed fields as they are stored: without fields that the stored form has not.

    What was applied may be written down in another way, or dropped because it
    is empty. When nothing but the time would change, all stays as it was, so
    that applying the same again is no write.
    """
    present = frozenset(leaves(stored, list_type))
    entries = _entries({"metadata": {"managedFields": managed}})
    for entry in entries:
        entry.fields &= present
    settled = _written_down(entries)
    former = (live or {"metadata": {}})["metadata"].get("managedFields") or []
    return former if _without_times(former) == _without_times(settled) else settled


def _without_times(managed: list[Document]) -> list[Document]:
    return [{key: value for key, value in item.items() if key != "time"} for item in managed]


def _removable(dropped: Iterable[FieldPath], kept: FieldSet) -> Iterable[FieldPath]:
    """Yield the fields that have no owner any more and contain no owned ones."""
    for path in dropped:
        is_key = bool(path) and len(path) > 1 and path[-2].startswith("k:") and _is_key(path)
        if not is_key and not any(other[: len(path)] == path for other in kept):
            yield path


def _is_key(path: FieldPath) -> bool:
    return path[-1].removeprefix("f:") in json.loads(path[-2][2:])


def _part(document: Document, manager: Manager) -> Document:
    """Return the part of an object that a manager's writes are about."""
    identity = {key: document[key] for key in ("apiVersion", "kind") if key in document}
    metadata = document.get("metadata") or {}
    if manager.subresource:
        part = {key: document[key] for key in (manager.subresource,) if key in document}
        return (
            identity | {"metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata}} | part
        )
    return {key: value for key, value in document.items() if key != "status"}


def _leaves(document: Document, manager: Manager, list_type: ListType) -> dict[FieldPath, Any]:
    if manager.subresource:
        part = {key: value for key, value in document.items() if key == manager.subresource}
    else:
        part = {key: value for key, value in document.items() if key != "status"}
    found = leaves(part, list_type) if part else {}
    return {path: value for path, value in found.items() if path[:2] not in _NOT_MANAGED}


def _entries(document: Document) -> list[_Entry]:
    found = []
    for item in document["metadata"].get("managedFields") or ():
        manager = Manager(item["manager"], item["apiVersion"], item["operation"], item.get("subresource", ""))
        found.append(_Entry(manager, members(item.get("fieldsV1") or {}), item.get("time", "")))
    return found


def _written_down(entries: Iterable[_Entry]) -> list[Document]:
    return [
        {
            "manager": entry.manager.name,
            "operation": entry.manager.operation,
            "apiVersion": entry.manager.api_version,
            "time": entry.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": to_v1(entry.fields),
        }
        | ({"subresource": entry.manager.subresource} if entry.manager.subresource else {})
        for entry in entries
        if entry.fields
    ]


def _capped(entries: list[_Entry]) -> list[_Entry]:
    """Join the oldest of many writers, so that the list stays short."""
    updaters = [entry for entry in entries if entry.manager.operation == "Update"]
    if len(updaters) <= _MAX_UPDATERS:
        return entries
    oldest = sorted(updaters, key=lambda entry: entry.time)[: len(updaters) - _MAX_UPDATERS + 1]
    ancient = Manager(_ANCIENT, oldest[-1].manager.api_version)
    joined = _Entry(ancient, frozenset().union(*(entry.fields for entry in oldest)), oldest[-1].time)
    return [joined, *(entry for entry in entries if entry not in oldest)]


FieldPath = tuple[str, ...]
FieldSet = frozenset[FieldPath]

ListType = Callable[[tuple[str, ...]], "tuple[str, ...] | None"]
"""Returns for a list at a path of field names: the keys of its entries, ``SET``, or None if it is one value."""

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


def list_type_of(kind: str) -> ListType:
    """Return the function that classifies the lists of a kind."""
    known = kind_named(kind)
    assert known is not None
    return list_keys(known)


LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def redacted(annotations: Mapping[str, str], take_out: Callable[[Any], bool]) -> dict[str, str]:
    """Return annotations with the copy redacted; a copy that cannot be read is left out.

    Args:
        annotations: the annotations of an object.
        take_out: removes secrets from ``spec`` in place, and returns whether there were any.
    """
    found = dict(annotations)
    text = found.pop(LAST_APPLIED, None)
    if text is None:
        return found
    try:
        manifest: Any = json.loads(text)
    except ValueError:
        return found
    spec = manifest.get("spec") if isinstance(manifest, dict) else None
    if isinstance(spec, dict) and take_out(spec):
        text = json.dumps(manifest, separators=(",", ":"), ensure_ascii=False) + "\n"
    found[LAST_APPLIED] = text
    return found
