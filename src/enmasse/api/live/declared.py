"""Declared objects in memory, as far as tables show them, in step with the store.

Rules:
1. A kind is loaded when it is first asked for, in steps between which other requests are served.
2. Afterwards only changes are read. Where the history does not reach back far enough, the kind is loaded again.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from enmasse.control.errors import ExpiredVersionError
from enmasse.model.schema.names import space_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from enmasse.control.store.port import Store
    from enmasse.model.schema.kinds import Kind

Document = dict[str, Any]

_STEP = 200  # objects that are read at a time: some milliseconds


class DeclaredRows:
    """The rows of one kind, by space, or by namespace for spaces themselves.

    Args:
        store: the store of the objects.
        kind: the kind of objects.
        shape: returns the row of an object.
        is_of_space: whether the name of an object begins with its space.

    Attributes:
        version: changes with every change of a row.
    """

    def __init__(
        self, store: Store, kind: Kind, shape: Callable[[Document], Document], *, is_of_space: bool = True
    ) -> None:
        self.version = 0
        self._store = store
        self._kind = kind
        self._shape = shape
        self._is_of_space = is_of_space
        self._rows: dict[str, dict[str, Document]] = {}
        self._known = -1  # the version of the store; -1: nothing is loaded
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Take in what has changed."""
        async with self._lock:
            if self._known < 0:
                await self._load()
            try:
                while self._known < self._store.version:
                    changes, self._known = self._store.changes(self._known, kinds=(self._kind.name,))
                    for change in changes:
                        self._put(change.document, is_there=change.action != "DELETED")
            except ExpiredVersionError:
                await self._load()

    def of(self, group: str) -> Mapping[str, Document]:
        """Return the rows of a space, ``<namespace>/<space>``, or of a namespace, by the names of their objects."""
        return self._rows.get(group, {})

    def groups(self) -> list[str]:
        """Return the spaces, or namespaces, that have rows."""
        return list(self._rows)

    async def _load(self) -> None:
        self._rows = {}
        version, after = self._store.version, None
        while True:
            page = self._store.page(self._kind.name, None, after=after, limit=_STEP, at=version)
            for namespace, name, body in page:
                after = (namespace, name)
                self._put(json.loads(body), is_there=True)
            if len(page) < _STEP:
                break
            await asyncio.sleep(0)
        self._known = version
        self.version += 1

    def _put(self, document: Document, *, is_there: bool) -> None:
        metadata = document["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        group = f"{namespace}/{space_of(name)}" if self._is_of_space else namespace
        self.version += 1
        if is_there:
            self._rows.setdefault(group, {})[name] = self._shape(document)
        elif group in self._rows:
            self._rows[group].pop(name, None)
            if not self._rows[group]:
                del self._rows[group]
