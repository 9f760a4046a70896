"""What several filters of one client match comes once for all of them, or a copy for each where the space says so."""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import pytest

from enmasse.messaging.sessions import session
from enmasse.messaging.sessions.crowd import MAX_MATCHES
from enmasse.messaging.sessions.session import NEVER
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.mqtt import subscriptions
from enmasse.wire.mqtt.packets import Reason, Version, Will
from tests.unit.node.mqtt_scene import V3, V5, Client, Filter, Heard, Scene

FILTERS = ("topic/#", "topic/+", "+/a", "#", "topic/a")
"""All of them match ``topic/a``; the last one does not match ``topic/b``."""

LASTING = {"is_clean": False, "session_expiry_s": NEVER}

each_version = pytest.mark.parametrize("version", [V3, V5])


@pytest.fixture
def scene() -> Scene:
    return Scene()


class Wish(NamedTuple):
    """The options of a filter."""

    qos: int
    no_local: bool = False
    as_published: bool = False


def ask(client: Client, wishes: dict[str, Wish]) -> None:
    """Subscribe, each filter with an identifier of its own: its place among all."""
    for text, wish in wishes.items():
        options = (wish.no_local, wish.as_published, 2) if client.is_v5 else ()
        wanted = Filter(text, wish.qos, *options)
        identifier = FILTERS.index(text) + 1 if client.is_v5 else 0
        assert client.subscribed(wanted, identifier=identifier) == [wish.qos]


def told(messages: list[Heard]) -> list[tuple[bytes, int, bool, list[int]]]:
    """Payload, QoS, RETAIN flag and identifiers."""
    return [(one.payload, one.qos, one.is_retained, identifiers_of(one)) for one in messages]


def identifiers_of(message: Heard) -> list[int]:
    return sorted(message.properties.subscription_identifiers if message.properties else ())


QOS = [(0, 1), (1, 0), (0, 2, 1), (2, 2), (0, 0), (1, 2, 0, 1)]


@each_version
@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("levels", QOS, ids=str)
def test_it_comes_once_with_the_highest_qos_and_every_identifier(
    scene: Scene, version: Version, is_lasting: bool, levels: tuple[int, ...]
) -> None:
    device = scene.client(version, "device", **(LASTING if is_lasting else {}))
    pairs = zip(FILTERS, levels, strict=False)
    ask(device, {text: Wish(qos, as_published=at == 1) for at, (text, qos) in enumerate(pairs)})
    sender = scene.client()
    is_v5 = version is V5
    for qos, is_retained in itertools.product((0, 1, 2), (False, True)):
        body = b"%d %d" % (qos, is_retained)
        sender.publish("topic/a", body, qos, retain=is_retained)
        identifiers = list(range(1, len(levels) + 1)) if is_v5 else []
        expected = [(body, min(qos, max(levels)), is_retained and is_v5, identifiers)]
        assert told(device.messages()) == expected
    # Another name has those that match it alone.
    sender.publish("topic/b", b"b", 2)
    few = [(at, qos) for at, qos in enumerate(levels, 1) if FILTERS[at - 1] != "+/a"]
    assert told(device.messages()) == [
        (b"b", max(qos for _, qos in few), False, [at for at, _ in few] if is_v5 else [])
    ]


@pytest.mark.parametrize("is_lasting", [False, True])
@pytest.mark.parametrize("no_local", list(itertools.product((False, True), repeat=3)), ids=str)
def test_its_own_messages_a_client_has_unless_no_filter_wants_them(
    scene: Scene, is_lasting: bool, no_local: tuple[bool, ...]
) -> None:
    device = scene.client(V5, "device", **(LASTING if is_lasting else {}))
    ask(device, {text: Wish(at % 2, one) for at, (text, one) in enumerate(zip(FILTERS, no_local, strict=False))})
    other = scene.client()
    for sender, is_own in ((device, True), (other, False)):
        sender.publish("topic/a", b"x")
        assert len(device.messages()) == (0 if is_own and all(no_local) else 1)


