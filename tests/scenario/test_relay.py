"""Addresses behind a connector: real clients of each protocol, a node of ours, and another as the other container."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.api.metrics.catalogue import CONNECTOR_METRICS
from enmasse.client import Message
from enmasse.client.errors import LinkDetachedError, LinkRefusedError, TransactionError
from enmasse.control.ports import NodeFigures, ObservedEntity
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin
from enmasse.drivers.embedded.traces import AmqpTracer
from enmasse.errors import EnmasseError
from enmasse.wire.mqtt.packets import Reason
from tests.interop.foreign_clients import CLIENTS
from tests.support.chance import SEED, kills
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until, until_async
from tests.support.stomp_peer import StompPeer
from tests.support.stream_node import StreamNode

pytestmark = pytest.mark.slow

HERE = "default/demo"


class Place:
    """A node of ours, and another that the connector ``mill`` of its space leads to."""

    def __init__(self, folder: Path) -> None:
        self.far = StreamNode(folder / "far").start()
        self.near = StreamNode(folder / "near", "--connector-network", "127.0.0.1/32").start()
        self.update(self.connectors("mill"))

    def connectors(self, *names: str, port: int | None = None) -> dict[str, Any]:
        patterns = ["orders", "news/#", "nowhere", "prices", "mill/#", "$dynamic/#"]
        servers = [{"host": "127.0.0.1", "port": port or self.far.port}]
        return {name: {"servers": servers, "patterns": patterns} for name in names}

    def update(self, connectors: dict[str, Any]) -> None:
        self.declared = connectors
        self.near.manage(lambda m: m.update("io.enmasse.space", HERE, {"connectors": connectors}))

    def status(self) -> dict[str, Any]:
        found = self.near.manage(lambda m: m.read("io.enmasse.space", HERE))
        return {item["name"]: item for item in found["connectorStatus"]}

    def there(self, address: str = "orders") -> dict[str, Any]:
        found: dict[str, Any] = self.far.manage(lambda m: m.read("io.enmasse.address", f"default/demo.{address}"))
        return found

    def stop(self) -> None:
        assert self.near.stop() == 0
        assert self.far.stop() == 0


@pytest.fixture(scope="module")
def node_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("relay"))
    yield made
    made.stop()


@pytest.fixture
def place(node_pair: Place) -> Iterator[Place]:
    """The pair, with a queue ``orders`` at the far end."""
    node_pair.far.create("orders", "queue")
    yield node_pair
    node_pair.far.clear()


def test_each_protocol_reaches_a_queue_there_with_its_outcome(place: Place) -> None:
    with place.near.connect() as connection:
        with connection.sender("mill/orders") as sender:
            assert str(sender.send(Message("amqp", subject="s"))) == "accepted"
        assert place.there()["messagesStored"] == 1
        with connection.receiver("mill/orders") as receiver:
            got = receiver.receive(30)
            assert got is not None
            assert (got.message.body, got.message.subject) == ("amqp", "s")
            assert place.there()["messagesStored"] == 1
            got.accept()
        until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))
    for others in (_by_http, _by_mqtt, _by_stomp, _transact_by_stomp):
        asyncio.run(others(place))
    assert place.there()["messagesStored"] == 0


@pytest.mark.parametrize("name", sorted(CLIENTS.keys() - {"Qpid JMS"}))
def test_it_is_filled_and_emptied_by_every_foreign_client(place: Place, name: str, tmp_path: Path) -> None:
    CLIENTS[name](place.near.port, "mill/orders", tmp_path)
    until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))


async def _by_http(place: Place) -> None:
    port = place.near.port
    base = f"http://127.0.0.1:{port}/v1/spaces/demo.default/addresses/mill%2Forders"
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(f"{base}/messages", content=b"http", headers={"content-type": "text/plain"})
        assert answer.status_code == 200, answer.text
        assert place.there()["messagesStored"] == 1
        answer = await http.post(f"{base}/receive", params={"wait": "30"})
        (got,) = answer.json()["messages"]
        assert got["body"] == "http"
        assert place.there()["messagesStored"] == 1
        answer = await http.post(f"{base}/settle", json={"leases": [got["lease"]], "outcome": "accept"})
        assert answer.json()["settled"] == 1, answer.text
        nowhere = base.replace("orders", "nowhere")
        answer = await http.post(f"{nowhere}/messages", content=b"http", headers={"content-type": "text/plain"})
        assert (answer.status_code, answer.json()["condition"]) == (404, "amqp:not-found")
        await asyncio.to_thread(place.far.create, "prices", "anycast")
        asked = asyncio.to_thread(_answer, place)
        asking = http.post(base.replace("orders", "prices") + "/request", content=b"tea")
        (answer, reply_to) = await asyncio.gather(asking, asked)
        assert (answer.status_code, answer.text) == (200, "2")
        assert reply_to.startswith("$dynamic/")
    await _until_empty(place)


def _answer(place: Place) -> str:
    """Answer one request over there."""
    with place.far.connect() as there, there.receiver("prices") as requests, there.sender(None) as answers:
        got = requests.receive(30)
        assert got is not None
        assert got.message.reply_to is not None
        asked = got.message.correlation_id or got.message.message_id
        answer = Message("2", to=got.message.reply_to, correlation_id=asked)
        answers.send(answer)
        got.accept()
        return got.message.reply_to


async def _until_empty(place: Place) -> None:
    await asyncio.to_thread(until, lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))


def test_outcomes_of_a_receiver_are_those_of_the_queue_there(place: Place) -> None:
    with place.near.connect() as connection, connection.sender("mill/orders") as sender:
        with connection.receiver("mill/orders", credit=1) as receiver:
            for failed, count in ((None, 0), (False, 0), (True, 1)):
                sender.send(Message(str(failed)))
                got = receiver.receive(30)
                assert got is not None
                if failed is None:
                    got.release()
                else:
                    got.modify(failed=failed)
                again = receiver.receive(30)
                assert again is not None
                assert (again.message.body, again.message.delivery_count) == (str(failed), count)
                again.accept()
            sender.send(Message("rejected"))
            got = receiver.receive(30)
            assert got is not None
            got.reject("amqp:precondition-failed", "not this one")
        until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))
        assert place.there()["rejected"] == 1


def test_credit_is_that_of_the_other_container(place: Place) -> None:
    place.far.create("nowhere", "anycast")
    with (
        place.near.connect() as connection,
        place.far.connect() as there,
        connection.sender("mill/nowhere") as sender,
    ):
        assert sender.credit == 0
        with there.receiver("nowhere", credit=3) as receiver:
            until(lambda: sender.credit == 3, lambda: str(sender.credit))
            sending = [sender.send_nowait(Message(str(number))) for number in range(3)]
            for number in range(3):
                got = receiver.receive(30)
                assert got is not None
                assert got.message.body == str(number)
                if number == 1:
                    got.reject("amqp:precondition-failed", "not this one")
                else:
                    got.accept()
            outcomes = [str(one.result(30)) for one in sending]
            assert [outcome.split()[0] for outcome in outcomes] == ["accepted", "rejected", "accepted"]
        until(lambda: sender.credit == 0, lambda: str(sender.credit))


def test_a_receiver_that_drains_is_told_when_nothing_is_left_there(place: Place) -> None:
    with place.near.connect() as connection:
        with connection.sender("mill/orders") as sender:
            sender.send(Message("one"))
        with connection.receiver("mill/orders", credit=0) as receiver:
            receiver.grant(10)
            assert receiver.drain(30) == 1
            got = receiver.receive_nowait()
            assert got is not None
            got.accept()
            receiver.grant(10)
            assert receiver.drain(30) == 0


def test_what_leads_nowhere_is_refused_and_named(place: Place) -> None:
    with place.near.connect() as connection:
        for name, condition, words in (
            ("mill/nowhere", "amqp:not-found", "'nowhere'"),
            ("mill/secret", "amqp:not-found", "connector 'mill' does not reach 'secret'"),
            ("mill", "amqp:not-found", "name an address behind it"),
        ):
            for attach in (connection.sender, connection.receiver):
                with pytest.raises(LinkRefusedError) as refused:
                    attach(name)
                assert refused.value.condition == condition
                assert words in str(refused.value)


def test_a_link_that_comes_back_is_refused_with_its_path(place: Place) -> None:
    connectors = place.connectors("mill")
    circle = place.connectors("loop", port=place.near.port)
    circle["loop"] |= {"patterns": ["#"], "servers": [{"host": "127.0.0.1", "port": place.near.port}]}
    place.update(connectors | circle)
    try:
        with place.near.connect() as connection, pytest.raises(LinkRefusedError) as refused:
            connection.receiver("loop/loop/orders")
        assert refused.value.condition == "amqp:not-allowed"
        assert "comes back" in str(refused.value)
    finally:
        place.update(connectors)
    assert list(place.status()) == ["mill"]


def test_control_hears_of_a_connector_that_reaches_nobody_whichever_way_it_asks(place: Place) -> None:
    connectors = place.connectors("mill")
    place.update(connectors | place.connectors("barn", port=1))
    before = place.status()["mill"]["messagesIn"]
    try:
        with place.near.connect() as connection:
            with pytest.raises(LinkRefusedError, match="nothing listens there"):
                connection.sender("barn/orders")
            with connection.sender("mill/orders") as sender:
                sender.send(Message("counted"))
                mill = place.status()["mill"]
        one, listed, figures = asyncio.run(_asked(place.near.admin_url))
    finally:
        place.update(connectors)
    assert one is not None
    assert [listed] == [[one]]
    assert {name: bool(problem) for name, problem in one.connectors} == {"mill": False, "barn": True}
    assert [item["name"] for item in figures.spaces[0]["connectorStatus"]] == ["mill", "barn"]
    assert {metric.source for metric in CONNECTOR_METRICS if metric.source} <= set(mill)
    assert (mill["connections"], mill["senders"], mill["messagesIn"] - before) == (1, 1, 1)
    assert mill["bytesSent"] > 100 < mill["bytesReceived"]
    assert mill["silence"] >= 0


async def _asked(url: str) -> tuple[ObservedEntity | None, list[ObservedEntity], NodeFigures]:
    """The space of a node in a reading of its own, in a list, and with the node's figures."""
    admin = AmqpNodeAdmin("node-0", url, jitter=lambda: 1.0)
    async for is_connected in admin.connections():
        assert is_connected
        listed = [entity async for page in admin.observe("space") for entity in page]
        return await admin.find("space", HERE), listed, await admin.figures(())
    raise AssertionError(url)


