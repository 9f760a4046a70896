"""What controllers have in common: they watch the store, queue keys, and look at them until all is right.

Rules:
1. A look compares what is declared with what is; what happened in between does not matter.
2. A key stands for one object. It is looked at when something that it depends on changed, so that
   work grows with what changes and not with what there is.
3. A look that failed comes again after a back-off; the others go on.
4. What nobody waits for is looked at in the background, and leaves most of the time to others.

A controller brings a function that looks at one key::

    controller = Controller("users", look, jitter=jitter)
    runtime.add(controller)
    runtime.listen(UserIndex(controller.look_at))   # turns changes of the store into keys
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from enmasse.control.errors import ExpiredVersionError
from enmasse.control.watching import follow
from enmasse.control.workqueue import WorkQueue
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from enmasse.control.store import Change, ResourceStore

__all__ = ["Controller", "Listener", "Runtime"]

_log = logging.getLogger(__name__)

_WORKERS = 64
"""Keys of one controller that are looked at at the same time; enough to fill a node's batches."""

_BACKGROUND_WORKERS = 8
"""They are others than those for what somebody waits for, so that neither holds up the other."""

_BREATH = 1.0
"""How long the background pauses after each look, in terms of the time that the look took."""

_LONGEST_BREATH_S = 0.1

_AGAIN_S = 1.0
"""Before a store that could not be read is read again."""


class Listener(Protocol):
    """Who hears of every change of the store, and knows which keys it concerns."""

    def load(self, store: ResourceStore) -> None:
        """Take up everything that the store holds now: at the start, and when changes were missed."""

    def apply(self, change: Change) -> None:
        """Take one change."""


class Controller:
    """Keys, and whoever looks at them.

    Args:
        name: for logs.
        look: looks at one key and puts it right; returns whether nothing is left to do. What it raises
            is logged, and the key comes again after a back-off.
        jitter: gives a factor around 1 for delays.
        looked: hears how long each look took, in seconds.
        workers: how many keys are looked at at the same time.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[str], Awaitable[bool]],
        *,
        jitter: Callable[[], float],
        looked: Callable[[float], None] = lambda _seconds: None,
        workers: int = _WORKERS,
    ) -> None:
        self.name = name
        self._look = look
        self._looked = looked
        self._workers = workers
        self._queue = WorkQueue(jitter=jitter)

    def __len__(self) -> int:
        """How many keys wait."""
        return len(self._queue)

    @property
    def busy(self) -> int:
        """How many keys wait or are looked at; those that failed and come again later do not count."""
        return self._queue.busy

    def look_at(self, key: str, *, background: bool = False) -> None:
        """Have a key looked at soon.

        Args:
            key: what to look at.
            background: whether it may take its time.
        """
        self._queue.add(key, background=background)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._workers):
                    tasks.create_task(self._work(), name=self.name)
                for _ in range(_BACKGROUND_WORKERS):
                    tasks.create_task(self._work(background=True), name=f"{self.name} in the background")
        finally:
            self._queue.close()

    async def _work(self, *, background: bool = False) -> None:
        queue = self._queue
        while True:
            key = await queue.get(background=background)
            began, since = time.thread_time(), time.monotonic()
            try:
                is_settled = await self._look(key)
            except EnmasseError as error:
                # The node is away or says no, the store is full: known, and it passes.
                _log.info("%s: %s: %s", self.name, key, error)
                is_settled = False
            except Exception:  # noqa: BLE001  # logged with its trace, and tried again
                # One object that cannot be looked at must not stop the others.
                _log.exception("%s: looking at %s failed", self.name, key)
                is_settled = False
            self._looked(time.monotonic() - since)
            if is_settled:
                queue.done(key)
            else:
                _log.debug("%s: %s again in %.2f s", self.name, key, queue.failed(key))
            # The time of others that worked meanwhile counts as well: rather too long a pause than too short a one.
            pause = min((time.thread_time() - began) * _BREATH, _LONGEST_BREATH_S) if background else 0
            await asyncio.sleep(pause)


class Runtime:
    """Runs controllers, and tells listeners of the changes of a store.

    Args:
        store: whose changes.
    """

    def __init__(self, store: ResourceStore) -> None:
        self._store = store
        self._listeners: list[Listener] = []
        self._controllers: list[Controller] = []
        self._version = 0

    @property
    def is_settled(self) -> bool:
        """Whether all changes are known and nothing that can be done is left to do."""
        return self._version == self._store.version and not any(item.busy for item in self._controllers)

    def add(self, controller: Controller) -> None:
        """Have a controller run with the others."""
        self._controllers.append(controller)

    def listen(self, listener: Listener) -> None:
        """Have a listener hear of every change; those that were added first hear of it first."""
        self._listeners.append(listener)

    def load(self) -> None:
        """Have all listeners take up what there is."""
        for listener in self._listeners:
            listener.load(self._store)
        self._version = self._store.version

    async def run(self) -> None:
        """Work until cancelled."""
        self.load()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_store(), name="follow the store")
            for controller in self._controllers:
                tasks.create_task(controller.run(), name=controller.name)

    async def _follow_store(self) -> None:
        while True:
            try:
                async for changes in follow(self._store, self._version):
                    for change in changes:
                        for listener in self._listeners:
                            listener.apply(change)
                        self._version = change.version
                    await asyncio.sleep(0)
            except ExpiredVersionError:
                _log.info("changes were missed: everything is looked at again")
                self.load()
            except EnmasseError as error:
                _log.warning("changes of the store cannot be read now: %s", error)
                await asyncio.sleep(_AGAIN_S)
