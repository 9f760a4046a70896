"""The list of a space's addresses, as an agent receives it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from enmasse.identity.permissions import Grant
from enmasse.message.sections import Sections
from enmasse.node.management.address_list import MAX_CHANGED, PART
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.link import ReceivingLink
from enmasse.wire.amqp.performatives import Source
from tests.unit.node.test_node_admission import Guarded, person
from tests.unit.node.test_node_binding import Client, Node

CHANGES = Source(address="$addresses", capabilities=("enmasse:changes",))


@pytest.fixture
def node() -> Node:
    made = Node("ns/shop", "ns/factory")
    made.address("orders", "queue")
    made.address("news", "topic")
    made.address("secret", "queue", "ns/factory")
    return made


def shop(node: Node) -> Client:
    return node.client(hostname="shop.ns")


def delete(node: Node, name: str) -> None:
    node.entities.delete(ADDRESS_TYPE, name, node.answers.append)
    node.harness.commit()
    assert node.answers[-1] is None


def told(sink: RecordingSink) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Subject, marks and body of every message."""
    found = []
    for payload in sink.payloads:
        sections = Sections(payload)
        assert sections.properties.content_type == "application/json"
        found.append(
            (str(sections.properties.subject), dict(sections.application_properties), json.loads(sections.body))
        )
    return found


def addresses(sink: RecordingSink) -> list[list[str]]:
    """The addresses of each list that has come whole."""
    lists: list[list[str]] = []
    coming: list[str] = []
    for subject, marks, body in told(sink):
        assert subject == "addresses"
        if not marks["part"]:
            coming = []
        coming += [entry["address"] for entry in body["addresses"]]
        if marks["last"]:
            lists.append(coming)
    return lists


def test_an_agent_gets_the_list_of_its_space_when_it_attaches(node: Node) -> None:
    agent = shop(node).receiver("$addresses")
    ((subject, marks, body),) = told(agent)
    assert (subject, marks["part"], marks["last"]) == ("addresses", 0, True)
    assert [(e["name"], e["address"], e["type"]) for e in body["addresses"]] == [
        ("ns/shop.orders", "orders", "queue"),
        ("ns/shop.news", "news", "topic"),
    ]
    assert all(entry["uid"] for entry in body["addresses"])
    assert agent.received[0].settled


def test_an_agent_gets_the_list_again_at_every_change(node: Node) -> None:
    client = shop(node)
    agent = client.receiver("$addresses")
    node.address("late", "anycast")
    node.harness.advance(0.2)
    client.go()
    delete(node, "ns/shop.orders")
    node.harness.advance(0.2)
    client.go()
    assert addresses(agent) == [["orders", "news"], ["orders", "news", "late"], ["news", "late"]]
    assert client.receiver("$addresses", name="second").payloads


def test_changes_in_other_spaces_are_not_told(node: Node) -> None:
    client = shop(node)
    agent = client.receiver("$addresses")
    node.address("more", "queue", "ns/factory")
    node.harness.advance(1)
    client.go()
    assert len(agent.payloads) == 1


def test_an_empty_space_has_an_empty_list(node: Node) -> None:
    delete(node, "ns/factory.secret")
    assert addresses(node.client(hostname="factory.ns").receiver("$addresses")) == [[]]


def test_a_slow_agent_gets_only_the_newest_list(node: Node) -> None:
    client = shop(node)
    agent = client.receiver("$addresses", credit=1)
    for number in range(20):
        node.address(f"a{number}", "anycast")
        node.harness.advance(0.2)
        client.go()
    assert len(agent.payloads) == 1
    assert isinstance(agent.link, ReceivingLink)
    agent.link.grant(5)
    client.go()
    node.harness.advance(1)
    client.go()
    assert [len(found) for found in addresses(agent)] == [2, 22]


def test_many_changes_at_once_make_one_list(node: Node) -> None:
    client = shop(node)
    agent = client.receiver("$addresses")
    for number in range(20):
        node.address(f"a{number}", "anycast")
        client.go()
    node.harness.advance(1)
    client.go()
    assert [len(found) for found in addresses(agent)] == [2, 22]


def test_a_long_list_comes_in_parts(node: Node) -> None:
    for number in range(2 * PART):
        node.address(f"a{number}", "anycast")
    client = shop(node)
    agent = client.receiver("$addresses", credit=2)
    for _ in range(3):
        client.go()
    assert [marks["part"] for _, marks, _ in told(agent)] == [0, 1]
    assert isinstance(agent.link, ReceivingLink)
    agent.link.grant(10)
    client.go()
    assert [(marks["part"], marks["last"]) for _, marks, _ in told(agent)] == [(0, False), (1, False), (2, True)]
    assert len({marks["version"] for _, marks, _ in told(agent)}) == 1
    assert len(set(addresses(agent)[0])) == 2 * PART + 2


def test_an_agent_may_ask_for_changes_only(node: Node) -> None:
    client = shop(node)
    agent = client.receiver(CHANGES)
    node.address("late", "anycast")
    client.go()
    delete(node, "ns/shop.orders")
    client.go()
    first, second, third = told(agent)
    assert first[0] == "addresses"
    assert second[0] == third[0] == "changes"
    assert [entry["address"] for entry in second[2]["changed"]] == ["late"]
    assert second[2]["deleted"] == []
    assert third[2] == {"changed": [], "deleted": ["orders"]}
    assert first[1]["version"] < second[1]["version"] < third[1]["version"]


def test_an_agent_that_is_far_behind_gets_the_list_again(node: Node) -> None:
    client = shop(node)
    agent = client.receiver(CHANGES, credit=1)
    told_of = node.entities.spaces["ns/shop"].services["$addresses"]
    for number in range(MAX_CHANGED + 1):
        told_of.changed(f"x{number}")  # type: ignore[attr-defined]
    assert isinstance(agent.link, ReceivingLink)
    agent.link.grant(5)
    client.go()
    node.harness.advance(1)
    client.go()
    assert [subject for subject, _, _ in told(agent)] == ["addresses", "addresses"]


def test_a_drain_ends_once_the_list_is_told(node: Node) -> None:
    client = shop(node)
    agent = client.receiver("$addresses", credit=0)
    assert isinstance(agent.link, ReceivingLink)
    agent.link.grant(10)
    agent.link.drain()
    client.go()
    assert len(agent.payloads) == 1
    assert agent.given_up == [9]


def test_nobody_sends_to_the_list_nor_declares_it(node: Node) -> None:
    client = shop(node)
    client.sender("$addresses")
    assert client.refusals == [("out", "amqp:not-allowed", True)]


# Who may see it


@pytest.mark.parametrize(("operation", "is_let_in"), [("view", True), ("manage", True), ("recv", False)])
def test_the_list_is_for_those_who_may_view_the_space(operation: str, is_let_in: bool) -> None:
    site = Guarded()
    addresses_of = ("#",) if operation == "recv" else ()
    site.set_users([person("ann", "ns/shop", Grant((operation,), addresses_of))])
    client = site.user("ann@shop.ns")
    agent = client.receiver("$addresses")
    assert bool(agent.payloads) is is_let_in
    assert client.refusals == ([] if is_let_in else [("in", "amqp:unauthorized-access", True)])
