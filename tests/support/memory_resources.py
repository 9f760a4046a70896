"""A resource store in memory, for tests that need no disk; it keeps the contract of ``store_port``."""

from __future__ import annotations

import bisect
import copy
import json
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from enmasse.control.errors import ConflictError, ExpiredVersionError, ResourceExistsError, ResourceNotFoundError
from enmasse.control.store.port import Action, Change, Document, Judge, Key, Used, agree
from enmasse.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["MemoryResources"]

Name = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(slots=True)
class _Object:
    order: int
    uid: str
    body: str


@dataclass(slots=True)
class _Kept:
    """All that a transaction that fails takes back."""

    version: int = 0
    order: int = 0
    objects: dict[Name, _Object] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    asides: dict[tuple[str, str], bytes] = field(default_factory=dict)
    facts: dict[str, int] = field(default_factory=dict)
    installation: str = ""
    nodes: set[str] = field(default_factory=set)
    removals: dict[tuple[str, str], Name] = field(default_factory=dict)

    def copied(self) -> _Kept:
        """Return a copy; what it holds is never changed in place."""
        return _Kept(*(copy.copy(getattr(self, name)) for name in self.__slots__))


class MemoryResources:
    """Versioned objects in memory; a ``Store``.

    Args:
        history: how many changes are kept.
    """

    def __init__(self, *, history: int = 10_000) -> None:
        self._kept = _Kept()
        self._history = history
        self._listeners: set[Callable[[], None]] = set()
        self._is_writing = self._is_dry = False
        self._touched: set[str] = set()
        self._written: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    @property
    def usage(self) -> Self:
        """Counters of what namespaces have."""
        return self

    @property
    def installation(self) -> Self:
        """What is kept of the installation itself."""
        return self

    @property
    def version(self) -> int:
        """The version of the last write."""
        return self._kept.version

    # Get and list

    def get(self, kind: str, namespace: str, name: str) -> Document:
        document = self.find(kind, namespace, name)
        if document is None:
            raise ResourceNotFoundError(kind, namespace, name)
        return document

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        found = self._kept.objects.get((kind, namespace, name))
        return None if found is None else json.loads(found.body)

    def find_uid(self, uid: str) -> Document | None:
        return next((json.loads(item.body) for item in self._kept.objects.values() if item.uid == uid), None)

    def _of_kind(self, kind: str) -> list[tuple[Key, _Object]]:
        found = [(key[1:], item) for key, item in self._kept.objects.items() if key[0] == kind]
        return sorted(found, key=lambda item: item[0])

    def select(
        self, kind: str, namespace: str | None = None, prefix: str = "", *, after: str = "", limit: int = -1
    ) -> list[Document]:
        found = [
            json.loads(item.body)
            for (space, name), item in self._of_kind(kind)
            if name.startswith(prefix) and (namespace is None or (space == namespace and name > after))
        ]
        return found if limit < 0 else found[:limit]

    def select_address(self, kind: str, namespace: str, address: str) -> list[Document]:
        found = self.select(kind, namespace)
        return [item for item in found if (item.get("spec") or {}).get("address") == address]

    def bodies(self, kind: str) -> Iterator[Document]:
        for _, item in sorted(self._of_kind(kind), key=lambda found: found[1].order):
            yield json.loads(item.body)

    def count(self, kind: str, namespace: str | None = None, after: Key | None = None) -> int:
        """Return how many objects of a kind there are; without a namespace also as a ``Usage``."""
        return sum(namespace in (None, key[0]) and (after is None or key > after) for key, _ in self._of_kind(kind))

    def page(
        self, kind: str, namespace: str | None = None, *, after: Key | None = None, limit: int, at: int = 0
    ) -> list[tuple[str, str, str]]:
        at = at or self.version
        self._expect(at)
        bodies = {key: item.body for key, item in self._of_kind(kind)}
        for change in reversed(self._kept.changes):
            name = _name(change.document)
            if change.version <= at:
                break
            if name[0] == kind:
                if change.before_text is None:
                    bodies.pop(name[1:], None)
                else:
                    bodies[name[1:]] = change.before_text
        rows = sorted((*key, body) for key, body in bodies.items() if namespace in (None, key[0]))
        last = ("", "") if after is None else after if namespace is None else (namespace, after[1])
        return [row for row in rows if row[:2] > last][:limit]

    def dependents(self, owner: str, *, after: str = "", limit: int = 100) -> list[Document]:
        found = sorted((item.uid, item.body) for item in self._kept.objects.values())
        documents = [json.loads(body) for uid, body in found if uid > after]
        return [item for item in documents if owner in _owners(item)][:limit]

    def lost_owners(self) -> list[str]:
        uids = {item.uid for item in self._kept.objects.values()}
        named = {owner for item in self._kept.objects.values() for owner in _owners(json.loads(item.body))}
        return sorted(named - uids)

    def namespaces(self) -> list[str]:
        return sorted({namespace for _, namespace, _ in self._kept.objects})

    # Watch

    @contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    def changes(
        self, after: int, *, kinds: tuple[str, ...] = (), namespace: str | None = None, limit: int = 500
    ) -> tuple[list[Change], int]:
        self._expect(after)
        start = bisect.bisect_right(self._kept.changes, after, key=lambda change: change.version)
        found = []
        for change in self._kept.changes[start:]:
            kind, space, _ = _name(change.document)
            if (not kinds or kind in kinds) and namespace in (None, space):
                # A copy for each who asks: some change what they get.
                found.append(
                    Change(change.version, change.action, copy.deepcopy(change.document), change.before_text)
                )
        found = found[:limit]
        return found, found[-1].version if len(found) == limit else self.version

    def _expect(self, version: int) -> None:
        changes = self._kept.changes
        oldest = changes[0].version - 1 if changes else self.version
        if not oldest <= version <= self.version:
            raise ExpiredVersionError(version, oldest, self.version)

    # Write

    @contextmanager
    def transaction(self, *, dry_run: bool = False) -> Iterator[None]:
        if self._is_writing:
            if dry_run and not self._is_dry:
                raise LocalError("a dry run within a transaction would be committed with it")
            yield
            return
        before = self._kept.copied()
        self._is_writing, self._is_dry = True, dry_run
        is_committed = False
        try:
            yield
            for uid in self._touched - self._written:
                document = self.find_uid(uid)
                if document is None:
                    self._kept.asides = {key: value for key, value in self._kept.asides.items() if key[0] != uid}
                else:
                    self.replace(document)
            del self._kept.changes[: -self._history]
            is_committed = not dry_run
        finally:
            self._is_writing = False
            self._touched.clear()
            self._written.clear()
            if not is_committed:
                self._kept = before
        if self.version != before.version:
            for listener in tuple(self._listeners):
                listener()

    def create(self, document: Document, judge: Judge = agree) -> Document:
        name = _name(document)
        with self.transaction():
            if name in self._kept.objects:
                raise ResourceExistsError(*name)
            stored, body = self._stamp(document)
            judge(_size(body) + self._aside_size(_uid(document)))
            self._kept.order += 1
            self._put("ADDED", stored, body, None, self._kept.order)
        return stored

    def replace(self, document: Document, expected: str = "", judge: Judge = agree) -> Document:
        with self.transaction():
            former = self._former(_name(document), expected)
            stored, body = self._stamp(document)
            judge(_size(body) - _size(former.body))
            self._put("MODIFIED", stored, body, former.body, former.order)
        return stored

    def delete(self, kind: str, namespace: str, name: str, expected: str = "") -> Document:
        with self.transaction():
            former = self._former((kind, namespace, name), expected)
            last, body = self._stamp(json.loads(former.body))
            self._put("DELETED", last, body, former.body, 0)
        return last

    def put_aside(self, uid: str, name: str, value: bytes) -> None:
        with self.transaction():
            if self.aside(uid, name) != value:
                self._kept.asides[uid, name] = value
                self._touched.add(uid)

    def aside(self, uid: str, name: str) -> bytes | None:
        return self._kept.asides.get((uid, name))

    def take_aside(self, uid: str, name: str | None = None) -> None:
        with self.transaction():
            for key in [key for key in self._kept.asides if key[0] == uid and name in (None, key[1])]:
                del self._kept.asides[key]
                self._touched.add(uid)

    def fact(self, name: str) -> int:
        return self.version if name == "version" else self._kept.facts.get(name, 0)

    def write_fact(self, name: str, value: int) -> None:
        self._kept.facts[name] = value

    def _stamp(self, document: Document) -> tuple[Document, str]:
        version = {"resourceVersion": str(self.version + 1)}
        stamped = document | {"metadata": document["metadata"] | version}
        return stamped, json.dumps(stamped, ensure_ascii=False, separators=(",", ":"))

    def _former(self, name: Name, expected: str) -> _Object:
        found = self._kept.objects.get(name)
        if found is None:
            raise ResourceNotFoundError(*name)
        version = json.loads(found.body)["metadata"]["resourceVersion"]
        if expected and expected != version:
            raise ConflictError(f"{name[0]} {name[2]}", f"version {expected}", f"version {version}")
        return found

    def _put(self, action: Action, document: Document, body: str, before: str | None, order: int) -> None:
        uid, name = _uid(document), _name(document)
        if action == "DELETED":
            del self._kept.objects[name]
            self._kept.asides = {key: value for key, value in self._kept.asides.items() if key[0] != uid}
        else:
            self._kept.objects[name] = _Object(order, uid, body)
        self._kept.version += 1
        self._kept.changes.append(Change(self.version, action, json.loads(body), before))
        self._written.add(uid)

    def _aside_size(self, uid: str) -> int:
        return sum(len(value) for key, value in self._kept.asides.items() if key[0] == uid)

    # Usage

    def of(self, namespace: str) -> dict[str, Used]:
        """Return what a namespace has, by kind."""
        found: defaultdict[str, Used] = defaultdict(Used)
        for (kind, space, _), item in self._kept.objects.items():
            if space == namespace:
                objects, size = found[kind]
                found[kind] = Used(objects + 1, size + _size(item.body) + self._aside_size(item.uid))
        return found

    # The installation

    def id(self) -> str:
        return self._kept.installation

    def join(self, installation: str) -> str:
        self._kept.installation = self._kept.installation or installation
        return self._kept.installation

    def know_node(self, node: str) -> None:
        self._kept.nodes.add(node)

    def remember_removal(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self._kept.removals |= {(node, uid): (kind, namespace, name) for node in self._kept.nodes}

    def removed_names(self, node: str) -> list[Name]:
        return sorted({name for (found, _), name in self._kept.removals.items() if found == node})

    def removed_uids(self, node: str, kind: str, key: Key | None = None) -> list[str]:
        return [
            uid
            for (found, uid), name in self._kept.removals.items()
            if found == node and name[0] == kind and key in (None, name[1:])
        ]

    def is_removed(self, node: str, uid: str) -> bool:
        return (node, uid) in self._kept.removals

    def forget_removals(self, node: str, uids: Iterable[str]) -> None:
        for uid in uids:
            self._kept.removals.pop((node, uid), None)


def _name(document: Document) -> Name:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _uid(document: Document) -> str:
    return str(document["metadata"].get("uid", ""))


def _owners(document: Document) -> list[Any]:
    return [owner["uid"] for owner in document["metadata"].get("ownerReferences") or ()]


def _size(body: str) -> int:
    return len(body.encode())
