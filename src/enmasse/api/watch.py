"""Watches: changes as newline-delimited JSON, for as long as the client listens."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from enmasse.api.status import status_of
from enmasse.control.errors import ExpiredVersionError
from enmasse.control.watching import follow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from enmasse.api.tables import Shape
    from enmasse.control.store import Change, ResourceStore
    from enmasse.model.selectors import Selector

__all__ = ["MAX_WATCH_S", "watch_events"]

MAX_WATCH_S = 3600.0
"""So that a forgotten watch ends; clients watch again from where they were."""

Document = dict[str, Any]


async def watch_events(
    store: ResourceStore,
    kind: str,
    namespace: str | None,
    *,
    after: int | None,
    selector: Selector,
    timeout_s: float,
    stop: asyncio.Event,
    shape: Shape,
) -> AsyncIterator[bytes]:
    """Yield one line for each change of chosen objects.

    Args:
        store: whose changes.
        kind: of these objects.
        namespace: only this one; None: all.
        after: the version that the client has; None: begin with all that is there.
        selector: which objects the client wants to see.
        timeout_s: when to end.
        stop: set when the server stops.
        shape: how the client wants objects.
    """
    view = _View(selector, store.version, shape)
    present = [item for item in store.select(kind, namespace) if selector.matches(item)]
    if after is None:
        after = store.version
        for document in present:
            yield _line("ADDED", shape.event(document))
    view.known = {_key(item) for item in present}
    changes = follow(store, after, kinds=(kind,), namespace=namespace)
    deadline = asyncio.get_running_loop().time() + timeout_s
    stopped = asyncio.ensure_future(stop.wait())
    try:
        while True:
            coming = asyncio.ensure_future(anext(changes))
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait({coming, stopped}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    return
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
            for line in view.lines(coming.result()):
                yield line
    except ExpiredVersionError as error:
        yield _line("ERROR", status_of(410, str(error), reason="Expired"))
    finally:
        stopped.cancel()
        await changes.aclose()  # type: ignore[attr-defined]  # it is a generator


class _View:
    """What one client can see, and so what a change looks like to it."""

    def __init__(self, selector: Selector, began: int, shape: Shape) -> None:
        self._selector = selector
        self._shape = shape
        self._began = began
        self.known: set[tuple[str, str]] = set()

    def lines(self, changes: list[Change]) -> list[bytes]:
        return [line for change in changes if (line := self._seen(change)) is not None]

    def _seen(self, change: Change) -> bytes | None:
        key = _key(change.document)
        if change.action == "DELETED":
            self.known.discard(key)
            return self._event("DELETED", change.document) if self._selector.matches(change.document) else None
        if self._selector.matches(change.document):
            # Before the watch began the client may have seen it or not; it is told as it happened.
            is_new = key not in self.known and change.version > self._began
            self.known.add(key)
            return self._event("ADDED" if is_new else change.action, change.document)
        if not self._selector.chooses_by_labels:
            return None  # the other fields never change
        if key in self.known or change.version <= self._began:
            self.known.discard(key)
            return self._event("DELETED", change.document)
        return None

    def _event(self, kind: str, document: Document) -> bytes:
        return _line(kind, self._shape.event(document))


def _key(document: Document) -> tuple[str, str]:
    metadata = document["metadata"]
    return metadata["namespace"], metadata["name"]


def _line(kind: str, document: Document) -> bytes:
    event = {"type": kind, "object": document}
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
