"""Publish statuses: many in one write, and none over a change that is not reconciled yet.

Rules:
1. Statuses that are published within ``GATHER_S`` are written together; the first of a burst at once.
2. A status that was computed for a former version of an object is not written: the object is reconciled again. That
   includes an object that is as it was before we ourselves wrote another status meanwhile.
3. What cannot be written now (the disk is full, the store is locked) is written later.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from enmasse.errors import EnmasseError
from enmasse.model.kinds.spaces import AddressSpaceStatus
from enmasse.model.schema.conditions import IN_EFFECT, READY, find
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.runtime.events import EventRecorder, EventType
    from enmasse.control.store.port import Store
    from enmasse.model.schema.resource import Resource, ResourceStatus


GATHER_S = 0.02
"""Seconds: long compared with a commit, and too short for a person to notice."""

_REMEMBER_S = 60.0
"""Seconds: longer than reconciling an object takes."""

_AT_ONCE = 500
_LATER_S = 1.0
_KINDS_WITH_EVENTS = frozenset({ADDRESS_SPACE.name, ADDRESS.name})

_log = logging.getLogger(__name__)


class _Published(NamedTuple):
    """An object with a status that is not written yet."""

    resource: Resource
    former: ResourceStatus
    reconcile_again: Callable[[], object]


class StatusWriter:
    """Writes the status of objects to the store.

    Args:
        store: the store of the objects.
        events: records changes of the phase, and of connectors.
    """

    def __init__(self, store: Store, events: EventRecorder | None = None) -> None:
        self._store = store
        self._events = events
        self._found: dict[tuple[str, str, str], _Published] = {}
        self._written: dict[tuple[str, str, str], tuple[str, float]] = {}
        """The versions over which a status was written recently, and when; the oldest first."""
        self._something = asyncio.Event()

    def __len__(self) -> int:
        """Return the number of statuses that are not written yet."""
        return len(self._found)

    def publish(self, resource: Resource, status: ResourceStatus, reconcile_again: Callable[[], object]) -> None:
        """Write the status of an object soon, in place of one that was published before and is not written yet.

        Args:
            resource: the resource as it was read from the store.
            status: the status as it is now, whether it has changed or not.
            reconcile_again: enqueues the object with the controller that publishes this, as the object has changed.
        """
        metadata = resource.metadata
        key = (resource.kind, metadata.namespace, metadata.name)
        if status == resource.status:
            self._found.pop(key, None)
            if self._written.get(key, ("",))[0] == metadata.resource_version:
                reconcile_again()
            return
        found = resource.model_copy(update={"status": status})
        self._found[key] = _Published(found, resource.status, reconcile_again)
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
        """Write what was published; what cannot be written is kept."""
        self._something.clear()
        batch = list(self._found.items())[:_AT_ONCE]
        stale: list[_Published] = []
        written: list[_Published] = []
        try:
            with self._store.transaction():
                for key, published in batch:
                    document = self._store.find(*key)
                    metadata = published.resource.metadata
                    if document is None or document["metadata"]["uid"] != metadata.uid:
                        continue
                    if document["metadata"]["resourceVersion"] != metadata.resource_version:
                        stale.append(published)
                        continue
                    self._store.replace(document | {"status": published.resource.status.to_dict()})
                    written.append(published)
        except BaseException:
            self._something.set()
            raise
        self._remember([published.resource for published in written])
        for key, published in batch:
            if self._found.get(key) is published:
                del self._found[key]
        if self._found:
            self._something.set()
        for published in stale:
            published.reconcile_again()
        for published in written:
            self._record_events(published.resource, published.former)

    def _remember(self, written: list[Resource]) -> None:
        now = time.monotonic()
        for resource in written:
            metadata = resource.metadata
            key = (resource.kind, metadata.namespace, metadata.name)
            self._written.pop(key, None)
            self._written[key] = (metadata.resource_version, now)
        for key in list(itertools.takewhile(lambda key: self._written[key][1] < now - _REMEMBER_S, self._written)):
            del self._written[key]

    def _record_events(self, resource: Resource, former: ResourceStatus) -> None:
        """Record events of a new phase, of the reason why an object waits or fails, and of connectors."""
        status = resource.status
        is_stuck = status.phase in ("Pending", "Failed")
        if resource.kind not in _KINDS_WITH_EVENTS:
            return
        if status.phase != former.phase or (is_stuck and status.messages):
            waits = (item for item in status.conditions if item.status != "True" and item.type != IN_EFFECT)
            unmet = next(waits, None) or find(status.conditions, READY)
            self._record(
                resource,
                "Warning" if is_stuck else "Normal",
                unmet.reason if unmet else status.phase,
                f"is {status.phase}{': ' if status.messages else ''}{'; '.join(status.messages)}",
            )
        elif isinstance(status, AddressSpaceStatus) and isinstance(former, AddressSpaceStatus) and status.is_ready:
            # While the space is not served, its connectors are not either, of which its own event tells.
            before = {connector.name: connector.is_ready for connector in former.connectors}
            for connector in status.connectors:
                if connector.is_ready and not before.get(connector.name, True):
                    self._record(resource, "Normal", "ConnectorReady", f"connector {connector.name} works")
                elif not connector.is_ready and before.get(connector.name, True):
                    problem = f"connector {connector.name} does not work: {'; '.join(connector.messages)}"
                    self._record(resource, "Warning", "ConnectorNotReady", problem)

    def _record(self, resource: Resource, kind: EventType, reason: str, message: str) -> None:
        metadata = resource.metadata
        if self._events is not None:
            self._events.record(
                resource.kind,
                metadata.namespace,
                metadata.name,
                metadata.uid,
                kind,
                reason,
                message,
                api_version=resource.api_version,
            )
