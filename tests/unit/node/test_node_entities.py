"""Spaces and addresses: checked, stored before they are answered, there again after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.log.frame import Frame
from enmasse.messaging.log.layout import log_range
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.streams.stream import Stream
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from tests.unit.node.entities_scene import Node, bodies, refused


@pytest.fixture
def node() -> Node:
    made = Node()
    made.space()
    return made


# Creating


@pytest.mark.parametrize(
    ("kind", "attributes", "made"),
    [
        ("anycast", {}, Anycast),
        ("multicast", {}, Multicast),
        ("queue", {"maxBytes": 1_000, "maxConsumers": 2}, Queue),
        ("deadletter", {}, Queue),
        ("topic", {}, Topic),
        ("subscription", {"topic": "news"}, Subscription),
        ("stream", {"partitions": 3}, Stream),
    ],
)
def test_an_address_can_be_used_once_it_is_on_disk(
    node: Node, kind: str, attributes: dict[str, Any], made: type
) -> None:
    asked = {"space": "ns/shop", "address": "a", "addressType": kind, **attributes}
    node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append)
    node.harness.turn()
    assert node.answers == []
    assert "a" not in node.entities.spaces["ns/shop"].addresses
    node.harness.commit()
    assert node.answers == [None]
    for found in (node, node.restarted()):
        address = found.find("a")
        assert type(address) is made
        read = found.entities.read(ADDRESS_TYPE, "ns/a")
        assert asked.items() <= read.items()
        assert (read["name"], read["type"], read["uid"]) == ("ns/a", ADDRESS_TYPE, "id2")
        assert {"senders", "receivers", "messagesIn", "messagesStored"} <= read.keys()
        assert "log" not in read


def test_limits_and_partitions_are_those_that_were_asked_for(node: Node) -> None:
    node.address("q", "queue", maxBytes=5_000, maxConsumers=3)
    node.address("s", "stream", partitions=5, maxBytes=6_000)
    for found in (node, node.restarted()):
        queue, stream = found.find("q"), found.find("s")
        assert (queue.max_bytes, queue.options.max_consumers) == (5_000, 3)
        assert (len(stream.partitions), stream.max_bytes) == (5, 6_000)


def test_a_streams_uid_is_its_own_and_stays(node: Node) -> None:
    node.address("s", "stream")
    uid = node.find("s").uid
    again = node.restarted()
    assert again.find("s").uid == uid
    again.delete(ADDRESS_TYPE, "ns/s")
    again.address("s", "stream")
    assert again.find("s").uid != uid


def test_subscriptions_are_fed_by_their_topic_in_whatever_order_they_come(node: Node) -> None:
    node.address("early", "subscription", topic="news")
    node.address("news", "topic")
    node.address("late", "subscription", topic="news")
    node.fill("news/sport", 1)
    again = node.restarted()
    again.fill("news", 2)
    assert bodies(again.receiver("early")) == bodies(again.receiver("news::late")) == [1, 2]


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ({"space": None}, "lacks its attribute space"),
        ({"address": ""}, "lacks its attribute address"),
        ({"addressType": None}, "lacks its attribute addressType"),
        ({"addressType": "heap"}, "'heap' is no address type; there are anycast"),
        ({"addressType": "subscription"}, "lacks its attribute topic"),
        ({"addressType": "stream", "partitions": 0}, "1 to 1024 partitions"),
        ({"addressType": "stream", "partitions": 1_025}, "1 to 1024 partitions"),
        ({"partitions": -1}, "partitions takes a whole number from 0 on, not -1"),
        ({"maxBytes": "1"}, "maxBytes takes a whole number from 0 on, not '1'"),
        ({"maxBytes": True}, "maxBytes takes a whole number from 0 on, not True"),
        ({"address": "a b"}, "no white space"),
        ({"address": "$management"}, "no $ at its start"),
        ({"colour": "red"}, "has no attribute 'colour'; it has space"),
    ],
)
def test_attributes_that_make_no_sense_are_refused_with_a_reason(
    node: Node, attributes: dict[str, Any], why: str
) -> None:
    asked = {"space": "ns/shop", "address": "a", "addressType": "queue", **attributes}
    assert why in refused(400, lambda: node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append))
    node.harness.turn()
    assert node.harness.core.is_idle


@pytest.mark.parametrize("name", ["", "shop", "a/b/c", "/shop", "ns/", "/", "x" * 321])
def test_a_name_that_is_none_is_refused(node: Node, name: str) -> None:
    refused(400, lambda: node.entities.create(SPACE_TYPE, name, {}, node.answers.append))


def test_a_space_has_one_of_the_kinds_of_authentication(node: Node) -> None:
    asked = {"authentication": "kerberos"}
    refused(400, lambda: node.entities.create(SPACE_TYPE, "ns/b", asked, node.answers.append))
    node.create(SPACE_TYPE, "ns/c", authentication="none", spaceType="brokered", generation=3)
    assert node.entities.read(SPACE_TYPE, "ns/c")["generation"] == 3
    changed: list[str] = []
    node.entities.space_changed = lambda space: changed.append(space.name)
    node.entities.update(SPACE_TYPE, "ns/c", {"generation": 4}, node.answers.append)
    node.entities.update(SPACE_TYPE, "ns/c", {"authentication": "standard"}, node.answers.append)
    node.harness.commit()
    assert node.entities.read(SPACE_TYPE, "ns/c")["authentication"] == "standard"
    assert changed == ["ns/c"]


def test_an_address_needs_its_space(node: Node) -> None:
    asked = {"space": "ns/other", "address": "a", "addressType": "queue"}
    why = refused(404, lambda: node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append))
    assert why == "there is no space 'ns/other'"


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_the_same_name_twice_is_a_conflict(node: Node, is_on_disk: bool) -> None:
    asked = {"space": "ns/shop", "address": "a", "addressType": "queue"}
    node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append)
    if is_on_disk:
        node.harness.commit()
    asked["address"] = "b"
    refused(409, lambda: node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append))


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_the_same_address_twice_in_a_space_is_a_conflict(node: Node, is_on_disk: bool) -> None:
    asked = {"space": "ns/shop", "address": "a", "addressType": "queue"}
    node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append)
    if is_on_disk:
        node.harness.commit()
    why = refused(409, lambda: node.entities.create(ADDRESS_TYPE, "ns/b", asked, node.answers.append))
    assert why == "address 'a' exists already, as 'ns/a'"


def test_the_same_address_in_two_spaces_is_two_addresses(node: Node) -> None:
    node.space("ns/factory")
    node.address("a", "queue")
    node.create(ADDRESS_TYPE, "ns/b", space="ns/factory", address="a", addressType="queue")
    node.fill("a", 1)
    assert node.find("a", "ns/factory").depth == 0
    assert node.restarted().find("a", "ns/factory").depth == 0


def test_what_could_not_be_stored_does_not_exist_and_can_be_created_again(node: Node) -> None:
    asked = {"space": "ns/shop", "address": "a", "addressType": "queue"}
    node.entities.create(ADDRESS_TYPE, "ns/a", asked, node.answers.append)
    node.harness.fail()
    (error,) = node.answers
    assert error is not None
    assert (error.status, "the disk is full" in error.description) == (503, True)
    refused(404, lambda: node.entities.read(ADDRESS_TYPE, "ns/a"))
    node.answers.clear()
    node.harness.advance(PAUSE_S)
    node.address("a", "queue")
    assert node.find("a").depth == 0


# Messages


def test_messages_are_there_again_after_a_restart(node: Node) -> None:
    node.address("q", "queue")
    node.address("s", "stream", partitions=2)
    node.fill("q", 1, 2, 3)
    node.fill("s", 4, 5)
    node.receiver("q", 1).accept()
    node.harness.commit()
    again = node.restarted()
    assert bodies(again.receiver("q")) == [2, 3]
    assert sorted(bodies(again.receiver("s", filters={"enmasse:start": "first"}))) == [4, 5]


def test_two_addresses_never_share_a_log_even_over_deletions_and_restarts(node: Node) -> None:
    node.address("a", "queue")
    node.fill("a", 1)
    node.delete(ADDRESS_TYPE, "ns/a")
    again = node.restarted()
    again.address("b", "queue")
    again.address("c", "queue")
    again.fill("b", 2)
    again.fill("c", 3)
    third = again.restarted()
    assert bodies(third.receiver("b")) == [2]
    assert bodies(third.receiver("c")) == [3]


# Reading


def test_everything_of_a_type_can_be_read(node: Node) -> None:
    node.address("a", "anycast")
    node.address("b", "queue")
    assert [entity["name"] for entity in node.entities.read_all(ADDRESS_TYPE)] == ["ns/a", "ns/b"]
    assert [entity["name"] for entity in node.entities.read_all(SPACE_TYPE)] == ["ns/shop"]


def test_counters_show_what_links_do(node: Node) -> None:
    node.address("q", "queue")
    node.fill("q", 1, 2, 3)
    receiver = node.receiver("q", 2)
    receiver.accept()
    receiver.release()
    read = node.entities.read(ADDRESS_TYPE, "ns/q")
    assert (read["messagesIn"], read["messagesOut"], read["messagesStored"]) == (3, 2, 2)
    assert (read["accepted"], read["released"], read["senders"], read["receivers"]) == (1, 1, 0, 1)


def test_records_of_others_in_the_table_are_left_alone(node: Node) -> None:
    node.harness.core.store([Operation(Table.ENTITY, b"zzz", b"not ours")], lambda _reason: None)
    node.harness.commit()
    again = node.restarted()
    assert list(again.entities.spaces) == ["ns/shop"]
    assert again.harness.storage.get(Table.ENTITY, b"zzz") == b"not ours"


def test_a_queues_frames_are_those_of_its_log_alone(node: Node) -> None:
    node.address("a", "queue")
    node.address("b", "queue")
    for round_ in range(3):
        node.fill("a", round_)
        node.fill("b", 10 + round_)
    found = [
        [Frame(value).first_offset for _, value in node.harness.storage.scan(Table.FRAME, *log_range(log), 1 << 30)]
        for log in (1, 2)
    ]
    assert found == [[0, 1, 2], [0, 1, 2]]
    assert bodies(node.restarted().receiver("b")) == [10, 11, 12]


def test_a_host_that_no_space_may_have_is_left_out_when_an_older_node_had_taken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    with monkeypatch.context() as former:
        former.setattr("enmasse.node.management.entity_fields.host_problem", lambda _host: None)
        node.create(SPACE_TYPE, "ns/shop", hosts=["localhost", "mq.example.org", "10.0.0.1"])
    again = node.restarted()
    assert again.entities.hosts == {"mq.example.org": "ns/shop"}
    again.entities.update(SPACE_TYPE, "ns/shop", {"maxBytes": 1000}, again.answers.append)
    again.harness.commit()
    assert again.answers == [None]
