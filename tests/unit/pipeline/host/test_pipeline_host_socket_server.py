"""The host's socket as the API asks it; the host is one without runners, as only its logs are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from enmasse.api.pipelines import PipelineHost
from enmasse.errors import UnavailableError
from enmasse.pipeline.host import socket_server
from enmasse.pipeline.host.supervise import BoundedLog


class Logs:
    def __init__(self, folder: Path) -> None:
        self.one = BoundedLog(folder / "shop.hot.log")

    def log_of(self, namespace: str, name: str) -> BoundedLog:
        assert (namespace, name) == ("default", "shop.hot")
        return self.one


@asynccontextmanager
async def served(logs: Logs, path: Path) -> AsyncIterator[PipelineHost]:
    stop = asyncio.Event()
    host: Any = logs
    serving = asyncio.create_task(socket_server.serve_socket(host, path, stop))
    while not path.exists():
        await asyncio.sleep(0.01)
    try:
        yield PipelineHost(path)
    finally:
        stop.set()
        await serving


async def read(parts: AsyncIterator[bytes], wanted: bytes) -> None:
    text = b""
    while len(text) < len(wanted):
        text += await asyncio.wait_for(anext(parts), 20)
    assert text == wanted


def test_a_log_that_is_followed_gives_the_last_lines_and_then_each_one_that_comes(tmp_path: Path) -> None:
    async def main() -> None:
        logs = Logs(tmp_path)
        for line in ("one", "two", "three"):
            logs.one.append(line)
        async with served(logs, tmp_path / "d" / "s") as host:
            async with host.log("default", "shop.hot", 2, follow=True) as parts:
                logs.one.append("at once")
                await read(parts, b"two\nthree\nat once\n")
                logs.one.append("later")
                await read(parts, b"later\n")
            async with host.log("default", "shop.hot", 1, follow=False) as parts:
                assert [part async for part in parts] == [b"later\n"]

    asyncio.run(main())


def test_only_so_many_logs_are_followed_and_one_that_is_left_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "MOST_FOLLOWING", 2)

    async def main() -> None:
        logs = Logs(tmp_path)
        logs.one.append("line")
        async with served(logs, tmp_path / "d" / "s") as host, AsyncExitStack() as first, AsyncExitStack() as second:

            async def follow(stack: AsyncExitStack) -> AsyncIterator[bytes]:
                parts = await stack.enter_async_context(host.log("default", "shop.hot", 9, follow=True))
                await read(parts, b"line\n")
                return parts

            # Kept, as what nobody reads any more is closed.
            followed = [await follow(first), await follow(second)]
            with pytest.raises(UnavailableError, match="2 logs are followed"):
                await follow(first)
            assert len(followed) == 2
            await second.aclose()
            while True:
                try:
                    await follow(first)
                except UnavailableError:
                    # What was left is noticed with the next thing to say.
                    await asyncio.sleep(0.05)
                else:
                    break

    asyncio.run(main())


def test_a_query_ends_with_who_asked_it(tmp_path: Path) -> None:
    class Waiting(Logs):
        ended = False

        async def query(self, *_: object, may_start: bool) -> None:
            assert may_start
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended = True

    async def main() -> None:
        waiting = Waiting(tmp_path)
        async with served(waiting, tmp_path / "d" / "s") as host:
            asking = asyncio.create_task(host.query({"space": "default/shop", "sql": "SELECT 1"}))
            await asyncio.wait_for(begun.wait(), 20)
            asking.cancel()
            while not waiting.ended:
                await asyncio.sleep(0.01)

    begun = asyncio.Event()
    asyncio.run(asyncio.wait_for(main(), 60))
