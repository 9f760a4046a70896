"""Ports of spaces: opened and closed while the node runs, and what is told of those that cannot be."""

from __future__ import annotations

import asyncio
import socket

from enmasse.node.ports import SpacePorts
from tests.support.polling import until_async

WAIT_S = 10.0


class Site:
    """Ports on the loopback interface whose connections are told the space they came in by."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.ports = SpacePorts(loop, self.open)

    async def open(self, host: str, port: int, space: str) -> asyncio.Server:
        async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(space.encode())
            writer.close()
            await writer.wait_closed()

        return await asyncio.start_server(greet, host, port)


async def space_at(port: int) -> str | None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return None
    found = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return found


async def until_space(port: int, space: str | None) -> None:
    async with asyncio.timeout(WAIT_S):
        while await space_at(port) != space:
            await asyncio.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_port_is_opened_with_the_first_interface_and_follows_its_space() -> None:
    async def story() -> None:
        site = Site(asyncio.get_running_loop())
        first, second = free_port(), free_port()
        site.ports.set("ns/shop", first)
        await asyncio.sleep(0)
        assert await space_at(first) is None
        site.ports.serve_on("127.0.0.1")
        await until_space(first, "ns/shop")
        site.ports.set("ns/shop", second)
        await until_space(second, "ns/shop")
        await until_space(first, None)
        site.ports.set("ns/shop", 0)
        await until_space(second, None)
        site.ports.close()

    asyncio.run(story())


def test_two_spaces_with_one_port_are_told_apart() -> None:
    async def story() -> None:
        site = Site(asyncio.get_running_loop())
        site.ports.serve_on("127.0.0.1")
        port = free_port()
        site.ports.set("ns/shop", port)
        site.ports.set("ns/late", port)
        await until_async(lambda: "portProblem" in site.ports.status("ns/late"))
        assert site.ports.status("ns/late") == {
            "portProblem": f"port {port} belongs to another space already; choose another one"
        }
        assert site.ports.status("ns/shop") == {}
        site.ports.set("ns/shop", 0)
        await until_space(port, "ns/late")
        assert site.ports.status("ns/late") == {}
        site.ports.close()

    asyncio.run(story())


def test_a_port_that_somebody_else_has_is_taken_once_it_is_free() -> None:
    async def story() -> None:
        site = Site(asyncio.get_running_loop())
        site.ports.serve_on("127.0.0.1")
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            site.ports.set("ns/shop", port)
            await until_async(lambda: "portProblem" in site.ports.status("ns/shop"))
            problem = site.ports.status("ns/shop")["portProblem"]
            assert f"port {port} cannot be opened" in problem
            assert site.ports.problems == [problem]
            assert "shop" not in problem, "whoever asks for the node's health is told it"
        await until_space(port, "ns/shop")
        assert site.ports.status("ns/shop") == {}
        assert site.ports.problems == []
        site.ports.close()

    asyncio.run(story())
