"""A tenant on the plan `free` reaches each of its limits with a client that is not ours, and is told so.

The limits are those of the plan that every installation has, in the words in which control tells a node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

import httpx
from proton import ConnectionException, Message, Timeout
from proton.reactor import DurableSubscription
from proton.utils import BlockingConnection, LinkDetached, SendException

from enmasse.client import blocking
from enmasse.control.ports import SpaceEntity, SpaceLimitSettings
from enmasse.control.spaces.effective import limit_settings
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin
from enmasse.model.catalog import default_plans
from enmasse.model.kinds.plans import AddressPlanSpec, AddressSpacePlanSpec
from enmasse.wire.mqtt.packets import Reason, Version
from tests.support.mqtt_peer import MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.polling import until
from tests.support.stomp_peer import StompPeer

pytestmark = pytest.mark.slow

SPACE = "default/free"
TIMEOUT_S = 30
EVENTS = {"accept": "text/event-stream"}
REFUSED = "amqp:resource-limit-exceeded"


def plan_of(name: str) -> Any:
    (found,) = [plan.spec for plan in default_plans() if plan.metadata.name == name]
    return found


def space_plan() -> Any:
    spec = plan_of("free")
    assert isinstance(spec, AddressSpacePlanSpec)
    assert spec.limits is not None
    return spec.limits


def queue_plan() -> Any:
    spec = plan_of("free-queue")
    assert isinstance(spec, AddressPlanSpec)
    assert spec.limits is not None
    return spec.limits


class Site:
    """A node with one space, whose limits each test chooses from the plan."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node
        self._count = 0
        self._is_there = False

    def limit(self, **limits: Any) -> None:
        """Have the space bounded by these of the plan's limits, as control does it."""
        bounds = limit_settings(space_plan())
        kept = SpaceLimitSettings(**{name: getattr(bounds, name) for name in limits.pop("keep", ())})
        entity = SpaceEntity(SPACE, "standard", "none", "uid-1", 1, limits=kept, **limits)

        async def tell() -> None:
            admin = AmqpNodeAdmin("node-0", self.node.admin_url, jitter=lambda: 1.0)
            connections = admin.connections()
            async with asyncio.timeout(TIMEOUT_S):
                await anext(connections)
                await (admin.update(entity) if self._is_there else admin.create(entity))
                await connections.aclose()  # type: ignore[attr-defined]

        asyncio.run(tell())
        self._is_there = True

    def queue(self, **attributes: Any) -> str:
        return self.address("queue", **attributes)

    def address(self, kind: str, **attributes: Any) -> str:
        self._count += 1
        address = f"{kind[0]}{self._count}"
        with blocking.connect(self.node.admin_url, timeout=TIMEOUT_S) as connection:
            everything = {"space": SPACE, "address": address, "addressType": kind, **attributes}
            connection.management().create("io.enmasse.address", f"default/free.{address}", everything)
        return address

    def connect(self, container: str | None = None) -> Any:
        return BlockingConnection(self.node.url, timeout=TIMEOUT_S, container_id=container)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with NodeProcess(tmp_path_factory.mktemp("free")) as node:
        found = Site(node)
        found.limit()
        yield found
        assert "Traceback" not in node.log, node.log


def free_of_connections(site: Site) -> None:
    """Wait until nobody is connected any more."""
    with blocking.connect(site.node.admin_url, timeout=TIMEOUT_S) as connection:
        management = connection.management()
        until(lambda: not management.read("io.enmasse.space", SPACE)["connections"])


@pytest.mark.limit("connections", "amqp")
def test_connections(site: Site) -> None:
    site.limit(keep=["max_connections"])
    free_of_connections(site)
    with ExitStack() as stack:
        for _ in range(space_plan().connections):
            stack.enter_context(closing(site.connect()))
        with pytest.raises(ConnectionException, match=f"{space_plan().connections} connections, as many as its plan"):
            site.connect()


def test_devices(site: Site) -> None:
    site.limit(keep=["max_devices"])
    free_of_connections(site)
    with ExitStack() as stack:
        for number in range(space_plan().devices):
            stack.enter_context(closing(site.connect(f"device-{number}")))
        stack.enter_context(closing(site.connect("device-0")))
        with pytest.raises(ConnectionException, match=f"{space_plan().devices} devices"):
            site.connect("one-more")