def test_what_is_subscribed_to_anew_has_its_new_options(scene: Scene) -> None:
    device, sender = scene.client(V5, "device", **LASTING), scene.client()
    ask(device, {"topic/#": Wish(0), "topic/+": Wish(1)})
    for wish, qos in ((Wish(2), 2), (Wish(0), 1), (Wish(1), 1), (Wish(1, no_local=True), 1)):
        ask(device, {"topic/#": wish})
        sender.publish("topic/a", b"x", 2)
        assert told(device.messages()) == [(b"x", qos, False, [1, 2])]
    device.subscribed("topic/#", qos=1, identifier=9)
    sender.publish("topic/a", b"x", 2)
    assert told(device.messages()) == [(b"x", 1, False, [2, 9])]
    for text, left in (("topic/+", [9]), ("topic/#", None)):
        device.unsubscribe(text)
        device.one("unsuback")
        sender.publish("topic/a", b"x", 2)
        assert told(device.messages()) == ([] if left is None else [(b"x", 1, False, left)])


@pytest.mark.parametrize("is_lasting", [False, True])
def test_the_end_of_a_filter_takes_along_what_no_other_wants(scene: Scene, is_lasting: bool) -> None:
    device = scene.client(V5, "device", receive_maximum=1, **(LASTING if is_lasting else {}))
    sender = scene.client()
    ask(device, {"topic/#": Wish(2), "+/a": Wish(1)})
    for name in ("a", "b", "a", "b"):
        sender.publish(f"topic/{name}", name.encode(), 1)
    (first,) = device.told()
    device.unsubscribe("topic/#")
    device.one("unsuback")
    device.acknowledge(first)
    # The second one is for nobody; the third is, by what is left.
    assert told([first, *device.messages()]) == [(b"a", 1, False, [1, 3]), (b"a", 1, False, [3])]
    assert sum(one.depth for one in scene.space.find("topic").subscriptions) == 0


def test_while_its_client_is_away_one_copy_waits_over_a_restart_too(scene: Scene) -> None:
    device = scene.client(V5, "device", **LASTING)
    ask(device, {"topic/#": Wish(1), "topic/+": Wish(2), "#": Wish(0), "topic/a": Wish(1)})
    device.node_engine.lost()
    sender = scene.client()
    for number in range(5):
        sender.publish("topic/a", b"%d" % number, 2)
    sender.publish("topic/a", b"nothing", 0)
    scene.go_on()
    assert scene.space.sessions.get("device").depth == 5
    for _ in range(2):
        scene.restart()
        assert scene.space.sessions.get("device").depth == 5
    # Another connection comes, sees what is in flight, and is taken over by the next one.
    device = scene.client(V5, "device", receive_maximum=2, **LASTING)
    begun = [one for one in device.told() if one.kind == "publish"]
    assert len(begun) == 2
    again = scene.client(V5, "device", **LASTING)
    found = again.messages()
    assert [(one.payload, one.is_duplicate) for one in found] == [(b"%d" % n, n < 2) for n in range(5)]
    assert [one.packet_id for one in found[:2]] == [one.packet_id for one in begun]
    # QoS 0 is told of as well, as it matches.
    assert {tuple(identifiers) for _, _, _, identifiers in told(found)} == {(1, 2, 4, 5)}
    assert scene.space.sessions.get("device").depth == 0


@each_version
def test_retained_values_and_shared_filters_stand_apart(scene: Scene, version: Version) -> None:
    sender = scene.client()
    for name in "ab":
        sender.answer(f"topic/{name}", name.encode(), 1, retain=True)
    device = scene.client(version, "device", **LASTING)
    identifiers = {text: at if version is V5 else 0 for at, text in enumerate(FILTERS, 1)}
    for text, qos, names in (("topic/#", 0, "ab"), ("topic/+", 2, "ab"), ("+/a", 1, "a"), ("topic/#", 1, "ab")):
        identifier = identifiers[text]
        device.subscribed(text, qos=qos, identifier=identifier)
        expected = [(n.encode(), min(qos, 1), True, [identifier] if identifier else []) for n in names]
        assert sorted(told(device.messages())) == expected
    # Two at a time, and both are served.
    device.unsubscribe("topic/#", "topic/+")
    device.one("unsuback")
    device.subscribed("topic/#", "topic/+", qos=1)
    assert sorted(device.bodies()) == [b"a", b"a", b"b", b"b"]
    for group in ("one", "two"):
        device.subscribed(f"$share/{group}/topic/#", qos=1)
    sender.publish("topic/a", b"x", 1)
    assert device.bodies() == [b"x"] * 3


