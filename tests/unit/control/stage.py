"""A registry, a node in memory and the control plane between them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from enmasse.control.context import Context
from enmasse.control.control_plane import ControlPlane
from enmasse.control.runtime.controller import Runtime
from enmasse.model.kinds.spaces import AddressSpace, AddressSpaceStatus
from enmasse.model.schema.metadata import Metadata
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from enmasse.control.context import Node
    from enmasse.control.runtime.controller import Controller
    from enmasse.control.runtime.events import EventRecorder
    from enmasse.control.store.registry import Registry

__all__ = ["Stage", "have_home", "node_of", "running"]


def have_home(context: Context, key: str, node: str) -> None:
    """Have a space be declared and at home on a node, for a context that follows no store."""
    namespace, _, name = key.partition("/")
    metadata, status = Metadata(name=name, namespace=namespace), AddressSpaceStatus(home=node, home_generation=1)
    context.desired.spaces[key] = AddressSpace(metadata=metadata, status=status)


def node_of(plane: ControlPlane) -> Node:
    """Return the only node of a control plane."""
    (node,) = plane.context.nodes.values()
    return node


@asynccontextmanager
async def running(context: Context, *controllers: Controller) -> AsyncIterator[None]:
    """Run some controllers with what they share."""
    runtime = Runtime(context.store)
    for listener in context.listeners:
        runtime.listen(listener)
    for controller in controllers:
        context.controllers[controller.name] = controller
        runtime.add(controller)
    tasks = [asyncio.create_task(item.run()) for item in (runtime, context)]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Stage:
    """A registry, a node and a controller between them."""

    def __init__(self, registry: Registry, node: Any) -> None:
        self.registry = registry
        self.node = node
        self.events: EventRecorder | None = None

    def status(self, kind: str, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.registry.store.get(kind, "default", name)["status"]
        return status

    def reason(self, kind: str, name: str) -> str:
        conditions = self.status(kind, name).get("conditions")
        return str(conditions[-1]["reason"]) if conditions else ""

    def ready_generation(self, kind: str, name: str) -> int | None:
        """The generation that is ready, None when none is."""
        ready = self.status(kind, name)["conditions"][-1]
        return ready["observedGeneration"] if ready["status"] == "True" else None

    def condition(self, kind: str, name: str, of: str) -> tuple[str, str, str]:
        """Status, reason and message of one condition."""
        found = self.status(kind, name).get("conditions", ())
        for item in found:
            if item["type"] == of:
                return item["status"], item["reason"], item.get("message", "")
        return "", "", ""

    def context(self, **more: Any) -> Context:
        options: dict[str, Any] = {
            "jitter": lambda: 1.0,
            "resync_s": 1000.0,
            "grace_s": 0,
            "events": self.events,
        } | more
        return Context(self.registry, [self.node], now=lambda: "2026-01-01T00:00:00Z", **options)

    @asynccontextmanager
    async def controlled(self, resync_s: float = 1000.0, **parts: Any) -> AsyncIterator[ControlPlane]:
        plane = ControlPlane(self.context(resync_s=resync_s), **parts)
        task = asyncio.create_task(plane.run())
        try:
            yield plane
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settled(self, plane: ControlPlane) -> None:
        """Wait until nothing is left to do."""
        await until_async(
            lambda: all(node.mirror.is_complete for node in plane.context.nodes.values()) and plane.is_settled
        )
