"""What MQTT clients receive: filters, qualities of service, windows, and sessions that outlive their connections."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.sections import Header, Properties, encode_message
from enmasse.messaging.limits import SpaceLimits
from enmasse.testing.ports import FIRST_WALL_US
from enmasse.wire.mqtt.packets import NEVER_EXPIRES, PublishProperties, Reason, Version
from tests.conformance.clause_list import clause
from tests.unit.node.mqtt_scene import V3, V5, Filter, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("published", "granted", "delivered"), [(0, 2, 0), (1, 2, 1), (2, 1, 1), (2, 2, 2), (1, 0, 0)]
)
def test_a_message_has_the_lower_quality_of_service(
    scene: Scene, published: int, granted: int, delivered: int
) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("topic/#", qos=granted)
    sender.publish("topic/a", b"x", published)
    assert [message.qos for message in receiver.messages()] == [delivered]


def test_what_takes_messages_away_has_the_subscription_s_quality_of_service(scene: Scene) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("queue", qos=1)
    sender.publish("queue", b"x", 0)
    (message,) = receiver.told()
    assert message.qos == 1
    assert scene.space.find("queue").counts()["messagesStored"] == 1
    receiver.acknowledge(message)
    scene.go_on()
    assert scene.space.find("queue").counts()["messagesStored"] == 0


@clause("mqtt5:3.3.2-3", "mqtt3:3.3.2-3")
@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("wanted", ["#", "+/sport/+", "topic/#", "topic/sport/chess"])
def test_filters_reach_names_below_a_topic(scene: Scene, version: Version, wanted: str) -> None:
    receiver, sender = scene.client(version), scene.client()
    receiver.subscribed(wanted)
    sender.publish("topic/sport/chess", b"mate")
    assert [(message.topic, message.payload) for message in receiver.messages()] == [("topic/sport/chess", b"mate")]


@pytest.mark.parametrize("wanted", ["queue/#", "+", "#"])
def test_wildcards_take_nothing_from_queues_and_receivers(scene: Scene, wanted: str) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed(wanted, qos=1)
    assert sender.answer("queue") == 0
    assert sender.answer("any") == Reason.IMPLEMENTATION_SPECIFIC_ERROR
    assert receiver.messages() == []


def test_an_address_that_is_declared_later_is_reached(scene: Scene) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("late/#", qos=1)
    scene.node.address("late", "topic")
    assert sender.answer("late/one", b"here") == 0
    assert receiver.bodies() == [b"here"]


def test_a_name_that_leads_nowhere_is_refused(scene: Scene) -> None:
    receiver, old = scene.client(), scene.client(V3)
    assert receiver.subscribed("nowhere", "topic", qos=1) == [Reason.TOPIC_FILTER_INVALID, 1]
    assert old.subscribed("nowhere", "topic", qos=1) == [0x80, 1]


def test_a_subscription_identifier_comes_with_each_message(scene: Scene) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("topic/a", identifier=7)
    receiver.subscribed("topic/#", identifier=200)
    receiver.subscribed("topic/+", qos=1)
    sender.publish("topic/a", qos=1)
    found = [message.properties.subscription_identifiers for message in receiver.messages() if message.properties]
    assert list(map(sorted, found)) == [[7, 200]], "and the third has none"


@clause("mqtt5:3.8.3-3")
def test_a_client_does_not_get_its_own_messages_if_it_does_not_want_them(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    client.subscribed(Filter("topic/#", 1, no_local=True))
    other.subscribed("topic/#", qos=1)
    client.publish("topic/a", b"mine", 1)
    other.publish("topic/a", b"theirs", 1)
    scene.go_on()
    assert [one.payload for one in client.told() if one.kind == "publish"] == [b"theirs"]
    assert [one.payload for one in other.told() if one.kind == "publish"] == [b"mine", b"theirs"]


@clause("mqtt5:3.3.1-12", "mqtt5:3.3.1-13")
def test_retain_is_told_as_it_was_published_to_who_wants_that(scene: Scene) -> None:
    client, plain, sender = scene.client(), scene.client(), scene.client()
    client.subscribed(Filter("topic/a", 1, retain_as_published=True))
    plain.subscribed("topic/a", qos=1)
    sender.publish("topic/a", b"kept", 1, retain=True)
    sender.publish("topic/a", b"not", 1)
    assert [message.is_retained for message in client.messages()] == [True, False]
    assert [message.is_retained for message in plain.messages()] == [False, False]


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_is_in_flight_than_the_client_takes(scene: Scene, qos: int) -> None:
    receiver, sender = scene.client(receive_maximum=3), scene.client()
    receiver.subscribed("queue", "topic/a", qos=qos)
    for number in range(5):
        sender.publish("queue", b"%d" % number, qos)
        sender.publish("topic/a", b"%d" % number, qos)
    first = receiver.told()
    assert len(first) == 3
    assert scene.space.find("queue").counts()["messagesStored"] == 5
    receiver.acknowledge(first[0])
    heard = receiver.told()
    if qos == 2:
        (release,) = heard
        assert release.kind == "pubrel"
        receiver.engine.put_pubcomp(release.packet_id)
        heard = receiver.told()
    assert [one.kind for one in heard] == ["publish"]
    for one in [*first[1:], *heard]:
        receiver.acknowledge(one)
    assert len(receiver.messages()) == 6


@clause("mqtt5:3.1.2-25")
def test_a_message_that_is_too_large_for_the_client_is_left_out(scene: Scene) -> None:
    receiver, sender = scene.client(maximum_packet_size=100), scene.client()
    receiver.subscribed("topic/a", qos=1)
    receiver.subscribed("queue", qos=1)
    for target in ("topic/a", "queue"):
        sender.publish(target, bytes(200), 1)
        sender.publish(target, b"fits", 1)
        sender.publish(target, bytes(200), 0)
    assert receiver.bodies() == [b"fits", b"fits"]
    assert scene.space.find("queue").counts()["messagesStored"] == 2, "others may take them"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_one_member_of_a_group_is_another_s(scene: Scene, qos: int) -> None:
    small, large = scene.client(maximum_packet_size=100), scene.client()
    sender = scene.client()
    for member in (small, large):
        member.subscribed("$share/group/topic/#", qos=qos)
    for number in range(6):
        sender.publish("topic/a", bytes(200) + b"%d" % number, 1)
    assert small.bodies() == []
    assert [body[-1:] for body in large.bodies()] == [b"%d" % number for number in range(6)]
    sender.publish("topic/a", b"fits", 1)
    assert [*small.bodies(), *large.bodies()] == [b"fits"]
    # Nobody who is there takes it: it holds up nothing, and is counted.
    large.node_engine.lost()
    scene.go_on()
    sender.publish("topic/a", bytes(200), 1)
    sender.publish("topic/a", b"small", 1)
    assert small.bodies() == [b"small"]
    (group,) = scene.space.sessions.groups.all
    assert [(kept.depth, kept.dropped) for kept in group.kept.values()] == [(0, 1)]


def test_topic_aliases_are_used_towards_clients_that_take_them(scene: Scene) -> None:
    receiver, sender = scene.client(topic_alias_maximum=2), scene.client()
    receiver.subscribed("topic/#", qos=1)
    for name in ("a", "b", "c", "a", "b", "c"):
        sender.publish(f"topic/{name}", name.encode(), 1)
    sender.publish("topic/a", b"0")
    heard = [(message.topic, message.payload) for message in receiver.messages()]
    assert heard == [*((f"topic/{name}", name.encode()) for name in "abcabc"), ("topic/a", b"0")]


@clause("mqtt5:3.3.2-4", "mqtt5:3.3.2-15", "mqtt5:3.3.2-16", "mqtt5:3.3.2-17", "mqtt5:3.3.2-18", "mqtt5:3.3.2-20")
def test_properties_come_as_they_were_sent(scene: Scene) -> None:
    properties = PublishProperties(
        1, 60, "text/plain; charset=utf-8", "answers/äöü", b"\0\xff", [("a", "1"), ("b", "2"), ("a", "3")]
    )
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("queue", "topic/a", qos=1)
    sender.publish("queue", b"one", 1, properties=properties)
    sender.publish("topic/a", b"one", 1, properties=properties)
    assert [message.properties for message in receiver.messages()] == [properties, properties]


@clause("mqtt5:3.3.2-5", "mqtt5:3.3.2-6")
def test_an_expired_message_is_not_sent_and_the_time_left_is_told(scene: Scene) -> None:
    receiver, sender = scene.client(), scene.client()
    for seconds in (5, 60):
        sender.publish("queue", b"%d" % seconds, 1, properties=PublishProperties(message_expiry_s=seconds))
    sender.told()
    scene.harness.advance(10)
    receiver.subscribed("queue", qos=1)
    (message,) = receiver.messages()
    assert message.properties is not None
    assert (message.payload, message.properties.message_expiry_s) == (b"60", 50)


def test_a_client_that_rejects_a_message_leaves_it_to_the_address(scene: Scene) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("queue", qos=1)
    assert sender.answer("queue") == 0
    (message,) = receiver.told()
    receiver.acknowledge(message, Reason.UNSPECIFIED_ERROR)
    scene.go_on()
    assert scene.space.find("queue").counts()["rejected"] == 1


def test_unsubscribing_ends_it(scene: Scene) -> None:
    receiver, sender = scene.client(), scene.client()
    receiver.subscribed("topic/a", qos=1)
    receiver.unsubscribe("topic/a", "topic/b")
    assert receiver.one("unsuback").codes == [0, Reason.NO_SUBSCRIPTION_EXISTED]
    assert sender.answer("topic/a") == Reason.NO_MATCHING_SUBSCRIBERS
    assert receiver.told() == []


# Sessions


@pytest.mark.parametrize("version", [V3, V5])
def test_a_session_keeps_what_comes_while_its_client_is_away(scene: Scene, version: Version) -> None:
    lasting = {"is_clean": False, "session_expiry_s": NEVER_EXPIRES}
    receiver, sender = scene.client(version, "device", **lasting), scene.client()
    assert receiver.connack is not None
    assert receiver.connack.said.is_session_present is False
    receiver.subscribed("topic/#", qos=1)
    receiver.engine.put(b"\xe0\x00")
    scene.go_on()
    for number in range(3):
        assert sender.answer("topic/a", b"%d" % number) == 0
    back = scene.client(version, "device", **lasting)
    assert back.connack is not None
    assert back.connack.said.is_session_present is True
    assert back.bodies() == [b"0", b"1", b"2"]


def test_what_was_not_acknowledged_comes_again_under_its_identifier(scene: Scene) -> None:
    lasting = {"is_clean": False, "session_expiry_s": 60}
    receiver, sender = scene.client(V5, "device", **lasting), scene.client()
    receiver.subscribed("topic/#", qos=2)
    for qos in (1, 2):
        assert sender.answer("topic/a", b"%d" % qos, qos) == 0
    first = receiver.told()
    assert [(one.qos, one.is_duplicate) for one in first] == [(1, False), (2, False)]
    receiver.node_engine.lost()
    scene.go_on()
    back = scene.client(V5, "device", **lasting)
    again = back.told()
    assert [(one.qos, one.is_duplicate, one.packet_id) for one in again] == [
        (one.qos, True, one.packet_id) for one in first
    ]
    back.acknowledge(again[1])
    (release,) = back.told()
    assert (release.kind, release.packet_id) == ("pubrel", again[1].packet_id)
    back.node_engine.lost()
    scene.go_on()
    third = scene.client(V5, "device", **lasting)
    heard = third.told()
    assert sorted((one.kind, one.packet_id) for one in heard) == [
        ("publish", first[0].packet_id),
        ("pubrel", first[1].packet_id),
    ]


LASTING: dict[str, Any] = {"is_clean": False, "session_expiry_s": 600}


@clause("mqtt5:3.3.1-1", "mqtt3:3.3.1-1")
@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("wanted", ["topic/#", "$share/group/topic/#", "queue"])
def test_what_may_have_been_sent_before_a_crash_has_dup(scene: Scene, version: Version, wanted: str) -> None:
    receiver, sender = scene.client(version, "device", **LASTING), scene.client()
    receiver.subscribed(wanted, qos=1)
    for number in range(3):
        sender.publish("queue" if wanted == "queue" else "topic/a", b"%d" % number, 1)
    # No packet identifier of these has been written yet.
    assert [one.is_duplicate for one in receiver.told()] == [False] * 3
    scene.restart()
    back, sender = scene.client(version, "device", **LASTING), scene.client()
    sender.publish("queue" if wanted == "queue" else "topic/a", b"new", 1)
    assert [(one.payload, one.is_duplicate) for one in back.messages()] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
        (b"new", False),
    ]


@clause("mqtt5:3.3.1-1", "mqtt3:3.3.1-1")
def test_what_was_not_sent_before_a_crash_has_no_dup(scene: Scene) -> None:
    receiver, sender = scene.client(V5, "device", **LASTING), scene.client()
    receiver.subscribed("topic/#", qos=1)
    sender.publish("topic/a", b"sent", 1)
    assert [one.kind for one in receiver.told()] == ["publish"]
    # Its identifier is written as the client is gone, not a second later.
    receiver.node_engine.lost()
    sender.publish("topic/a", b"not sent", 1)
    scene.go_on()
    scene.restart()
    assert [(one.payload, one.is_duplicate) for one in scene.client(V5, "device", **LASTING).told()] == [
        (b"sent", True),
        (b"not sent", False),
    ]
    # Another client had nothing of the queue's.
    scene.client().answer("queue", b"kept")
    scene.restart()
    other = scene.client(V5, "other", **LASTING)
    other.subscribed("queue", qos=1)
    assert [(one.payload, one.is_duplicate) for one in other.messages()] == [(b"kept", False)]


@clause("mqtt5:3.3.2-6")
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("is_crash", [False, True])
def test_what_is_sent_again_tells_the_time_left(scene: Scene, qos: int, is_crash: bool) -> None:
    receiver, sender = scene.client(V5, "device", **LASTING), scene.client()
    receiver.subscribed("topic/#", qos=qos)
    assert sender.answer("topic/a", b"x", qos, properties=PublishProperties(message_expiry_s=60)) == 0
    amqp = scene.amqp_sender("topic")
    scene.go_on()
    until = (FIRST_WALL_US + int(scene.now * 1e6)) // 1_000 + 60_000
    amqp.send(
        encode_message(b"dated", header=Header(durable=True), properties=Properties(absolute_expiry_time=until))
    )
    scene.harness.advance(2)
    first = receiver.told()
    assert [one.properties.message_expiry_s for one in first if one.properties] == [60, 60]
    scene.harness.advance(18)
    if is_crash:
        scene.restart()
    else:
        receiver.node_engine.lost()
    scene.harness.advance(20)
    again = [one for one in scene.client(V5, "device", **LASTING).told() if one.properties]
    assert [(one.packet_id, one.is_duplicate) for one in again] == [(one.packet_id, True) for one in first]
    assert [one.properties.message_expiry_s for one in again if one.properties] == [20, 20]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_session_took_from_a_queue_keeps_its_identifier_with_qos_2_alone(scene: Scene, qos: int) -> None:
    receiver, sender = scene.client(V5, "device", **LASTING), scene.client()
    receiver.subscribed("queue", qos=qos)
    sender.publish("queue", b"task", 1)
    (first,) = receiver.told()
    receiver.node_engine.lost()
    scene.go_on()
    assert len(scene.space.find("queue").in_memory()) == (0 if qos == 2 else 1)
    (again,) = scene.client(V5, "device", **LASTING).told()
    assert (again.payload, again.is_duplicate) == (b"task", qos == 2)
    assert (again.packet_id == first.packet_id) is (qos == 2)


def test_a_message_of_qos_2_is_stored_once_over_connections(scene: Scene) -> None:
    lasting = {"is_clean": False, "session_expiry_s": 60}
    client = scene.client(V5, "device", **lasting)
    client.publish("queue", b"once", 2, packet_id=5)
    assert client.one("pubrec").packet_id == 5
    client.node_engine.lost()
    back = scene.client(V5, "device", **lasting)
    back.publish("queue", b"once", 2, packet_id=5, dup=True)
    assert back.one("pubrec").reason == 0
    back.engine.put_pubrel(5)
    assert back.one("pubcomp").reason == 0
    assert scene.space.find("queue").counts()["messagesStored"] == 1


def test_another_connection_of_a_client_takes_its_session_over(scene: Scene) -> None:
    first = scene.client(V5, "device")
    second = scene.client(V5, "device")
    assert first.one("disconnect").reason == Reason.SESSION_TAKEN_OVER
    assert (second.told(), second.is_cut) == ([], False)
    old = scene.client(V3, "old")
    scene.client(V3, "old")
    assert (old.told(), old.is_cut) == ([], True)


def test_a_filter_that_stands_for_too_many_addresses_is_refused(scene: Scene) -> None:
    scene.space.limit(SpaceLimits(filter_addresses=2))
    for name in ("a", "b", "c"):
        scene.node.address(name, "topic")
    receiver = scene.client()
    assert receiver.subscribed("#") == [Reason.QUOTA_EXCEEDED]


def test_durable_messages_of_amqp_may_have_qos_2(scene: Scene) -> None:
    receiver = scene.client()
    receiver.subscribed("topic", qos=2)
    sender = scene.amqp_sender("topic")
    scene.go_on()
    sender.send(encode_message(b"a", header=Header(durable=True)))
    sender.send(encode_message(b"b"))
    assert [message.qos for message in receiver.messages()] == [2, 0]


# Retained values


@pytest.mark.parametrize("name", ["topic/a", "all"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_subscriber_gets_the_last_message_that_was_retained(scene: Scene, name: str, qos: int) -> None:
    sender, receiver = scene.client(), scene.client()
    for payload in (b"old", b"new"):
        sender.publish(name, payload, qos, retain=True)
    sender.publish(name, b"not kept")
    scene.go_on()
    receiver.subscribed(name, qos=2)
    assert [(one.topic, one.payload, one.qos, one.is_retained) for one in receiver.messages()] == [
        (name, b"new", qos, True)
    ]
    sender.publish(name, b"live", 0, retain=True)
    assert [(one.payload, one.is_retained) for one in receiver.messages()] == [(b"live", False)]
    sender.publish(name, b"", 0, retain=True)
    receiver.messages()
    other = scene.client()
    other.subscribed("#", qos=1)
    assert other.messages() == []


@clause("mqtt5:3.3.1-9", "mqtt5:3.3.1-10", "mqtt5:3.3.1-11")
@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retained_messages_are_sent_as_the_subscriber_wants(
    scene: Scene, handling: int, first: int, again: int
) -> None:
    sender, receiver = scene.client(), scene.client()
    sender.publish("topic/a", b"kept", 1, retain=True)
    scene.go_on()
    for count in (first, again):
        receiver.subscribed(Filter("topic/+", 1, retain_handling=handling))
        assert receiver.bodies() == [b"kept"] * count


def test_a_shared_subscription_gets_no_retained_messages(scene: Scene) -> None:
    sender, receiver = scene.client(), scene.client()
    sender.publish("topic/a", b"kept", 1, retain=True)
    scene.go_on()
    receiver.subscribed("$share/group/topic/#", qos=1)
    assert receiver.messages() == []
    sender.publish("topic/b", b"shared", 1)
    assert receiver.bodies() == [b"shared"]


# Statistics


def test_statistics_are_sent_at_once_and_when_they_have_changed(scene: Scene) -> None:
    watcher, sender = scene.client(), scene.client()
    assert watcher.subscribed("$SYS/broker/messages/#", identifier=3) == [0]
    told = {one.topic.rpartition("/")[2]: one for one in watcher.told()}
    assert {name: one.payload for name, one in told.items()} == {"received": b"0", "sent": b"0", "stored": b"0"}
    assert all(one.is_retained and one.properties for one in told.values())
    sender.publish("queue", b"x")
    scene.go_on()
    scene.harness.advance(11)
    assert {one.topic.rpartition("/")[2]: one.payload for one in watcher.told()} == {"received": b"1", "stored": b"1"}
    scene.harness.advance(11)
    assert watcher.told() == []
    watcher.unsubscribe("$SYS/broker/messages/#")
    assert watcher.one("unsuback").codes == [0]
    sender.publish("queue", b"x")
    scene.harness.advance(30)
    assert watcher.told() == []


@clause("mqtt5:4.7.2-1", "mqtt3:4.7.2-1")
def test_wildcards_do_not_reach_statistics_and_nobody_publishes_them(scene: Scene) -> None:
    for version in (V3, V5):
        watcher = scene.client(version)
        assert watcher.subscribed("#", "+/broker/#") == [0, 0]
        assert watcher.messages() == []
    assert watcher.answer("$SYS/broker/version") == Reason.NO_MATCHING_SUBSCRIBERS
