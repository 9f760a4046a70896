"""Watches: changes as newline-delimited JSON, until the client disconnects.

Rules:
1. Nothing is queued for a client: each watch reads the history from its own position. One that falls behind the
   history ends with a Status of 410 as its last event.
2. A client that reads nothing for a while is disconnected. The number of watches is bounded, and shared fairly by
   users, then by namespaces of a user, then by networks: the one with most loses its latest to one with fewer.
3. The type of an event follows from the object before and after the change: one that begins to match the selector is
   ADDED, one that stops matching is DELETED.
4. Bookmarks carry the version that a watch has reached, after the initial objects and about every minute, so that a
   client need not list again after a pause.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import Response

from enmasse.api.kube.status import RequestError, status_of
from enmasse.control.errors import ExpiredVersionError, StoreBusyError
from enmasse.net.http_server import disconnected
from enmasse.net.shares import Owner, Shares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import Receive, Scope, Send

    from enmasse.api.kube.served import Served
    from enmasse.api.kube.tables import Shape
    from enmasse.control.store.port import Change, Store
    from enmasse.model.schema.selectors import Selector

MAX_WATCH_S = 3600.0
"""So that a forgotten watch ends; clients watch again from where they were."""

_log = logging.getLogger(__name__)

_MAX_WATCHES = 1000
_BOOKMARK_S = 60.0
_BUSY_S = 0.5
_STEP = 200  # initial objects that are read at a time
_INITIAL_END = {"k8s.io/initial-events-end": "true"}

Document = dict[str, Any]


class Watches:
    """The slots of all open watches.

    Args:
        stop: set when the server stops, so that they end.
        most: the limit of open watches.
        bookmark_s: seconds between two bookmarks.
        patience_s: seconds that a client may read nothing.

    Attributes:
        refused: the number that were refused, or ended for an owner with fewer.
    """

    def __init__(
        self,
        stop: asyncio.Event,
        *,
        most: int = _MAX_WATCHES,
        bookmark_s: float = _BOOKMARK_S,
        patience_s: float = 30.0,
    ) -> None:
        self.stop = stop
        self.bookmark_s = bookmark_s
        self.patience_s = patience_s
        self.refused = 0
        self._shares: Shares[asyncio.Event] = Shares(most)
        self._owners: dict[asyncio.Event, Owner] = {}

    def __len__(self) -> int:
        """Return the number of open watches."""
        return len(self._shares)

    def require_slot(self, owner: Owner) -> asyncio.Event | None:
        """Return the event that ends the watch which has to give way to one more; None if there is a free slot.

        Raises:
            RequestError: 429, when there are too many, and the owner has its share of them.
        """
        if not self._shares.is_full:
            return None
        given_up = [*self._shares.richer_than(owner)][-1:]
        if not given_up:
            self.refused += 1
            raise RequestError(429, f"{self._shares.most} watches are open, and your share of them: try again later")
        return given_up[0]

    @contextmanager
    def slot(self, owner: Owner) -> Iterator[asyncio.Event]:
        """Hold a slot for a watch; the event is set when the watch has to end.

        Raises:
            RequestError: as above.
        """
        victim = self.require_slot(owner)
        if victim is not None:
            self.refused += 1
            victim.set()
            self._shares.leave(self._owners.pop(victim), victim)
        ended = asyncio.Event()
        self._shares.take(owner, ended)
        self._owners[ended] = owner
        try:
            yield ended
        finally:
            if self._owners.pop(ended, None) is not None:
                self._shares.leave(owner, ended)


class Watched(Protocol):
    """A source of events for one watch."""

    @property
    def name(self) -> str:
        """Its name in the log."""

    def events(self, watches: Watches) -> AsyncIterator[bytes]:
        """Yield one line for each event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRequest:
    """The parameters of one watch.

    Attributes:
        store: with the history of changes.
        served: the kind of objects, and the version they are sent in.
        namespace: only this one; None: all.
        selector: the selector of objects.
        shape: the form of objects.
        after: the version that the client has; None: begin with all present objects.
        wants_bookmarks: whether bookmarks are sent.
        marks_initial: whether a bookmark marks the end of the initial objects.
        timeout_s: the duration; 0: the maximum.
    """

    store: Store
    served: Served
    namespace: str | None
    selector: Selector
    shape: Shape
    after: int | None = None
    wants_bookmarks: bool = False
    marks_initial: bool = False
    timeout_s: float = 0.0

    @property
    def name(self) -> str:
        """The kind, for the log."""
        return self.served.kind.plural

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
                        if (event := self._line_of(change)) is not None:
                            yield event
                    if changes:
                        continue
                    if self.wants_bookmarks and loop.time() >= bookmark_at:
                        yield self._bookmark(after, {})
                        bookmark_at = loop.time() + watches.bookmark_s
                    until = min(deadline, bookmark_at) if self.wants_bookmarks else deadline
                    await _first_of(changed, watches.stop, until - loop.time())
        except ExpiredVersionError as error:
            yield event_line("ERROR", status_of(410, str(error), reason="Expired"))

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

    def _line_of(self, change: Change) -> bytes | None:
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
        return event_line(action, self.shape.event(document | {"apiVersion": self.served.api_version}))

    def _bookmark(self, version: int, annotations: dict[str, str]) -> bytes:
        metadata: Document = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        document = {"kind": self.served.kind.name, "apiVersion": self.served.api_version, "metadata": metadata}
        return event_line("BOOKMARK", self.shape.event(document))


