"""MQTT clients at addresses of every type: messages, answers, and what a client may not do."""

from __future__ import annotations

import logging

import pytest

from enmasse.message.sections import Header, Sections, encode_message
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.wire.mqtt.packets import PublishProperties, Reason, Version, Will
from tests.conformance.clause_list import clause
from tests.unit.node.mqtt_scene import KINDS, V3, V5, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("address", KINDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber_at_every_type_of_address(
    scene: Scene, address: str, qos: int, version: Version
) -> None:
    sender, receiver = scene.client(version), scene.client(version)
    assert receiver.subscribed(address, qos=qos) == [qos]
    sender.publish(address, b"one\0two", qos)
    (message,) = receiver.messages()
    assert (message.topic, message.payload, message.qos) == (address, b"one\0two", qos)
    assert (message.is_retained, message.is_duplicate) == (False, False)
    answers = [(one.kind, one.reason) for one in sender.told()]
    assert answers == ([], [("puback", 0)], [("pubrec", 0)])[qos]


@pytest.mark.parametrize("address", KINDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_go_from_mqtt_to_amqp(scene: Scene, address: str, qos: int) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver(address)
    scene.go_on()
    client.publish(address, b"from mqtt", qos, properties=PublishProperties(user_properties=[("key", "value")]))
    scene.go_on()
    (payload,) = receiver.payloads
    sections = Sections(payload)
    assert (sections.body, sections.application_properties) == (b"from mqtt", {"key": "value"})
    assert sections.header.durable is (qos > 0)
    if receiver.unsettled:
        receiver.accept()
    assert [one.reason for one in client.told()] == [0] * (qos > 0)


@pytest.mark.parametrize("address", KINDS)
@pytest.mark.parametrize("is_durable", [False, True])
def test_messages_go_from_amqp_to_mqtt(scene: Scene, address: str, is_durable: bool) -> None:
    client = scene.client()
    client.subscribed(address, qos=2)
    sender = scene.amqp_sender(address)
    scene.go_on()
    sender.send(encode_message("from amqp", header=Header(durable=is_durable), application_properties={"key": 7}))
    (message,) = client.messages()
    takes = address not in ("topic", "all")
    assert (message.payload, message.qos) == (b"from amqp", 2 if is_durable or takes else 0)
    assert message.properties is not None
    assert (message.properties.payload_format, message.properties.user_properties[0]) == (1, ("key", "7"))


@pytest.mark.parametrize("address", ["any", "all"])
def test_the_outcome_at_a_direct_address_is_the_consumer_s(scene: Scene, address: str) -> None:
    sender, receiver = scene.client(), scene.client()
    receiver.subscribed(address, qos=1)
    sender.publish(address, b"1", 1)
    (message,) = receiver.told()
    assert sender.told() == []
    receiver.acknowledge(message)
    assert sender.one("puback").reason == 0
    sender.publish(address, b"2", 2)
    (message,) = receiver.told()
    receiver.acknowledge(message, Reason.UNSPECIFIED_ERROR)
    assert sender.one("pubrec").reason == Reason.UNSPECIFIED_ERROR


def test_a_topic_without_a_subscription_to_the_name_says_so(scene: Scene) -> None:
    sender, other = scene.client(), scene.client()
    other.subscribed("topic/else", qos=1)
    assert sender.answer("topic/here") == Reason.NO_MATCHING_SUBSCRIBERS
    assert sender.answer("topic/here", qos=2) == Reason.NO_MATCHING_SUBSCRIBERS
    assert sender.answer("topic/else") == 0


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("address", ["any", "all"])
def test_a_client_of_version_5_is_told_at_once_that_there_is_no_consumer(
    scene: Scene, address: str, qos: int
) -> None:
    client = scene.client()
    assert client.answer(address, qos=qos) == Reason.IMPLEMENTATION_SPECIFIC_ERROR
    client.publish(address)
    assert client.told() == []
    assert scene.space.find(address).counts()["dropped"] == 1


def test_before_version_5_a_message_waits_for_a_consumer(scene: Scene) -> None:
    client = scene.client(V3)
    client.publish("any", b"patient", 1)
    assert client.told() == []
    receiver = scene.client()
    receiver.subscribed("any", qos=1)
    assert receiver.bodies() == [b"patient"]
    assert client.one("puback").packet_id == 1


def test_before_version_5_the_connection_ends_when_nobody_comes(scene: Scene) -> None:
    client = scene.client(V3)
    client.publish("any", b"patient", 1)
    client.told()
    scene.harness.advance(29)
    assert (client.told(), client.is_cut) == ([], False)
    scene.harness.advance(2)
    assert (client.told(), client.is_cut) == ([], True)


def test_a_consumer_without_credit_is_waited_for(scene: Scene) -> None:
    client = scene.client()
    receiver = scene.amqp_receiver("any", 1)
    scene.go_on()
    for number in range(3):
        client.publish("any", b"%d" % number, 1)
    assert client.told() == []
    receiver.accept()
    receiver.grant(1)
    assert [one.packet_id for one in client.told()] == [1]
    scene.harness.advance(31)
    receiver.accept()
    heard = {one.packet_id: one.reason for one in client.told()}
    assert heard == {2: 0, 3: Reason.QUOTA_EXCEEDED}


def test_a_client_before_version_5_with_more_messages_than_may_wait_is_not_read(scene: Scene) -> None:
    client = scene.client(V3)
    for number in range(1_500):
        client.publish("any", b"%d" % number, 1)
    scene.go_on()
    assert client.is_held()
    assert len(client.connection.publications.unanswered) == 1_000
    receiver = scene.client()
    receiver.subscribed("any", qos=1)
    assert len(receiver.bodies()) == 1_500
    assert [one.packet_id for one in client.told()] == list(range(1, 1_501))
    assert not client.is_held()


def test_a_burst_of_qos_0_waits_for_the_first_credit(scene: Scene) -> None:
    client = scene.client()
    for number in range(1500):
        client.publish("queue", b"%d" % number)
    scene.go_on()
    assert scene.space.find("queue").counts()["messagesStored"] == 1500
    assert not client.is_held()


@pytest.mark.parametrize("version", [V3, V5])
def test_what_was_published_before_a_goodbye_is_not_lost(scene: Scene, version: Version) -> None:
    client = scene.client(version)
    client.publish("queue", b"last words")
    client.engine.put(b"\xe0\x00")
    scene.go_on()
    assert client.is_cut
    assert scene.space.find("queue").counts()["messagesStored"] == 1


@clause("mqtt3:3.3.5-2")
@pytest.mark.parametrize("topic", ["nowhere", "queue/below"])
def test_a_name_that_leads_nowhere(scene: Scene, topic: str) -> None:
    client = scene.client()
    assert client.answer(topic) == Reason.TOPIC_NAME_INVALID
    assert client.answer(topic, qos=2) == Reason.TOPIC_NAME_INVALID
    client.publish(topic)
    assert (client.told(), scene.space.unroutable) == ([], 3)
    old = scene.client(V3)
    old.publish(topic)
    assert (old.told(), old.is_cut) == ([], False)
    old.publish(topic, qos=1)
    assert (old.told(), old.is_cut) == ([], True)


@clause("mqtt3:3.3.5-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_space_may_have_acknowledged_what_leads_nowhere(scene: Scene, qos: int) -> None:
    scene.space.acknowledges_undeliverable = True
    client = scene.client(V3)
    assert client.answer("nowhere", qos=qos) == 0
    assert scene.space.unroutable == 1
    assert scene.client().answer("nowhere") == Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.parametrize("has_root", [True, False])
def test_what_a_client_would_have_be_statistics_is_acknowledged_and_reaches_nobody(
    scene: Scene, version: Version, has_root: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if has_root:
        scene.node.address("#", "topic")
    caplog.set_level(logging.INFO, logger="enmasse.node")
    state = "$SYS/broker/connection/bridge.plant/state"
    watcher = scene.client()
    watcher.subscribed("$SYS/#")
    watcher.told()
    client = scene.client(version, will=Will(state, b"0", 1, True))
    client.publish(state, b"1", 1, retain=True)
    answer = client.one("puback")
    assert answer.reason == (Reason.NO_MATCHING_SUBSCRIBERS if version is V5 else 0)
    assert client.answer(state, b"1", qos=2) == answer.reason
    client.publish(state, b"1")
    assert client.told() == []
    assert scene.space.unroutable == 4
    client.node_engine.lost()
    scene.go_on()
    assert (scene.space.sessions.wills.sent, len(scene.space.retained), watcher.told()) == (0, 0, [])
    assert [record.getMessage() for record in caplog.records].count("link-refused") == 1


def test_names_with_a_dollar_sign_are_those_of_a_space_that_takes_them(scene: Scene) -> None:
    scene.node.address("#", "topic")
    sender, all_of_it, below = scene.client(), scene.client(), scene.client()
    name = "$aws/things/pump/shadow"
    assert sender.answer(name) == Reason.TOPIC_NAME_INVALID
    for text in ("$aws/#", "$share/g/$aws/#", name):
        assert below.subscribed(text) == [Reason.TOPIC_FILTER_INVALID]
    scene.node.entities.update(SPACE_TYPE, "ns/shop", {"takeDollarNames": True}, lambda *_answer: None)
    assert below.subscribed("$aws/+/pump/#", "$share/g/$aws/#") == [0, 0]
    assert all_of_it.subscribed("#", "+/things/#") == [0, 0]
    assert sender.answer(name, b"new", retain=True) == 0
    assert below.bodies() == [b"new", b"new"]
    assert sender.answer("$share/g/x") == Reason.TOPIC_NAME_INVALID
    assert below.subscribed("$share/g/$share/#", "$dynamic/#") == [Reason.TOPIC_FILTER_INVALID] * 2
    late = scene.client()
    assert late.subscribed("#", "$aws/#") == [0, 0]
    assert late.bodies() == [b"new"]
    assert all_of_it.messages() == []


def test_a_space_may_narrow_what_its_clients_send_and_are_sent(scene: Scene) -> None:
    bounds = {"mqttPacketBytes": 2_000, "mqttReceiveMaximum": 2, "mqttKeepAlive": 60, "mqttInflight": 3}
    scene.node.entities.update(SPACE_TYPE, "ns/shop", bounds, lambda *_answer: None)
    scene.harness.commit()
    client = scene.client()
    assert client.connack is not None
    told = client.connack.said.properties
    assert (told.maximum_packet_size, told.receive_maximum, told.server_keep_alive_s) == (2_000, 2, 60)
    asked = scene.client(keep_alive_s=30).connack
    assert asked is not None
    assert asked.said.properties.server_keep_alive_s is None
    receiver = scene.client()
    assert receiver.subscribed("topic", qos=1) == [1]
    for number in range(5):
        assert client.answer("topic", b"%d" % number) == 0
    waiting = receiver.told()
    assert [one.payload for one in waiting] == [b"0", b"1", b"2"]
    for one in waiting:
        receiver.acknowledge(one)
    assert receiver.bodies() == [b"3", b"4"]
    for version in (V3, V5):
        large = scene.client(version)
        large.publish("topic", b"x" * 2_000)
        large.told()
        assert large.is_cut
    held = scene.client(V3)
    for _ in range(2):
        held.publish("any", qos=1)
    held.told()
    assert held.is_held()


def test_a_name_is_resolved_again_when_addresses_come_and_go(scene: Scene) -> None:
    client = scene.client()
    assert client.answer("late") == Reason.TOPIC_NAME_INVALID
    scene.node.address("late", "queue")
    assert client.answer("late") == 0
    assert client.answer("topic/own") == Reason.NO_MATCHING_SUBSCRIBERS
    scene.node.address("topic/own", "queue")
    assert client.answer("topic/own") == 0
    scene.node.delete(ADDRESS_TYPE, "ns/topic/own")
    assert client.answer("topic/own") == Reason.NO_MATCHING_SUBSCRIBERS


def test_a_message_of_qos_2_that_comes_again_is_stored_once(scene: Scene) -> None:
    client = scene.client()
    client.publish("queue", b"once", 2, packet_id=7)
    assert client.one("pubrec").packet_id == 7
    client.publish("queue", b"once", 2, packet_id=7, dup=True)
    assert client.one("pubrec").packet_id == 7
    assert scene.space.find("queue").counts()["messagesStored"] == 1
    client.engine.put_pubrel(7)
    assert client.one("pubcomp").reason == 0
    client.engine.put_pubrel(7)
    assert client.one("pubcomp").reason == Reason.PACKET_IDENTIFIER_NOT_FOUND
    client.publish("queue", b"another", 2, packet_id=7)
    assert client.one("pubrec").packet_id == 7
    assert scene.space.find("queue").counts()["messagesStored"] == 2


def test_an_identifier_that_is_in_use_ends_the_connection(scene: Scene) -> None:
    client = scene.client()
    scene.amqp_receiver("any", 1)
    scene.go_on()
    client.publish("any", b"1", 1, packet_id=3)
    client.publish("any", b"1", 1, packet_id=3, dup=True)
    assert client.told() == []
    client.publish("any", b"2", 1, packet_id=3)
    assert client.one("disconnect").reason == Reason.PROTOCOL_ERROR


def test_a_deleted_address_answers_what_it_had(scene: Scene) -> None:
    client = scene.client()
    scene.amqp_receiver("any", 1)
    scene.go_on()
    client.publish("any", b"1", 1)
    client.publish("any", b"2", 1)
    assert client.told() == []
    scene.node.delete(ADDRESS_TYPE, "ns/any")
    heard = client.told()
    assert sorted(one.packet_id for one in heard) == [1, 2]
    assert all(one.reason >= 0x80 for one in heard)
    assert client.answer("any") == Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("name", ["/a", "a/", "a//b", "/", "a b", "a/*/b", "*", "topic//", "ünïcode/☃"])
def test_names_are_as_at_other_brokers_where_a_topic_has_all_of_them(scene: Scene, name: str) -> None:
    scene.node.address("#", "topic")
    receiver, sender = scene.client(), scene.client()
    assert receiver.subscribed(name, "#", qos=1) == [1, 1]
    assert sender.answer(name) == 0
    assert [message.topic for message in receiver.messages()] == [name]


def test_the_messages_of_a_client_stay_in_order_in_a_stream(scene: Scene) -> None:
    scene.node.address("parts", "stream", partitions=8)
    client = scene.client(V5, "device-7")
    for number in range(20):
        assert client.answer("parts", b"%d" % number) == 0
    own = PublishProperties(user_properties=[("x-opt-partition-key", "other")])
    assert client.answer("parts", b"other", properties=own) == 0
    receiver = scene.amqp_receiver("parts", filters={"enmasse:start": "first"})
    scene.go_on()
    keys = [Sections(payload).message_annotations["x-opt-partition-key"] for payload in receiver.payloads]
    assert sorted(keys) == ["device-7"] * 20 + ["other"]
    partitions = [Sections(payload).message_annotations["x-opt-partition"] for payload in receiver.payloads]
    assert len({one for one, key in zip(partitions, keys, strict=True) if key == "device-7"}) == 1


def test_how_far_a_session_has_read_a_stream_goes_with_it(scene: Scene) -> None:
    def consumers() -> list[str]:
        return [one["name"] for one in scene.space.find("stream").counts()["consumers"]]

    client = scene.client(V5, "device-7", is_clean=False, session_expiry_s=60)
    assert client.subscribed("stream", qos=1) == [1]
    assert scene.client().answer("stream", b"1") == 0
    assert client.bodies() == [b"1"]
    scene.go_on()
    assert consumers() == ["mqtt/device-7"]
    scene.space.sessions.delete(scene.space.sessions.get("device-7"))
    scene.go_on()
    assert consumers() == []


@pytest.mark.parametrize("version", [V3, V5])
@pytest.mark.limit("rate", "mqtt")
def test_a_rate_delays_the_answers(version: Version) -> None:
    scene = Scene(queue={"maxMessageRate": 10})
    client = scene.client(version)
    for _ in range(30):
        client.publish("queue", b"x", 1)
    answered = len(client.told())
    assert answered <= 11, "what a second's worth of the rate allows"
    for _ in range(30):
        scene.harness.advance(0.1)
        answered += len(client.told())
    assert answered == 30
    assert not client.is_held()


def test_a_rate_that_comes_later_holds_for_names_that_are_known(scene: Scene) -> None:
    client = scene.client()
    scene.client().subscribed("topic/#", qos=1)
    assert client.answer("topic/a") == 0
    scene.node.update("ns/topic", maxMessageRate=5)
    scene.connections.meter(scene.space)
    for _ in range(20):
        client.publish("topic/a", b"x", 1)
    assert len(client.told()) <= 6


def test_an_administrator_closes_a_connection_with_a_reason(scene: Scene) -> None:
    client, old = scene.client(), scene.client(V3)
    for one in (client, old):
        assert scene.connections.close(str(one.connection.number), "it is not wanted here")
    heard = client.one("disconnect")
    assert (heard.reason, heard.said.reason_string) == (Reason.ADMINISTRATIVE_ACTION, "it is not wanted here")
    assert (old.told(), old.is_cut) == ([], True)


def test_the_lists_of_connections_and_links_show_mqtt_s(scene: Scene) -> None:
    client = scene.client(V5, "device-1")
    client.subscribed("topic/#", qos=1)
    client.answer("queue")
    (row,) = scene.connections.connections_of(scene.space).page()
    assert (row["protocol"], row["container"], row["senders"], row["receivers"]) == ("mqtt", "device-1", 1, 1)
    assert (row["messagesIn"], row["messagesOut"]) == (1, 0)
    links = {link["role"]: (link["name"], link["address"]) for link in scene.connections.links_of(scene.space).page()}
    assert links["sender"] == ("queue", "queue")
    assert links["receiver"][0] == "topic/#"
