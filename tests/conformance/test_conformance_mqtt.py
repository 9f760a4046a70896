"""What MQTT demands of a server beyond packets: sessions, exchanges, retained messages, wills, subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.wire.mqtt.packets import PublishProperties, Reason, Version, Will
from tests.conformance.clause_list import clause
from tests.unit.node.mqtt_scene import V3, V5, Client, Filter, Heard, Scene

each_version = pytest.mark.parametrize("version", [V3, V5])

LASTING: dict[str, Any] = {"is_clean": False, "session_expiry_s": 600}
GOODBYE = b"\xe0\x00"


@pytest.fixture
def scene() -> Scene:
    return Scene()


def leave(scene: Scene, client: Client) -> None:
    client.engine.put(GOODBYE)
    scene.go_on()


def back(scene: Scene, client: Client) -> Client:
    """The same client on another connection, after its own was cut."""
    if not client.is_cut:
        client.node_engine.lost()
        scene.go_on()
    return scene.client(client.engine.version, client.connection.session.client_id, **LASTING)


def is_present(client: Client) -> bool:
    assert client.connack is not None
    return bool(client.connack.said.is_session_present)


def seen(heard: list[Heard]) -> list[tuple[str, int, bool]]:
    return [(one.kind, one.packet_id, one.is_duplicate) for one in heard]


# Sessions


@clause("mqtt5:3.1.2-4", "mqtt5:3.1.4-4", "mqtt5:3.2.2-2", "mqtt3:3.1.2-6", "mqtt3:3.1.4-3", "mqtt3:3.2.2-1")
@each_version
def test_a_clean_start_discards_what_was_there(scene: Scene, version: Version) -> None:
    device, sender = scene.client(version, "device", **LASTING), scene.client()
    device.subscribed("topic/#", qos=1)
    leave(scene, device)
    assert sender.answer("topic/a", b"old") == 0
    clean = scene.client(version, "device")
    assert (is_present(clean), clean.messages()) == (False, [])
    assert sender.answer("topic/a", b"new") == Reason.NO_MATCHING_SUBSCRIBERS
    leave(scene, clean)
    assert not is_present(scene.client(version, "device", **LASTING))


@clause(
    "mqtt5:3.1.2-5", "mqtt5:3.1.2-6", "mqtt5:3.1.2-23", "mqtt5:3.1.3-2", "mqtt5:3.2.2-3", "mqtt5:4.5.0-1",
    "mqtt3:3.1.2-4", "mqtt3:3.1.2-5", "mqtt3:3.1.3-2", "mqtt3:3.2.2-2", "mqtt3:3.2.2-3", "mqtt3:4.1.0-1",
    "mqtt3:4.5.0-1",
)  # fmt: skip
@each_version
def test_a_session_goes_on_for_its_client_identifier_and_no_other(scene: Scene, version: Version) -> None:
    device, sender = scene.client(version, "device", **LASTING), scene.client()
    assert not is_present(device)
    device.subscribed("topic/#", qos=2)
    leave(scene, device)
    for qos in (1, 2):
        assert sender.answer("topic/a", b"%d" % qos, qos) == 0
    other = scene.client(version, "device-2", **LASTING)
    assert (is_present(other), other.messages()) == (False, [])
    again = back(scene, device)
    assert (is_present(again), again.bodies()) == (True, [b"1", b"2"])


@clause("mqtt5:4.1.0-1", "mqtt5:4.1.0-2", "mqtt3:4.1.0-2")
@each_version
def test_a_session_lasts_as_long_as_its_connection_and_then_its_expiry(scene: Scene, version: Version) -> None:
    brief, sender = scene.client(version, "brief"), scene.client()
    brief.subscribed("topic/#", qos=1)
    scene.harness.advance(100_000)
    assert sender.answer("topic/a", b"here") == 0
    assert brief.bodies() == [b"here"]
    leave(scene, brief)
    assert not is_present(back(scene, brief))
    device = scene.client(V5, "device", **LASTING)
    device.subscribed("topic/#", qos=1)
    leave(scene, device)
    scene.harness.advance(601)
    assert not is_present(back(scene, device))


@clause("mqtt5:3.1.3-6", "mqtt5:3.1.3-7", "mqtt5:3.2.2-16", "mqtt3:3.1.3-6")
@each_version
def test_clients_without_an_identifier_are_given_one_each(scene: Scene, version: Version) -> None:
    nameless = [scene.client(version, "") for _ in range(2)]
    names = [client.connection.session.client_id for client in nameless]
    assert len({*names, ""}) == 3
    if version is V5:
        told = [client.connack.said.properties.assigned_client_id for client in nameless if client.connack]
        assert told == names
    assert not any(client.is_cut for client in nameless)


@clause("mqtt5:3.1.4-3", "mqtt3:3.1.4-2")
@each_version
def test_a_client_that_connects_anew_ends_its_older_connection(scene: Scene, version: Version) -> None:
    first, second = scene.client(version, "device"), scene.client(version, "device")
    heard = [one.reason for one in first.told()]
    assert heard == ([Reason.SESSION_TAKEN_OVER] if version is V5 else [])
    assert (first.is_cut, second.is_cut) == (True, False)


# Exchanges towards a client


@clause(
    "mqtt5:2.2.1-4", "mqtt5:3.3.1-1", "mqtt5:4.3.2-1", "mqtt5:4.3.2-2", "mqtt5:4.3.2-3", "mqtt5:4.4.0-1",
    "mqtt3:2.3.1-3", "mqtt3:2.3.1-4", "mqtt3:3.3.1-1", "mqtt3:4.3.2-1", "mqtt3:4.4.0-1",
)  # fmt: skip
@each_version
def test_a_message_of_qos_1_is_unacknowledged_until_its_puback(scene: Scene, version: Version) -> None:
    device, sender = scene.client(version, "device", **LASTING), scene.client()
    device.subscribed("topic/#", qos=1)
    for _ in range(2):
        sender.answer("topic/a")
    first, second = device.told()
    assert (first.qos, first.is_duplicate, second.is_duplicate) == (1, False, False)
    assert len({first.packet_id, second.packet_id, 0}) == 3
    scene.harness.advance(300)
    assert device.told() == [], "it is sent again on another connection, and at no other time"
    device = back(scene, device)
    assert seen(device.told()) == [("publish", first.packet_id, True), ("publish", second.packet_id, True)]
    device.acknowledge(first)
    scene.go_on()
    device = back(scene, device)
    sender.answer("topic/a")
    again, third = device.told()
    assert seen([again]) == [("publish", second.packet_id, True)]
    assert third.packet_id not in (0, second.packet_id)
    assert not third.is_duplicate


@clause(
    "mqtt5:4.3.3-1", "mqtt5:4.3.3-2", "mqtt5:4.3.3-3", "mqtt5:4.3.3-4", "mqtt5:4.3.3-5", "mqtt5:4.3.3-6",
    "mqtt3:4.3.3-1",
)  # fmt: skip
@each_version
def test_a_message_of_qos_2_is_unacknowledged_until_pubrec_and_its_pubrel_until_pubcomp(
    scene: Scene, version: Version
) -> None:
    device, sender = scene.client(version, "device", **LASTING), scene.client()
    device.subscribed("topic/#", qos=2)
    for _ in range(2):
        sender.answer("topic/a", qos=2)
    first, second = device.told()
    assert (first.qos, first.is_duplicate) == (2, False)
    assert len({first.packet_id, second.packet_id, 0}) == 3
    device = back(scene, device)
    assert seen(device.told()) == [("publish", first.packet_id, True), ("publish", second.packet_id, True)]
    device.acknowledge(second)
    assert seen(device.told()) == [("pubrel", second.packet_id, False)]
    device = back(scene, device)
    heard = sorted(device.told(), key=lambda one: one.kind)
    assert seen(heard) == [("publish", first.packet_id, True), ("pubrel", second.packet_id, False)]
    device.acknowledge(first)
    assert seen(device.told()) == [("pubrel", first.packet_id, False)]
    for one in (first, second):
        device.engine.put_pubcomp(one.packet_id)
    scene.go_on()
    assert back(scene, device).told() == []


@clause("mqtt5:4.3.3-7", "mqtt5:4.3.3-13")
def test_a_message_that_was_sent_does_not_expire_any_more(scene: Scene) -> None:
    device, sender = scene.client(V5, "device", **LASTING), scene.client()
    device.subscribed("topic/#", qos=2)
    for _ in range(2):
        assert sender.answer("topic/a", qos=2, properties=PublishProperties(message_expiry_s=5)) == 0
    first, second = device.told()
    device.acknowledge(first)
    assert seen(device.told()) == [("pubrel", first.packet_id, False)]
    scene.harness.advance(60)
    device = back(scene, device)
    heard = sorted(device.told(), key=lambda one: one.kind)
    assert seen(heard) == [("publish", second.packet_id, True), ("pubrel", first.packet_id, False)]
    device.acknowledge(second)
    assert seen(device.told()) == [("pubrel", second.packet_id, False)]


@clause("mqtt5:4.4.0-2")
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_the_client_refuses_is_not_sent_again(scene: Scene, qos: int) -> None:
    device, sender = scene.client(V5, "device", **LASTING), scene.client()
    device.subscribed("topic/#", qos=qos)
    sender.answer("topic/a", qos=qos)
    (message,) = device.told()
    device.acknowledge(message, Reason.UNSPECIFIED_ERROR)
    assert device.told() == []
    assert back(scene, device).told() == []


@clause("mqtt5:3.3.1-3", "mqtt3:3.3.1-3", "mqtt5:4.3.1-1", "mqtt3:4.3.1-1")
@each_version
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_dup_is_not_passed_on(scene: Scene, version: Version, qos: int) -> None:
    device, sender = scene.client(version), scene.client(version)
    device.subscribed("topic/#", qos=qos)
    sender.publish("topic/a", b"x", qos, dup=qos > 0)
    (message,) = device.messages()
    assert (message.qos, message.is_duplicate) == (qos, False)


@clause("mqtt5:3.3.4-10", "mqtt5:4.9.0-2")
def test_other_packets_do_not_wait_for_acknowledgements(scene: Scene) -> None:
    device, sender = scene.client(receive_maximum=1), scene.client()
    device.subscribed("topic/#", qos=1)
    for number in range(3):
        sender.publish("topic/a", b"%d" % number, 1)
    assert [one.payload for one in device.told()] == [b"0"]
    assert device.subscribed("queue", qos=1) == [1]
    assert device.answer("topic/c") == 0
    device.unsubscribe("queue")
    assert device.one("unsuback").codes == [0]


@clause("mqtt5:4.6.0-5", "mqtt5:4.6.0-6", "mqtt3:4.6.0-5", "mqtt3:4.6.0-6")
@each_version
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_messages_of_a_client_reach_others_in_their_order(scene: Scene, version: Version, qos: int) -> None:
    device, sender = scene.client(version), scene.client(version)
    device.subscribed("topic/#", qos=qos)
    for number in range(30):
        sender.publish("topic/a", b"%d" % number, qos)
    assert device.bodies() == [b"%d" % number for number in range(30)]


# Exchanges from a client


@clause("mqtt5:3.3.4-1", "mqtt3:3.3.4-1", "mqtt5:4.3.2-4", "mqtt5:4.3.2-5", "mqtt3:4.3.2-2")
@each_version
def test_after_puback_the_identifier_means_another_message(scene: Scene, version: Version) -> None:
    client = scene.client(version)
    client.publish("queue", b"none")
    assert client.told() == []
    for count, is_again in ((2, False), (3, True)):
        client.publish("queue", b"x", 1, packet_id=9, dup=is_again)
        assert client.one("puback").packet_id == 9
        assert scene.space.find("queue").counts()["messagesStored"] == count


@clause("mqtt5:4.3.3-8", "mqtt5:4.3.3-10", "mqtt5:4.3.3-11", "mqtt5:4.3.3-12", "mqtt3:4.3.3-2")
@each_version
def test_until_pubrel_the_identifier_means_the_same_message(scene: Scene, version: Version) -> None:
    client = scene.client(version, "device", **LASTING)
    for _ in range(2):
        client.publish("queue", b"once", 2, packet_id=7)
        assert client.one("pubrec").packet_id == 7
    client = back(scene, client)
    client.publish("queue", b"once", 2, packet_id=7, dup=True)
    assert client.one("pubrec").packet_id == 7
    assert scene.space.find("queue").counts()["messagesStored"] == 1
    client.engine.put_pubrel(7)
    assert client.one("pubcomp").packet_id == 7
    client.publish("queue", b"another", 2, packet_id=7)
    assert client.one("pubrec").packet_id == 7
    assert scene.space.find("queue").counts()["messagesStored"] == 2


@clause("mqtt5:4.3.3-9")
def test_after_a_pubrec_with_an_error_the_identifier_means_another_message(scene: Scene) -> None:
    client = scene.client()
    client.publish("nowhere", b"x", 2, packet_id=7)
    assert client.one("pubrec").reason == Reason.TOPIC_NAME_INVALID
    client.publish("queue", b"x", 2, packet_id=7)
    assert client.one("pubrec").reason == 0
    assert scene.space.find("queue").counts()["messagesStored"] == 1


# Retained messages


@clause(
    "mqtt5:3.3.1-5", "mqtt5:3.3.1-6", "mqtt5:3.3.1-7", "mqtt5:3.3.1-8",
    "mqtt3:3.1.2-7", "mqtt3:3.3.1-5", "mqtt3:3.3.1-6", "mqtt3:3.3.1-7", "mqtt3:3.3.1-8", "mqtt3:3.3.1-9",
    "mqtt3:3.3.1-10", "mqtt3:3.3.1-11", "mqtt3:3.3.1-12",
)  # fmt: skip
@each_version
def test_each_topic_has_the_last_message_that_was_retained(scene: Scene, version: Version) -> None:
    def retained() -> list[tuple[str, bytes, int, bool]]:
        device = scene.client(version)
        device.subscribed("topic/+", qos=2)
        return sorted((one.topic, one.payload, one.qos, one.is_retained) for one in device.messages())

    sender, watcher = scene.client(version), scene.client(version)
    watcher.subscribed("topic/#", qos=2)
    sender.publish("topic/a", b"a", 2, retain=True)
    sender.publish("topic/b", b"b", 1, retain=True)
    sender.publish("topic/empty", b"", 1, retain=True)
    assert [(one.qos, one.is_retained) for one in watcher.messages()] == [(2, False), (1, False), (1, False)]
    leave(scene, sender)
    assert retained() == [("topic/a", b"a", 2, True), ("topic/b", b"b", 1, True)]
    sender = scene.client(version)
    sender.publish("topic/a", b"not retained", 1)
    sender.publish("topic/b", b"new", 0, retain=True)
    scene.go_on()
    assert retained() == [("topic/a", b"a", 2, True), ("topic/b", b"new", 0, True)]
    sender.publish("topic/a", b"", 0, retain=True)
    scene.go_on()
    assert retained() == [("topic/b", b"new", 0, True)]


# Wills


@clause(
    "mqtt5:3.1.2-7", "mqtt5:3.1.2-8", "mqtt5:3.1.2-10", "mqtt5:3.1.2-14", "mqtt5:3.1.2-15",
    "mqtt3:3.1.2-8", "mqtt3:3.1.2-10", "mqtt3:3.1.2-12", "mqtt3:3.1.2-16", "mqtt3:3.1.2-17",
)  # fmt: skip
@each_version
@pytest.mark.parametrize("is_retained", [False, True])
def test_a_will_is_sent_once_at_the_end_of_its_connection(scene: Scene, version: Version, is_retained: bool) -> None:
    watcher = scene.client()
    watcher.subscribed(Filter("topic/gone", 1, retain_as_published=True))
    client = scene.client(version, "device", will=Will("topic/gone", b"gone", 1, is_retained))
    assert watcher.messages() == []
    client.node_engine.lost()
    (will,) = watcher.messages()
    assert (will.payload, will.is_retained) == (b"gone", is_retained)
    later = scene.client()
    later.subscribed("topic/gone", qos=1)
    assert later.bodies() == [b"gone"] * is_retained
    # There is no will without the flag; the former one is forgotten.
    scene.client(version, "device").node_engine.lost()
    assert watcher.messages() == []


@clause("mqtt5:3.1.2-8", "mqtt5:3.1.2-10", "mqtt5:3.14.4-3", "mqtt3:3.1.2-10", "mqtt3:3.14.4-3")
@each_version
def test_a_goodbye_discards_the_will(scene: Scene, version: Version) -> None:
    watcher = scene.client()
    watcher.subscribed("topic/#", qos=1)
    client = scene.client(version, "device", will=Will("topic/gone", b"gone", 1))
    leave(scene, client)
    assert client.is_cut
    scene.harness.advance(1_000)
    assert watcher.messages() == []


@clause("mqtt5:3.1.2-8", "mqtt5:3.1.3-9")
def test_a_will_waits_for_its_delay_and_goes_if_the_client_comes_back(scene: Scene) -> None:
    watcher = scene.client()
    watcher.subscribed("topic/#", qos=1)
    options = {**LASTING, "will": Will("topic/gone", b"gone", 1, delay_s=60)}
    for is_back in (True, False):
        scene.client(V5, "device", **options).node_engine.lost()
        scene.go_on()
        scene.harness.advance(59)
        assert watcher.messages() == []
        if is_back:
            leave(scene, scene.client(V5, "device", **LASTING))
        scene.harness.advance(2)
        assert watcher.bodies() == [b"gone"] * (not is_back)


# Subscriptions


@clause(
    "mqtt5:3.8.4-1", "mqtt5:3.8.4-5", "mqtt5:3.8.4-7", "mqtt5:3.8.4-8", "mqtt3:3.8.4-1", "mqtt3:3.8.4-4",
    "mqtt3:3.8.4-6",
)  # fmt: skip
@each_version
@pytest.mark.parametrize("at_once", [False, True])
def test_filters_mean_the_same_together_and_one_by_one(scene: Scene, version: Version, at_once: bool) -> None:
    device, sender = scene.client(version), scene.client(version)
    filters = [Filter("topic/zero", 0), Filter("nowhere", 1), Filter("topic/one", 1), Filter("topic/two", 2)]
    codes = [device.subscribed(*group) for group in ([filters] if at_once else [[one] for one in filters])]
    error = Reason.TOPIC_FILTER_INVALID if version is V5 else 0x80
    assert [code for found in codes for code in found] == [0, error, 1, 2]
    for name in ("zero", "one", "two"):
        for qos in (0, 1, 2):
            sender.publish(f"topic/{name}", b"x", qos)
    assert [(one.topic, one.qos) for one in device.messages()] == [
        ("topic/zero", 0), ("topic/zero", 0), ("topic/zero", 0),
        ("topic/one", 0), ("topic/one", 1), ("topic/one", 1),
        ("topic/two", 0), ("topic/two", 1), ("topic/two", 2),
    ]  # fmt: skip


@clause("mqtt5:3.8.4-3", "mqtt5:3.8.4-4", "mqtt3:3.8.4-3")
@each_version
def test_a_filter_that_comes_again_replaces_the_subscription_and_loses_nothing(
    scene: Scene, version: Version
) -> None:
    device, sender = scene.client(version), scene.client()
    sender.publish("topic/a", b"retained", 1, retain=True)
    scene.go_on()
    device.subscribed("topic/+", qos=2)
    assert device.bodies() == [b"retained"]
    sender.publish("topic/b", b"before", 2)
    device.subscribe("topic/+", qos=1)
    sender.publish("topic/b", b"after", 2)
    scene.go_on()
    (suback,) = [one for one in device.heard if one.kind == "suback"]
    device.heard.remove(suback)
    assert suback.codes == [1]
    assert sorted(device.bodies()) == [b"after", b"before", b"retained"]
    sender.publish("topic/b", b"once", 2)
    assert [(one.payload, one.qos) for one in device.messages()] == [(b"once", 1)]


@each_version
@pytest.mark.parametrize(("before", "after"), [(0, 1), (1, 2), (2, 0)])
@pytest.mark.parametrize("options", [{}, LASTING], ids=["clean", "lasting"])
def test_a_filter_with_another_qos_keeps_to_what_the_client_takes(
    scene: Scene, version: Version, before: int, after: int, options: dict[str, Any]
) -> None:
    most = {"receive_maximum": 3} if version is V5 else {}
    device, sender = scene.client(version, "device", **options, **most), scene.client()
    assert device.subscribed("topic/+", qos=before) == [before]
    assert device.subscribed(Filter("topic/+", after, retain_as_published=version is V5)) == [after]
    for number in range(100):
        sender.publish("topic/a", b"%d" % number, 2, retain=True)
        if number % 25 == 0:
            scene.go_on()
    first = device.told()
    assert {one.qos for one in first} == {after}
    assert {one.is_retained for one in first} == {version is V5}
    if version is V5 and after:
        assert len(first) == 3
    for one in first:
        if one.qos:
            device.acknowledge(one)
    found = [one.payload for one in (*first, *device.messages())]
    assert found == [b"%d" % number for number in range(100)]


@clause(
    "mqtt5:3.10.4-1", "mqtt5:3.10.4-2", "mqtt5:3.10.4-4", "mqtt5:3.10.4-5", "mqtt5:3.10.4-6",
    "mqtt3:3.10.4-1", "mqtt3:3.10.4-2", "mqtt3:3.10.4-4", "mqtt3:3.10.4-5", "mqtt3:3.10.4-6",
)  # fmt: skip
@each_version
@pytest.mark.parametrize("at_once", [False, True])
def test_the_same_filters_end_and_no_others(scene: Scene, version: Version, at_once: bool) -> None:
    device, sender = scene.client(version), scene.client()
    device.subscribed("topic/a", "topic/+", "topic/b", qos=1)
    gone = ("topic/a", "topic/#", "topic/+")
    codes: list[int] = []
    for group in [gone] if at_once else [(one,) for one in gone]:
        device.unsubscribe(*group)
        answer = device.one("unsuback")
        assert answer.packet_id == device._packet_id
        codes += answer.codes
    assert codes == ([0, Reason.NO_SUBSCRIPTION_EXISTED, 0] if version is V5 else [])
    for name in ("a", "b", "c"):
        sender.publish(f"topic/{name}", name.encode(), 1)
    assert device.bodies() == [b"b"]


@clause("mqtt5:3.10.4-3", "mqtt3:3.10.4-3")
@each_version
def test_what_was_begun_is_brought_to_its_end_after_the_end_of_a_subscription(scene: Scene, version: Version) -> None:
    device, sender = scene.client(version, "device", **LASTING), scene.client()
    device.subscribed("topic/#", qos=2)
    for qos in (1, 2, 2):
        assert sender.answer("topic/a", b"%d" % qos, qos) == 0
    first, second, third = device.told()
    device.unsubscribe("topic/#")
    device.one("unsuback")
    for message in (first, second):
        device.acknowledge(message)
    assert seen(device.told()) == [("pubrel", second.packet_id, False)]
    device.acknowledge(third)
    assert seen(device.told()) == [("pubrel", third.packet_id, False)]
    device.engine.put_pubcomp(second.packet_id)
    scene.go_on()
    assert not device.is_cut
    assert seen(back(scene, device).told()) == [("pubrel", third.packet_id, False)]


@clause("mqtt5:3.3.4-2", "mqtt5:3.3.4-3", "mqtt5:3.3.4-4", "mqtt3:3.3.5-1")
@each_version
def test_what_several_subscriptions_match_comes_once_with_the_highest_qos_and_all_identifiers(
    scene: Scene, version: Version
) -> None:
    device, sender = scene.client(version), scene.client()
    for qos, text in enumerate(("topic/#", "topic/a", "topic/+")):
        device.subscribed(text, qos=qos, identifier=qos + 1 if version is V5 else 0)
    sender.publish("topic/a", b"x", 2)
    (message,) = device.messages()
    assert message.qos == 2
    if version is V5:
        assert message.properties is not None
        assert sorted(message.properties.subscription_identifiers) == [1, 2, 3]


@clause("mqtt5:3.3.4-5", "mqtt3:3.3.5-1")
@each_version
def test_of_several_copies_each_has_the_qos_and_the_identifier_of_its_own(scene: Scene, version: Version) -> None:
    scene.space.copies_overlapping = True
    device, sender = scene.client(version), scene.client()
    for qos, text in enumerate(("topic/#", "topic/a", "topic/+")):
        device.subscribed(text, qos=qos, identifier=qos + 1 if version is V5 else 0)
    sender.publish("topic/a", b"x", 2)
    copies = device.messages()
    assert sorted(one.qos for one in copies) == [0, 1, 2]
    if version is V5:
        told = sorted((one.qos, one.properties.subscription_identifiers) for one in copies if one.properties)
        assert told == [(0, [1]), (1, [2]), (2, [3])]


@clause("mqtt5:4.8.2-3")
def test_a_member_of_a_group_is_sent_the_qos_that_it_was_granted(scene: Scene) -> None:
    members = [scene.client(), scene.client()]
    for qos, member in enumerate(members):
        assert member.subscribed("$share/group/topic/#", qos=qos) == [qos]
    sender = scene.client()
    for _ in range(10):
        sender.publish("topic/a", b"x", 2)
    scene.go_on()
    for qos, member in enumerate(members):
        assert {one.qos for one in member.messages()} == {qos}


@clause("mqtt5:4.8.2-4", "mqtt5:4.8.2-5", "mqtt5:4.8.2-6")
@pytest.mark.parametrize("end", ["returns", "ends", "refuses"])
def test_a_message_of_qos_2_stays_with_the_member_that_it_was_sent_to(scene: Scene, end: str) -> None:
    device, other, sender = scene.client(V5, "device", **LASTING), scene.client(), scene.client()
    device.subscribed("$share/group/topic/#", qos=2)
    assert sender.answer("topic/a", b"first", 2) == 0
    (message,) = device.told()
    other.subscribed("$share/group/topic/#", qos=2)
    if end == "refuses":
        device.acknowledge(message, Reason.UNSPECIFIED_ERROR)
        assert device.told() == []
        assert back(scene, device).told() == []
    elif end == "returns":
        device.node_engine.lost()
        assert other.told() == []
        device = back(scene, device)
        assert seen(device.told()) == [("publish", message.packet_id, True)]
        device.acknowledge(message)
        assert seen(device.told()) == [("pubrel", message.packet_id, False)]
    else:
        device.node_engine.lost()
        scene.go_on()
        scene.harness.advance(601)
        assert not is_present(back(scene, device))
    assert other.told() == []
