"""Wills of AMQP clients: given by message or by a link's property, cancelled by a goodbye, sent after a loss."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import Symbol
from enmasse.messaging.sessions.sessions import OpenRequest
from enmasse.messaging.sessions.wills import Will
from enmasse.node.amqp.wills import DELAY, LWT, WILL
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_types import ATTRIBUTES, SESSION_TYPE, WILL_TYPE
from enmasse.node.management.session_views import delete_session, sessions_of, wills_of
from enmasse.testing.recorder import RecordingSink
from tests.unit.node.test_node_binding import Client, Node


@pytest.fixture
def node() -> Node:
    made = Node()
    made.address("q", "queue")
    return made


def will(body: bytes = b"gone", to: str | None = "q", annotations: dict[str, Any] | None = None) -> bytes:
    return encode_message(
        body, header=Header(durable=True), properties=Properties(to=to), message_annotations=annotations
    )


def connect(node: Node, container: str = "device") -> Client:
    return Client(node, None, None, container=container)


def wills(node: Node) -> list[Will]:
    return node.entities.spaces["ns/shop"].sessions.wills.all


def bodies(node: Node) -> list[Any]:
    """What was sent to the queue."""
    node.harness.commit()
    reader = connect(node, "reader")
    sink = reader.receiver("q", answer=ACCEPTED)
    reader.client.close()
    reader.go()
    return [Sections(payload).body for payload in sink.payloads]


def send(client: Client, sink: RecordingSink, payload: bytes) -> Any:
    delivery = sink.send(payload)
    client.go()
    return delivery.state


def lose(client: Client) -> None:
    client.binding.engine.lost()
    client.node.harness.commit()


def test_a_will_is_accepted_once_stored_and_sent_when_the_connection_is_lost(node: Node) -> None:
    client = connect(node)
    sink = client.sender(LWT)
    assert send(client, sink, will(b"old")) is ACCEPTED
    assert send(client, sink, will(b"new")) is ACCEPTED
    assert [one.client for one in wills(node)] == ["device"]
    lose(client)
    assert bodies(node) == [b"new"]
    assert wills(node) == []


def test_a_will_is_cancelled_when_its_link_or_connection_is_closed(node: Node) -> None:
    client = connect(node)
    sink = client.sender(LWT)
    assert send(client, sink, will()) is ACCEPTED
    assert sink.link is not None
    sink.link.detach()
    client.go()
    assert wills(node) == []
    sink = client.sender(LWT, name="second")
    assert send(client, sink, will()) is ACCEPTED
    client.client.close()
    client.go()
    assert wills(node) == []
    assert bodies(node) == []


def test_a_will_is_sent_when_its_link_or_connection_fails(node: Node) -> None:
    client = connect(node)
    sink = client.sender(LWT)
    assert send(client, sink, will(b"link")) is ACCEPTED
    assert sink.link is not None
    sink.link.detach(AmqpError("amqp:internal-error", "it burns"))
    client.go()
    sink = client.sender(LWT, name="second")
    assert send(client, sink, will(b"connection")) is ACCEPTED
    client.client.close(AmqpError("amqp:internal-error", "it burns"))
    client.go()
    assert bodies(node) == [b"link", b"connection"]


def test_a_will_waits_for_its_delay_unless_the_link_comes_back(node: Node) -> None:
    client = connect(node)
    sink = client.sender(LWT)
    assert send(client, sink, will(annotations={DELAY: 10})) is ACCEPTED
    lose(client)
    node.harness.advance(9)
    assert bodies(node) == []
    client = connect(node)
    client.sender(LWT)
    node.harness.advance(100)
    assert bodies(node) == []
    lose(client)
    node.harness.advance(11)
    assert bodies(node) == [b"gone"]


@pytest.mark.parametrize("is_sender", [True, False])
def test_a_link_may_have_a_will_by_a_property(node: Node, is_sender: bool) -> None:
    client = connect(node)
    properties = {Symbol(WILL): {"to": "q", "body": b"lost", "retain": True, "content-type": "text/plain"}}
    if is_sender:
        client.sender("q", properties=properties)
    else:
        client.receiver("q", credit=0, properties=properties)
    assert [one.message.name for one in wills(node)] == ["q"]
    lose(client)
    assert bodies(node) == [b"lost"]


def test_a_link_that_is_closed_has_its_property_s_will_cancelled(node: Node) -> None:
    client = connect(node)
    sink = client.sender("q", properties={Symbol(WILL): {"to": "q", "body": "lost"}})
    assert sink.link is not None
    sink.link.detach()
    client.go()
    lose(client)
    assert wills(node) == []
    assert bodies(node) == []


@pytest.mark.parametrize(
    "given", ["q", {}, {"to": ""}, {"to": "q", "body": 1}, {"to": "q", "delay": -1}, {"to": "q", "delay": True}]
)
def test_a_property_that_is_no_will_is_refused(node: Node, given: Any) -> None:
    client = connect(node)
    client.sender("q", properties={Symbol(WILL): given})
    assert client.refusals == [("out", "amqp:invalid-field", True)]
    assert wills(node) == []


def test_a_link_that_is_refused_has_no_will(node: Node) -> None:
    client = connect(node)
    client.sender("nowhere", properties={Symbol(WILL): {"to": "q"}})
    assert client.refusals == [("out", "amqp:not-found", True)]
    node.harness.commit()
    assert wills(node) == []


def test_a_will_that_says_not_where_to_is_rejected(node: Node) -> None:
    client = connect(node)
    sink = client.sender(LWT)
    state = send(client, sink, will(to=None))
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "amqp:precondition-failed"


def test_a_node_that_stops_keeps_wills_for_its_return(node: Node) -> None:
    client = connect(node)
    assert send(client, client.sender(LWT), will()) is ACCEPTED
    node.entities.spaces["ns/shop"].sessions.stop()
    lose(client)
    assert bodies(node) == []
    assert len(wills(node)) == 1


def test_sessions_and_wills_are_shown_without_what_they_say(node: Node) -> None:
    client = connect(node)
    assert send(client, client.sender(LWT), will(b"secret")) is ACCEPTED
    (shown,) = wills_of(*node.entities.spaces.values()).page()
    assert (shown["client"], shown["address"], shown["state"]) == ("device", "q", "armed")
    assert "secret" not in str(shown)
    assert shown.keys() <= set(ATTRIBUTES[WILL_TYPE])
    space = node.entities.spaces["ns/shop"]
    anything = OpenRequest("sensor", "user:1", "anna", False, False, 60, 10, bool, bool)
    session = space.sessions.open(anything, None, lambda _problem: None)  # type: ignore[arg-type]
    node.harness.commit()
    session.detach(None, is_clean_close=True)  # type: ignore[arg-type]
    (shown,) = sessions_of(*node.entities.spaces.values()).page()
    assert (shown["name"], shown["user"], shown["expiry"], shown["filterCount"]) == ("sensor", "anna", 60, 0)
    assert shown.keys() <= set(ATTRIBUTES[SESSION_TYPE])
    with pytest.raises(EntityError):
        delete_session(space, "other")
    delete_session(space, "sensor")
    assert sessions_of(*node.entities.spaces.values()).page() == []
