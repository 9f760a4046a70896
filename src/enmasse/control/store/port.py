"""The port to the resource store, for the registry and the controllers: get, list, watch and write.

``ResourceStore`` does it with SQLite; a Kubernetes API or etcd can. ``tests/contract`` says what each must do.

Rules:
1. Every write has a version of its own, higher than all before, for all kinds together.
2. Writes of one transaction are visible together, or not at all; listeners are called after that.
3. Changes can be had from any version on that the history reaches back to; a caller that needs older ones lists
   again.
4. Methods raise ``StoreBusyError``, ``StoreFullError``, ``StoreReadOnlyError`` or ``StoreBrokenError`` when what is
   below cannot be used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager


Document = dict[str, Any]
Action = Literal["ADDED", "MODIFIED", "DELETED"]
Key = tuple[str, str]
"""Namespace and name."""

Judge = Callable[[int], None]
"""Raises an error of ours to refuse a write, given the bytes that it adds."""


def agree(_growth: int) -> None:
    """Refuse nothing."""


@dataclass(frozen=True, slots=True)
class Change:
    """One write, as watches see it."""

    version: int
    action: Action
    document: Document
    before_text: str | None = None

    @property
    def before(self) -> Document | None:
        """The object before this write; None: there was none."""
        return None if self.before_text is None else json.loads(self.before_text)


class Used(NamedTuple):
    """The number of objects, and their size with what is put aside of them."""

    objects: int = 0
    size: int = 0


class Usage(Protocol):
    """Counters of each namespace's objects, kept as objects are written."""

    def of(self, namespace: str) -> Mapping[str, Used]:
        """Return what a namespace has, by kind."""
        ...

    def count(self, kind: str) -> int:
        """Return the number of objects of a kind everywhere."""
        ...


