"""The runtime of controllers: they watch the store, queue keys, and reconcile these until all is as declared.

Rules:
1. Reconciling compares what is declared with what is; what happened in between does not matter.
2. A key stands for one object. It is queued when something that it depends on changed, so that work grows with
   what changes and not with what there is.
3. A key that failed is queued again after a back-off; the others go on.
4. Keys that nobody waits for are reconciled in the background, which leaves most of the time to others.

All controllers have one shape, and ``control_plane`` has the list of them::

    class ThingController(Controller):
        name = "things"

        def load(self, store): ...  # enqueue the keys of all things
        def apply(self, change): ...  # enqueue the keys that a change concerns
        async def reconcile(self, key): ...  # reconcile one; return whether nothing is left to do
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, ClassVar, Protocol

from enmasse.control.errors import ExpiredVersionError
from enmasse.control.runtime.workqueue import WorkQueue
from enmasse.control.store.history import follow
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.control.store.port import Change, Store


_log = logging.getLogger(__name__)

_WORKERS = 64
"""Keys of one controller that are reconciled at the same time; enough to fill a node's batches."""

_BACKGROUND_WORKERS = 8
"""They are separate from those for the other keys, so that neither waits for the other."""

_BREATH = 1.0
"""Pause of the background after each key, as a factor of the time that the key took."""

_LONGEST_BREATH_S = 0.1

_AGAIN_S = 1.0
"""Seconds before a store that could not be read is read again."""


class Listener(Protocol):
    """A listener of every change of the store."""

    def load(self, store: Store) -> None:
        """Load everything that the store holds now: at the start, and when changes were missed."""

    def apply(self, change: Change) -> None:
        """Take one change."""


class Controller:
    """A queue of keys, and the work that reconciles the object of each.

    Args:
        jitter: gives a factor around 1 for delays.
        observe: is called with the seconds that each key took.

    Attributes:
        name: for logs and for others who enqueue keys of this controller.
        workers: the number of keys that are reconciled at the same time.
    """

    name: ClassVar[str]
    workers: ClassVar[int] = _WORKERS

    def __init__(
        self, *, jitter: Callable[[], float], observe: Callable[[float], None] = lambda _seconds: None
    ) -> None:
        self._observe = observe
        self._queue = WorkQueue(jitter=jitter)

    def __len__(self) -> int:
        """Return the number of keys that wait."""
        return len(self._queue)

    @property
    def busy(self) -> int:
        """The number of keys that wait or are worked on; those in a back-off do not count."""
        return self._queue.busy

    def load(self, store: Store) -> None:
        """Enqueue the keys of all that the store holds; nothing here, where others enqueue the keys."""

    def apply(self, change: Change) -> None:
        """Enqueue the keys that a change concerns; nothing here, where others enqueue them."""

    async def reconcile(self, key: str) -> bool:
        """Make the object of a key as it is declared.

        Returns:
            Whether nothing is left to do. If not, or if it raises, the key is queued again after a back-off.
        """
        raise NotImplementedError

    async def run_beside(self) -> None:
        """Do what this controller does beside its keys, until cancelled; nothing here."""

    def enqueue(self, key: str, *, background: bool = False) -> None:
        """Enqueue a key, to be reconciled soon.

        Args:
            key: the key.
            background: whether it may take its time.
        """
        self._queue.add(key, background=background)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.run_beside(), name=f"{self.name}: beside its keys")
                for _ in range(self.workers):
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
                is_settled = await self.reconcile(key)
            except EnmasseError as error:
                # The node is away or says no, the store is full: known, and it passes.
                _log.info("%s: %s: %s", self.name, key, error)
                is_settled = False
            except Exception:  # noqa: BLE001  # logged with its trace, and tried again
                # One object that cannot be reconciled must not stop the others.
                _log.exception("%s: reconciling %s failed", self.name, key)
                is_settled = False
            self._observe(time.monotonic() - since)
            if is_settled:
                queue.done(key)
            else:
                _log.debug("%s: %s again in %.2f s", self.name, key, queue.failed(key))
            # The time of others that worked meanwhile counts as well: rather too long a pause than too short a one.
            pause = min((time.thread_time() - began) * _BREATH, _LONGEST_BREATH_S) if background else 0
            await asyncio.sleep(pause)


class Runtime:
    """Runs controllers, and passes the changes of a store to its listeners.

    Args:
        store: to be watched.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: list[Listener] = []
        self._controllers: list[Controller] = []
        self._version = 0

    @property
    def is_settled(self) -> bool:
        """True when all changes are known and nothing that can be done is left to do."""
        return self._version == self._store.version and not any(item.busy for item in self._controllers)

    def add(self, controller: Controller) -> None:
        """Add a controller that runs with the others, and gets every change after those that were added before."""
        self._controllers.append(controller)
        self._listeners.append(controller)

    def listen(self, listener: Listener) -> None:
        """Add a listener, which gets every change after those that were added before."""
        self._listeners.append(listener)

    def load(self) -> None:
        """Load all listeners from the store."""
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
                _log.info("changes were missed: everything is reconciled")
                self.load()
            except EnmasseError as error:
                _log.warning("changes of the store cannot be read now: %s", error)
                await asyncio.sleep(_AGAIN_S)
