"""The work queue: one look for many additions, never two at a time, back-off for failures."""

from __future__ import annotations

import asyncio

from enmasse.control.runtime.workqueue import WorkQueue


def queue() -> WorkQueue:
    return WorkQueue(jitter=lambda: 1.0, first_delay=0.001, longest_delay=0.008)


def test_a_key_waits_once_however_often_it_is_added() -> None:
    async def body() -> None:
        keys = queue()
        for key in ("a", "b", "a", "a"):
            keys.add(key)
        assert [await keys.get(), await keys.get()] == ["a", "b"]
        assert len(keys) == 0

    asyncio.run(body())


def test_a_key_added_during_its_work_comes_again_afterwards() -> None:
    async def body() -> None:
        keys = queue()
        keys.add("a")
        await keys.get()
        keys.add("a")
        assert len(keys) == 0
        keys.done("a")
        assert await keys.get() == "a"

    asyncio.run(body())


def test_a_failed_key_comes_again_later_and_later() -> None:
    async def body() -> None:
        keys = queue()
        delays = []
        keys.add("a")
        for _ in range(6):
            await keys.get()
            delays.append(keys.failed("a"))
        assert delays == [0.001, 0.002, 0.004, 0.008, 0.008, 0.008]
        await keys.get()
        keys.done("a")
        keys.add("a")
        await keys.get()
        assert keys.failed("a") == 0.001
        keys.close()

    asyncio.run(body())


def test_a_change_does_not_wait_for_the_back_off() -> None:
    async def body() -> None:
        keys = WorkQueue(jitter=lambda: 1.0, first_delay=1000, longest_delay=1000)
        keys.add("a")
        await keys.get()
        keys.failed("a")
        keys.add("a")
        assert await keys.get() == "a"
        keys.done("a")
        keys.close()

    asyncio.run(body())


def test_the_background_is_a_line_of_its_own() -> None:
    async def body() -> None:
        keys = queue()
        keys.add("late", background=True)
        keys.add("now")
        assert await keys.get() == "now"
        assert await keys.get(background=True) == "late"

    asyncio.run(body())


def test_a_key_of_the_background_that_somebody_waits_for_leaves_it() -> None:
    async def body() -> None:
        keys = queue()
        for key in ("a", "b"):
            keys.add(key, background=True)
        keys.add("a")
        keys.add("a", background=True)
        assert len(keys) == 2
        assert await keys.get() == "a"
        assert await keys.get(background=True) == "b"
        assert len(keys) == 0

    asyncio.run(body())


def test_a_key_that_fails_in_the_background_comes_back_there() -> None:
    async def body() -> None:
        keys = queue()
        keys.add("a", background=True)
        keys.failed(await keys.get(background=True))
        assert await asyncio.wait_for(keys.get(background=True), 10) == "a"

    asyncio.run(body())