def test_what_comes_by_wildcards_of_mqtt_is_told_under_the_name_of_the_connector(place: Place) -> None:
    place.far.create("news", "topic")

    async def subscribe_and_publish() -> None:
        async with MqttPeer(place.near.port) as peer, MqttPeer(place.near.port) as publisher:
            assert await peer.subscribed("mill/news/#", qos=1) == [1]
            assert await publisher.answer("mill/news/local", b"rain") == Reason.SUCCESS
            got = await peer.message()
            # A topic name has no wildcards [MQTT-3.3.2-2]; the one over there is a property.
            assert (got.topic, got.payload) == ("mill", b"rain")
            assert got.properties is not None
            assert ("x-opt-topic-name", "news/local") in got.properties.user_properties
            # The subscription is there again with the connector.
            place.update({})
            place.update(place.connectors("mill"))
            await until_async(lambda: place.status()["mill"]["receivers"] == 1)
            assert await publisher.answer("mill/news/local", b"sun") == Reason.SUCCESS
            assert (await peer.message()).payload == b"sun"

    asyncio.run(subscribe_and_publish())


def test_selectors_and_browsing_reach_the_queue_there_by_each_protocol(place: Place) -> None:
    with place.near.connect() as connection, connection.sender("mill/orders") as sender:
        for colour in ("red", "green", "blue", "grey"):
            sender.send(Message(colour, properties={"colour": colour}))
        with connection.receiver("mill/orders", selector="colour = 'green'") as receiver:
            got = receiver.receive(30)
            assert got is not None
            assert got.message.body == "green"
            got.accept()

    async def by_others() -> None:
        base = f"http://127.0.0.1:{place.near.port}/v1/spaces/demo.default/addresses/mill%2Forders"
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(f"{base}/messages", params={"selector": "colour = 'grey'"})
            assert [item["body"] for item in answer.json()["messages"]] == ["grey"], answer.text
            asked = {"selector": "colour = 'blue'", "wait": "30", "auto": "true"}
            answer = await http.post(f"{base}/receive", params=asked)
            assert [item["body"] for item in answer.json()["messages"]] == ["blue"], answer.text
        async with StompPeer(place.near.port, host="demo.default") as peer:
            await peer.subscribe("mill/orders", ack="auto", selector="colour = 'grey'")
            assert (await peer.next("MESSAGE")).body == b"grey"

    asyncio.run(by_others())
    until(lambda: place.there()["messagesStored"] == 1, lambda: str(place.there()))  # the red one


