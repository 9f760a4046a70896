"""Spaces and addresses: checked, stored before they are answered, there again after a restart, gone when deleted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from enmasse.messaging.anycast import Anycast
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.delivery import ACCEPTED
from enmasse.messaging.frame import Frame
from enmasse.messaging.log import log_key, log_range
from enmasse.messaging.multicast import Multicast
from enmasse.messaging.options import DEFAULT_MAX_BYTES
from enmasse.messaging.queue import Queue
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.stream import Stream
from enmasse.messaging.subscription import Subscription
from enmasse.messaging.topic import Topic
from enmasse.node.entities import ADDRESS_TYPE, DELETE_STEP, SPACE_TYPE, Entities
from enmasse.node.errors import EntityError
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort
from enmasse.wire.amqp.sections import Header, Sections, encode_message

LOG_TABLES = (Table.FRAME, Table.SETTLED, Table.MARK, Table.PRODUCER)


class Node:
    """Entities over a storage in memory; every request is answered into ``answers``."""

    def __init__(self, harness: CoreHarness | None = None) -> None:
        self.harness = harness or CoreHarness()
        ids = count(1)
        self.closed: list[Space] = []
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.closed.append)
        self.entities.load()
        self.answers: list[EntityError | None] = []

    def space(self, name: str = "ns/shop") -> None:
        self.create(SPACE_TYPE, name)

    def address(self, name: str, kind: str, space: str = "ns/shop", **attributes: Any) -> None:
        """Create an address whose object name is ``ns/`` and its address."""
        self.create(
            ADDRESS_TYPE,
            f"ns/{name}",
            **{"space": space, "address": name, "addressType": kind, **attributes},
        )

    def create(self, entity_type: str, name: str, **attributes: Any) -> None:
        self.entities.create(entity_type, name, attributes, self.answers.append)
        self.harness.commit()
        assert self.answers.pop() is None

    def delete(self, entity_type: str, name: str) -> None:
        self.entities.delete(entity_type, name, self.answers.append)
        self.harness.commit()
        assert self.answers.pop() is None

    def update(self, name: str, **attributes: Any) -> None:
        self.entities.update(ADDRESS_TYPE, name, attributes, self.answers.append)
        self.harness.commit()
        assert self.answers.pop() is None

    def find(self, address: str, space: str = "ns/shop") -> Any:
        return self.entities.spaces[space].find(address)

    def fill(self, address: str, *bodies: int) -> None:
        """Send durable messages that are stored."""
        sender = self.harness.sender(self.find(address))
        self.harness.turn()
        for body in bodies:
            sender.send(encode_message(b"%d" % body, header=Header(durable=True)))
        self.harness.commit()
        assert [state for _, state in sender.outcomes] == [ACCEPTED] * len(bodies)
        sender.leave()

    def receiver(self, address: str, credit: int = 100, **options: Any) -> MemoryConsumerPort:
        port = self.harness.receiver(self.find(address), credit, **options)
        self.harness.turn()
        while self.harness.storage.waiting_reads:
            self.harness.storage.answer_reads()
            self.harness.turn()
        return port

    def restarted(self) -> Node:
        return Node(self.harness.restarted())

    def log_records(self) -> list[tuple[Table, bytes]]:
        return [(table, key) for table in LOG_TABLES for key, _ in self.harness.storage.scan_all(table)]


@pytest.fixture
def node() -> Node:
    made = Node()
    made.space()
    return made


def bodies(port: MemoryConsumerPort) -> list[int]:
    return [int(Sections(payload).body) for payload in port.payloads]


def refused(status: int, call: Callable[[], Any]) -> str:
    with pytest.raises(EntityError) as refusal:
        call()
    assert refusal.value.status == status
    return refusal.value.description


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


def test_only_authentication_none_is_served(node: Node) -> None:
    asked = {"authentication": "standard"}
    refused(501, lambda: node.entities.create(SPACE_TYPE, "ns/b", asked, node.answers.append))
    node.create(SPACE_TYPE, "ns/c", authentication="none", spaceType="brokered", generation=3)
    assert node.entities.read(SPACE_TYPE, "ns/c")["generation"] == 3


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


# Changing


def test_limits_can_be_changed_and_stay_changed(node: Node) -> None:
    node.address("q", "queue", maxBytes=5_000)
    node.update("ns/q", maxBytes=7_000, maxConsumers=4, generation=2)
    for found in (node, node.restarted()):
        queue = found.find("q")
        assert (queue.max_bytes, queue.options.max_consumers) == (7_000, 4)
        assert found.entities.read(ADDRESS_TYPE, "ns/q")["generation"] == 2


def test_a_limit_of_0_is_the_default_again(node: Node) -> None:
    node.address("q", "queue", maxBytes=5_000, maxConsumers=2)
    node.update("ns/q", maxBytes=0, maxConsumers=0)
    queue = node.find("q")
    assert (queue.max_bytes, queue.options.max_consumers) == (DEFAULT_MAX_BYTES, 0)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_full_space_takes_no_more_until_any_of_its_addresses_has_let_go(node: Node, is_deleted: bool) -> None:
    node.create(SPACE_TYPE, "ns/small", maxBytes=3_000)
    for name in ("a", "b"):
        node.create(ADDRESS_TYPE, f"ns/{name}", space="ns/small", address=name, addressType="queue")
    small = node.entities.spaces["ns/small"]
    sender = node.harness.sender(small.find("a"))
    node.harness.turn()
    while sender.credit:
        sender.send(encode_message(bytes(500)))
        node.harness.turn()
    other = node.harness.sender(small.find("b"))
    node.harness.turn()
    assert other.credit == 0
    if is_deleted:
        node.delete(ADDRESS_TYPE, "ns/a")
    else:
        receiver = node.harness.receiver(small.find("a"), 100)
        node.harness.turn()
        receiver.accept(len(receiver.unsettled))
    node.harness.turn()
    assert other.credit > 0


def test_the_limit_of_a_space_can_be_changed(node: Node) -> None:
    node.create(SPACE_TYPE, "ns/small", maxBytes=1)
    node.create(ADDRESS_TYPE, "ns/a", space="ns/small", address="a", addressType="queue")
    sender = node.harness.sender(node.find("a", "ns/small"))
    node.harness.turn()
    before = sender.credit
    node.entities.update(SPACE_TYPE, "ns/small", {"maxBytes": 100_000}, node.answers.append)
    node.harness.commit()
    assert node.answers == [None]
    assert sender.credit > before
    for found in (node, node.restarted()):
        assert found.entities.spaces["ns/small"].max_bytes == 100_000


def test_the_retention_of_a_stream_can_be_changed_and_stays_changed(node: Node) -> None:
    node.address("s", "stream", retentionBytes=64 << 30)
    bounds = node.find("s").retention
    assert (bounds.max_bytes, bounds.max_age_us, node.find("s").max_bytes) == (64 << 30, 0, 64 << 30)
    node.update("ns/s", retentionMs=5_000, retentionBytes=None, maxBytes=1 << 20)
    for found in (node, node.restarted()):
        bounds = found.find("s").retention
        assert (bounds.max_bytes, bounds.max_age_us, found.find("s").max_bytes) == (0, 5_000_000, 1 << 20)


def test_the_options_of_a_topic_are_those_of_the_subscriptions_that_receivers_made(node: Node) -> None:
    node.address("news", "topic", maxAttempts=5, ttlMaximum=70)
    node.receiver("news", is_durable=True, container="reader", name="mine")
    lasting = node.find("news").subscriptions[0]
    assert (lasting.options.max_attempts, lasting.options.ttl_maximum) == (5, 70)
    node.update("ns/news", maxAttempts=6, ttlMaximum=None)
    for found in (node, node.restarted()):
        lasting = found.find("news").subscriptions[0]
        assert (lasting.options.max_attempts, lasting.options.ttl_maximum) == (6, 0)


def test_a_null_brings_the_default_back(node: Node) -> None:
    node.address("q", "queue", ttlMaximum=5_000, deadletter="failed", maxBytes=7)
    node.update("ns/q", ttlMaximum=None, maxBytes=None, uid=None)
    for found in (node, node.restarted()):
        read = found.entities.read(ADDRESS_TYPE, "ns/q")
        assert "ttlMaximum" not in read
        assert (read["deadletter"], read["uid"]) == ("failed", "id2")
        assert found.find("q").max_bytes == DEFAULT_MAX_BYTES


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"ttlMinimum": 9}, "9 is more than 8"),
        ({"redeliveryDelayMultiplier": 0.9}, "delays never shrink"),
        ({"retentionMs": 5}, "only a stream has the attribute retentionMs"),
        ({"colour": None}, "has no attribute 'colour'"),
    ],
)
def test_a_change_is_checked_like_a_new_address(node: Node, changed: dict[str, Any], why: str) -> None:
    node.address("q", "queue", ttlMaximum=8)
    assert why in refused(400, lambda: node.entities.update(ADDRESS_TYPE, "ns/q", changed, node.answers.append))


def test_a_larger_limit_lets_senders_go_on_at_once(node: Node) -> None:
    node.address("q", "queue", maxBytes=1_000)
    node.fill(
        "q",
        1,
    )
    sender = node.harness.sender(node.find("q"))
    node.harness.turn()
    before = sender.credit
    node.update("ns/q", maxBytes=100_000)
    assert sender.credit > before


@pytest.mark.parametrize(
    "changed",
    [
        {"space": "ns/x"},
        {"address": "b"},
        {"addressType": "stream"},
        {"partitions": 2},
        {"uid": "other"},
        {"storage": "memory"},
    ],
)
def test_what_an_address_is_cannot_be_changed(node: Node, changed: dict[str, Any]) -> None:
    node.address("q", "queue")
    why = refused(409, lambda: node.entities.update(ADDRESS_TYPE, "ns/q", changed, node.answers.append))
    assert "delete it and make it anew" in why


def test_telling_what_is_already_so_is_no_change(node: Node) -> None:
    node.address("q", "queue", maxBytes=5_000)
    node.update("ns/q", space="ns/shop", address="q", addressType="queue", maxBytes=5_000)


def test_changes_that_follow_each_other_at_once_add_up(node: Node) -> None:
    node.address("q", "queue")
    node.entities.update(ADDRESS_TYPE, "ns/q", {"maxBytes": 5_000}, node.answers.append)
    node.entities.update(ADDRESS_TYPE, "ns/q", {"maxConsumers": 6}, node.answers.append)
    node.harness.commit()
    assert node.answers == [None, None]
    for found in (node, node.restarted()):
        assert (found.find("q").max_bytes, found.find("q").options.max_consumers) == (5_000, 6)


def test_a_change_that_could_not_be_stored_changes_nothing(node: Node) -> None:
    node.address("q", "queue", maxBytes=5_000)
    node.entities.update(ADDRESS_TYPE, "ns/q", {"maxBytes": 9_000}, node.answers.append)
    node.harness.fail()
    assert [error.status for error in node.answers if error] == [503]
    assert node.find("q").max_bytes == 5_000
    assert node.entities.read(ADDRESS_TYPE, "ns/q")["maxBytes"] == 5_000


def test_a_change_of_what_is_deleted_at_once_is_answered_so(node: Node) -> None:
    node.address("q", "queue")
    node.entities.update(ADDRESS_TYPE, "ns/q", {"maxBytes": 9_000}, node.answers.append)
    node.entities.delete(ADDRESS_TYPE, "ns/q", node.answers.append)
    node.harness.commit()
    assert [error and error.status for error in node.answers] == [404, None]
    refused(404, lambda: node.restarted().entities.read(ADDRESS_TYPE, "ns/q"))


@pytest.mark.parametrize("entity_type", [SPACE_TYPE, ADDRESS_TYPE])
def test_what_does_not_exist_cannot_be_read_changed_or_deleted(node: Node, entity_type: str) -> None:
    refused(404, lambda: node.entities.read(entity_type, "ns/x"))
    refused(404, lambda: node.entities.update(entity_type, "ns/x", {}, node.answers.append))
    refused(404, lambda: node.entities.delete(entity_type, "ns/x", node.answers.append))


# Deleting


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_deletion_detaches_links_at_once_and_removes_every_record(node: Node, kind: str) -> None:
    node.address("x", kind)
    node.address("kept", "queue")
    node.fill("x", *range(5))
    node.fill("kept", 7)
    receiver = node.receiver("x", 2)
    if kind == "queue":
        receiver.accept()
        node.harness.commit()
    node.entities.delete(ADDRESS_TYPE, "ns/x", node.answers.append)
    assert receiver.error.condition == "amqp:resource-deleted"
    assert node.answers == []
    node.harness.commit()
    assert node.answers == [None]
    assert [table for table, _ in node.log_records()] == [Table.FRAME]
    again = node.restarted()
    assert list(again.entities.records[ADDRESS_TYPE]) == ["ns/kept"]
    assert bodies(again.receiver("kept")) == [7]


def test_messages_that_were_on_their_way_when_their_address_was_deleted_leave_nothing(node: Node) -> None:
    for kind in ("queue", "stream"):
        node.address("x", kind)
        sender = node.harness.sender(node.find("x"))
        node.harness.turn()
        sender.send(encode_message(b"1", header=Header(durable=True)))
        node.harness.turn()
        sender.send(encode_message(b"2", header=Header(durable=True)))
        node.delete(ADDRESS_TYPE, "ns/x")
        node.harness.commit()
        assert node.log_records() == []


def test_a_large_log_is_deleted_in_steps(node: Node) -> None:
    node.address("s", "stream")
    node.fill("s", 1)
    log = node.entities.records[ADDRESS_TYPE]["ns/s"]["log"]
    producers = [Operation(Table.PRODUCER, log_key(log, 0, index), b"") for index in range(DELETE_STEP + 10)]
    node.harness.core.store(producers, lambda _reason: None)
    node.harness.commit()
    node.entities.delete(ADDRESS_TYPE, "ns/s", node.answers.append)
    steps = []
    node.harness.turn()
    while node.harness.storage.pending:
        steps.append(len(node.harness.storage.operations(node.harness.storage.pending[0])))
        node.harness.storage.commit()
        node.harness.turn()
    assert max(steps) == DELETE_STEP
    assert node.log_records() == []


def test_an_interrupted_deletion_goes_on_at_the_next_start(node: Node) -> None:
    node.address("s", "stream", partitions=2)
    node.address("kept", "queue")
    node.fill("s", *range(10))
    node.fill("kept", 7)
    node.entities.delete(ADDRESS_TYPE, "ns/s", node.answers.append)
    node.harness.turn()
    node.harness.storage.commit()
    assert len(node.log_records()) > 1
    again = node.restarted()
    assert list(again.entities.records[ADDRESS_TYPE]) == ["ns/kept"]
    again.harness.commit()
    assert [table for table, _ in again.log_records()] == [Table.FRAME]
    assert bodies(again.receiver("kept")) == [7]


def test_a_deletion_that_could_not_be_stored_leaves_the_address_as_a_restart_would(node: Node) -> None:
    node.address("q", "queue")
    node.fill("q", 1, 2)
    node.entities.delete(ADDRESS_TYPE, "ns/q", node.answers.append)
    node.harness.fail()
    (error,) = node.answers
    assert error is not None
    assert error.status == 503
    assert bodies(node.receiver("q")) == [1, 2]


def test_a_name_can_be_taken_again_once_its_deletion_is_on_disk(node: Node) -> None:
    node.address("q", "queue")
    node.fill("q", 1)
    node.entities.delete(ADDRESS_TYPE, "ns/q", node.answers.append)
    asked = {"space": "ns/shop", "address": "q", "addressType": "queue"}
    refused(409, lambda: node.entities.create(ADDRESS_TYPE, "ns/q", asked, node.answers.append))
    refused(409, lambda: node.entities.create(ADDRESS_TYPE, "ns/other", asked, node.answers.append))
    node.harness.commit()
    node.answers.clear()
    node.address("q", "queue")
    assert node.receiver("q").arrivals == []


def test_a_space_with_addresses_cannot_be_deleted(node: Node) -> None:
    node.address("q", "queue")
    why = refused(409, lambda: node.entities.delete(SPACE_TYPE, "ns/shop", node.answers.append))
    assert why == "space 'ns/shop' still has 1 addresses, such as 'ns/q'"


def test_a_space_whose_address_is_on_its_way_cannot_be_deleted(node: Node) -> None:
    """Its record would lie on disk without a space, and no node could start from that."""
    asked = {"space": "ns/shop", "address": "q", "addressType": "queue"}
    node.entities.create(ADDRESS_TYPE, "ns/q", asked, node.answers.append)
    refused(409, lambda: node.entities.delete(SPACE_TYPE, "ns/shop", node.answers.append))
    node.harness.commit()
    node.entities.delete(ADDRESS_TYPE, "ns/q", node.answers.append)
    refused(409, lambda: node.entities.delete(SPACE_TYPE, "ns/shop", node.answers.append))
    node.harness.commit()
    assert node.answers == [None, None]
    node.answers.clear()
    node.delete(SPACE_TYPE, "ns/shop")
    assert node.restarted().entities.spaces == {}


def test_deleting_a_space_closes_its_dynamic_addresses_and_tells_of_it(node: Node) -> None:
    space = node.entities.spaces["ns/shop"]
    dynamic = space.add_dynamic()
    receiver = node.harness.receiver(dynamic, 1)
    node.delete(SPACE_TYPE, "ns/shop")
    assert receiver.is_detached
    assert node.closed == [space]


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
