"""Spaces and addresses that are deleted: gone with all their records."""

from __future__ import annotations

import pytest

from enmasse.message.sections import Header, encode_message
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.storage import Operation, Table
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.management.records import DELETE_STEP
from tests.unit.node.entities_scene import Node, bodies, refused


@pytest.fixture
def node() -> Node:
    made = Node()
    made.space()
    return made


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
    node.harness.advance(PAUSE_S)
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