def test_a_changed_declaration_has_links_moved_to_another_connection(place: Place) -> None:
    with place.near.connect() as connection, connection.sender("mill/orders") as sender:
        with connection.receiver("mill/orders", credit=1) as receiver:
            sender.send(Message("before"))
            before = receiver.receive(30)
            assert before is not None
            changed = place.connectors("mill")
            changed["mill"]["idleTimeout"] = 20
            place.update(changed)
            # What the receiver had is the queue's again, as the link on which it came is gone.
            again = receiver.receive(60)
            assert again is not None
            assert again.message.body == "before"
            again.accept()
            before.accept()
            until(lambda: sender.credit > 0, lambda: str(place.status()))
            sender.send(Message("after"))
            after = receiver.receive(30)
            assert after is not None
            assert after.message.body == "after"
            after.accept()
        until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))


def test_links_to_what_a_changed_declaration_does_not_reach_any_more_end(place: Place) -> None:
    place.far.create("prices", "queue")
    before = place.declared
    try:
        # The patterns alone: otherwise links move to another connection.
        _narrow(place, {"mill": {**before["mill"], "patterns": ["orders"]}})
    finally:
        place.update(before)


def _narrow(place: Place, narrowed: dict[str, Any]) -> None:
    with place.near.connect() as connection, connection.sender(None) as anonymous:
        gone, stays = connection.receiver("mill/prices"), connection.receiver("mill/orders")
        assert str(anonymous.send(Message("one", to="mill/prices"))) == "accepted"
        got = gone.receive(30)
        assert got is not None
        got.accept()
        place.update(narrowed)
        with pytest.raises(LinkDetachedError, match="does not reach 'prices'"):
            gone.receive(60)
        assert str(anonymous.send(Message("two", to="mill/prices"))).startswith("rejected (amqp:not-found")
        assert str(anonymous.send(Message("three", to="mill/orders"))) == "accepted"
        got = stays.receive(30)
        assert got is not None
        got.accept()
        # Before the link goes: that it is accepted may not have reached the other node yet.
        until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))


