"""Publishing what was found: many statuses in one write, and none over a change that nobody has looked at.

Rules:
1. What is found within ``GATHER_S`` is written together; the first of a burst at once.
2. A status that was found for an object as it no longer is, is not written: the object is looked at again. That
   includes one that is as it was before we ourselves wrote another one meanwhile.
3. What cannot be written now (the disk is full, the store is locked) is written later.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING

from enmasse.errors import EnmasseError
from enmasse.model.conditions import READY, find

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.events import EventRecorder
    from enmasse.control.store import ResourceStore
    from enmasse.model.resource import Resource, ResourceStatus

__all__ = ["StatusWriter"]

GATHER_S = 0.02
"""Long beside a commit and short beside what a person notices."""

_REMEMBER_S = 60.0
"""Longer than a look at an object takes."""

_AT_ONCE = 500
_LATER_S = 1.0
_KINDS_WITH_EVENTS = frozenset({"AddressSpace", "Address"})

_log = logging.getLogger(__name__)


class StatusWriter:
    """Writes the status of objects to the store.

    Args:
        store: where the objects lie.
        stale: hears of an object whose status could not be written because it has changed.
        events: hears of changes of the phase.
    """

    def __init__(
        self, store: ResourceStore, stale: Callable[[Resource], None], events: EventRecorder | None = None
    ) -> None:
        self._store = store
        self._stale = stale
        self._events = events
        self._found: dict[tuple[str, str, str], tuple[Resource, str]] = {}
        self._written: dict[tuple[str, str, str], tuple[str, float]] = {}
        """Over which version a status was written of late, and when; the oldest first."""
        self._something = asyncio.Event()

    def __len__(self) -> int:
        """How many statuses are not written yet."""
        return len(self._found)

    def publish(self, resource: Resource, status: ResourceStatus) -> None:
        """Have the status of an object written soon, in place of one that was found before and is not written yet.

        Args:
            resource: as it was read from the store.
            status: that was found, whether it is another one or the same.
        """
        metadata = resource.metadata
        key = (resource.kind, metadata.namespace, metadata.name)
        if status == resource.status:
            self._found.pop(key, None)
            if self._written.get(key, ("",))[0] == metadata.resource_version:
                self._stale(resource)
            return
        self._found[key] = (resource.model_copy(update={"status": status}), resource.status.phase)
        self._something.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._something.wait()
            try:
                self.flush()
            except EnmasseError as error:
                _log.warning("statuses are not written now: %s", error)
                await asyncio.sleep(_LATER_S)
            else:
                await asyncio.sleep(GATHER_S)

    def flush(self) -> None:
        """Write what was found; what cannot be written is still there."""
        self._something.clear()
        batch = list(self._found.items())[:_AT_ONCE]
        stale, told = [], []
        try:
            with self._store.transaction():
                for key, (resource, former_phase) in batch:
                    document = self._store.find(*key)
                    metadata = resource.metadata
                    if document is None or document["metadata"]["uid"] != metadata.uid:
                        continue
                    if document["metadata"]["resourceVersion"] != metadata.resource_version:
                        stale.append(resource)
                        continue
                    self._store.replace(document | {"status": resource.status.to_dict()})
                    told.append((resource, former_phase))
        except BaseException:
            self._something.set()
            raise
        self._remember([resource for resource, _ in told])
        for key, found in batch:
            if self._found.get(key) is found:
                del self._found[key]
        if self._found:
            self._something.set()
        for resource in stale:
            self._stale(resource)
        for resource, former_phase in told:
            self._tell(resource, former_phase)

    def _remember(self, written: list[Resource]) -> None:
        now = time.monotonic()
        for resource in written:
            metadata = resource.metadata
            key = (resource.kind, metadata.namespace, metadata.name)
            self._written.pop(key, None)
            self._written[key] = (metadata.resource_version, now)
        for key in list(itertools.takewhile(lambda key: self._written[key][1] < now - _REMEMBER_S, self._written)):
            del self._written[key]

    def _tell(self, resource: Resource, former_phase: str) -> None:
        """Make an event of a new phase, and of what an object waits for or fails of."""
        status = resource.status
        is_stuck = status.phase in ("Pending", "Failed")
        if self._events is None or resource.kind not in _KINDS_WITH_EVENTS:
            return
        if status.phase == former_phase and not (is_stuck and status.messages):
            return
        unmet = next((item for item in status.conditions if item.status != "True"), None) or find(
            status.conditions, READY
        )
        metadata = resource.metadata
        self._events.record(
            resource.kind,
            metadata.namespace,
            metadata.name,
            metadata.uid,
            "Warning" if is_stuck else "Normal",
            unmet.reason if unmet else status.phase,
            f"is {status.phase}{': ' if status.messages else ''}{'; '.join(status.messages)}",
            api_version=resource.api_version,
        )
