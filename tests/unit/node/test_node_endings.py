"""What ends is gone at once: nothing of a session, subscription or connection waits for the collector of cycles.

A collection looks at everything that a node holds, so it comes late, and what waits for it adds up.
"""

from __future__ import annotations

import ast
import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

import enmasse
from enmasse.message.outcomes import Accepted
from enmasse.message.types import Symbol
from enmasse.node.connections.client_connection import ClientConnection
from enmasse.node.http import request_reply
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.wire.amqp.performatives import Coordinator, Detach, End, Source
from enmasse.wire.mqtt.packets import PublishProperties, Will
from enmasse.wire.stomp.frames import Version, encode_frame
from tests.conformance.node_scene import KINDS, Node, NodePeer, durable
from tests.support.polling import until_async
from tests.unit.node import http_scene, mqtt_scene, stomp_scene
from tests.unit.node.mqtt_scene import V3, V5


def connections() -> Counter[str]:
    """The connections that are there since ``gc.freeze``."""
    return Counter(type(one).__name__ for one in gc.get_objects() if issubclass(type(one), ClientConnection))


@contextmanager
def nothing_waits() -> Iterator[None]:
    """Check that what is done meanwhile leaves no connection, and no object of a class of ours in a cycle."""
    gc.collect()
    # Whatever there is so far is not looked at again, now or later: all tests of a worker are among it.
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        staying = connections()
        gc.collect()
        found = Counter(
            f"{type(one).__module__}.{type(one).__qualname__}"
            for one in gc.garbage
            if type(one).__module__.startswith("enmasse.")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == {}
    assert staying == {}


def deleted(kinds: dict[str, str]) -> list[str]:
    """The types of addresses."""
    return sorted({*kinds.values()})


# MQTT

LASTING: dict[str, Any] = {"is_clean": False, "session_expiry_s": 5}


def leave(scene: mqtt_scene.Scene, *clients: mqtt_scene.Client) -> None:
    """Clients lose their connections, and stay away."""
    for client in clients:
        client.node_engine.lost()
        scene.go_on()
        scene.clients.remove(client)
        # It knows both ends of what it was.
        vars(client).clear()
    scene.harness.advance(10)
    scene.harness.commit()
    assert len(scene.space.sessions) == 0


def expires(scene: mqtt_scene.Scene) -> None:
    client, sender = scene.client(V5, **LASTING), scene.client()
    client.subscribed("topic/#", "queue", qos=1)
    client.subscribed("all", "topic/b", qos=0)
    for target in ("topic/a", "topic/b", "queue", "all"):
        sender.answer(target)
    assert len(client.messages()) == 4
    # One is in flight as it goes.
    sender.answer("topic/a", properties=PublishProperties(message_expiry_s=60))
    assert [one.kind for one in client.told()] == ["publish"]
    leave(scene, sender, client)


def expires_in_an_older_version(scene: mqtt_scene.Scene) -> None:
    client = scene.client(V3)
    client.subscribed("topic/#", qos=1)
    leave(scene, client)


def expires_with_qos_2(scene: mqtt_scene.Scene) -> None:
    client, sender = scene.client(V5, **LASTING), scene.client(V5, **LASTING)
    client.subscribed("topic/#", qos=2)
    assert sender.answer("topic/a", qos=2) == 0
    assert len(client.messages()) == 1
    leave(scene, client, sender)


def is_taken_over(scene: mqtt_scene.Scene) -> None:
    first = scene.client(V5, "device", **LASTING)
    first.subscribed("topic/#", qos=1)
    second = scene.client(V5, "device", **LASTING)
    leave(scene, first, second)


def begins_clean(scene: mqtt_scene.Scene) -> None:
    first = scene.client(V5, "device", **LASTING)
    first.subscribed("topic/#", qos=1)
    second = scene.client(V5, "device")
    leave(scene, first, second)


def unsubscribes(scene: mqtt_scene.Scene) -> None:
    client = scene.client(V5, **LASTING)
    client.subscribed("topic/#", "queue", "all", qos=1)
    client.unsubscribe("topic/#", "queue", "all")
    assert client.one("unsuback").codes == [0, 0, 0]
    leave(scene, client)


def shares(scene: mqtt_scene.Scene) -> None:
    client, sender = scene.client(V5, **LASTING), scene.client()
    client.subscribed("$share/group/topic/#", qos=1)
    sender.answer("topic/a")
    assert [one.kind for one in client.told()] == ["publish"]
    leave(scene, client, sender)


def leaves_a_will(scene: mqtt_scene.Scene) -> None:
    client = scene.client(V5, **LASTING, will=Will("topic/w", b"gone", 1, False, 2, PublishProperties()))
    leave(scene, client)


def publishes_too_much(scene: mqtt_scene.Scene) -> None:
    """Messages wait for credit as it goes."""
    client = scene.client()
    client.publish("any", b"waits", 1)
    client.told()
    leave(scene, client)


def has_filters_that_overlap(scene: mqtt_scene.Scene) -> None:
    for is_clean in (False, True):
        client, sender = scene.client(V5, **(LASTING | {"is_clean": is_clean})), scene.client()
        client.subscribed("topic/#", "topic/a", qos=1)
        client.subscribed("topic/+", "all", "all/#", qos=0)
        client.unsubscribe("topic/a")
        client.told()
        sender.answer("topic/a")
        sender.answer("topic/b", qos=0)
        assert len(client.told()) == 2
        client.unsubscribe("topic/+")
        client.told()
        leave(scene, sender, client)


def leaves_a_stream(scene: mqtt_scene.Scene) -> None:
    """What it has read is kept under its name, and something has no outcome as it goes."""
    client, sender = scene.client(V5, **LASTING), scene.client()
    client.subscribed("stream", qos=1)
    for _ in range(3):
        sender.answer("stream")
    assert len(client.told()) == 3
    leave(scene, sender, client)


def loses_its_addresses(scene: mqtt_scene.Scene) -> None:
    for kind in deleted(mqtt_scene.KINDS):
        scene.node.address("gone", kind)
        client, sender = scene.client(V5, **LASTING), scene.client()
        client.subscribed("gone" if kind in ("queue", "anycast", "stream") else "gone/#", qos=1)
        sender.publish("gone", b"x", 1)
        sender.told()
        scene.node.delete(ADDRESS_TYPE, "ns/gone")
        sender.publish("gone", b"x", 1)
        leave(scene, sender, client)


def is_revoked(scene: mqtt_scene.Scene) -> None:
    client = scene.client(V5, **LASTING)
    client.subscribed("topic/#", "queue", qos=1)
    client.answer("topic/a")
    client.connection.close("amqp:unauthorized-access", "the user is gone")
    leave(scene, client)


MQTT = [
    expires,
    expires_in_an_older_version,
    expires_with_qos_2,
    is_taken_over,
    begins_clean,
    unsubscribes,
    shares,
    leaves_a_will,
    publishes_too_much,
    has_filters_that_overlap,
    leaves_a_stream,
    loses_its_addresses,
    is_revoked,
]


@pytest.mark.parametrize("act", MQTT, ids=lambda act: str(act.__name__))
def test_nothing_of_an_mqtt_client_waits_for_the_collector(act: Callable[[mqtt_scene.Scene], None]) -> None:
    scene = mqtt_scene.Scene()
    # What is made once is made here.
    act(scene)
    with nothing_waits():
        act(scene)


# AMQP


def cut(*peers: NodePeer) -> None:
    """Clients lose their connections, and stay away for longer than anything is kept for them."""
    node = peers[0].node
    for peer in peers:
        peer.cut()
        vars(peer).clear()
    node.harness.advance(5)
    node.harness.commit()


def settle_all(peer: NodePeer) -> None:
    transfers = peer.transfers()
    assert transfers
    for transfer, _ in transfers:
        peer.settle(transfer.delivery_id, Accepted())


def connects(node: Node) -> None:
    cut(node.peer())


def sends_and_receives(node: Node) -> None:
    for address in ("q", "t", "a", "m"):
        peer = node.peer()
        peer.sender(address)
        peer.receiver(address)
        peer.hear()
        peer.send(durable())
        settle_all(peer)
        cut(peer)


def detaches(node: Node) -> None:
    peer = node.peer()
    peer.sender("q")
    peer.receiver("t")
    peer.hear()
    for handle in (0, 1):
        peer.say(Detach(handle, closed=True))
    peer.hear()
    cut(peer)


def ends_its_session(node: Node) -> None:
    peer = node.peer()
    peer.sender("q")
    peer.receiver("q")
    peer.hear()
    peer.say(End())
    peer.hear()
    cut(peer)


def has_a_dynamic_address(node: Node) -> None:
    peer = node.peer()
    peer.receiver(Source(None, dynamic=True))
    cut(peer)


def ends_a_durable_subscription(node: Node) -> None:
    peer = node.peer()
    peer.receiver(Source("t", durable=2, expiry_policy=Symbol("never")))
    peer.sender("t")
    assert peer.deliver(durable()) == Accepted()
    peer.say(Detach(1, closed=True))
    peer.hear()
    cut(peer)


def is_given_up(node: Node) -> None:
    """Links that might be resumed are not, in time."""
    peer = node.peer()
    peer.receiver(Source("q", expiry_policy=Symbol("connection-close"), timeout=1))
    peer.sender("q")
    assert peer.deliver(durable()) == Accepted()
    cut(peer)
    peer = node.peer()
    peer.receiver("q")
    settle_all(peer)
    cut(peer)


def leaves_a_transaction(node: Node) -> None:
    peer = node.peer()
    peer.attach_sender("control", 0, target=Coordinator())
    peer.hear()
    cut(peer)


def loses_its_addresses_of_amqp(node: Node) -> None:
    for kind in deleted(KINDS):
        node.address("gone", kind)
        peer = node.peer()
        peer.sender("gone")
        peer.receiver("gone")
        peer.hear()
        peer.send(durable())
        peer.hear()
        node.delete("gone")
        peer.hear()
        cut(peer)


def reaches_several_addresses(node: Node) -> None:
    for name, kind in (("t/m", "multicast"), ("t/u", "topic")):
        node.address(name, kind)
    for is_cut in (True, False):
        peer = node.peer()
        for handle, name in enumerate(("t", "t/m", "t/u")):
            peer.sender(name, name, handle)
        peer.receiver("t/#", handle=3)
        peer.hear()
        for handle in range(3):
            peer.send(durable(), handle=handle)
        peer.hear()
        if is_cut:
            cut(peer)
    for name in ("t/m", "t/u"):
        node.delete(name)
    peer.say(Detach(3, closed=True))
    peer.hear()
    cut(peer)


def is_revoked_by_amqp(node: Node) -> None:
    peer = node.peer()
    peer.sender("q")
    peer.receiver("q")
    peer.hear()
    peer.send(durable())
    peer.hear()
    (connection,) = node.connections.numbers
    connection.close("amqp:unauthorized-access", "the user is gone")
    peer.hear()
    del connection
    cut(peer)


AMQP = [
    connects,
    sends_and_receives,
    detaches,
    ends_its_session,
    has_a_dynamic_address,
    ends_a_durable_subscription,
    is_given_up,
    leaves_a_transaction,
    loses_its_addresses_of_amqp,
    reaches_several_addresses,
    is_revoked_by_amqp,
]


@pytest.mark.parametrize("act", AMQP, ids=lambda act: str(act.__name__))
def test_nothing_of_an_amqp_client_waits_for_the_collector(act: Callable[[Node], None]) -> None:
    node = Node()
    act(node)
    with nothing_waits():
        act(node)


# STOMP


def hang_up(scene: stomp_scene.Scene, *clients: stomp_scene.Client) -> None:
    """Clients lose their connections, and stay away."""
    for client in clients:
        client.engine.lost()
        scene.go_on()
        scene.clients.remove(client)
        vars(client).clear()
    scene.harness.advance(60)
    scene.harness.commit()


def sends_and_subscribes(scene: stomp_scene.Scene) -> None:
    for address in stomp_scene.KINDS:
        client = scene.client()
        client.subscribe(address, ack="client-individual")
        client.send(address, receipt="r")
        message = next(frame for frame in client.told() if frame.command == "MESSAGE")
        client.say("ACK", id=message["ack"])
        hang_up(scene, client)


def leaves_messages_without_an_outcome(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.subscribe("topic", ack="client")
    client.subscribe("queue", "1", ack="client-individual")
    client.send("topic")
    client.send("queue", receipt="r")
    assert len(client.told()) == 3
    hang_up(scene, client)
    client = scene.client()
    client.subscribe("queue")
    client.told()
    hang_up(scene, client)


def subscribes_to_several_addresses(scene: stomp_scene.Scene) -> None:
    scene.node.address("topic/b", "topic")
    for mode in ("auto", "client"):
        client = scene.client()
        client.subscribe("topic/#", ack=mode)
        for name in ("topic/a", "topic/b"):
            client.send(name)
        assert len(client.told()) == 2
        if mode == "auto":
            hang_up(scene, client)
    scene.node.delete(ADDRESS_TYPE, "ns/topic/b")
    client.say("UNSUBSCRIBE", id="0")
    client.told()
    hang_up(scene, client)


def says_goodbye(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.subscribe("queue")
    client.say("UNSUBSCRIBE", id="0")
    client.send("topic", receipt="r")
    client.say("DISCONNECT", receipt="bye")
    assert client.told()[-1]["receipt-id"] == "bye"
    hang_up(scene, client)


def makes_an_error(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.subscribe("queue")
    client.send("nowhere")
    client.one("ERROR")
    hang_up(scene, client)


def says_half_a_frame(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.engine.receive(b"SEND\ndestination:queue\n\n" + b"x" * 20_000, scene.now)
    hang_up(scene, client)


def ends_transactions(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.subscribe("queue", ack="client-individual")
    for name, end in (("1", "COMMIT"), ("2", "ABORT"), ("3", "")):
        client.say("BEGIN", transaction=name)
        client.send("queue", transaction=name)
        if end:
            client.say(end, transaction=name)
    (message,) = client.told()
    client.say("ACK", id=message["ack"], transaction="3")
    hang_up(scene, client)
    client = scene.client()
    client.subscribe("queue")
    client.told()
    assert scene.node.find("queue").depth == 0
    hang_up(scene, client)


def keeps_a_durable_subscription_for_a_while(scene: stomp_scene.Scene) -> None:
    client = scene.client(client_id="c")
    client.subscribe("topic", durable_subscription_name="d", selector="a IS NULL")
    client.send("topic")
    assert len(client.told()) == 1
    hang_up(scene, client)
    client = scene.client(client_id="c")
    client.subscribe("topic", durable_subscription_name="d", selector="a IS NULL")
    client.say("UNSUBSCRIBE", id="0", durable_subscription_name="d")
    hang_up(scene, client)


def waits_for_a_receiver(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.send("any", receipt="r")
    assert client.told() == []
    hang_up(scene, client)


def loses_its_addresses_of_stomp(scene: stomp_scene.Scene) -> None:
    for kind in deleted(stomp_scene.KINDS):
        scene.node.address("gone", kind)
        client = scene.client()
        client.subscribe("gone", ack="client")
        client.send("gone", receipt="r")
        client.told()
        scene.node.delete(ADDRESS_TYPE, "ns/gone")
        client.told()
        hang_up(scene, client)


def is_revoked_by_stomp(scene: stomp_scene.Scene) -> None:
    client = scene.client()
    client.subscribe("queue", ack="client")
    client.send("queue", receipt="r")
    client.told()
    client.connection.close("amqp:unauthorized-access", "the user is gone")
    client.told()
    hang_up(scene, client)


STOMP = [
    sends_and_subscribes,
    leaves_messages_without_an_outcome,
    subscribes_to_several_addresses,
    says_goodbye,
    makes_an_error,
    says_half_a_frame,
    ends_transactions,
    keeps_a_durable_subscription_for_a_while,
    waits_for_a_receiver,
    loses_its_addresses_of_stomp,
    is_revoked_by_stomp,
]


@pytest.mark.parametrize("act", STOMP, ids=lambda act: str(act.__name__))
def test_nothing_of_a_stomp_client_waits_for_the_collector(act: Callable[[stomp_scene.Scene], None]) -> None:
    scene = stomp_scene.Scene()
    act(scene)
    with nothing_waits():
        act(scene)


# HTTP, over sockets


async def posts_and_receives(scene: http_scene.Scene) -> None:
    async with scene.client() as client:
        for address in http_scene.ADDRESSES:
            if address != "any":
                answer = await client.post(f"{address}/messages", content="x", headers={"Content-Type": "text/plain"})
                assert answer.is_success, answer.text
        for query in ({"auto": "true"}, {}):
            answer = await client.post("orders/receive", params={"wait": 30, **query})
            messages = answer.json()["messages"]
            assert messages
            await client.post("orders/messages", content="y")
        answer = await client.post("orders/settle", json={"leases": [messages[0]["lease"]]})
        assert answer.json()["settled"] == 1
        assert (await client.get("orders/messages")).json()
        # This one stays leased as the client goes, and keeps its connection until that is over.
        await client.post("orders/receive", params={"wait": 30, "lease": 1})


async def receives_from_several_addresses(scene: http_scene.Scene) -> None:
    name = f"{http_scene.OPEN}.news/uk"
    await scene.create(ADDRESS_TYPE, name, space=http_scene.OPEN, address="news/uk", addressType="topic")
    space = scene.server.entities.spaces[http_scene.OPEN]
    for target in ("news", "news%2Fuk"):
        async with scene.client() as client, scene.client() as sender:
            asking = asyncio.create_task(client.post("news%2F%23/receive", params={"wait": 60, "lease": 60}))
            await until_async(lambda: len(space.crossing) == 1)
            assert (await sender.post(f"{target}/messages", content="x")).is_success
            (message,) = (await asking).json()["messages"]
            if target == "news":
                answer = await client.post("news%2F%23/settle", json={"leases": [message["lease"]]})
                assert answer.json()["settled"] == 1
                await until_async(lambda: not space.crossing)
    # What is leased of it goes with it.
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene.server.entities.delete(ADDRESS_TYPE, name, done.set_result)
    assert await done is None
    await until_async(lambda: not space.crossing)


async def makes_errors(scene: http_scene.Scene) -> None:
    async with scene.client() as client:
        assert (await client.post("nowhere/messages", content="x")).status_code == 404
        assert (await client.post("orders/settle", content="{")).status_code == 400
    async with scene.client("shop.ns") as client:
        assert (await client.post("orders/messages", content="x")).status_code == 401


async def is_another_user(scene: http_scene.Scene) -> None:
    async with scene.client() as client:
        assert (await client.post("orders/messages", content="x")).is_success
        client.base_url = str(client.base_url).replace("open.ns", "shop.ns")
        assert (await client.post("orders/messages", content="x")).status_code == 401


async def waits_as_it_is_cut(scene: http_scene.Scene) -> None:
    async with scene.client() as client:
        asking = asyncio.create_task(client.post("any/receive", params={"wait": 60}))
        await until_async(lambda: scene.server.connections.links)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def follows_events(scene: http_scene.Scene) -> None:
    async with scene.client() as client:
        for address in ("log", "news", "orders"):
            async with client.stream("GET", f"{address}/events", headers={"Accept": "text/event-stream"}) as answer:
                assert answer.status_code == 200
                await until_async(lambda: scene.server.connections.links)
                await client.post(f"{address}/messages", content="x")
                async for line in answer.aiter_lines():
                    if line.startswith("data"):
                        break


async def asks(scene: http_scene.Scene) -> None:
    async with scene.client() as client, scene.client() as other:
        asking = asyncio.create_task(client.post("any/request", content="?", params={"wait": 4}))
        answer = await other.post("any/receive", params={"wait": 30, "auto": "true"})
        (question,) = answer.json()["messages"]
        assert question["replyTo"]
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def is_below_other_layers(scene: http_scene.Scene) -> None:
    """Other protocols over the same port: in TLS, in WebSocket, and in both."""
    connect = encode_frame("CONNECT", [("accept-version", "1.2"), ("host", "open.ns")], b"", Version.V1_2)
    for said, subprotocol in ((connect, "v12.stomp"), (b"AMQP\x00\x01\x00\x00", "amqp"), (b"", "")):
        for context in (None, scene.trusting):
            reader, writer = await asyncio.open_connection("localhost", scene.port, ssl=context)
            writer.write(said)
            assert not said or await reader.read(1)
            writer.close()
            if subprotocol:
                url = f"{'ws' if context is None else 'wss'}://localhost:{scene.port}/"
                async with websockets.connect(
                    url, subprotocols=[websockets.Subprotocol(subprotocol)], ssl=context, proxy=None
                ) as peer:
                    await peer.send(said)
                    assert await peer.recv(decode=False)


HTTP = [
    is_below_other_layers,
    posts_and_receives,
    receives_from_several_addresses,
    makes_errors,
    is_another_user,
    waits_as_it_is_cut,
    follows_events,
    asks,
]


@pytest.mark.parametrize("is_http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
def test_nothing_of_an_http_client_waits_for_the_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_http2: bool
) -> None:
    monkeypatch.setattr(http_scene.Scene, "is_http2", is_http2)
    monkeypatch.setattr(request_reply, "LINGER_S", 0.01)

    async def story(scene: http_scene.Scene) -> None:
        async def all_of_it() -> None:
            for act in HTTP:
                await act(scene)
                await until_async(lambda: not scene.server.connections.shells)

        await all_of_it()
        with nothing_waits():
            await all_of_it()
            # Less than any client has waited for messages; leases, and the time for late replies, are over by then.
            await until_async(lambda: not connections(), connections, seconds=10)

    http_scene.play(tmp_path, story)


# Functions


def nested(function: ast.AST) -> dict[str, set[str]]:
    """The functions that are defined in one, and the names that each of them uses."""
    found = {}
    inside = list(ast.iter_child_nodes(function))
    while inside:
        node = inside.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        elif not isinstance(node, ast.ClassDef):
            inside += ast.iter_child_nodes(node)
    return found


def reached(name: str, uses: dict[str, set[str]]) -> set[str]:
    """The functions that one refers to, directly or by another."""
    found: set[str] = set()
    ahead = [name]
    while ahead:
        following = uses[ahead.pop()] & uses.keys() - found
        found |= following
        ahead += following
    return found


@pytest.mark.slow
def test_no_function_refers_to_itself_by_what_it_encloses() -> None:
    """Called or not, it would be in a cycle with all that it encloses."""
    package = Path(enmasse.__file__).parent
    files = [
        path for room in ("messaging", "net", "node", "storage", "wire") for path in (package / room).rglob("*.py")
    ]
    assert len(files) > 100
    found = [
        f"{path.relative_to(package)}: {outer.name}.{name}"
        for path in files
        for outer in ast.walk(ast.parse(path.read_text()))
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef)
        for uses in [nested(outer)]
        for name in uses
        if name in reached(name, uses)
    ]
    assert found == []
