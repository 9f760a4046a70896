"""Feeds send an answer again whenever it has changed; it is computed once for all viewers of the same.

Rules:
1. A feed computes its answer at most once in ``PAUSE_S``, and only when what it depends on has changed.
2. Nothing is queued: a viewer who reads slowly gets the latest answer next, not those in between.
3. A feed ends with its last viewer.
4. Each viewer's rights are checked again before each line, and while none comes, each second.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from enmasse.api.kube.status import answer_error
from enmasse.api.kube.watch import MAX_WATCH_S
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

    from enmasse.api.kube.watch import Watches

PAUSE_S: Final = 1.0

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """The answer that a feed sends, and how it is computed.

    Attributes:
        key: the same for all who want the same.
        answer: computes it.
        state: returns what it depends on; the answer is computed again when that is another.
    """

    key: Hashable
    answer: Callable[[], Awaitable[Document]]
    state: Callable[[], object]


class Feeds:
    """The feeds that somebody looks at.

    Args:
        now: returns the present time as answers tell it.
        pause_s: seconds between two computations.
    """

    def __init__(self, now: Callable[[], str], pause_s: float = PAUSE_S) -> None:
        self._now = now
        self._pause_s = pause_s
        self._feeds: dict[Hashable, _Feed] = {}

    def __len__(self) -> int:
        """Return the number of feeds."""
        return len(self._feeds)

    async def answer(self, source: Source) -> bytes:
        """Return the present answer: that of its feed, or a new one."""
        feed = self._feeds.get(source.key)
        if feed is not None and feed.line:
            return feed.line
        return _line(await source.answer(), self._now())

    async def lines(self, source: Source) -> AsyncIterator[bytes]:
        """Yield the answer, and again whenever it has changed; for ever.

        Raises:
            EnmasseError: as the answer raises it.
        """
        feed = self._feeds.get(source.key)
        if feed is None:
            feed = self._feeds[source.key] = _Feed(source, self._now, self._pause_s)
        feed.viewers += 1
        try:
            number = 0
            while True:
                number, line = await feed.after(number)
                yield line
        finally:
            feed.viewers -= 1
            if not feed.viewers:
                del self._feeds[source.key]
                feed.task.cancel()


class _Feed:
    """One answer, and its number."""

    def __init__(self, source: Source, now: Callable[[], str], pause_s: float) -> None:
        self.viewers = 0
        self.line = b""
        self._number = 0
        self._source = source
        self._now = now
        self._pause_s = pause_s
        self._changed = asyncio.Event()
        self._error: EnmasseError | None = None
        self.task = asyncio.create_task(self._run(), name="feed")

    async def after(self, number: int) -> tuple[int, bytes]:
        """Wait for an answer later than one of a number; return its number and itself."""
        while self._number <= number and self._error is None:
            if self.task.done():
                self.task.result()
            await self._changed.wait()
        if self._error is not None:
            raise self._error
        return self._number, self.line

    async def _run(self) -> None:
        try:
            former: Document | None = None
            while True:
                state = self._source.state()
                found = await self._source.answer()
                if found != former:
                    former = found
                    self.line = _line(found, self._now())
                    self._number += 1
                    self._tell()
                await asyncio.sleep(self._pause_s)
                while self._source.state() == state:
                    await asyncio.sleep(self._pause_s)
        except EnmasseError as error:
            self._error = error
        finally:
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _line(answer: Document, now: str) -> bytes:
    return json.dumps(answer | {"time": now}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class FeedWatch:
    """A watch of a feed.

    Attributes:
        name: the name of what is watched, for the log.
        feeds: all feeds.
        source: the source of the feed.
        is_allowed: whether the viewer may still see it.
    """

    name: str
    feeds: Feeds
    source: Source
    is_allowed: Callable[[], bool]

    async def events(self, watches: Watches) -> AsyncIterator[bytes]:
        """Yield one line for each answer, until the server stops or the viewer may no longer see it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + MAX_WATCH_S
        lines = self.feeds.lines(self.source)
        stopped = asyncio.ensure_future(watches.stop.wait())
        try:
            while True:
                following = asyncio.ensure_future(anext(lines))
                try:
                    while not following.done() and self.is_allowed():
                        left = deadline - loop.time()
                        if left <= 0 or stopped.done():
                            break
                        await asyncio.wait(
                            {following, stopped}, timeout=min(left, PAUSE_S), return_when=asyncio.FIRST_COMPLETED
                        )
                finally:
                    if not following.done():
                        following.cancel()
                        await asyncio.wait({following})
                if following.cancelled() or not self.is_allowed():
                    return
                yield following.result()
        except EnmasseError as error:
            status = bytes(answer_error(error).body)
            yield b'{"type":"ERROR","object":' + status + b"}\n"
        finally:
            stopped.cancel()
            await lines.aclose()  # type: ignore[attr-defined]  # it is a generator
