"""The host's socket as the API asks it; the host has logs, and a server of the test's in the place of a runner's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from enmasse.api.kube.status import RequestError
from enmasse.api.pipelines import PipelineHost
from enmasse.errors import UnavailableError
from enmasse.pipeline.host import socket_server
from enmasse.pipeline.host.supervise import BoundedLog
from enmasse.pipeline.host.ui_sockets import UiSocket


class Logs:
    def __init__(self, folder: Path) -> None:
        self.one = BoundedLog(folder / "shop.hot.log")

    def log_of(self, namespace: str, name: str) -> BoundedLog:
        assert (namespace, name) == ("default", "shop.hot")
        return self.one


class Shown(Logs):
    """A host with a runner that shows Spark's pages."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ui = UiSocket(folder)

    def ui_of(self, namespace: str, name: str) -> UiSocket:
        if (namespace, name) != ("default", "shop.hot"):
            raise UnavailableError(f"pipeline {name} has no Spark session that runs")
        return self.ui


Answering = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Answers one request, of which it gets the head."""


@asynccontextmanager
async def showing(folder: Path, answer: Answering) -> AsyncIterator[PipelineHost]:
    """A host whose runner answers so."""
    shown = Shown(folder)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await answer(await reader.readuntil(b"\r\n\r\n"), writer)
            writer.close()
            await writer.wait_closed()

    # As a runner has it: the same socket, by another number.
    runner = await asyncio.start_server(connected, sock=socket.socket(fileno=os.dup(shown.ui.number)))
    async with runner, served(shown, folder / "d" / "s") as host:
        yield host
    shown.ui.close()


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
    monkeypatch.setattr(socket_server, "MAX_FOLLOWING", 2)

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


async def page(host: PipelineHost, path: str, name: str = "shop.hot") -> tuple[int, str]:
    async with host.spark_page("default", name, path, {}) as answer:
        await answer.aread()
        return answer.status_code, answer.text


def test_a_page_is_asked_for_as_it_was_written_and_leads_to_nothing_else_of_the_host(tmp_path: Path) -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + head.split(b"\r\n")[0])

    async def main() -> None:
        async with showing(tmp_path, answer) as host:
            for path in ("", "jobs/?a=%2F&name=shop.cold", "/[x/?namespace=other", "SQL/?q=../../"):
                assert await page(host, path) == (200, f"GET /{path} HTTP/1.1")
            for dots in ("..", "%2e%2E", ".%2e", "."):
                for path in (f"{dots}/{dots}/{dots}/log/default/shop.hot?tail=1", f"jobs/{dots}", f"a%2f{dots}/b"):
                    with pytest.raises(RequestError, match="no page whose path has") as refused:
                        await page(host, path)
                    assert refused.value.code == 404

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_error_is_the_hosts_only_where_the_host_says_so(tmp_path: Path) -> None:
    said = [
        (b'HTTP/1.0 503 Busy\r\nhost-error: true\r\n\r\n{"message": "log in at evil.example"}', 503),
        (b"HTTP/1.0 503 Busy\r\n\r\nno JSON", 503),
        (b"HTTP/1.0 500 Oh\r\ncontent-type: \xe2\x82\xac\r\n\r\nx", 500),
        (b"HTTP/1.0 304 Same\r\n\r\n", 502),
        (b"HTTP/1.0 799 What\r\n\r\nx", 502),
    ]

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(said[int(head.split()[1][1:])][0] if head[5:6] != b"-" else b"evil.example\r\n\r\n")

    async def main() -> None:
        async with showing(tmp_path, answer) as host:
            for number, (raw, status) in enumerate(said):
                found = await page(host, str(number))
                assert found == (status, raw.partition(b"\r\n\r\n")[2].decode())
            with pytest.raises(RequestError, match=r"^the space's Spark session does not answer, or not with HTTP$"):
                await page(host, "-")
            with pytest.raises(RequestError, match=r"shop\.none has no Spark session") as refused:
                await page(host, "", "shop.none")
            assert refused.value.code == 503

    asyncio.run(asyncio.wait_for(main(), 60))


class Trickling:
    """Sends a little at a time, without an end: each read gets something."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        part = b"HTTP/1.1 100 Continue\r\n\r\n"
        if head.startswith(b"GET /page"):
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
            part = b"x"
        try:
            while True:
                writer.write(part)
                await writer.drain()
                self.begun.set()
                await asyncio.sleep(0.01)
        except OSError:
            self.ended.set()


@pytest.mark.parametrize("path", ["page", "nothing"])
def test_a_page_has_a_time_for_all_of_it(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_server, "PAGE_S", 0.5)

    async def main() -> None:
        trickling = Trickling()
        async with showing(tmp_path, trickling) as host:
            if path == "page":
                status, text = await page(host, path)
                assert (status, set(text)) == (200, {"x"})
            else:
                with pytest.raises(RequestError, match=r"does not answer within 0\.5 seconds"):
                    await page(host, path)
            await trickling.ended.wait()

    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("path", ["page", "nothing"])
def test_a_page_ends_with_who_asked_for_it(path: str, tmp_path: Path) -> None:
    async def main() -> None:
        trickling = Trickling()
        async with showing(tmp_path, trickling) as host:
            asking = asyncio.create_task(page(host, path))
            await trickling.begun.wait()
            asking.cancel()
            await trickling.ended.wait()

    asyncio.run(asyncio.wait_for(main(), 30))
