"""A registry, a node in memory and the control plane between them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from enmasse.control.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from enmasse.control.registry import Registry

__all__ = ["Stage"]


class Stage:
    """A registry, a node and a controller between them."""

    def __init__(self, registry: Registry, node: Any) -> None:
        self.registry = registry
        self.node = node

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

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    @asynccontextmanager
    async def controlled(self, resync_s: float = 1000.0) -> AsyncIterator[ControlPlane]:
        controller = ControlPlane(
            self.registry,
            self.node,
            now=lambda: "2026-01-01T00:00:00Z",
            jitter=lambda: 1.0,
            resync_s=resync_s,
            grace_s=0,
        )
        task = asyncio.create_task(controller.run())
        try:
            yield controller
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settled(self, plane: ControlPlane) -> None:
        """Wait until nothing is left to do."""
        await self.until(lambda: plane.mirror.is_complete and plane.is_settled)