@pytest.mark.limit("links", "amqp")
def test_links_of_the_space(site: Site) -> None:
    site.limit(keep=["max_links"])
    free_of_connections(site)
    queue = site.queue()
    with closing(site.connect()) as connection:
        for number in range(space_plan().links):
            connection.create_sender(queue, name=f"s{number}")
        with pytest.raises(LinkDetached, match=f"{space_plan().links} links, as many as its plan allows"):
            connection.create_sender(queue, name="one-more")


def test_links_and_receivers_of_a_queue(site: Site) -> None:
    site.limit()
    limits = queue_plan()
    queue = site.queue(maxLinks=limits.links, maxConsumers=limits.max_consumers)
    with closing(site.connect()) as connection:
        for number in range(limits.max_consumers):
            connection.create_receiver(queue, name=f"r{number}")
        with pytest.raises(LinkDetached, match=REFUSED):
            connection.create_receiver(queue, name="one-more")
        for number in range(limits.links - limits.max_consumers):
            connection.create_sender(queue, name=f"s{number}")
        with pytest.raises(LinkDetached, match=f"{limits.links} links, as many as its plan allows"):
            connection.create_sender(queue, name="too-many")


async def refused_by_mqtt(port: int, topic: str, version: Version) -> str:
    async with MqttPeer(port, version=version) as peer:
        codes = await peer.subscribed(f"{topic}/more", qos=1)
        assert await peer.answer(f"{topic}/x") < 0x80, "the refusal costs the client nothing else"
    return f"{codes[0]:#x}"


async def refused_by_stomp(port: int, topic: str) -> str:
    async with StompPeer(port) as peer:
        peer.say("SUBSCRIBE", id="1", destination=topic)
        return (await peer.next("ERROR"))["message"]


def refused_by_http(port: int, topic: str) -> str:
    answer = httpx.get(
        f"http://127.0.0.1:{port}/v1/spaces/free.default/addresses/{topic}/events", headers=EVENTS, trust_env=False
    )
    return f"{answer.status_code} {answer.text}"


def refused_by_amqp(site: Site, topic: str, name: str | None) -> str:
    options = [DurableSubscription()] if name else []
    with closing(site.connect("office")) as connection, pytest.raises(LinkDetached) as refused:
        connection.create_receiver(topic, name=name, options=options)
    return str(refused.value)


@pytest.mark.limit("subscriptions", "amqp", "mqtt", "stomp", "http/1.1")
def test_subscriptions(site: Site) -> None:
    """As many as the plan has are there; each protocol hears of one more what its own words for that are."""
    site.limit(keep=["max_subscriptions"])
    topic = site.address("topic")
    port, most = site.node.port, space_plan().subscriptions
    text = f"{most} subscriptions, as many as its plan allows"

    async def fill(refused: Callable[[], dict[str, str]]) -> dict[str, str]:
        async with MqttPeer(port, "full", session_expiry_s=60) as peer:
            assert set(await peer.subscribed(*[f"{topic}/{number}" for number in range(most)], qos=1)) == {1}
            assert await peer.subscribed(f"{topic}/1", qos=2) == [2], "one that is there may be changed"
            found = await asyncio.to_thread(refused)
            assert await peer.subscribed(f"{topic}/more") == [Reason.QUOTA_EXCEEDED]
            peer.unsubscribe(f"{topic}/1")
            await peer.next("unsuback")
            assert await peer.subscribed(f"{topic}/more") == [0]
        return found

    found = asyncio.run(
        fill(
            lambda: {
                "MQTT 5": asyncio.run(refused_by_mqtt(port, topic, Version.V5)),
                "MQTT 3.1.1": asyncio.run(refused_by_mqtt(port, topic, Version.V3_1_1)),
                "STOMP": asyncio.run(refused_by_stomp(port, topic)),
                "HTTP": refused_by_http(port, topic),
                "AMQP": refused_by_amqp(site, topic, None),
                "AMQP, durable": refused_by_amqp(site, topic, "lasting"),
            }
        )
    )
    assert (found.pop("MQTT 5"), found.pop("MQTT 3.1.1")) == ("0x97", "0x80")
    assert found["HTTP"].startswith("429 ")
    assert {protocol: text in said for protocol, said in found.items()} == dict.fromkeys(found, True), found
    with blocking.connect(site.node.admin_url, timeout=TIMEOUT_S) as connection:
        space = connection.management().read("io.enmasse.space", SPACE)
    assert (space["sessions"], space["subscriptions"]) == (1, most)
    assert space["subscriptionBytes"] > most * 1024