def test_senders_that_name_the_address_in_each_message_reach_it(place: Place) -> None:
    with place.near.connect() as connection, connection.sender(None) as sender:
        assert str(sender.send(Message("one", to="mill/orders"))) == "accepted"
        outcome = str(sender.send(Message("two", to="mill/nowhere")))
        assert outcome.startswith("rejected (amqp:not-found")
        assert str(sender.send(Message("three", to="mill/orders"))) == "accepted"
    assert place.there()["messagesStored"] == 2


def test_a_reply_finds_its_way_to_an_address_that_is_made_there_for_a_receiver(place: Place) -> None:
    place.far.create("nowhere", "anycast")
    with (
        place.far.connect() as there,
        there.receiver("nowhere") as requests,
        there.sender(None) as answers,
        place.near.connect() as connection,
        connection.sender(None) as sender,
    ):
        with connection.receiver("mill", dynamic=True) as replies:
            assert replies.address is not None
            prefix, _, name_there = replies.address.partition("/")
            assert prefix == "mill"
            request = Message("coffee", to="mill/nowhere", reply_to=name_there)
            sending = sender.send_nowait(request)
            asked = requests.receive(30)
            assert asked is not None
            # What is in a message is nobody's to change on the way.
            assert (asked.message.to, asked.message.reply_to) == ("mill/nowhere", name_there)
            asked.accept()
            assert str(sending.result(30)) == "accepted"
            # By its name here others reach it, too, if a pattern of the connector lets them.
            for answering in ((answers, name_there), (sender, replies.address)):
                sending = answering[0].send_nowait(Message("3", to=answering[1]))
                got = replies.receive(30)
                assert got is not None
                assert got.message.body == "3"
                got.accept()
                assert str(sending.result(30)) == "accepted"
        # It goes with its link, which is detached there a moment after it is here.
        until(lambda: str(answers.send(Message("late", to=name_there))).startswith("rejected (amqp:not-found"))


