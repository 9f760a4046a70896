"""STOMP clients at addresses of every type: messages, outcomes, transactions, and what a client may not do."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, AmqpError, Rejected
from enmasse.message.sections import Header, Sections, encode_message, with_message_annotations
from enmasse.messaging.limits import SpaceLimits
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.node.connections.waiting import PATIENCE_S
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.node.stomp import connection as stomp_connection
from enmasse.wire.stomp.connection import LINGER_S
from tests.unit.node.stomp_scene import KINDS, Client, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Messages on their way


@pytest.mark.parametrize("address", KINDS)
@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_a_message_reaches_a_subscriber_at_every_type_of_address(scene: Scene, address: str, mode: str) -> None:
    sender, receiver = scene.client(), scene.client()
    receiver.subscribe(address, ack=mode)
    sender.send(address, b"one\0two", receipt="r:1")
    stored = address not in ("any", "all")
    said = sender.told()
    message = receiver.one("MESSAGE")
    assert (message.body, message["destination"], message["subscription"]) == (b"one\0two", address, "0")
    if mode != "auto":
        assert stored == bool(said)  # of a direct address the outcome is the receiver's
        receiver.say("ACK", id=message["ack"])
        said += sender.told()
    assert [frame["receipt-id"] for frame in said] == ["r:1"]


@pytest.mark.parametrize("address", KINDS)
def test_messages_go_from_stomp_to_amqp(scene: Scene, address: str) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver(address)
    scene.go_on()
    client.send(address, b"from stomp", key="value", receipt="1")
    scene.go_on()
    (payload,) = receiver.payloads
    assert (Sections(payload).body, Sections(payload).application_properties) == (b"from stomp", {"key": "value"})
    if receiver.unsettled:
        receiver.accept()
    client.one("RECEIPT")


@pytest.mark.parametrize("address", KINDS)
def test_messages_go_from_amqp_to_stomp(scene: Scene, address: str) -> None:
    client = scene.client()
    client.subscribe(address, ack="client")
    sender = scene.amqp_sender(address)
    scene.go_on()
    sender.send(encode_message("from amqp", application_properties={"key": 7}))
    message = client.one("MESSAGE")
    assert (message.body, message["key"], message["content-type"]) == (b"from amqp", "7", "text/plain")
    client.say("ACK", id=message["ack"])
    scene.go_on()
    assert [*sender.states.values()] == [ACCEPTED]


def test_of_a_topic_the_exact_name_is_told(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("/topic/topic/#")
    sender = scene.amqp_sender("topic")
    scene.go_on()
    sender.send(with_message_annotations(encode_message(b"x"), {"x-opt-topic-name": "topic/sport/chess"}))
    sender.send(encode_message(b"x"))
    # The node notes the name itself, and takes out what the sender wrote.
    assert [frame["destination"] for frame in client.told()] == ["/topic/topic", "/topic/topic"]


def test_equal_messages_are_told_apart_by_their_ids_alone(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("queue")
    for body in (b"aa", b"aa", b"bb", b"c"):
        client.send("queue", body)
    frames = client.told()
    assert [frame.body for frame in frames] == [b"aa", b"aa", b"bb", b"c"]
    assert len({frame["message-id"] for frame in frames}) == 4


def test_an_address_that_is_called_so_comes_before_a_name_without_its_prefix(scene: Scene) -> None:
    scene.node.address("/queue/queue", "queue")
    client = scene.client()
    client.subscribe("queue")
    client.send("/queue/queue", b"there")
    assert client.told() == []
    assert scene.node.find("/queue/queue").counts()["messagesIn"] == 1


def test_a_prefix_is_dropped_before_a_topic_above_is_looked_for(scene: Scene) -> None:
    scene.node.address("#", "topic")
    client, others = scene.client(), scene.client()
    client.subscribe("/queue/queue")
    others.subscribe("#")
    client.send("/queue/queue", b"a", receipt="1")
    assert {frame.command for frame in client.told()} == {"MESSAGE", "RECEIPT"}
    client.send("/topic/topic/t", b"b")
    client.send("/topic/hall/t", b"c")
    assert sorted((seen["destination"], seen.body) for seen in others.told()) == [("hall/t", b"c"), ("topic/t", b"b")]


def test_a_reply_goes_to_the_name_without_its_prefix(scene: Scene) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver("any")
    client.send("any", reply_to="/queue/queue")
    scene.go_on()
    assert Sections(receiver.payloads[0]).properties.reply_to == "queue"


def test_a_subscription_without_an_id_ends_by_any_name_of_its_address(scene: Scene) -> None:
    client = scene.client(version="1.0")
    client.say("SUBSCRIBE", destination="/queue/queue")
    client.say("UNSUBSCRIBE", destination="queue", receipt="1")
    assert client.one("RECEIPT")["receipt-id"] == "1"


# Outcomes


def test_the_outcome_of_a_direct_address_is_the_receivers_own(scene: Scene) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver("any")
    client.send("any", receipt="1")
    client.send("any", receipt="2")
    assert client.told() == []
    receiver.accept()
    assert client.one("RECEIPT")["receipt-id"] == "1"
    receiver.settle(Rejected(AmqpError("app:no", "not so")))
    error = client.one("ERROR")
    assert (error["receipt-id"], error["condition"]) == ("2", "app:no")
    assert "not so" in error["message"]
    assert client.engine.closed


def test_what_a_receiver_releases_another_may_take(scene: Scene) -> None:
    client = scene.client()
    first = scene.amqp_receiver("any", 1)
    client.send("any", b"x", receipt="1")
    scene.go_on()
    first.leave()
    second = scene.amqp_receiver("any")
    scene.go_on()
    assert client.one("ERROR")["condition"] == "amqp:modified"  # it may have been processed
    client = scene.client()
    client.send("any", b"y", receipt="1")
    scene.go_on()
    second.release()
    scene.go_on()
    assert len(second.payloads) == 2
    second.accept()
    assert client.one("RECEIPT")["receipt-id"] == "1"


def test_acknowledging_one_of_a_cumulative_subscription_acknowledges_all_before(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("queue", ack="client")
    for body in (b"a", b"b", b"c"):
        client.send("queue", body)
    frames = client.told()
    client.say("ACK", id=frames[1]["ack"])
    scene.go_on()
    assert scene.node.find("queue").depth == 1
    client.say("ACK", id=frames[2]["ack"], receipt="x")
    assert client.one("RECEIPT")["receipt-id"] == "x"
    assert scene.node.find("queue").depth == 0


def test_what_is_not_acknowledged_comes_again_as_redelivered(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("queue", ack="client-individual")
    client.send("queue", b"a")
    first = client.one("MESSAGE")
    assert "redelivered" not in first.headers
    client.say("NACK", id=first["ack"])
    again = client.one("MESSAGE")
    assert (again["redelivered"], again["delivery-count"]) == ("true", "1")
    client.engine.lost()
    other = scene.client()
    other.subscribe("queue")
    assert other.bodies() == []
    scene.harness.advance(60.0)
    assert scene.node.find("queue").counts()["messagesIn"] == 1


def test_what_nobody_is_to_have_becomes_a_dead_letter() -> None:
    scene = Scene(queue={"deadletter": "dead"})
    scene.node.address("dead", "queue")
    client = scene.client()
    client.subscribe("queue", ack="client")
    client.send("queue", b"a")
    client.say("NACK", id=client.one("MESSAGE")["ack"], requeue="false")
    assert client.told() == []
    assert scene.node.find("dead").depth == 1


def test_a_window_is_as_large_as_the_prefetch_count(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("queue", ack="client-individual", prefetch_count="2")
    for number in range(5):
        client.send("queue", b"%d" % number)
    frames = client.told()
    assert [frame.body for frame in frames] == [b"0", b"1"]
    client.say("ACK", id=frames[1]["ack"])
    assert client.bodies() == [b"2"]


def test_a_receipt_waits_for_the_disk(scene: Scene) -> None:
    client = scene.client()
    client.send("queue", persistent="true", receipt="1")
    scene.harness.turn()
    assert not client.engine.out
    scene.harness.commit()
    assert client.one("RECEIPT")["receipt-id"] == "1"


def test_what_could_not_be_written_is_tried_again(scene: Scene) -> None:
    client = scene.client()
    client.send("queue", persistent="true", receipt="1")
    scene.harness.fail()
    assert client.told() == []
    scene.harness.advance(5.0)
    assert client.one("RECEIPT")["receipt-id"] == "1"


# Credit


def test_a_message_waits_for_a_receiver_and_then_goes(scene: Scene) -> None:
    client = scene.client()
    client.send("any", b"1", receipt="1")
    client.send("any", b"2")
    assert client.told() == []
    receiver = scene.amqp_receiver("any")
    scene.harness.advance(1.0)
    receiver.accept()
    assert client.one("RECEIPT")["receipt-id"] == "1"
    assert [Sections(payload).body for payload in receiver.payloads] == [b"1", b"2"]


def test_a_message_that_nobody_takes_ends_the_connection_after_its_time(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    client.send("any", receipt="1")
    scene.go_on()
    scene.harness.advance(PATIENCE_S - 1)
    assert client.told() == []
    scene.harness.advance(2.0)
    error = client.one("ERROR")
    assert (error["receipt-id"], error["condition"]) == ("1", "amqp:resource-limit-exceeded")
    assert client.engine.closed
    other.send("queue", receipt="2")
    assert other.one("RECEIPT")["receipt-id"] == "2"


def test_who_sends_more_than_may_wait_is_not_read_until_somebody_takes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_connection, "MAX_WAITING", 10)
    client = scene.client()
    for number in range(30):
        client.send("any", b"%d" % number)
    assert client.is_held()
    receiver = scene.amqp_receiver("any", 1_000)
    for _ in range(5):
        scene.harness.advance(0.1)
        client.engine.receive(b"", scene.now)
    scene.go_on()
    assert not client.is_held()
    assert [Sections(payload).body for payload in receiver.payloads] == [b"%d" % number for number in range(30)]


def test_a_disconnect_s_receipt_comes_after_the_outcome_of_what_was_sent(scene: Scene) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver("any")
    client.send("any", receipt="1")
    client.say("DISCONNECT", receipt="bye")
    assert client.told() == []
    receiver.accept()
    assert [frame["receipt-id"] for frame in client.told()] == ["1", "bye"]
    assert client.engine.closed
    assert not scene.connections.numbers


def test_who_leaves_does_not_wait_for_an_outcome_for_ever(scene: Scene) -> None:
    client = scene.client()
    scene.amqp_receiver("any")
    client.send("any", receipt="1")
    client.say("DISCONNECT", receipt="bye")
    assert client.told() == []
    scene.harness.advance(PATIENCE_S + 1)
    assert client.one("ERROR")["receipt-id"] == "bye"
    assert client.engine.closed


# Transactions


def test_what_a_transaction_sends_and_acknowledges_takes_effect_together(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    client.subscribe("queue", ack="client-individual")
    client.send("queue", b"in")
    message = client.one("MESSAGE")
    client.say("BEGIN", transaction="t")
    client.send("topic", b"out", transaction="t", receipt="1")
    client.say("ACK", id=message["ack"], transaction="t", receipt="2")
    other.subscribe("topic")
    assert [frame["receipt-id"] for frame in client.told()] == ["1", "2"]
    assert other.told() == []
    assert scene.node.find("queue").depth == 1
    client.say("COMMIT", transaction="t", receipt="3")
    assert client.one("RECEIPT")["receipt-id"] == "3"
    assert other.bodies() == [b"out"]
    assert scene.node.find("queue").depth == 0


@pytest.mark.parametrize("ends", ["ABORT", "lost"])
def test_a_transaction_that_is_not_committed_leaves_nothing(scene: Scene, ends: str) -> None:
    client, other = scene.client(), scene.client()
    client.subscribe("queue", ack="client-individual")
    client.send("queue", b"in")
    message = client.one("MESSAGE")
    client.say("BEGIN", transaction="t")
    client.send("topic", b"out", transaction="t")
    client.say("ACK", id=message["ack"], transaction="t")
    other.subscribe("topic")
    if ends == "lost":
        client.engine.lost()
        scene.go_on()
    else:
        client.say("ABORT", transaction="t", receipt="x")
        client.one("RECEIPT")
        client.say("ACK", id=message["ack"], receipt="y")  # it is the client's again
        client.one("RECEIPT")
    assert other.told() == []
    assert scene.node.find("queue").depth == (1 if ends == "lost" else 0)


def test_a_transaction_that_takes_too_long_is_rolled_back(scene: Scene) -> None:
    client = scene.client()
    client.say("BEGIN", transaction="t")
    client.send("queue", transaction="t")
    scene.go_on()
    scene.harness.advance(61.0)
    client.say("COMMIT", transaction="t", receipt="x")
    error = client.one("ERROR")
    assert (error["condition"], error["receipt-id"]) == ("amqp:transaction:timeout", "x")
    assert scene.node.find("queue").depth == 0


# Subscriptions


def test_a_durable_subscription_is_there_when_its_client_comes_back(scene: Scene) -> None:
    client = scene.client(client_id="me")
    client.subscribe("/topic/topic", "news", durable="true", ack="client")
    client.say("DISCONNECT")
    scene.go_on()
    scene.client().send("topic", b"meanwhile")
    again = scene.client(client_id="me")
    again.subscribe("/topic/topic", "news", durable="true", ack="client")
    assert scene.node.find("topic").subscribing.logs
    again.say("UNSUBSCRIBE", id="news", durable="true")
    scene.go_on()
    assert not scene.node.find("topic").subscribing.logs


def test_what_came_meanwhile_is_sent_to_a_durable_subscriber(scene: Scene) -> None:
    client = scene.client(client_id="me")
    client.subscribe("topic", "0", durable_subscription_name="news")
    client.say("UNSUBSCRIBE", id="0")
    scene.client().send("topic", b"meanwhile")
    scene.go_on()
    client.say("SUBSCRIBE", id="1", destination="topic", durable_subscription_name="news")
    assert client.bodies() == [b"meanwhile"]


def test_a_selector_chooses_messages(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("queue", selector="colour = 'red'")
    client.send("queue", b"blue", colour="blue")
    client.send("queue", b"red", colour="red")
    assert client.bodies() == [b"red"]


@pytest.mark.parametrize(("start", "expected"), [("first", [b"0", b"1", b"2"]), ("1", [b"1", b"2"]), ("next", [])])
def test_a_stream_is_read_from_where_a_subscriber_says(scene: Scene, start: str, expected: list[bytes]) -> None:
    client = scene.client()
    for number in range(3):
        client.send("stream", b"%d" % number)
    scene.go_on()
    client.say("SUBSCRIBE", id="0", destination="stream", start=start)
    assert client.bodies() == expected


def test_a_named_reader_of_a_stream_goes_on_where_it_was(scene: Scene) -> None:
    for number in range(2):
        client = scene.client()
        client.send("stream", b"%d" % number)
        scene.go_on()
        client.say(
            "SUBSCRIBE", id="0", destination="stream", consumer="me", **({"start": "first"} if not number else {})
        )
        assert client.bodies() == [b"%d" % number]
        client.say("DISCONNECT")
        scene.go_on()


def test_a_browser_takes_nothing(scene: Scene) -> None:
    client = scene.client()
    client.send("queue", b"x")
    scene.go_on()
    client.say("SUBSCRIBE", id="0", destination="queue", browser="true")
    assert client.bodies() == [b"x"]
    assert scene.node.find("queue").depth == 1


def test_clients_of_earlier_versions_acknowledge_by_message_id(scene: Scene) -> None:
    for version in ("1.0", "1.1"):
        client = scene.client(version)
        client.subscribe("queue", ack="client")
        client.send("queue", b"x")
        message = client.one("MESSAGE")
        assert "ack" not in message.headers
        client.say("ACK", subscription="0", message_id=message["message-id"], receipt="1")
        client.one("RECEIPT")
        assert scene.node.find("queue").depth == 0
        client.say("DISCONNECT")
        scene.go_on()


def test_a_subscription_to_an_address_that_goes_ends_the_connection(scene: Scene) -> None:
    client = scene.client()
    client.subscribe("queue")
    scene.node.delete(ADDRESS_TYPE, "ns/queue")
    assert client.one("ERROR")["condition"] == "amqp:resource-deleted"


def test_a_sender_finds_out_that_its_address_went_with_the_next_message(scene: Scene) -> None:
    client = scene.client()
    client.send("queue", receipt="1")
    client.one("RECEIPT")
    scene.node.delete(ADDRESS_TYPE, "ns/queue")
    assert client.told() == []
    client.send("queue", receipt="2")
    assert client.one("ERROR")["condition"] == "amqp:not-found"


def test_destinations_that_were_used_first_make_room_for_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_connection, "MAX_SENDERS", 2)
    client = scene.client()
    for name in ("queue", "topic", "queue", "stream", "queue"):
        client.send(name)
        scene.go_on()
    assert {link.address for link in client.connection.links.values()} == {"queue", "stream"}


# What is refused


QUEUE = {"id": "9", "destination": "queue"}

REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "an unknown destination": ("SEND", {"destination": "nowhere"}, "amqp:not-found"),
    "a subscription to an unknown destination": ("SUBSCRIBE", QUEUE | {"destination": "nowhere"}, "amqp:not-found"),
    "no destination": ("SEND", {}, "amqp:invalid-field"),
    "no id of a subscription": ("SUBSCRIBE", {}, "amqp:invalid-field"),
    "a repeated id": ("SUBSCRIBE", {"id": "0", "destination": "queue"}, "amqp:not-allowed"),
    "an unknown mode": ("SUBSCRIBE", {"id": "9", "destination": "queue", "ack": "maybe"}, "amqp:invalid-field"),
    "a prefetch count of nothing": (
        "SUBSCRIBE", {"id": "9", "destination": "queue", "prefetch-count": "0"}, "amqp:invalid-field",
    ),
    "a malformed selector": ("SUBSCRIBE", QUEUE | {"selector": "a ="}, "amqp:invalid-field"),
    "a selector of a direct address": (
        "SUBSCRIBE", {"id": "9", "destination": "any", "selector": "a = 1"}, "amqp:not-implemented",
    ),
    "a start that is none": ("SUBSCRIBE", QUEUE | {"destination": "stream", "start": "soon"}, "amqp:invalid-field"),
    "a durable subscription of nobody": (
        "SUBSCRIBE", {"id": "9", "destination": "topic", "durable": "true"}, "amqp:invalid-field",
    ),
    "an unknown subscription": ("UNSUBSCRIBE", {"id": "9"}, "amqp:not-found"),
    "an unknown ack": ("ACK", {"id": "77"}, "amqp:not-found"),
    "an ack that is no number": ("ACK", {"id": "seven"}, "amqp:not-found"),
    "an ack of nothing": ("NACK", {}, "amqp:invalid-field"),
    "an ack by the message-id of 1.1": ("ACK", {"message-id": "1"}, "amqp:invalid-field"),
    "a subscription without id": ("SUBSCRIBE", {"destination": "queue"}, "amqp:invalid-field"),
    "an end of a subscription without id": ("UNSUBSCRIBE", {"destination": "queue"}, "amqp:invalid-field"),
    "an unknown transaction": ("COMMIT", {"transaction": "t"}, "amqp:transaction:unknown-id"),
    "a message of an unknown transaction": (
        "SEND", {"destination": "queue", "transaction": "t"}, "amqp:transaction:unknown-id",
    ),
    "a transaction without a name": ("BEGIN", {}, "amqp:invalid-field"),
    "a priority that is none": ("SEND", {"destination": "queue", "priority": "11"}, "amqp:invalid-field"),
    "a time to live that is none": ("SEND", {"destination": "queue", "ttl": "-1"}, "amqp:invalid-field"),
    "a content type that is none": ("SEND", {"destination": "queue", "content-type": "\u00e9"}, "amqp:invalid-field"),
    "a pattern to send to": ("SEND", {"destination": "topic/#"}, "amqp:not-allowed"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_an_error_with_the_receipt_and_the_end_while_others_go_on(scene: Scene, what: str) -> None:
    command, headers, condition = REFUSED[what]
    other, client = scene.client(), scene.client()
    other.subscribe("queue")
    client.subscribe("any")
    client.say(command, receipt="r", **headers)
    error = client.one("ERROR")
    assert (error["receipt-id"], error["condition"]) == ("r", condition)
    assert client.engine.closed
    assert error.body.decode() == error["message"]
    other.send("queue", b"still here")
    assert other.bodies() == [b"still here"]


def test_a_transaction_takes_no_message_to_a_direct_address(scene: Scene) -> None:
    client = scene.client()
    client.say("BEGIN", transaction="t")
    client.send("any", transaction="t", receipt="1")
    assert client.one("ERROR")["condition"] == "amqp:not-implemented"


def test_a_begun_transaction_is_not_begun_again(scene: Scene) -> None:
    client = scene.client()
    client.say("BEGIN", transaction="t")
    client.say("BEGIN", transaction="t", receipt="1")
    assert client.one("ERROR")["condition"] == "amqp:not-allowed"


def test_a_message_that_is_larger_than_its_address_takes_is_refused(scene: Scene) -> None:
    scene.node.find("queue").limit(AddressSettings(max_message_size=100))
    client = scene.client()
    client.send("queue", bytes(50), receipt="1")
    client.one("RECEIPT")
    client.send("queue", bytes(100), receipt="2")
    assert client.one("ERROR")["condition"] == "amqp:link:message-size-exceeded"


def test_a_space_has_as_many_connections_as_it_may(scene: Scene) -> None:
    scene.node.entities.spaces["ns/shop"].limit(SpaceLimits(connections=1))
    first = scene.client()
    refused = Client(scene)
    assert refused.said[0]["condition"] == "amqp:resource-limit-exceeded"
    first.send("queue", receipt="1")
    first.one("RECEIPT")


@pytest.mark.limit("rate", "stomp")
def test_a_rate_holds_messages_back(scene: Scene) -> None:
    scene.node.entities.spaces["ns/shop"].limit(SpaceLimits(message_rate=10))
    client = scene.client()
    for _ in range(25):
        client.send("queue")
    scene.go_on()
    before = scene.node.find("queue").depth
    assert before < 25
    scene.harness.advance(5.0)
    scene.go_on()
    assert scene.node.find("queue").depth == 25


def test_management_closes_a_connection_with_the_reason(scene: Scene) -> None:
    client = scene.client()
    (number,) = scene.connections.numbers.values()
    assert scene.connections.close(str(number), "enough for today")
    error = client.one("ERROR")
    assert (error["condition"], error["message"]) == ("amqp:connection:forced", "enough for today")


def test_a_connection_that_is_gone_leaves_nothing(scene: Scene) -> None:
    client = scene.client(client_id="me")
    for address in KINDS:
        client.subscribe(address, address, ack="client")
        client.send(address, receipt=address)
    client.say("BEGIN", transaction="t")
    client.send("queue", transaction="t")
    scene.go_on()
    client.engine.lost()
    scene.go_on()
    assert not scene.connections.numbers
    for address in KINDS:
        counts = scene.node.find(address).counts()
        assert (counts["senders"], counts["receivers"]) == (0, 0), address


# Messages of AMQP


@pytest.mark.parametrize(
    ("body", "expected", "kind"),
    [
        (b"\x00\xff", b"\x00\xff", None),
        ("text \u00e9", "text \u00e9".encode(), "text/plain"),
        ({"a": [1, True, None, b"x"]}, b'{"a": [1, true, null, "eA=="]}', "application/json"),
        (None, b"", None),
        (7, b"7", "application/json"),
    ],
)
def test_a_body_of_amqp_is_its_bytes_its_text_or_json(
    scene: Scene, body: Any, expected: bytes, kind: str | None
) -> None:
    client = scene.client()
    client.subscribe("queue")
    sender = scene.amqp_sender("queue")
    scene.go_on()
    sender.send(encode_message(body, header=Header(priority=7)))
    message = client.one("MESSAGE")
    assert message.body == expected
    assert (message.headers.get("content-type"), message["priority"]) == (kind, "7")


def test_whoever_was_talking_when_he_was_refused_is_hung_up_on_all_the_same(scene: Scene) -> None:
    client = scene.client()
    client.engine.receive(b"FETCH\n\n\0SEND\ndestination:queue\n\nx\0", scene.now)
    assert client.one("ERROR")["condition"] == "stomp:frame-error"
    assert not client.engine.closed
    scene.harness.advance(LINGER_S)
    assert client.engine.closed


@pytest.mark.parametrize("address", ["topic/lamp", "all"])
def test_values_are_kept_and_given_to_those_who_ask(scene: Scene, address: str) -> None:
    present, sender = scene.client(), scene.client()
    present.subscribe(address)
    sender.send(address, b"on", x_opt_retain="true", receipt="kept")
    assert sender.one("RECEIPT")["receipt-id"] == "kept"
    message = present.one("MESSAGE")
    assert (message.body, message["x-opt-retain"], "x-opt-retained" in message.headers) == (b"on", "true", False)
    later = scene.client()
    later.say("SUBSCRIBE", id="0", destination=address, retained="always")
    message = later.one("MESSAGE")
    assert (message.body, message["x-opt-retained"]) == (b"on", "true")
    assert message["destination"].endswith(address)
    receiver = scene.harness.receiver(
        scene.node.find(address.partition("/")[0]), 10, source=address, filters={"enmasse:retained": "new"}
    )
    scene.go_on()
    assert [Sections(payload).body for payload in receiver.payloads] == [b"on"]
    for retain, body in (("false", b"off"), ("1", b"off"), ("true", b"")):
        sender.send(address, body, x_opt_retain=retain)
        scene.go_on()
        values = len(scene.node.entities.spaces["ns/shop"].retained)
        assert values == (0 if retain == "true" else 1)


def test_what_amqp_keeps_stomp_is_given(scene: Scene) -> None:
    sender = scene.amqp_sender("topic")
    scene.go_on()
    sender.send(encode_message("on", message_annotations={"x-opt-retain": True}))
    scene.go_on()
    client = scene.client()
    client.say("SUBSCRIBE", id="0", destination="topic", retained="new")
    message = client.one("MESSAGE")
    assert (message.body, message["x-opt-retained"]) == (b"on", "true")
    client.say("SUBSCRIBE", id="1", destination="topic", retained="sometimes")
    assert "always, new or never" in client.one("ERROR")["message"]
