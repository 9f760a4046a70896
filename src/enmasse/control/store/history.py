"""The history of a resource store's changes: kept for watches and pages of lists, and followed by controllers.

Rules:
1. The history is bounded, in number and in bytes. When there are too many changes, the namespaces that have most
   lose their oldest ones: one tenant's writes do not push out the changes of others.
2. Each namespace has a version from which on its changes are known; a watch of all namespaces has those since the
   highest of these versions.
3. Objects of the whole installation are a namespace of their own, without a name.
4. Nothing is queued for a follower: each reads the history from its own position. A follower that falls behind the
   history gets an error and lists again.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from enmasse.control.errors import ExpiredVersionError, StoreBusyError
from enmasse.control.store.port import Action, Change

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from enmasse.control.store.port import Store

_FLOOR = "compacted/"  # begins the name of the fact that holds the version from which a namespace is known
_SLACK = 1.1  # in steps of a tenth, so that not every write deletes a row
_SIZE = "total(length(body) + coalesce(length(before), 0))"


class History:
    """The table of changes.

    Args:
        execute: runs a statement of SQL and returns its rows.
        most: the most changes that are kept.
        most_bytes: the most bytes of them together.
    """

    def __init__(self, execute: Callable[..., list[Any]], *, most: int, most_bytes: int) -> None:
        self._execute = execute
        self._most = most
        self._most_bytes = most_bytes
        self._noted: list[tuple[str, int]] = []  # in this transaction
        self._has_forgotten = False  # in this transaction
        self._load()

    def _load(self) -> None:
        rows = self._execute(f"SELECT namespace, count(*), {_SIZE} FROM changes GROUP BY namespace")  # noqa: S608  # constants
        self._parts = {namespace: (count, int(size)) for namespace, count, size in rows}
        self._count = sum(count for count, _ in self._parts.values())
        self._bytes = sum(size for _, size in self._parts.values())
        facts = self._execute("SELECT name, value FROM facts WHERE name = 'compacted' OR name LIKE 'compacted/%'")
        floors = {name.removeprefix(_FLOOR): int(value) for name, value in facts if name != "compacted"}
        # What an older version of the program has forgotten, it forgot of all namespaces.
        self._everywhere = next((int(value) for name, value in facts if name == "compacted"), 0)
        self._floors = floors
        self._highest = max((self._everywhere, *floors.values()))

    def expect(self, version: int, newest: int, namespace: str | None) -> None:
        """Raise an error unless everything that happened since a version is known.

        Args:
            version: the version that a caller knows.
            newest: the present version.
            namespace: the namespace of the changes; None: all.

        Raises:
            ExpiredVersionError: when the history does not reach back so far, or that is a version of another store.
        """
        oldest = self._highest
        if namespace is not None:
            oldest = max(self._everywhere, self._floors.get(namespace, 0))
        if not oldest <= version <= newest:
            raise ExpiredVersionError(version, oldest, newest)

    def note(self, version: int, action: Action, key: tuple[str, str, str], body: str, before: str | None) -> None:
        """Add one change."""
        self._execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", (version, action, *key, body, before))
        size = len(body) + len(before or "")
        self._noted.append((key[1], size))
        self._add(key[1], 1, size)

    def since(self, version: int, kinds: tuple[str, ...], namespace: str | None, limit: int) -> list[Change]:
        """Return the changes after a version, oldest first.

        Args:
            version: the last that is known already.
            kinds: only these; empty: all.
            namespace: only this one; None: all.
            limit: the most changes.
        """
        marks = ", ".join("?" * len(kinds))
        rows = self._execute(
            "SELECT version, action, body, before FROM changes WHERE version > ?"  # noqa: S608  # only marks
            f" AND (? IS NULL OR namespace = ?){f' AND kind IN ({marks})' if kinds else ''}"
            " ORDER BY version LIMIT ?",
            (version, namespace, namespace, *kinds, limit),
        )
        return [Change(version, action, json.loads(body), before) for version, action, body, before in rows]

    def compact(self) -> None:
        """Forget what exceeds the bounds; the last step of a transaction."""
        if self._count > self._most * _SLACK:
            level = _level((count for count, _ in self._parts.values()), self._most)
            for namespace in [name for name, (count, _) in self._parts.items() if count > level]:
                self._forget(namespace, level)
        while self._bytes > self._most_bytes:
            namespace = max(self._parts, key=lambda name: self._parts[name][1])
            if self._parts[namespace][0] <= 1:
                break
            self._forget(namespace, self._parts[namespace][0] // 2)

    def close(self, *, is_committed: bool) -> None:
        """End a transaction."""
        if not is_committed and self._has_forgotten:
            self._load()
        elif not is_committed:
            for namespace, size in self._noted:
                self._add(namespace, -1, -size)
        self._noted.clear()
        self._has_forgotten = False

    def _forget(self, namespace: str, kept: int) -> None:
        """Keep only so many changes of a namespace."""
        self._has_forgotten = True
        ((floor,),) = self._execute(
            "SELECT version FROM changes WHERE namespace = ? ORDER BY version DESC LIMIT 1 OFFSET ?",
            (namespace, kept),
        )
        ((count, size),) = self._execute(
            f"SELECT count(*), {_SIZE} FROM changes WHERE namespace = ? AND version <= ?",  # noqa: S608  # constants
            (namespace, floor),
        )
        self._execute("DELETE FROM changes WHERE namespace = ? AND version <= ?", (namespace, floor))
        self._execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (f"{_FLOOR}{namespace}", floor))
        self._add(namespace, -count, -int(size))
        self._floors[namespace] = floor
        self._highest = max(self._highest, floor)

    def _add(self, namespace: str, count: int, size: int) -> None:
        present = self._parts.get(namespace, (0, 0))
        self._parts[namespace] = present[0] + count, present[1] + size
        if not self._parts[namespace][0]:
            del self._parts[namespace]
        self._count += count
        self._bytes += size


def _level(counts: Iterable[int], room: int) -> int:
    """Return the share of each so that all have room: those with less keep it, and leave the rest to others."""
    left = sorted(counts)
    for index, count in enumerate(left):
        share = room // (len(left) - index)
        if count > share:
            return share
        room -= count
    return room


async def follow(
    store: Store,
    after: int,
    *,
    kinds: tuple[str, ...] = (),
    namespace: str | None = None,
    pause_s: float = 0.5,
) -> AsyncIterator[list[Change]]:
    """Yield the changes after a version as they come, in lists that are never empty.

    Args:
        store: to be followed.
        after: the last version that is known already.
        kinds: only these; empty: all.
        namespace: only this one; None: all.
        pause_s: seconds before another try while another process has the store locked.

    Raises:
        ExpiredVersionError: when the history does not reach back to ``after``.
    """
    changed = asyncio.Event()
    with store.listening(changed.set):
        while True:
            changed.clear()
            try:
                found, after = store.changes(after, kinds=kinds, namespace=namespace)
            except StoreBusyError:
                await asyncio.sleep(pause_s)
                continue
            if found:
                yield found
            else:
                await changed.wait()
