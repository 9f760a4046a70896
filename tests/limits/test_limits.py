"""A client of each protocol goes beyond each limit of its space, and is told so in its protocol's words.

A mark names the protocols in which a test is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress

import pytest

from enmasse.client import blocking
from tests.limits.limit_clients import CLIENTS, Client, MakeClient, RefusedError
from tests.limits.limit_list import TOLD
from tests.support.node_process import NodeProcess
from tests.support.polling import until

pytestmark = pytest.mark.slow

SPACE = "default/limited"
WAIT_S = 60.0
ADDRESSES = ("queue", "topic", "multicast")
NO_LIMITS = dict.fromkeys(
    (
        "maxConnections",
        "maxLinks",
        "maxSessions",
        "maxMessageRate",
        "maxByteRate",
        "maxMessageSize",
        "maxRetained",
        "maxSubscriptions",
        "maxConnectorConnections",
        "maxConnectorSessions",
    ),
    0,
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with every client of the protocols that its mark names."""
    for mark in metafunc.definition.iter_markers("limit"):
        made = {name: client for protocol in mark.args[1:] for name, client in CLIENTS[protocol].items()}
        metafunc.parametrize(("name", "client"), list(made.items()), ids=list(made))


class Site:
    """A node with one space, whose limits each test sets."""

    def __init__(self, node: NodeProcess, connection: blocking.Connection) -> None:
        self.port = node.port
        self._management = connection.management()
        self._management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
        for kind in ADDRESSES:
            entity = {"space": SPACE, "address": kind, "addressType": kind}
            self._management.create("io.enmasse.address", f"default/limited.{kind}", entity)

    def limit(self, **limits: int) -> None:
        """Have the space bounded by these alone, once everybody has gone."""
        until(lambda: not self._management.read("io.enmasse.space", SPACE)["connections"])
        self.lift()
        self._management.update("io.enmasse.space", SPACE, limits)

    @contextmanager
    def connected(self, *names: str) -> Iterator[None]:
        """Have connectors that lead back to the space."""
        back = {"servers": [{"host": "127.0.0.1", "port": self.port}], "patterns": ["#"]}
        self._management.update("io.enmasse.space", SPACE, {"connectors": dict.fromkeys(names, back)})
        try:
            yield
        finally:
            self._management.update("io.enmasse.space", SPACE, {"connectors": {}})

    def lift(self) -> None:
        """Bound the space by nothing."""
        self._management.update("io.enmasse.space", SPACE, NO_LIMITS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with (
        NodeProcess(tmp_path_factory.mktemp("limited"), "--connector-network", "127.0.0.1/32") as node,
        blocking.connect(node.admin_url, timeout=30) as connection,
    ):
        yield Site(node, connection)
        assert "Traceback" not in node.log, node.log


def run(story: Coroutine[object, object, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(WAIT_S):
            await story

    asyncio.run(in_time())


async def refused(work: Awaitable[object]) -> str:
    """Return what a client is told of a request that is refused."""
    with pytest.raises(RefusedError) as caught:
        await work
    return str(caught.value)


def told(limit: str, name: str) -> str:
    """Return what a client should be told."""
    return TOLD[limit]["http" if name.startswith("http") else name.removesuffix(" over WebSocket")]


async def connect(client: MakeClient, port: int) -> None:
    async with client(port):
        pass


async def connect_once_there_is_room(client: MakeClient, port: int) -> None:
    """The node notes the end of a connection a moment later."""
    while True:
        with suppress(RefusedError):
            return await connect(client, port)
        await asyncio.sleep(0.01)


@pytest.mark.limit("connections", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
def test_a_connection_beyond_those_of_the_space(site: Site, name: str, client: MakeClient) -> None:
    site.limit(maxConnections=1)

    async def story() -> None:
        async with client(site.port) as one:
            assert await refused(connect(client, site.port)) == told("connections", name)
            if not name.startswith("http"):  # whose requests are connections
                await one.send("queue")
        await connect_once_there_is_room(client, site.port)

    run(story())


@pytest.mark.limit("links", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
def test_a_receiver_beyond_the_links_of_the_space(site: Site, name: str, client: MakeClient) -> None:
    async def story() -> None:
        site.limit(maxLinks=1 + client(site.port).links)
        async with client(site.port) as one:
            await one.listen("topic")
            assert await refused(one.listen("multicast")) == told("links", name)
            site.lift()
            async with client(site.port) as other:
                await other.listen("multicast")

    run(story())


@pytest.mark.limit("sessions", "mqtt", "websocket")
def test_a_session_beyond_those_of_the_space(site: Site, name: str, client: Callable[..., Client]) -> None:
    site.limit(maxSessions=1)

    async def story() -> None:
        async with client(site.port, "one"):
            assert await refused(client(site.port, "two").__aenter__()) == told("sessions", name)
            await connect(client, site.port)  # whose session ends with it
        async with client(site.port, "one") as again:
            await again.send("queue")

    run(story())


@pytest.mark.limit("rate", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
def test_a_sender_beyond_the_rate_of_the_space(site: Site, name: str, client: MakeClient) -> None:
    """A message that is many seconds' worth goes, and the next one waits, or is refused by HTTP."""
    site.limit(maxByteRate=10)
    expected = told("rate", name)

    async def story() -> None:
        async with client(site.port) as one:
            await one.send("queue", bytes(1000))
            sending = asyncio.create_task(one.send("queue"))
            if expected.startswith("it waits"):
                await asyncio.wait([sending], timeout=0.2)
                assert not sending.done()
            else:
                assert await refused(sending) == expected
            site.lift()
            await (sending if expected.startswith("it waits") else one.send("queue"))

    run(story())


@pytest.mark.limit("size", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
def test_a_message_that_is_larger_than_the_space_takes(site: Site, name: str, client: MakeClient) -> None:
    site.limit(maxMessageSize=1000)

    async def story() -> None:
        async with client(site.port) as one:
            await one.send("queue", bytes(500))
            assert await refused(one.send("queue", bytes(1001))) == told("size", name)

    run(story())


@pytest.mark.limit("retained", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
def test_a_value_beyond_those_that_the_space_retains(site: Site, name: str, client: MakeClient) -> None:
    site.limit(maxRetained=1)

    async def story() -> None:
        async with client(site.port) as one:
            await one.send("topic/kept", is_kept=True)
            await one.send("topic/kept", b"another", is_kept=True)
            assert await refused(one.send("topic/more", is_kept=True)) == told("retained", name)

    run(story())


@pytest.mark.limit("subscriptions", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
def test_a_subscription_beyond_those_of_the_space(site: Site, name: str, client: MakeClient) -> None:
    site.limit(maxSubscriptions=1)

    async def story() -> None:
        async with client(site.port) as one, client(site.port) as other:
            await one.listen("topic")
            assert await refused(other.listen("topic")) == told("subscriptions", name)

    run(story())


@pytest.mark.limit("connectors", "amqp", "mqtt", "stomp", "http/1.1", "http/2", "websocket")
@pytest.mark.parametrize("limits", [{"maxConnectorSessions": 1}, {"maxConnectorConnections": 1}], ids=str)
def test_a_client_beyond_those_that_connectors_have_room_for(
    site: Site, name: str, client: MakeClient, limits: dict[str, int]
) -> None:
    """The second one needs a session of its own, or the second connector a connection."""
    site.limit(**limits)
    words = ("far", "far") if "maxConnectorSessions" in limits else ("far", "near")
    first, second = (f"{word}{'%2F' if name.startswith('http') else '/'}topic" for word in words)

    async def story() -> None:
        async with client(site.port) as one, client(site.port) as other:
            await one.listen(first)
            assert await refused(other.listen(second)) == told("connectors", name)

    with site.connected("far", "near"):
        run(story())