@each_version
def test_of_a_multicast_address_it_comes_once_too(scene: Scene, version: Version) -> None:
    scene.node.address("calls", "multicast")
    device, sender = scene.client(version), scene.client()
    assert sender.answer("calls", b"old", 1, retain=True) == 0
    texts = ("+", "calls", "calls/#")
    for at, (text, qos) in enumerate(zip(texts, (0, 1, 0), strict=True), 1):
        device.subscribed(text, qos=qos, identifier=at if version is V5 else 0)
        ((body, got, is_retained, identifiers),) = told(device.messages())
        assert (body, got, is_retained, identifiers) == (b"old", qos, True, [at] if version is V5 else [])
    sender.publish("calls", b"x", 2)
    assert told(device.messages()) == [(b"x", 1, False, [1, 2, 3] if version is V5 else [])]
    device.unsubscribe("calls")
    device.one("unsuback")
    sender.publish("calls", b"y", 2)
    assert told(device.messages()) == [(b"y", 0, False, [1, 3] if version is V5 else [])]


def test_what_is_sent_with_a_delay_and_a_will_come_once(scene: Scene) -> None:
    device = scene.client(V5, "device", **LASTING)
    ask(device, {"topic/#": Wish(1), "topic/+": Wish(0)})
    leaving = scene.client(V5, will=Will("topic/a", b"gone", 1))
    leaving.node_engine.lost()
    scene.go_on()
    assert told(device.messages()) == [(b"gone", 1, False, [1, 2])]


@each_version
@pytest.mark.parametrize("order", ["narrow first", "wide first", "by chance", "of any length", "shared"])
def test_more_filters_than_may_match_one_name_are_refused(scene: Scene, version: Version, order: str) -> None:
    device, sender = scene.client(version), scene.client()
    texts = ["topic/" + "/".join(words) for words in itertools.product("a+", repeat=7)]
    if order == "wide first":
        texts.reverse()
    elif order == "by chance":
        random.Random(7).shuffle(texts)
    elif order == "of any length":
        texts = ["/".join(("topic", *words, "#")) for n in range(1, 7) for words in itertools.product("a+", repeat=n)]
        random.Random(7).shuffle(texts)
    elif order == "shared":
        texts = [f"$share/g{number}/topic/a" for number in range(100)]
    codes = device.subscribed(*texts, qos=1)
    refusal = Reason.QUOTA_EXCEEDED if version is V5 else 0x80
    assert set(codes) == {1, refusal}
    granted = [text for text, code in zip(texts, codes, strict=True) if code == 1]
    # All of them match one name.
    assert codes == [1] * MAX_MATCHES + [refusal] * (len(texts) - MAX_MATCHES)
    sender.publish("topic/a" if order == "shared" else "topic/" + "/".join("a" * 7), b"x", 1)
    assert len(device.bodies()) == (MAX_MATCHES if order == "shared" else 1)
    # What is there can be had anew, another once there is room, and what overlaps with none at any time.
    assert device.subscribed(granted[0], "topic/other/b", qos=1) == [1, 1]
    device.unsubscribe(*granted[:8])
    device.one("unsuback")
    assert device.subscribed(granted[1], qos=1) == [1]


