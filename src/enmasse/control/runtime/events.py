"""Events: what happened to objects, for people who ask (``kubectl describe``, ``enmasse events``).

Rules:
1. An event that happens again is counted, not stored again.
2. Recording an event is never slow: events are kept in memory and
   written together, once in a while; of a flood in one namespace only its last are written.
3. When there are too many, the namespace that has most loses its oldest ones: one tenant's events do
   not push out those of others.

They are objects of kind ``Event`` of the core group, stored like all others,
so that they can be listed and watched.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from enmasse.control.store.registry import LASTING_NAMESPACES
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import EVENT, NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.port import Document, Store


EventType = Literal["Normal", "Warning"]

_T = TypeVar("_T")
_ByNamespace = dict[str, OrderedDict[str, _T]]
"""Events by namespace and name, the oldest of each first."""

_log = logging.getLogger(__name__)

_KIND = EVENT.name
_SOURCE = "enmasse"
_NAMESPACE_OF_CLUSTER = "default"  # where Kubernetes puts events of objects without a namespace
_MESSAGE_LIMIT = 1024


@dataclass(slots=True)
class _Noted:
    """One event that is not written yet."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    type: EventType
    reason: str
    message: str
    first: str
    last: str
    count: int = 1


class EventRecorder:
    """Records events and writes them to the store.

    Args:
        store: the store to which they go.
        now: gives the present, RFC 3339 in UTC.
        new_uid: gives a unique identity.
        most: the most events that are kept.
        most_at_once: the most events that are written at a time; of more, the last.
        every_s: seconds between two writes.
    """

    def __init__(
        self,
        store: Store,
        *,
        now: Callable[[], str],
        new_uid: Callable[[], str],
        most: int = 2000,
        most_at_once: int = 200,
        every_s: float = 0.5,
    ) -> None:
        self._store = store
        self._now = now
        self._new_uid = new_uid
        self._most = most
        self._most_at_once = most_at_once
        self._every_s = every_s
        self._noted: _ByNamespace[_Noted] = {}
        self._kept: _ByNamespace[None] | None = None  # oldest first; None: not read yet
        self._something = asyncio.Event()

    def record(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str,
        type: EventType,  # noqa: A002  # as Kubernetes calls it
        reason: str,
        message: str,
        *,
        api_version: str = "",
    ) -> None:
        """Record an event; it can be read about half a second later.

        Args:
            kind: the kind of the object that it is about.
            namespace: the namespace of that; empty for one of the whole installation.
            name: its name.
            uid: its identity.
            type: ``Warning`` for what needs attention.
            reason: a word for programs, in CamelCase.
            message: a sentence for people.
            api_version: the api version of the object.
        """
        now = self._now()
        key = _name(kind, namespace, name, uid, reason, message)
        names = self._noted.setdefault(namespace, OrderedDict())
        if (noted := names.get(key)) is not None:
            noted.count += 1
            noted.last = now
            names.move_to_end(key)
            return
        names[key] = _Noted(kind, api_version, namespace, name, uid, type, reason, message[:_MESSAGE_LIMIT], now, now)
        if _count(self._noted) > self._most_at_once:
            _take_oldest(self._noted)
        self._something.set()

    async def run(self) -> None:
        """Write the recorded events, until cancelled."""
        while True:
            await self._something.wait()
            await asyncio.sleep(self._every_s)
            try:
                self.flush()
            except EnmasseError as error:
                _log.warning("events are not written now: %s", error)

    def flush(self) -> None:
        """Write the recorded events; those that cannot be written now are kept."""
        self._something.clear()
        if not self._noted:
            return
        try:
            with self._store.transaction():
                kept = {namespace: OrderedDict(names) for namespace, names in self._read_kept().items()}
                for name, noted in [item for names in self._noted.values() for item in names.items()]:
                    namespace = noted.namespace or _NAMESPACE_OF_CLUSTER
                    if self._write(name, namespace, noted):
                        names = kept.setdefault(namespace, OrderedDict())
                        names.pop(name, None)
                        names[name] = None
                while _count(kept) > self._most:
                    namespace, name = _take_oldest(kept)
                    if self._store.find(_KIND, namespace, name) is not None:
                        self._store.delete(_KIND, namespace, name)
        except BaseException:
            self._something.set()
            raise
        self._kept = kept
        self._noted.clear()

    def _read_kept(self) -> _ByNamespace[None]:
        # Others write events, too, and delete them.
        if self._kept is None or _count(self._kept) != self._store.usage.count(_KIND):
            self._kept = {}
            for item in sorted(self._store.select(_KIND), key=lambda item: str(item.get("lastTimestamp"))):
                metadata = item["metadata"]
                self._kept.setdefault(metadata["namespace"], OrderedDict())[metadata["name"]] = None
        return self._kept

    def _write(self, name: str, namespace: str, noted: _Noted) -> bool:
        """Write one event, unless its namespace does not exist; return whether it was written."""
        if namespace not in LASTING_NAMESPACES and self._store.find(NAMESPACE.name, "", namespace) is None:
            return False  # the namespace was deleted, and nothing may lie in it
        former = self._store.find(_KIND, namespace, name)
        if former is not None:
            again: Document = {"count": int(former.get("count") or 1) + noted.count, "lastTimestamp": noted.last}
            self._store.replace(former | again)
            return True
        about = {
            "kind": noted.kind,
            "apiVersion": noted.api_version,
            "namespace": noted.namespace,
            "name": noted.name,
            "uid": noted.uid,
        }
        self._store.create(
            {
                "apiVersion": "v1",
                "kind": _KIND,
                "metadata": {
                    "name": name,
                    "namespace": namespace,
                    "uid": self._new_uid(),
                    "creationTimestamp": noted.last,
                },
                "involvedObject": {key: value for key, value in about.items() if value},
                "reason": noted.reason,
                "message": noted.message,
                "source": {"component": _SOURCE},
                "firstTimestamp": noted.first,
                "lastTimestamp": noted.last,
                "count": noted.count,
                "type": noted.type,
                "reportingComponent": _SOURCE,
            }
        )
        return True


def _count(found: _ByNamespace[Any]) -> int:
    return sum(map(len, found.values()))


def _take_oldest(found: _ByNamespace[Any]) -> tuple[str, str]:
    """Take out the oldest of the namespace that has most, and return namespace and name."""
    namespace = max(found, key=lambda item: len(found[item]))
    name, _ = found[namespace].popitem(last=False)
    if not found[namespace]:
        del found[namespace]
    return namespace, name


def _name(kind: str, namespace: str, name: str, *rest: str) -> str:
    """Return the name of an event: the same one whenever the same thing happens."""
    digest = hashlib.sha256("\0".join((kind, namespace, name, *rest)).encode()).hexdigest()[:16]
    return f"{name[:200].rstrip('.-')}.{digest}"