def test_a_request_to_who_is_there_is_answered(place: Place) -> None:
    place.far.create("prices", "anycast")
    with ThreadPoolExecutor(1) as pool, place.near.connect() as connection:
        for _ in range(2):
            answering = pool.submit(_answer, place)
            reply = connection.request("mill/prices", Message("tea"), timeout=30, connector="mill")
            assert reply.body == "2"
            assert answering.result(30).startswith("$dynamic/")


def test_a_dynamic_address_there_is_lost_with_the_connection(place: Place) -> None:
    with place.near.connect() as connection:
        for refused, words in (("barn", "no connector 'barn'"), ("mill/secret", "does not reach 'secret'")):
            with pytest.raises(LinkRefusedError, match=words):
                connection.receiver(refused, dynamic=True)
        with connection.receiver("mill", dynamic=True) as replies:
            before = replies.address
            place.far.kill()
            until(lambda: "the address that was made for the link" in place.near.log, lambda: place.near.log)
            place.far.start()
        with connection.receiver("mill", dynamic=True) as replies:
            assert replies.address not in (None, before)


def test_a_transaction_there_is_all_or_nothing(place: Place) -> None:
    with (
        place.near.connect() as connection,
        connection.sender("mill/orders") as sender,
        connection.sender(None) as anonymous,
    ):
        for commits in (False, True):
            transaction = connection.transaction()
            for one, to in ((sender, None), (anonymous, "mill/orders")):
                sent = one.send(Message(str(commits), to=to, durable=True), transaction=transaction)
                assert str(sent) == "accepted"
            assert place.there()["messagesStored"] == 0
            if commits:
                transaction.commit()
            else:
                transaction.rollback()
            assert place.there()["messagesStored"] == 2 * commits
        with connection.receiver("mill/orders", credit=2) as receiver:
            for commits in (False, True):
                transaction = connection.transaction()
                for _ in range(2):
                    got = receiver.receive(30)
                    assert got is not None
                    assert (got.message.body, got.message.delivery_count) == ("True", int(commits))
                    got.accept(transaction=transaction)
                if commits:
                    transaction.commit()
                else:
                    transaction.rollback()
                assert place.there()["messagesStored"] == 2 * (not commits)


@pytest.mark.parametrize("first", ["here", "there"])
def test_a_transaction_here_and_there_can_only_be_rolled_back(place: Place, first: str) -> None:
    place.near.create("own", "queue")
    try:
        with (
            place.near.connect() as connection,
            connection.sender("own") as here,
            connection.sender("mill/orders") as there,
            connection.receiver("own") as receiver,
        ):
            here.send(Message("one"))
            got = receiver.receive(30)
            assert got is not None
            transaction = connection.transaction()
            senders = [here, there] if first == "here" else [there, here]
            assert str(senders[0].send(Message("x"), transaction=transaction)) == "accepted"
            outcome = str(senders[1].send(Message("x"), transaction=transaction))
            for words in ("rejected (amqp:not-implemented", "connector 'mill'", "queue 'own'"):
                assert words in outcome
            with pytest.raises(TransactionError, match="wholly here or wholly behind one connector") as refused:
                transaction.commit()
            assert refused.value.condition == "amqp:transaction:rollback"
            assert place.there()["messagesStored"] == 0
            transaction = connection.transaction()
            there.send(Message("x"), transaction=transaction)
            got.accept(transaction=transaction)
            with pytest.raises(TransactionError, match="connector 'mill' and queue 'own'"):
                transaction.commit()
            assert place.there()["messagesStored"] == 0
    finally:
        place.near.delete("own")