def test_a_session_has_a_bounded_number_of_filters(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MAX_LINKS", 3)
    for options in ({}, LASTING):
        device = scene.client(V5, "device", **options)
        texts = [f"topic/{number}" for number in range(4)]
        assert device.subscribed(*texts) == [0, 0, 0, Reason.QUOTA_EXCEEDED]
        assert device.subscribed(texts[0], qos=1) == [1]
        device.unsubscribe(texts[0])
        device.one("unsuback")
        assert device.subscribed(texts[3]) == [0]


@pytest.mark.parametrize("is_lasting", [False, True])
def test_packets_of_many_filters_are_dealt_with_in_turns_and_in_order(scene: Scene, is_lasting: bool) -> None:
    device = scene.client(V5, "device", **(LASTING if is_lasting else {}))
    texts = [f"topic/{number}" for number in range(200)]
    device.subscribe(*texts, qos=1)
    device.unsubscribe("topic/0", "topic/199", "topic/none")
    device.exchange()
    filters = scene.space.sessions.get("device").filters
    counts = [len(filters)]
    while scene.harness.step():
        counts.append(len(filters))
    steps = [after - before for before, after in itertools.pairwise([0, *counts])]
    assert max(steps) <= 4 * subscriptions.FILTERS_AT_ONCE
    suback, unsuback = device.told()
    assert (suback.kind, suback.codes) == ("suback", [1] * 200)
    assert (unsuback.kind, unsuback.codes) == ("unsuback", [0, 0, Reason.NO_SUBSCRIPTION_EXISTED])
    assert set(filters) == {*texts} - {"topic/0", "topic/199"}
    # A connection that is gone meanwhile asks for no more.
    device.subscribe(*(f"topic/more/{number}" for number in range(200)))
    device.exchange()
    scene.harness.step()
    device.node_engine.lost()
    device = scene.client(V5, "device", **(LASTING if is_lasting else {}))
    assert (198 if is_lasting else 0) <= len(scene.space.sessions.get("device").filters) < 398
    assert device.subscribed(*texts) == [0] * 200


def test_thousands_of_filters_that_cannot_be_told_to_match_one_name_cost_one_message(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "MAX_MATCHES", 10_000)
    device, sender = scene.client(), scene.client()
    texts = [f"topic/{'/'.join(words)}/#" for words in itertools.product("a+", repeat=9)]
    device.subscribed(*texts, qos=1, identifier=3)
    for number in range(3):
        sender.publish("topic/" + "/".join("a" * 9), b"%d" % number, 1)
    found = device.messages()
    assert [one.payload for one in found] == [b"0", b"1", b"2"]
    assert all(one.properties and one.properties.subscription_identifiers == [3] * len(texts) for one in found)


@pytest.mark.parametrize("is_each", [False, True])
def test_statistics_come_as_messages_do(scene: Scene, is_each: bool) -> None:
    scene.space.copies_overlapping = is_each
    watcher = scene.client()
    texts = ("$SYS/broker/version", "$SYS/broker/messages/#", "$SYS/broker/messages/received")
    for identifier, text in enumerate(texts, 1):
        watcher.subscribed(text, identifier=identifier)
        # As retained values do, for this filter alone.
        assert {tuple(identifiers) for *_, identifiers in told(watcher.messages())} == {(identifier,)}
    scene.client().publish("topic/a", b"x")
    scene.go_on()
    scene.harness.advance(10)
    found = [identifiers_of(one) for one in watcher.messages() if one.topic.endswith("messages/received")]
    assert found == ([[2], [3]] if is_each else [[2, 3]])
    more = [f"$SYS/broker/more/{number}" for number in range(MAX_MATCHES - 3)]
    assert watcher.subscribed(*more) == [0] * len(more)
    assert watcher.subscribed("$SYS/broker/#", more[0]) == [Reason.QUOTA_EXCEEDED, 0]
    watcher.unsubscribe(more[0])
    watcher.one("unsuback")
    assert watcher.subscribed("$SYS/broker/#") == [0]


@pytest.mark.parametrize("is_lasting", [False, True])
def test_a_space_may_give_a_copy_for_each_to_sessions_that_begin_then(scene: Scene, is_lasting: bool) -> None:
    options: dict[str, Any] = LASTING if is_lasting else {}
    before = scene.client(V5, "before", **options)
    scene.node.entities.update(SPACE_TYPE, "ns/shop", {"copyOverlapping": True}, lambda *_answer: None)
    device, sender = scene.client(V5, "device", **options), scene.client()
    for client in (before, device):
        ask(client, {"topic/#": Wish(2), "topic/+": Wish(0)})
    both = [(b"x", 0, False, [2]), (b"x", 2, False, [1])]
    sender.publish("topic/a", b"x", 2)
    assert sorted(told(device.messages())) == both
    assert told(before.messages()) == [(b"x", 2, False, [1, 2])]
    if is_lasting:
        scene.restart()
        assert scene.space.copies_overlapping
        before, device = scene.client(V5, "before", **options), scene.client(V5, "device", **options)
        scene.client().publish("topic/a", b"x", 2)
        assert sorted(told(device.messages())) == both
        assert told(before.messages()) == [(b"x", 2, False, [1, 2])]
