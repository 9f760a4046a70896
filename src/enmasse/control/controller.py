"""The controller: for ever, bring the node to what is declared, and say how far it is.

Rules:
1. Level-triggered: each look compares all that is declared in a space with all
   that the node has of it. What happened in between does not matter.
2. One worker: what is known of the node and what is told to it never cross.
3. Every look ends in conditions, written only where they changed.
4. A space whose look failed comes again after a back-off; the others go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from enmasse.control.errors import ExpiredVersionError, NodeRefusedError, NodeUnavailableError
from enmasse.control.inventory import Inventory
from enmasse.control.observed import Observed
from enmasse.control.planning import SpaceView, Step, plan_space, plan_space_plan
from enmasse.control.watching import follow
from enmasse.control.workqueue import WorkQueue
from enmasse.model.conditions import READY, Condition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.control.ports import NodeAdmin
    from enmasse.control.registry import Registry
    from enmasse.model.resource import Resource

__all__ = ["Controller"]

_log = logging.getLogger(__name__)

_NODE = "node"  # the key for asking the node what it has; spaces have a slash in theirs
_PLANS = "plans"
_PAUSE = 3.0  # times as long as the look took
_LONGEST_PAUSE_S = 0.5
_AT_ONCE = 64  # steps of one stage under way; enough to fill the node's batches


class Controller:
    """Reconciles the declared spaces with one node.

    Args:
        registry: where the declarations lie and the conditions go.
        node: the node.
        now: gives the present, RFC 3339 in UTC.
        jitter: gives a factor around 1 for delays.
        resync_s: seconds between two full questions to the node, to find what drifted.
        looked: hears how long each look took, in seconds.
    """

    def __init__(
        self,
        registry: Registry,
        node: NodeAdmin,
        *,
        now: Callable[[], str],
        jitter: Callable[[], float],
        resync_s: float = 10.0,
        looked: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._registry = registry
        self._node = node
        self._now = now
        self._resync_s = resync_s
        self._looked = looked
        self._queue = WorkQueue(jitter=jitter)
        self._inventory = Inventory()
        self._observed: Observed | None = None
        self._is_connected: bool | None = None  # not known yet
        self._is_doubtful = False

    async def run(self) -> None:
        """Work until cancelled."""
        self._inventory = Inventory.of(self._registry.store)
        self._look_at_all()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_store(), name="follow the store")
                tasks.create_task(self._follow_node(), name="follow the node")
                tasks.create_task(self._ask_regularly(), name="find drift")
                tasks.create_task(self._work(), name="reconcile")
        finally:
            self._queue.close()

    async def _follow_store(self) -> None:
        store = self._registry.store
        while True:
            try:
                async for changes in follow(store, self._inventory.version):
                    for change in changes:
                        keys = self._inventory.apply(change)
                        if keys is None:
                            self._look_at_all()
                        else:
                            self._look_at(keys)
            except ExpiredVersionError:
                self._inventory = Inventory.of(store)
                self._look_at_all()

    async def _follow_node(self) -> None:
        async for connected in self._node.connections():
            _log.info("node %s: %s", self._node.name, "reachable" if connected else "not reachable")
            self._is_connected = connected
            self._observed = None  # it may have come back as another process
            self._queue.add(_NODE)

    async def _ask_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._resync_s)
            self._queue.add(_NODE)

    def _look_at(self, keys: set[str]) -> None:
        for key in sorted(keys):
            self._queue.add(key)

    def _look_at_all(self) -> None:
        found = self._observed.space_keys() if self._observed else set()
        self._queue.add(_PLANS)
        self._look_at(self._inventory.space_keys() | found)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            began, since = time.thread_time(), time.monotonic()
            try:
                settled = await self._reconcile(key)
            except NodeUnavailableError as error:
                _log.info("node %s: %s", self._node.name, error)
                settled = False
            except Exception:  # noqa: BLE001  # logged with its trace, and tried again
                # One space that cannot be planned must not stop the others.
                _log.exception("looking at %s failed", key)
                settled = False
            self._looked(time.monotonic() - since)
            if settled:
                self._queue.done(key)
            else:
                delay = self._queue.failed(key)
                _log.debug("%s again in %.2f s", key, delay)
            # Looking at a large space takes its time. Pauses leave most of it to the API, and what is
            # declared meanwhile waits for one look instead of causing one each.
            await asyncio.sleep(min((time.thread_time() - began) * _PAUSE, _LONGEST_PAUSE_S))

    async def _reconcile(self, key: str) -> bool:
        """Look at one thing and put it right; return whether nothing is left to do."""
        if key == _NODE:
            return await self._ask_node()
        if key == _PLANS:
            self._say_of_plans()
            return True
        return await self._reconcile_space(key)

    async def _ask_node(self) -> bool:
        if self._is_connected:
            self._observed = Observed(await self._node.observe())
            self._is_doubtful = False
        self._look_at_all()
        return True

    async def _reconcile_space(self, key: str) -> bool:
        if self._observed is None and self._is_connected is not False:
            return True  # looked at again as soon as the node has told what it has
        refusals: dict[str, str] = {}
        try:
            if self._is_doubtful and self._is_connected:
                self._observed = Observed(await self._node.observe())
                self._is_doubtful = False
            plan = plan_space(self._view(key, refusals))
            for stage in plan.stages:
                await self._take(stage, refusals)
                if key in refusals:
                    break  # without the space its addresses have no place
        except NodeUnavailableError:
            self._observed = None
            self._queue.add(_NODE)
            self._publish(plan_space(self._view(key, refusals)).resources)
            raise
        if plan.stages:
            plan = plan_space(self._view(key, refusals))  # to say what has come of it
        self._publish(plan.resources)
        return not refusals

    def _view(self, key: str, refusals: dict[str, str]) -> SpaceView:
        return SpaceView(
            space=self._inventory.spaces.get(key),
            addresses=tuple(self._inventory.addresses.get(key, {}).values()),
            plans=self._inventory.plans,
            node=self._observed.of_space(key) if self._observed else None,
            refusals=refusals,
        )

    async def _take(self, stage: tuple[Step, ...], refusals: dict[str, str]) -> None:
        """Take all steps of a stage; what the node refuses is noted down."""
        places = asyncio.Semaphore(_AT_ONCE)
        observed = self._observed

        async def take(step: Step) -> NodeUnavailableError | None:
            async with places:
                try:
                    await getattr(self._node, step.action)(step.entity)
                except NodeRefusedError as error:
                    _log.warning("%s %s: %s", step.action, step.entity.name, error)
                    refusals[step.entity.name] = str(error)
                    self._is_doubtful = True  # perhaps it has something else than we think
                except NodeUnavailableError as error:
                    return error
                else:
                    _log.info("%s %s: done", step.action, step.entity.name)
                    if observed is not None:
                        observed.record(step)
            return None

        failures = await asyncio.gather(*(take(step) for step in stage))
        if failure := next((item for item in failures if item), None):
            raise failure

    def _say_of_plans(self) -> None:
        plans = self._inventory.plans
        found: list[tuple[Resource, tuple[Condition, ...]]] = [
            (plan, plan_space_plan(plan, plans)) for plan in plans.spaces.values()
        ]
        for plan in plans.addresses.values():
            generation = plan.metadata.generation
            condition = Condition(type=READY, status="True", reason="Valid", observed_generation=generation)
            found.append((plan, (condition,)))
        self._publish(found)

    def _publish(self, found: Sequence[tuple[Resource, tuple[Condition, ...]]]) -> None:
        now = self._now()
        changed = []
        for resource, conditions in found:
            status = resource.status.with_conditions(conditions, now)
            published = self._inventory.find(resource)
            if published is not None and published.status != status:
                changed.append(resource.model_copy(update={"status": status}))
        if changed:
            self._registry.write_status(changed)