def test_what_a_client_leaves_in_a_transaction_there_is_rolled_back(place: Place) -> None:
    with place.far.connect() as there, there.sender("orders") as sender:
        sender.send(Message("one"))
    connection = place.near.connect()
    receiver = connection.receiver("mill/orders")
    got = receiver.receive(30)
    assert got is not None
    transaction = connection.transaction()
    got.accept(transaction=transaction)
    connection.sender("mill/orders").send(Message("two"), transaction=transaction)
    connection.close()
    with place.near.connect() as another, another.receiver("mill/orders") as receiver:
        again = receiver.receive(30)
        assert again is not None
        assert again.message.body == "one"
        again.accept()
        until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))


def test_a_transaction_there_is_rolled_back_as_the_other_container_dies(place: Place) -> None:
    with place.near.connect() as connection, connection.sender("mill/orders") as sender:
        transaction = connection.transaction()
        sender.send(Message("lost"), transaction=transaction)
        place.far.kill()
        with pytest.raises(TransactionError, match="the connector has lost its") as lost:
            transaction.commit()
        assert lost.value.condition == "amqp:transaction:rollback"
        until(lambda: sender.credit == 0, lambda: str(place.status()))
        place.far.start()
        until(lambda: sender.credit > 0, lambda: str(place.status()))
        transaction = connection.transaction()
        sender.send(Message("kept", durable=True), transaction=transaction)
        transaction.commit()
    assert place.there()["messagesStored"] == 1


def test_a_trace_of_a_connection_shows_what_it_does_there_and_nothing_of_others(place: Place) -> None:
    async def traced(number: str) -> list[str]:
        admin = AmqpNodeAdmin("node-0", place.near.admin_url, jitter=lambda: 1.0)
        lines: list[str] = []
        async for is_connected in admin.connections():
            assert is_connected
            async with AmqpTracer(admin).trace(HERE, number, 0) as frames:
                for sender in (other, mine):
                    await asyncio.to_thread(sender.send, Message("x"))
                async for frame in frames:
                    lines.append(f"{'->' if frame.is_outgoing else '<-'} {frame.text}")
                    if lines[-1].startswith("-> 0 disposition"):
                        return lines
        raise AssertionError(lines)

    with (
        place.near.connect() as another,
        another.sender("mill/orders") as other,
        place.near.connect() as connection,
        connection.sender("mill/orders", name="mine") as mine,
    ):
        found = place.near.manage(lambda m: m.query("io.enmasse.connection", ["identity", "container"]))
        (number,) = [str(item["identity"]) for item in found if item["container"] == connection.container_id]
        lines = asyncio.run(traced(number))
    hop, link = [line for line in lines if line.startswith(("-> connection", f"-> {number}/mill"))]
    server = f"127.0.0.1:{place.far.port}"
    assert f"goes on as {number}/mill: connector mill to {server}, container 'node-0'" in hop
    assert f"has the sender '{connection.container_id}|mine|" in link
    assert "of 'orders' there" in link
    rest = [line for line in lines if line not in (hop, link)]
    came, sent, answered, told = rest
    assert came.startswith("<- 0 transfer handle=0 delivery-id=0")
    assert sent.startswith("-> mill: ")
    assert " transfer " in sent
    assert answered.startswith("<- mill: ")
    for line in (answered, told):
        assert line.endswith("disposition role=receiver first=0 last=0 settled=true state=accepted()")


