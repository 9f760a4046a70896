"""Spaces and addresses that are changed: what may be, and that it stays so."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.sections import encode_message
from enmasse.messaging.queues.backlog import DEFAULT_MAX_BYTES
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from tests.unit.node.entities_scene import Node, refused


@pytest.fixture
def node() -> Node:
    made = Node()
    made.space()
    return made


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


@pytest.mark.parametrize(
    ("attribute", "field"),
    [
        ("acknowledgeUndeliverable", "acknowledges_undeliverable"),
        ("copyOverlapping", "copies_overlapping"),
        ("takeDollarNames", "takes_dollar_names"),
        ("takeQueryProperties", "takes_query_properties"),
    ],
)
def test_what_clients_meet_holds_from_the_beginning_and_stays(node: Node, attribute: str, field: str) -> None:
    node.create(SPACE_TYPE, "ns/old", **{attribute: True})
    assert getattr(node.entities.spaces["ns/old"], field)
    again = node.restarted()
    assert getattr(again.entities.spaces["ns/old"], field)
    again.entities.update(SPACE_TYPE, "ns/old", {attribute: None}, again.answers.append)
    again.harness.commit()
    for found in (again, again.restarted()):
        assert not getattr(found.entities.spaces["ns/old"], field)


def test_the_home_of_a_space_and_its_generation_are_given_together_and_kept(node: Node) -> None:
    node.create(SPACE_TYPE, "ns/there", home="node-1", homeGeneration=1)
    before = node.entities.read(SPACE_TYPE, "ns/there")
    node.entities.update(SPACE_TYPE, "ns/there", {"home": "node-2", "homeGeneration": 2}, node.answers.append)
    node.harness.commit()
    after = node.restarted().entities.read(SPACE_TYPE, "ns/there")
    assert (before["home"], before["homeGeneration"]) == ("node-1", 1)
    assert (after["home"], after["homeGeneration"]) == ("node-2", 2)
    assert before["digest"] != after["digest"]
    with pytest.raises(EntityError, match="given together"):
        node.entities.create(SPACE_TYPE, "ns/other", {"home": "node-1"}, node.answers.append)
    assert "home" not in node.entities.read(SPACE_TYPE, "ns/shop")


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
    (lasting,) = node.find("news").subscriptions
    assert (lasting.options.max_attempts, lasting.options.ttl_maximum) == (5, 70)
    node.update("ns/news", maxAttempts=6, ttlMaximum=None)
    for found in (node, node.restarted()):
        (lasting,) = found.find("news").subscriptions
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
        ({"redeliveryDelayMultiplier": 0.9}, "takes at least 1, not 0.9"),
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
