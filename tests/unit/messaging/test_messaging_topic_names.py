"""The name below a topic that a message was sent to: every receiver learns it, and no sender makes one up."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, Rejected
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import UInt
from enmasse.messaging.budget import Budget
from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.space import AnonymousTerminus
from enmasse.messaging.transaction import Transaction
from enmasse.node.patterns import matcher_of
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort
from tests.support.steps import steps
from tests.unit.messaging.topic_scene import Scene, bodies, message

NAME = "x-opt-topic-name"
LIE = {NAME: "news/lie"}
OWN = {"x-opt-own": UInt(7)}
BELOW = "news/sport/chess"
MALFORMED = encode_message(b"x").replace(b"\x00Su", b"\x00Sr\xc1\x02\x01\x40\x00Su")


def names(port: MemoryConsumerPort) -> list[str | None]:
    return [Sections(payload).message_annotations.get(NAME) for payload in port.payloads]


def lying(body: bytes, **annotations: Any) -> bytes:
    return encode_message(body, header=Header(durable=True), message_annotations=LIE | annotations)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("durable", [True, False])
def test_every_subscriber_learns_the_name_that_a_message_was_sent_to(scene: Scene, durable: bool) -> None:
    scene.subscription("audit")
    receivers = [scene.receiver(source) for source in ("audit", "news/#", "news/sport/*")]
    below, exact = scene.sender(BELOW), scene.sender()
    for sender in (below, exact, below):
        sender.send(message(durable=durable))
    scene.harness.commit()
    assert [names(receiver) for receiver in receivers] == [[BELOW, None, BELOW], [BELOW, None, BELOW], [BELOW] * 2]
    assert below.states | exact.states == {0: ACCEPTED, 1: ACCEPTED}


@pytest.mark.parametrize("body", [b"", b"x" * 300, "text", ["a", 1]])
@pytest.mark.parametrize("target", [BELOW, "news/" + "x" * 300, "news"])
@pytest.mark.parametrize("annotations", [None, OWN, LIE | OWN, {NAME: 1}])
def test_the_rest_of_a_message_is_as_it_was_sent(
    scene: Scene, annotations: dict[str, Any] | None, target: str, body: Any
) -> None:
    receiver, sender = scene.receiver("news/#"), scene.sender(target)
    heads = [(header, hop) for header in (Header(), Header(durable=True)) for hop in ({}, {"x-opt-hop": 1})]
    for header, hop in heads:
        sent = encode_message(
            body, header=header, delivery_annotations=hop, message_annotations=annotations,
            properties=Properties(subject=f"about {NAME}"), application_properties={NAME: "mine"},
        )  # fmt: skip
        sender.send(sent)
        sender.send(sent)
    scene.harness.turn()
    named = {} if target == "news" else {NAME: target}
    own = {key: value for key, value in (annotations or {}).items() if key != NAME}
    for arrival, (header, hop) in zip(receiver.payloads, [head for head in heads for _ in range(2)], strict=True):
        found = Sections(arrival)
        assert found.message_annotations == named | own
        assert (found.body, found.header, found.delivery_annotations) == (body, header, hop)
        assert (found.application_properties, found.properties.subject) == ({NAME: "mine"}, f"about {NAME}")
        assert all(type(found.message_annotations[key]) is UInt for key in own)


def test_a_message_to_the_topic_itself_without_a_name_is_passed_on_byte_for_byte(scene: Scene) -> None:
    receiver = scene.receiver("news")
    sent = [encode_message(f"about {NAME}"), encode_message(b"x", message_annotations={"x-opt-own": NAME}), MALFORMED]
    for payload in sent:
        scene.sender().send(payload)
    assert receiver.payloads == sent


def test_a_message_whose_annotations_cannot_be_read_is_rejected_below_the_topic(scene: Scene) -> None:
    sender = scene.sender(BELOW)
    numbered = scene.harness.sender(scene.topic, BELOW, properties={"enmasse:producer": "p"})
    transaction = Transaction(scene.harness.core, Budget(1 << 20, grain=1), 1 << 20)
    scene.harness.turn()
    sender.send(MALFORMED), sender.send(MALFORMED)
    numbered.send(MALFORMED.replace(b"\xc1\x02\x01", b"\xc1\x15\x03\xa3\x0ex-opt-sequence\x54\x00"))
    for outcome in (*sender.states.values(), *numbered.states.values()):
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:decode-error"
    assert len(sender.states) + len(numbered.states) == 3
    problem = transaction.post(scene.topic, BELOW, MALFORMED)
    assert problem is not None
    assert "amqp:decode-error" in (problem.description or "") + problem.condition


def test_numbered_messages_transactions_and_the_anonymous_terminus_give_the_name_too(scene: Scene) -> None:
    scene.subscription("audit")
    stored, volatile = scene.receiver("audit"), scene.receiver("news/#")
    for target in (BELOW, "news"):
        numbered = scene.harness.sender(scene.topic, target, properties={"enmasse:producer": target})
        scene.harness.turn()
        numbered.send(lying(b"n", **{"x-opt-sequence": 0}))
        transaction = Transaction(scene.harness.core, Budget(1 << 20, grain=1), 1 << 20)
        assert transaction.post(scene.topic, target, lying(b"t")) is None
        transaction.commit(lambda problem: None)
        relay = MemoryProducerPort()
        relay.sink = AnonymousTerminus(scene.space, relay)
        relay.send(encode_message(b"a", message_annotations=LIE, properties=Properties(to=target)))
        scene.harness.commit()
    for port in (stored, volatile):
        assert sorted(zip(bodies(port), names(port), strict=True), key=str) == [
            (b"a", BELOW), (b"a", None), (b"n", BELOW), (b"n", None), (b"t", BELOW), (b"t", None),
        ]  # fmt: skip


def test_the_name_outlives_a_restart(scene: Scene) -> None:
    scene.subscription("audit")
    for target in (BELOW, "news", "news/arts"):
        scene.sender(target).send(lying(b"x"))
    scene.harness.commit()
    again = Scene(scene.harness.restarted(), is_fresh=False)
    again.subscription("audit")
    again.topic.load()
    assert names(again.receiver("audit")) == [BELOW, None, "news/arts"]


def test_a_dead_letter_keeps_the_name(scene: Scene) -> None:
    failed = Queue(scene.harness.core, "failed", 99)
    failed.load()
    scene.space.add(failed)
    scene.subscription("audit", deadletter="failed")
    receiver = scene.receiver("audit")
    scene.sender(BELOW).send(message())
    scene.harness.turn()
    receiver.settle(Rejected())
    scene.harness.commit()
    letters = scene.harness.receiver(failed, 1)
    scene.harness.commit()
    assert names(letters) == [BELOW]


def test_a_topic_below_another_is_meant_by_its_own_name(scene: Scene) -> None:
    inner = Subscription(scene.harness.core, "inner", 50, topic="news/sport", pattern=parse("news/sport/#"))
    other = Topic(scene.harness.core, "news/sport", 51)
    other.load()
    scene.space.add(other)
    scene.space.add(inner)
    receiver = scene.receiver("inner")
    for target in ("news/sport", BELOW):
        scene.sender(target).send(message())
    scene.harness.commit()
    assert names(receiver) == [None, BELOW]


def test_names_and_patterns_have_so_many_words_that_they_are_matched_at_once(scene: Scene) -> None:
    """The worst that is taken: each word of the name can be one of many places of the pattern."""
    most = scene.receiver("news/" + "/".join(["#/a"] * 63) + "/#")
    scene.sender("news/" + "/".join("a" * 127)).send(message())
    scene.harness.turn()
    assert len(most.payloads) == 1
    assert steps(lambda: scene.topic._volatile.find("news/" + "/".join("a" * 127))) < 150_000
    for long in ("news/" + "/".join("a" * 128), "news/" + "a/" * 30_000, "news/" + "/".join(["#/a"] * 64)):
        for find in (scene.space.find, scene.space.find_target):
            with pytest.raises(AttachError, match="at most 128 words") as refused:
                find(long)
            assert refused.value.condition == "amqp:not-found"
        assert not matcher_of("#")(long)
