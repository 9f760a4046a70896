"""What was freed goes back to the system, where it was much."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.messaging.budget import Budget, Holder
from enmasse.node import heap as module
from enmasse.node.heap import FREED_BYTES, Heap, trim


class Place:
    """What gives up nothing."""

    def stay(self) -> None:
        """Free nothing."""


def test_much_that_was_freed_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    budget, place = Budget(1 << 30, 1), Place()
    looks: list[int] = []

    class Watched(Heap):
        def _look(self) -> None:
            looks.append(1)
            super()._look()

    async def story() -> None:
        given: list[Any] = []
        heap = Watched(asyncio.get_running_loop(), [budget], lambda: given.append(budget.held))
        heap.start()

        async def look_twice() -> None:
            before = len(looks)
            while len(looks) < before + 2:
                await asyncio.sleep(0.001)

        holder = Holder(budget, ("space",), place.stay)
        holder.resize(FREED_BYTES)
        await look_twice()
        assert given == []
        holder.resize(1)
        await look_twice()
        assert given == []
        holder.leave()
        await look_twice()
        assert given == [0]
        await look_twice()
        assert given == [0]
        heap.stop()

    asyncio.run(story())


def test_the_c_library_can_be_asked() -> None:
    trim()
