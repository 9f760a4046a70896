"""The list of the devices that a tenant has registered, which the host keeps for runners, and how they read it.

Rules:
1. A list is read as it was at a moment, so that a batch that is repeated finds what it found before: a change counts
   from a moment on that lies a little after it was written.
2. The newest changes are kept one by one, more than a batch can be late; older ones are in the list alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from enmasse.pipeline.errors import RegistryAwayError

FOLDER: Final = "devices"
"""Below a space's folder: a file for each tenant."""
PATIENCE_S: Final = 20.0
"""The time to wait for a list that was never there."""
_POLL_S: Final = 0.05
_DELAY_US: Final = 1_000_000
"""Longer than a file takes to be written."""
_CHANGES: Final = 360
"""An hour and more of changes, as the host asks every ten seconds."""


@dataclass(frozen=True, slots=True)
class _Change:
    at_us: int
    added: tuple[str, ...]
    removed: tuple[str, ...]


class DeviceList:
    """The devices of a tenant, in a file.

    Args:
        path: the path of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int] | None = None
        self._ids: frozenset[str] = frozenset()
        self._changes: tuple[_Change, ...] = ()

    def ids_at(self, moment_us: int) -> frozenset[str]:
        """Return the ids that were registered at a moment, in microseconds.

        Raises:
            RegistryAwayError: there is no list yet, and none comes.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not self._refresh():
            if time.monotonic() > deadline:
                tenant = self._path.stem
                raise RegistryAwayError(
                    f"the devices of tenant '{tenant}' could not be read for {PATIENCE_S:g} s: the API of EnMasse is "
                    f"away, or no IoTProject of this space has the tenant"
                )
            time.sleep(_POLL_S)
        return _applied(self._ids, [change for change in self._changes if change.at_us <= moment_us])

    def changed_to(self, ids: Collection[str], now_us: int) -> bytes | None:
        """Return the content of the file once these are registered; None: it is as it is.

        Args:
            ids: all ids.
            now_us: the present moment, in microseconds.
        """
        if not self._refresh():
            return _content(ids, ())
        before, after = _applied(self._ids, self._changes), frozenset(ids)
        if before == after:
            return None
        change = _Change(now_us + _DELAY_US, tuple(sorted(after - before)), tuple(sorted(before - after)))
        changes = (*self._changes, change)
        return _content(_applied(self._ids, changes[:-_CHANGES]), changes[-_CHANGES:])

    def _refresh(self) -> bool:
        """Read the file if it is another one; False: there is none, and never was."""
        try:
            facts = self._path.stat()
            version = facts.st_ino, facts.st_mtime_ns
            if version != self._read:
                found: dict[str, Any] = json.loads(self._path.read_bytes())
                changes = [(item["at"], item["added"], item["removed"]) for item in found["changes"]]
                self._changes = tuple(_Change(at, tuple(added), tuple(removed)) for at, added, removed in changes)
                self._ids, self._read = frozenset(found["ids"]), version
        except FileNotFoundError:
            return self._read is not None
        return True


@cache
def devices_at(path: Path) -> DeviceList:
    """Return the list at a path, which this process keeps from one task to the next."""
    return DeviceList(path)


def path_of(folder: Path, tenant: str) -> Path:
    """Return the path of a tenant's list in a space's folder; the tenant's name is that of a file."""
    return folder / FOLDER / f"{tenant}.json"


def _applied(ids: Collection[str], changes: Collection[_Change]) -> frozenset[str]:
    found = set(ids)
    for change in changes:
        found.difference_update(change.removed)
        found.update(change.added)
    return frozenset(found)


def _content(ids: Collection[str], changes: Collection[_Change]) -> bytes:
    told = [{"at": change.at_us, "added": change.added, "removed": change.removed} for change in changes]
    return json.dumps({"ids": sorted(ids), "changes": told}, separators=(",", ":")).encode()
