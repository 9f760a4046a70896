"""Watches: changes as newline-delimited JSON, for as long as the client listens.

Rules:
1. Nothing is queued for a client: each watch reads the history from where it stands.
   One that falls behind the history ends with the Status of 410 as its last event.
2. A client that takes nothing for a while is cut off; so many watches are open at a
   time and no more.
3. What a change means to a client follows from the object before it and after it: one
   that comes to be chosen is ADDED, one that ceases to be is DELETED.
4. Who asks for bookmarks is told the version it has come to, after what was there in
   the beginning and about every minute, so that it need not list again after a pause.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi.responses import Response

from enmasse.api.status import RequestError, status_of
from enmasse.control.errors import ExpiredVersionError, StoreBusyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send

    from enmasse.api.served import Served
    from enmasse.api.tables import Shape
    from enmasse.control.store import Change, ResourceStore
    from enmasse.model.selectors import Selector

__all__ = ["MAX_WATCH_S", "Follow", "WatchResponse", "Watches"]

MAX_WATCH_S = 3600.0
"""So that a forgotten watch ends; clients watch again from where they were."""

_log = logging.getLogger(__name__)

_MOST_WATCHES = 1000
_BOOKMARK_S = 60.0
_BUSY_S = 0.5
_STEP = 200  # objects told at a time in the beginning
_INITIAL_END = {"k8s.io/initial-events-end": "true"}

Document = dict[str, Any]


class Watches:
    """The watches under way.

    Args:
        stop: set when the server stops, so that they end.
        most: how many there may be at a time.
        bookmark_s: seconds between two bookmarks.
        patience_s: seconds that a client may take nothing.
    """

    def __init__(
        self,
        stop: asyncio.Event,
        *,
        most: int = _MOST_WATCHES,
        bookmark_s: float = _BOOKMARK_S,
        patience_s: float = 30.0,
    ) -> None:
        self.stop = stop
        self.bookmark_s = bookmark_s
        self.patience_s = patience_s
        self._most = most
        self._count = 0

    def __enter__(self) -> None:
        if self._count >= self._most:
            raise RequestError(429, f"{self._most} watches are open, and that is all: try again later")
        self._count += 1

    def __exit__(self, *exception: object) -> None:
        self._count -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """What one client wants to follow.

    Attributes:
        store: whose changes.
        served: of objects of this kind, told in this version.
        namespace: only this one; None: all.
        selector: which objects the client wants to see.
        shape: how it wants them.
        after: the version that it has; None: begin with all that is there.
        wants_bookmarks: whether it wants to be told versions.
        marks_initial: whether it wants to be told when all that was there has been told.
        timeout_s: when to end; 0: not before the longest time there is.
    """

    store: ResourceStore
    served: Served
    namespace: str | None
    selector: Selector
    shape: Shape
    after: int | None = None
    wants_bookmarks: bool = False
    marks_initial: bool = False
    timeout_s: float = 0.0

    async def events(self, watches: Watches) -> AsyncIterator[bytes]:
        """Yield one line for each event."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self.timeout_s or MAX_WATCH_S, MAX_WATCH_S)
        changed = asyncio.Event()
        try:
            with self.store.listening(changed.set):
                after = self.after
                if after is None:
                    after = self.store.version
                    async for line in self._present(after):
                        yield line
                    if self.marks_initial or self.wants_bookmarks:
                        yield self._bookmark(after, _INITIAL_END if self.marks_initial else {})
                bookmark_at = loop.time() + watches.bookmark_s
                while loop.time() < deadline and not watches.stop.is_set():
                    changed.clear()
                    try:
                        changes, after = self.store.changes(
                            after, kinds=(self.served.kind.name,), namespace=self.namespace
                        )
                    except StoreBusyError:
                        await _first_of(changed, watches.stop, _BUSY_S)
                        continue
                    for change in changes:
                        if (told := self._seen(change)) is not None:
                            yield told
                    if changes:
                        continue
                    if self.wants_bookmarks and loop.time() >= bookmark_at:
                        yield self._bookmark(after, {})
                        bookmark_at = loop.time() + watches.bookmark_s
                    until = min(deadline, bookmark_at) if self.wants_bookmarks else deadline
                    await _first_of(changed, watches.stop, until - loop.time())
        except ExpiredVersionError as error:
            yield _line("ERROR", status_of(410, str(error), reason="Expired"))

    async def _present(self, version: int) -> AsyncIterator[bytes]:
        last: tuple[str, str] | None = None
        while True:
            rows = self.store.page(self.served.kind.name, self.namespace, after=last, limit=_STEP, at=version)
            for namespace, name, body in rows:
                last = namespace, name
                document = json.loads(body)
                if self.selector.matches(document):
                    yield self._event("ADDED", document)
            if len(rows) < _STEP:
                return
            await asyncio.sleep(0)

    def _seen(self, change: Change) -> bytes | None:
        if self.selector.is_everything:
            return self._event(change.action, change.document)
        before = change.before
        was = before is not None and self.selector.matches(before)
        now = change.action != "DELETED" and self.selector.matches(change.document)
        if now:
            return self._event("MODIFIED" if was else "ADDED", change.document)
        if was and before is not None:
            # As it was when the client last saw it, but of this version.
            version = change.document["metadata"]["resourceVersion"]
            return self._event("DELETED", before | {"metadata": before["metadata"] | {"resourceVersion": version}})
        return None

    def _event(self, action: str, document: Document) -> bytes:
        return _line(action, self.shape.event(document | {"apiVersion": self.served.api_version}))

    def _bookmark(self, version: int, annotations: dict[str, str]) -> bytes:
        metadata: Document = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        document = {"kind": self.served.kind.name, "apiVersion": self.served.api_version, "metadata": metadata}
        return _line("BOOKMARK", self.shape.event(document))


class WatchResponse(Response):
    """The answer to a watch.

    Args:
        watches: those under way.
        follow: what the client wants to follow.

    Raises:
        RequestError: 429, when there are too many.
    """

    def __init__(self, watches: Watches, follow: Follow) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._watches = watches
        self._follow = follow
        with watches:
            pass  # to refuse while the answer can still say so

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what happens, until the client goes, or is too slow, or the time is over."""
        with self._watches:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sending = asyncio.ensure_future(self._send(send))
            going = asyncio.ensure_future(_gone(receive))
            try:
                await asyncio.wait({sending, going}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                going.cancel()
                if not sending.done():
                    sending.cancel()
                    await asyncio.wait({sending})
            error = None if sending.cancelled() else sending.exception()
            if isinstance(error, TimeoutError):
                _log.info("a watch of %s is cut off: its client takes nothing", self._follow.served.kind.plural)
                if (cut := scope.get("state", {}).get("cut")) is not None:
                    cut()
                    await asyncio.wait_for(_gone(receive), self._watches.patience_s)
            elif error is not None:
                raise error

    async def _send(self, send: Send) -> None:
        events = self._follow.events(self._watches)
        try:
            async for line in events:
                async with asyncio.timeout(self._watches.patience_s):
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # it is a generator


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _first_of(changed: asyncio.Event, stop: asyncio.Event, timeout_s: float) -> None:
    waiting = {asyncio.ensure_future(event.wait()) for event in (changed, stop)}
    try:
        await asyncio.wait(waiting, timeout=max(timeout_s, 0), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _line(kind: str, document: Document) -> bytes:
    event = {"type": kind, "object": document}
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
