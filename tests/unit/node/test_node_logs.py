"""What the log tells of connections and links, with which fields, and what it never tells."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from enmasse.message.outcomes import AmqpError
from enmasse.node.connections.logs import EVENTS
from enmasse.testing.recorder import RecordingSink
from enmasse.wire.amqp.performatives import Source, Target
from enmasse.wire.amqp.sasl import SaslClient
from enmasse.wire.sasl.mechanisms import Plain
from tests.unit.node.seeing_scene import SeenClient, SeenNode


@pytest.fixture
def node(caplog: pytest.LogCaptureFixture) -> SeenNode:
    caplog.set_level(logging.INFO, "enmasse.node")
    return SeenNode()


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(record.event, record.fields) for record in caplog.records if hasattr(record, "event")]  # type: ignore[attr-defined]


def test_a_connection_is_told_with_space_container_user_and_host(
    node: SeenNode, caplog: pytest.LogCaptureFixture
) -> None:
    client = SeenClient(node)
    number = node.connections.numbers[client.binding]
    client.client.close()
    client.go()
    about = {
        "connection": number, "space": "ns/shop", "container": "client-1",
        "user": "anonymous", "host": "127.0.0.1:4711",
    }  # fmt: skip
    assert told(caplog) == [("connection-opened", {**about, "protocol": "amqp"}), ("connection-closed", about)]


def test_links_are_told_as_the_client_sees_them(node: SeenNode, caplog: pytest.LogCaptureFixture) -> None:
    client = SeenClient(node)
    session = client.client.begin()
    client.go()
    sink = RecordingSink()
    link = session.attach_sender("out", sink, Target("q"))
    session.attach_receiver("in", RecordingSink(), Source("q"))
    session.attach_receiver("bad", RecordingSink(), Source("nowhere"))
    client.go()
    link.detach()
    client.go()
    keys = ("link", "role", "address", "condition")
    assert [(event, *(about.get(key) for key in keys)) for event, about in told(caplog)[1:]] == [
        ("link-attached", "out", "sender", "q", None),
        ("link-attached", "in", "receiver", "q", None),
        ("link-refused", "bad", "receiver", "nowhere", "amqp:not-found"),
        ("link-detached", "out", "sender", "q", None),
    ]


def test_links_that_end_with_their_connection_are_not_told_one_by_one(
    node: SeenNode, caplog: pytest.LogCaptureFixture
) -> None:
    client = SeenClient(node)
    session = client.client.begin()
    client.go()
    session.attach_sender("out", RecordingSink(), Target("q"))
    client.go()
    client.cut()
    assert [event for event, _ in told(caplog)] == ["connection-opened", "link-attached", "connection-closed"]


def test_an_address_that_is_deleted_says_so_of_its_links(node: SeenNode, caplog: pytest.LogCaptureFixture) -> None:
    client = SeenClient(node)
    session = client.client.begin()
    client.go()
    session.attach_sender("out", RecordingSink(), Target("q"))
    client.go()
    space = node.entities.spaces["ns/shop"]
    space.remove(space.find("q"))
    client.go()
    event, about = told(caplog)[-1]
    assert (event, about["condition"]) == ("link-detached", "amqp:resource-deleted")


def test_who_names_no_space_is_refused_and_why(node: SeenNode, caplog: pytest.LogCaptureFixture) -> None:
    node.entities.create("io.enmasse.space", "ns/other", {}, lambda _: None)
    node.harness.commit()
    SeenClient(node)
    ((event, about),) = told(caplog)
    assert (event, about["condition"]) == ("connection-refused", "amqp:not-found")
    assert "names no space" in about["description"]


def test_a_limit_that_is_hit_has_a_name_of_its_own(node: SeenNode, caplog: pytest.LogCaptureFixture) -> None:
    client = SeenClient(node)
    client.binding.engine.close(AmqpError("amqp:resource-limit-exceeded", "too many of them"))
    client.go()
    event, about = told(caplog)[-1]
    assert (event, about["at"], about["description"]) == ("limit-hit", "connection-closed", "too many of them")


def test_a_password_is_in_no_line(node: SeenNode, caplog: pytest.LogCaptureFixture) -> None:
    SeenClient(node, sasl=SaslClient([Plain("anna", "correct horse")]))
    assert told(caplog)
    assert "correct horse" not in str([record.__dict__ for record in caplog.records])


def test_a_socket_that_says_nothing_is_not_worth_a_line(node: SeenNode, caplog: pytest.LogCaptureFixture) -> None:
    client = SeenClient(node, greets=False)
    client.binding.engine.lost()
    assert told(caplog) == []


def test_every_event_is_counted(node: SeenNode) -> None:
    client = SeenClient(node)
    client.client.close()
    client.go()
    assert set(node.events.counts) == set(EVENTS)
    assert {event: count for event, count in node.events.counts.items() if count} == {
        "connection-opened": 1,
        "connection-closed": 1,
    }