def test_each_transaction_is_there_whole_or_not_at_all_whoever_is_killed(place: Place) -> None:
    ends: dict[str, str] = {}
    with ThreadPoolExecutor(1) as pool:
        for life in range(kills(2)):
            victim = (place.far, place.near)[life % 2]
            with place.near.connect() as connection, connection.sender("mill/orders") as sender:
                for number in range(12):
                    name = f"{life}-{number}"
                    transaction = connection.transaction()
                    for _ in range(5):
                        sender.send_nowait(Message(name, durable=True), transaction=transaction)
                    killing = pool.submit(victim.kill) if number == 11 else None
                    try:
                        transaction.commit()
                        ends[name] = "committed"
                    except TransactionError:
                        ends[name] = "rolled back"
                    except EnmasseError:
                        ends[name] = "nobody knows"
                    if killing is not None:
                        killing.result(60)
            victim.start()
    found: Counter[str] = Counter()
    with place.far.connect() as there, there.receiver("orders") as receiver:
        while (got := receiver.receive(30 if place.there()["messagesStored"] else 0)) is not None:
            found[got.message.body] += 1
            got.accept()
    assert len(ends) == 12 * kills(2)
    for name, end in ends.items():
        counts = {"committed": (5,), "rolled back": (0,), "nobody knows": (0, 5)}[end]
        assert found[name] in counts, (name, end, found[name])


async def _transact_by_stomp(place: Place) -> None:
    async with StompPeer(place.near.port, host="demo.default") as peer:
        for end in ("ABORT", "COMMIT"):
            peer.say("BEGIN", transaction=end)
            peer.say("SEND", b"stomp", destination="mill/orders", transaction=end)
            peer.say(end, transaction=end, receipt=end)
            await peer.receipt(end)
            assert place.there()["messagesStored"] == (end == "COMMIT")
        await peer.subscribe("mill/orders", ack="client-individual")
        got = await peer.next("MESSAGE")
        peer.say("BEGIN", transaction="t")
        peer.say("ACK", id=got["ack"], transaction="t")
        peer.say("COMMIT", transaction="t", receipt="done")
        await peer.receipt("done")
        assert place.there()["messagesStored"] == 0


async def _by_mqtt(place: Place) -> None:
    async with MqttPeer(place.near.port) as peer:
        assert await peer.answer("mill/orders", b"mqtt") == Reason.SUCCESS
        assert await peer.answer("mill/nowhere", b"mqtt") == Reason.TOPIC_NAME_INVALID
        assert await peer.subscribed("mill/nowhere", "mill/orders", qos=1) == [Reason.TOPIC_FILTER_INVALID, 1]
        got = await peer.message()
        assert (got.topic, got.payload) == ("mill/orders", b"mqtt")
        await _until_empty(place)
        # Who publishes with QoS 0 and leaves at once need not wait for the link there.
        async with MqttPeer(place.near.port) as passing:
            passing.publish("mill/orders", b"in passing")
            passing.leave()
        assert (await peer.message()).payload == b"in passing"


async def _by_stomp(place: Place) -> None:
    async with StompPeer(place.near.port, host="demo.default") as peer:
        peer.say("SEND", b"stomp", destination="mill/orders", receipt="sent")
        await peer.receipt("sent")
        assert place.there()["messagesStored"] == 1
        await peer.subscribe("mill/orders", ack="client-individual")
        got = await peer.next("MESSAGE")
        assert got.body == b"stomp"
        peer.say("ACK", id=got["ack"])
        await _until_empty(place)
        peer.say("SEND", b"stomp", destination="mill/nowhere", receipt="refused")
        error = await peer.next("ERROR")
        assert "nowhere" in error["message"]


def test_a_server_that_is_paused_holds_up_only_who_uses_it_and_what_it_has_is_known_in_the_end(place: Place) -> None:
    place.near.create("here", "queue")
    connectors = place.connectors("mill", "brief")
    connectors["brief"] = connectors["brief"] | {"idleTimeout": 1}
    place.update(connectors)
    try:
        with (
            place.near.connect() as connection,
            connection.sender("mill/orders") as sender,
            connection.sender("brief/orders") as brief,
            connection.sender("here") as local,
        ):
            assert str(sender.send(Message("before", durable=True))) == "accepted"
            until(lambda: str(brief.send(Message("before", durable=True))) == "accepted")
            os.kill(place.far.pid, signal.SIGSTOP)
            try:
                sending = [sender.send_nowait(Message(str(number), durable=True)) for number in range(50)]
                briefly = [brief.send_nowait(Message(str(number), durable=True)) for number in range(50)]
                assert str(local.send(Message("beside", durable=True))) == "accepted"
                # A server that is silent for longer than its connector says is as good as gone.
                outcomes = [str(one.result(60)) for one in briefly]
                assert not any(one.done() for one in sending)
            finally:
                os.kill(place.far.pid, signal.SIGCONT)
            assert all(outcome.startswith("modified") for outcome in outcomes), outcomes
            assert {str(one.result(60)) for one in sending} == {"accepted"}
            until(lambda: str(brief.send(Message("after", durable=True))) == "accepted")
            assert place.there()["messagesStored"] >= 53
    finally:
        place.update(place.connectors("mill"))
        place.near.delete("here")


