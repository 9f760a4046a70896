"""Addresses that are for users only, in a space that is open to everybody: closed to strangers in every protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.client import LinkRefusedError, connect
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.wire.amqp.performatives import Target
from enmasse.wire.mqtt.packets import Reason
from enmasse.wire.sasl.mechanisms import Anonymous
from tests.support.mqtt_peer import MqttPeer
from tests.support.stomp_peer import StompPeer
from tests.unit.node.test_node_admission import REFUSED, message, told
from tests.unit.node.test_node_realms import FARM, Farm, play
from tests.unit.node.test_node_space_management import Requester, Site

if TYPE_CHECKING:
    from pathlib import Path

CLOSED = {"event": "queue", "telemetry": "stream", "command": "anycast", "answers": "topic", "all": "multicast"}


async def with_addresses(farm: Farm) -> None:
    for name, kind in CLOSED.items():
        await farm.create(ADDRESS_TYPE, f"{FARM}.{name}", space=FARM, address=name, addressType=kind, usersOnly=True)
    await farm.create(ADDRESS_TYPE, f"{FARM}.news", space=FARM, address="news", addressType="topic")


def test_strangers_neither_send_nor_receive_over_amqp(tmp_path: Path) -> None:
    async def story(farm: Farm) -> None:
        await with_addresses(farm)
        async with connect(f"amqp://127.0.0.1:{farm.port}", reconnect=False) as client:
            for name in (*CLOSED, "answers/x", "answers/#"):
                for link in (client.sender, client.receiver):
                    with pytest.raises(LinkRefusedError) as refused:
                        await link(name)
                    assert refused.value.condition == REFUSED or "#" in name, name
            await client.sender("news")

    play(tmp_path, story)


def test_strangers_neither_send_nor_receive_over_mqtt(tmp_path: Path) -> None:
    async def story(farm: Farm) -> None:
        await with_addresses(farm)
        async with MqttPeer(farm.port) as client:
            assert await client.subscribed(*CLOSED, "answers/#", qos=1) == [Reason.NOT_AUTHORIZED] * (len(CLOSED) + 1)
            # With the others, which it may receive, it gets nothing of these.
            assert await client.subscribed("#", "+/x", "+") == [0] * 3
            held = farm.server.entities.spaces[FARM]
            assert not held.find("answers").consumers
            assert not held.find("all").consumers
            for name in (*CLOSED, "answers/x"):
                client.publish(name, qos=1)
                assert (await client.next("puback")).reason == Reason.NOT_AUTHORIZED

    play(tmp_path, story)


def test_strangers_neither_send_nor_receive_over_stomp(tmp_path: Path) -> None:
    async def story(farm: Farm) -> None:
        await with_addresses(farm)
        for name in (*CLOSED, "answers/x"):
            async with StompPeer(farm.port, host="localhost") as client:
                client.say("SUBSCRIBE", id="1", destination=name)
                assert "users only" in str(await client.next("ERROR"))
            async with StompPeer(farm.port, host="localhost") as client:
                client.send(name, receipt="1")
                assert "users only" in str(await client.next("ERROR"))

    play(tmp_path, story)


def test_strangers_neither_send_nor_receive_over_http(tmp_path: Path) -> None:
    async def story(farm: Farm) -> None:
        await with_addresses(farm)
        base = f"http://127.0.0.1:{farm.port}/v1/spaces/farm.ns/addresses"
        async with httpx.AsyncClient(trust_env=False) as http:
            for name in (*CLOSED, "answers%2Fx"):
                assert (await http.post(f"{base}/{name}/messages", content=b"x")).status_code == 403, name
            for name in ("event", "telemetry"):
                assert (await http.get(f"{base}/{name}/messages")).status_code == 403, name
            assert (await http.post(f"{base}/event/receive")).status_code == 403
            assert (await http.get(f"{base}/event/events")).status_code == 403

    play(tmp_path, story)


class OpenSite(Site):
    """A space that is open to everybody, with a queue for users only."""

    def __init__(self) -> None:
        super().__init__()
        self.address("event", "queue", "ns/open", usersOnly=True)
        self.address("graves", "deadletter", "ns/open")

    def stranger(self) -> Any:
        return self.meet(Anonymous(), hostname="open.ns")


def test_strangers_do_not_manage_what_is_in_it() -> None:
    site = OpenSite()
    client = site.stranger()
    asker = Requester(client)
    for operation, name, body in (
        ("PURGE", "event", {}),
        ("REPLAY", "event", {}),
        ("MOVE", "event", {"to": "orders"}),
        ("MOVE", "orders", {"to": "event"}),
    ):
        reply = asker.ask(body, operation=operation, type=ADDRESS_TYPE, name=name)
        assert (reply.status, "users only" in reply.description) == (403, True), operation
    assert asker.ask({}, operation="PURGE", type=ADDRESS_TYPE, name="orders").status == 200


def test_what_becomes_one_for_users_only_is_taken_from_strangers_who_have_it() -> None:
    site = OpenSite()
    client = site.stranger()
    client.sender("orders")
    client.receiver("orders", credit=0)
    anonymous = client.sender(Target(), name="any")
    client.go()
    first = anonymous.send(message("orders"))
    client.go()
    assert told(first.state) == "Accepted"
    site.entities.update(ADDRESS_TYPE, "ns/open.orders", {"usersOnly": True}, site.answers.append)
    site.harness.commit()
    client.go()
    assert {name for name, condition, _ in client.refusals if condition == REFUSED} == {"out", "in"}
    sent = anonymous.send(message("orders"))
    client.go()
    assert told(sent.state) == REFUSED
    site.entities.update(ADDRESS_TYPE, "ns/open.orders", {"usersOnly": False}, site.answers.append)
    site.harness.commit()
    client.sender("orders", name="again")
    assert len(client.refusals) == 2


def test_a_subscription_of_such_a_topic_is_for_users_only_too() -> None:
    site = OpenSite()
    site.address("answers", "topic", "ns/open", usersOnly=True)
    site.address("reader", "subscription", "ns/open", topic="answers")
    client = site.stranger()
    for name in ("reader", "answers::reader"):
        client.receiver(name, name=name, credit=0)
    assert [condition for _, condition, _ in client.refusals] == [REFUSED] * 2