class WatchResponse(Response):
    """The answer to a watch.

    Args:
        watches: all open ones.
        watched: the source of its events.
        owner: user, namespace and network.

    Raises:
        RequestError: 429, when there are too many.
    """

    def __init__(self, watches: Watches, watched: Watched, owner: Owner) -> None:
        super().__init__(media_type="application/json")
        del self.headers["content-length"]
        self._watches = watches
        self._watched = watched
        self._owner = owner
        watches.require_slot(owner)  # refused before the answer has begun

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client disconnects, reads too slowly, the time is over, or the server stops."""
        with self._watches.slot(self._owner) as ended:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sending = asyncio.ensure_future(self._send(send))
            others: list[asyncio.Future[Any]] = [asyncio.ensure_future(disconnected(receive))]
            others += [asyncio.ensure_future(event.wait()) for event in (ended, self._watches.stop)]
            try:
                await asyncio.wait({sending, *others}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for other in others:
                    other.cancel()
                if not sending.done():
                    sending.cancel()
                    await asyncio.wait({sending})
            error = None if sending.cancelled() else sending.exception()
            if (ended.is_set() or self._watches.stop.is_set()) and sending.cancelled():
                with suppress(TimeoutError):  # then the server closes the connection
                    await self._end(send)
            if isinstance(error, TimeoutError):
                _log.info("a watch of %s is disconnected: its client reads nothing", self._watched.name)
                if (cut := scope.get("state", {}).get("cut")) is not None:
                    cut()
                    await asyncio.wait_for(disconnected(receive), self._watches.patience_s)
            elif error is not None:
                raise error

    async def _send(self, send: Send) -> None:
        events = self._watched.events(self._watches)
        try:
            async for line in events:
                async with asyncio.timeout(self._watches.patience_s):
                    await send({"type": "http.response.body", "body": line, "more_body": True})
            await self._end(send)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # it is a generator

    async def _end(self, send: Send) -> None:
        async with asyncio.timeout(self._watches.patience_s):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _first_of(changed: asyncio.Event, stop: asyncio.Event, timeout_s: float) -> None:
    waiting = {asyncio.ensure_future(event.wait()) for event in (changed, stop)}
    try:
        await asyncio.wait(waiting, timeout=max(timeout_s, 0), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def event_line(kind: str, document: Document) -> bytes:
    """Return the line of an event."""
    event = {"type": kind, "object": document}
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
