"""Who has set which fields of an object: ``metadata.managedFields``, and what applying means.

Rules:
1. Whoever writes an object owns the fields that the write changed; nobody else owns them any more.
2. Whoever applies a configuration owns all the fields in it. Fields that several
   managers apply with the same value belong to all of them.
3. To apply another value for a field that somebody else owns is a conflict,
   unless it is forced: then it is taken from the others.
4. What a manager applied before and applies no more is removed, unless others own it.
5. What controllers find (``status``) belongs to nobody, unless it was written through the API.

Server-side apply of Kubernetes, with its names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from enmasse.control.errors import FieldConflictError
from enmasse.control.field_sets import FieldPath, FieldSet, describe_path, leaves, members, merge, remove, to_v1

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.control.field_sets import ListType

__all__ = ["Manager", "apply", "settle", "track"]

Document = dict[str, Any]

_MOST_UPDATERS = 10
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
        name: what it calls itself.
        api_version: the version of the kind that it speaks.
        operation: how it writes.
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
        changed: the object as it is to be.
        manager: who writes.
        now: RFC 3339 in UTC.
        list_type: what the lists of this kind are.
    """
    entries = _entries(former or {"metadata": {}})
    before = _leaves(former or {}, manager, list_type)
    after = _leaves(changed, manager, list_type)
    written = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = frozenset(before.keys() - after.keys())
    if not written and not gone:
        return _written_down(entries)
    own = next((entry for entry in entries if entry.manager == manager), None)
    if own is None:
        own = _Entry(manager, frozenset(), now)
        entries.append(own)
    for entry in entries:
        entry.fields -= gone if entry is own else gone | written
    own.fields |= written
    own.time = now
    return _written_down(_capped(entries))


def apply(
    live: Document | None, config: Document, manager: Manager, now: str, list_type: ListType, *, force: bool = False
) -> tuple[Document, list[Document]]:
    """Return the object after a configuration was applied to it, and its managed fields.

    Args:
        live: the object as it is, with its managed fields; None: there is none.
        config: what is applied; nulls are left out already.
        manager: who applies it.
        now: RFC 3339 in UTC.
        list_type: what the lists of this kind are.
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
    """Yield what nobody owns any more, and nothing of it."""
    for path in dropped:
        is_key = bool(path) and len(path) > 1 and path[-2].startswith("k:") and _is_key(path)
        if not is_key and not any(other[: len(path)] == path for other in kept):
            yield path


def _is_key(path: FieldPath) -> bool:
    return path[-1].removeprefix("f:") in json.loads(path[-2][2:])


def _part(document: Document, manager: Manager) -> Document:
    """Return what of an object a manager's writes are about."""
    identity = {key: document[key] for key in ("apiVersion", "kind") if key in document}
    metadata = document.get("metadata") or {}
    if manager.subresource:
        told = {key: document[key] for key in (manager.subresource,) if key in document}
        return (
            identity | {"metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata}} | told
        )
    return {key: value for key, value in document.items() if key != "status"}


def _leaves(document: Document, manager: Manager, list_type: ListType) -> dict[FieldPath, Any]:
    if manager.subresource:
        told = {key: value for key, value in document.items() if key == manager.subresource}
    else:
        told = {key: value for key, value in document.items() if key != "status"}
    found = leaves(told, list_type) if told else {}
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
    if len(updaters) <= _MOST_UPDATERS:
        return entries
    oldest = sorted(updaters, key=lambda entry: entry.time)[: len(updaters) - _MOST_UPDATERS + 1]
    ancient = Manager(_ANCIENT, oldest[-1].manager.api_version)
    joined = _Entry(ancient, frozenset().union(*(entry.fields for entry in oldest)), oldest[-1].time)
    return [joined, *(entry for entry in entries if entry not in oldest)]