@pytest.mark.parametrize("of_space", [True, False])
@pytest.mark.limit("rate", "amqp")
def test_message_rate(site: Site, of_space: bool) -> None:
    site.limit(keep=["max_message_rate"] if of_space else [])
    rate = space_plan().message_rate if of_space else queue_plan().message_rate
    queue = site.queue() if of_space else site.queue(maxMessageRate=rate)
    with closing(site.connect()) as connection:
        sender = connection.create_sender(queue)
        began = time.monotonic()
        for _ in range(3 * rate):
            sender.send(Message(body=b"x"))
        took = time.monotonic() - began
    # A burst of a second goes at once, the rest as the rate says; how much later depends on the machine.
    assert took >= 2 * 0.95


@pytest.mark.parametrize("of_space", [True, False])
def test_byte_rate(site: Site, of_space: bool) -> None:
    site.limit(keep=["max_byte_rate"] if of_space else [])
    rate = space_plan().byte_rate if of_space else queue_plan().byte_rate
    queue = site.queue() if of_space else site.queue(maxByteRate=rate)
    size = rate // 8
    with closing(site.connect()) as connection:
        sender = connection.create_sender(queue)
        began = time.monotonic()
        for _ in range(25):
            sender.send(Message(body=bytes(size)))
        took = time.monotonic() - began
    # What the last message leaves of a debt is paid by nobody here.
    assert took >= (25 - 8 - 2) / 8


@pytest.mark.parametrize("of_space", [True, False])
@pytest.mark.limit("size", "amqp")
def test_message_size(site: Site, of_space: bool) -> None:
    site.limit(keep=["max_message_size"] if of_space else [])
    most = space_plan().message_size if of_space else queue_plan().message_size
    queue = site.queue() if of_space else site.queue(maxMessageSize=most)
    with closing(site.connect()) as connection:
        sender = connection.create_sender(queue)
        assert sender.link.remote_max_message_size == most
        sender.send(Message(body=bytes(most - 100)))
        with pytest.raises((LinkDetached, SendException), match="message-size-exceeded"):
            sender.send(Message(body=bytes(most + 1)))


def fill(site: Site, queue: str, most: int) -> int:
    """Send durable messages until there is no room any more; how many bytes went."""
    sent = 0
    body = bytes(256 << 10)
    with closing(site.connect()) as connection:
        sender = connection.create_sender(queue)
        try:
            while sent <= 2 * most:
                sender.send(Message(body=body, durable=True), timeout=TIMEOUT_S if sent < most / 2 else 1.0)
                sent += len(body)
        except Timeout:
            pass
    return sent


def test_bytes_stored_in_a_queue(site: Site) -> None:
    site.limit()
    most = queue_plan().max_bytes
    sent = fill(site, site.queue(maxBytes=most), most)
    assert 0.8 * most <= sent <= 1.1 * most


def test_bytes_stored_in_the_space(site: Site) -> None:
    most = space_plan().max_bytes
    site.limit(max_bytes=most)
    with blocking.connect(site.node.admin_url, timeout=TIMEOUT_S) as connection:
        before = connection.management().read("io.enmasse.space", SPACE)["bytesStored"]
    sent = fill(site, site.queue(), most)
    assert 0.8 * most <= before + sent <= 1.1 * most
    site.limit()


def test_time_to_live(site: Site) -> None:
    site.limit(keep=["max_ttl"])
    queue = site.queue()
    with closing(site.connect()) as connection:
        sender = connection.create_sender(queue)
        sender.send(Message(body="for ever"))
        sender.send(Message(body="long", ttl=30 * 86_400))
        receiver = connection.create_receiver(queue, credit=2)
        for _ in range(2):
            message = receiver.receive(timeout=TIMEOUT_S)
            receiver.accept()
            assert 0 < message.ttl <= space_plan().ttl_ms / 1000


def test_the_plan_bounds_everything_that_a_space_can_take() -> None:
    bounds = limit_settings(space_plan())
    assert all(getattr(bounds, name) for name in bounds.__slots__)
    assert space_plan().max_bytes
    assert space_plan().addresses
    assert space_plan().users