class InstallationFacts(Protocol):
    """The facts of the installation itself: its id, its nodes, and the removals that these still have to do."""

    def id(self) -> str:
        """Return the id of the installation; empty as long as it has none."""
        ...

    def join(self, installation: str) -> str:
        """Give it an id unless it has one; return the one that it has."""
        ...

    def know_node(self, node: str) -> None:
        """Record that a node may have declared objects, so that it has to delete removed ones, too."""

    def remember_removal(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Record that every known node has to delete an object; in the transaction that removes it."""

    def removed_names(self, node: str) -> list[tuple[str, str, str]]:
        """Return kinds, namespaces and names of which a node has something to delete."""
        ...

    def removed_uids(self, node: str, kind: str, key: Key | None = None) -> list[str]:
        """Return the uids of the objects of a kind, or of one name of it, that a node has to delete."""
        ...

    def is_removed(self, node: str, uid: str) -> bool:
        """Return whether a node has to delete an object."""
        ...

    def forget_removals(self, node: str, uids: Iterable[str]) -> None:
        """Record that a node has deleted objects."""


class Store(Protocol):
    """Versioned objects with their changes; see the rules above.

    Attributes:
        usage: counters of what namespaces have.
        installation: the facts about the installation itself.
    """

    @property
    def usage(self) -> Usage:
        """Counters of what namespaces have."""
        ...

    @property
    def installation(self) -> InstallationFacts:
        """The facts of the installation itself."""
        ...

    @property
    def version(self) -> int:
        """The version of the last write."""
        ...

    # Get and list

    def get(self, kind: str, namespace: str, name: str) -> Document:
        """Return one object.

        Raises:
            ResourceNotFoundError: when there is none of this name.
        """
        ...

    def find(self, kind: str, namespace: str, name: str) -> Document | None:
        """Return one object, or None when there is none of this name."""
        ...

    def find_uid(self, uid: str) -> Document | None:
        """Return the object with this identity, or None when there is none."""
        ...

    def select(
        self, kind: str, namespace: str | None = None, prefix: str = "", *, after: str = "", limit: int = -1
    ) -> list[Document]:
        """Return the objects of a kind by namespace and name.

        Args:
            kind: the kind of the objects.
            namespace: only this one; None: all.
            prefix: only those with names that begin so.
            after: only those with later names; with a namespace.
            limit: the most objects; -1: all of them.
        """
        ...

    def select_address(self, kind: str, namespace: str, address: str) -> list[Document]:
        """Return the objects of a kind and namespace with this ``spec.address``, by their names."""
        ...

    def bodies(self, kind: str) -> Iterator[Document]:
        """Yield the objects of a kind in the order of their creation; nothing may be written meanwhile."""
        ...

    def count(self, kind: str, namespace: str | None = None, after: Key | None = None) -> int:
        """Return how many objects of a kind there are, in one namespace or all, after a key or in all."""
        ...

    def page(
        self, kind: str, namespace: str | None = None, *, after: Key | None = None, limit: int, at: int = 0
    ) -> list[tuple[str, str, str]]:
        """Return a part of the list of all objects of a kind as it was at a version.

        Args:
            kind: the kind of the objects.
            namespace: only this one; None: all.
            after: the last key of the former part.
            limit: the most objects.
            at: the version; 0: the present one.

        Returns:
            Namespace, name and JSON form of each, by namespace and name.

        Raises:
            ExpiredVersionError: when the history does not reach back so far.
        """
        ...

    def dependents(self, owner: str, *, after: str = "", limit: int = 100) -> list[Document]:
        """Return objects which name an object, by its uid, among their owners, by their uids.

        Args:
            owner: the uid of the owner.
            after: only those with later uids.
            limit: the most objects.
        """
        ...

    def lost_owners(self) -> list[str]:
        """Return the uids that objects name as their owners, and that no object has."""
        ...

    def namespaces(self) -> list[str]:
        """Return the namespaces that objects lie in."""
        ...

    # Watch

    def listening(self, listener: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``listener`` after every commit while the block runs."""
        ...

    def changes(
        self, after: int, *, kinds: tuple[str, ...] = (), namespace: str | None = None, limit: int = 500
    ) -> tuple[list[Change], int]:
        """Return the changes after a version, oldest first, and the version up to which they reach.

        Args:
            after: the last version that is known already.
            kinds: only these; empty: all.
            namespace: only this one; None: all.
            limit: the most changes to return.

        Raises:
            ExpiredVersionError: when the history does not reach back so far,
                or ``after`` is a version of another store.
        """
        ...

    # Write

    def transaction(self, *, dry_run: bool = False) -> AbstractContextManager[None]:
        """Make all writes in the block one: all of them are committed, or none.

        Args:
            dry_run: commit nothing in any case.
        """
        ...

    def create(self, document: Document, judge: Judge = agree) -> Document:
        """Add an object and return it with its version.

        Args:
            document: the whole object.
            judge: refuses it by an error, for the bytes that it takes.

        Raises:
            ResourceExistsError: when there is one of this name.
        """
        ...

    def replace(self, document: Document, expected: str = "", judge: Judge = agree) -> Document:
        """Put an object in the place of its former version and return it with its new one.

        Args:
            document: the whole object.
            expected: the version which must be the present one; empty: any.
            judge: refuses it by an error, for the bytes by which it is larger than it was.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when the present version is another.
        """
        ...

    def delete(self, kind: str, namespace: str, name: str, expected: str = "") -> Document:
        """Remove an object and return its last form, with the version of the removal.

        Raises:
            ResourceNotFoundError: when there is none of this name.
            ConflictError: when the present version is not the expected one.
        """
        ...

    def put_aside(self, uid: str, name: str, value: bytes) -> None:
        """Keep private data beside an object: deleted with it, never shown by the API.

        Watches get it as any change of the object. It may be put there in the transaction that creates the
        object, before it is created; without an object it is not kept.

        Args:
            uid: the identity of the object.
            name: the name of the data.
            value: the data; takes the place of what had the name before.
        """

    def aside(self, uid: str, name: str) -> bytes | None:
        """Return what was put beside an object under a name, or None."""
        ...

    def take_aside(self, uid: str, name: str | None = None) -> None:
        """Remove what was put beside an object, under one name or all."""

    def fact(self, name: str) -> int:
        """Return a number kept beside the objects, 0 if it was never written."""
        ...

    def write_fact(self, name: str, value: int) -> None:
        """Keep a number beside the objects."""