class Account:
    """What became of each message, by its name."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        """What its sender was told; ``unknown``: nothing."""
        self.came: Counter[str] = Counter()
        """How often it came to somebody who has accepted it."""
        self.done: set[str] = set()
        """Those of which the other container has heard, and noted on its disk, that they were accepted."""

    def play(self, place: Place, name: str, victim: StreamNode, moment: int) -> None:
        """Send 200 messages, receive some of all that there are, and kill a node in the middle of it."""
        taken = place.there()["accepted"]
        with (
            place.near.connect() as connection,
            connection.sender("mill/orders", resend=False, max_pending=200) as sender,
            connection.receiver("mill/orders", credit=20) as receiver,
        ):
            sending = {
                f"{name}-{number}": sender.send_nowait(Message(f"{name}-{number}", durable=True))
                for number in range(200)
            }
            first = [self._take(receiver) for _ in range(10)]
            until(lambda: place.there()["accepted"] >= taken + len(first), lambda: str(place.there()))
            with place.far.connect() as there, there.sender("orders") as mark:
                # Its journal has all that was before what it has accepted.
                self.outcomes[f"{name}-mark"] = str(mark.send(Message(f"{name}-mark", durable=True)))
            self.done |= set(first)
            for _ in range(moment):
                self._take(receiver)
            victim.kill()
            for each, one in sending.items():
                try:
                    self.outcomes[each] = str(one.result(60)).split()[0]
                except EnmasseError:
                    self.outcomes[each] = "unknown"
            victim.start()

    def _take(self, receiver: Any) -> str:
        got = receiver.receive(60)
        assert got is not None
        got.accept()
        name = str(got.message.body)
        assert name not in self.done, f"{name} came again"
        self.came[name] += 1
        return name

    def close(self, place: Place) -> None:
        """Take what is left, and hold every message against what was told of it."""
        with place.far.connect() as there, there.receiver("orders", credit=0) as receiver:
            while left := place.there()["messagesStored"]:
                receiver.grant(left)
                for _ in range(left):
                    self._take(receiver)
                until(lambda: place.there()["messagesStored"] == 0, lambda: str(place.there()))
        assert set(self.came) <= set(self.outcomes)
        for name, outcome in self.outcomes.items():
            count = self.came[name]
            assert count >= 1 or outcome != "accepted", f"{name} was accepted, and is lost"
            assert count == 0 or outcome != "released", f"{name} was said to have gone nowhere, and has come"


@pytest.mark.chance
def test_every_message_is_accounted_for_as_either_node_is_killed(place: Place) -> None:
    account, chance = Account(), random.Random(SEED)
    for life in range(kills(4)):
        victim = (place.far, place.near)[life % 2]
        account.play(place, str(life), victim, chance.randrange(1, 60))
    account.close(place)
    told = Counter(account.outcomes.values())
    assert told["accepted"], told
    assert set(told) <= {"accepted", "modified", "released", "unknown"}


def test_a_connector_whose_container_dies_is_no_problem_of_who_needs_it_not(place: Place) -> None:
    with place.near.connect() as connection, connection.sender("mill/orders") as sender:
        before = place.status()["mill"]["reconnects"]
        place.far.kill()
        place.far.start()
        assert str(sender.send(Message("again", durable=True))) == "accepted"
        assert place.status()["mill"]["reconnects"] > before
    place.far.kill()
    until(lambda: place.status()["mill"]["connections"] == 0, lambda: str(place.status()))
    place.far.start()
    assert place.status()["mill"]["problem"] == ""
