"""2.6.13, 3.4.6, 3.5.5 and 2.7.3: receivers come back for what they had, and what is kept has bounds."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import Accepted, Modified, Released
from enmasse.message.sections import Sections
from enmasse.message.types import Described, Symbol, ULong
from enmasse.node.amqp.recovery import Recovery
from enmasse.wire.amqp.performatives import Begin, Detach, Disposition, Received, Source, Target, Transfer
from tests.conformance.clause_list import clause
from tests.conformance.node_scene import Node, NodePeer, body_of, durable
from tests.conformance.server_scene import condition_of

DONE = Described(ULong(0x24), [])
"""Accepted, as it stands in a map."""


def target(address: str = "q", **fields: Any) -> Target:
    return Target(address, expiry_policy=Symbol("never"), **fields)


def source(address: str = "q", **fields: Any) -> Source:
    return Source(address, **{"expiry_policy": Symbol("never"), **fields})


def outcomes(peer: NodePeer) -> list[tuple[int, Any]]:
    return [(told.first, told.state) for told in peer.hear_all(Disposition) if told.role]


def lend(node: Node, *bodies: str, made: Source | None = None) -> list[Transfer]:
    """A receiver is given messages and loses its connection; what it was sent."""
    producer = node.peer("producer")
    producer.sender((made or source()).address if made is None or made.address == "q" else "t")
    peer = node.peer("consumer")
    peer.receiver(made or source())
    for body in bodies:
        producer.deliver(durable(body))
    found = [transfer for transfer, _ in peer.transfers()]
    assert len(found) == len(bodies)
    peer.cut()
    producer.cut()
    return found


def tag_of(transfer: Transfer) -> bytes:
    assert transfer.delivery_tag is not None
    return transfer.delivery_tag


def test_what_is_resumed_has_the_time_to_live_that_is_left() -> None:
    node = Node()
    producer, peer = node.peer("producer"), node.peer("consumer")
    producer.sender("q")
    peer.receiver(source())
    producer.deliver(durable("one", ttl=60_000))
    ((transfer, payload),) = peer.transfers()
    assert Sections(payload).header.ttl == 60_000
    peer.cut()
    node.harness.advance(20)
    peer = node.peer("consumer")
    peer.receiver(source(), 5, unsettled={tag_of(transfer): None})
    ((again, payload),) = peer.transfers()
    assert (again.resume, body_of(payload), Sections(payload).header.ttl) == (True, "one", 40_000)


@clause("2.6.13:sender-resumes", "2.6.13:maps-exchanged", "3.4.6:received-from", "3.5.5:unsettled-state")
def test_what_the_receiver_still_has_is_resumed_by_its_tag() -> None:
    node = Node()
    one, two = lend(node, "one", "two")
    peer = node.peer("consumer")
    attach = peer.receiver(
        source(), 0, unsettled={tag_of(one): None, tag_of(two): Described(ULong(0x23), [ULong(0), ULong(3)])}
    )
    assert attach.unsettled == {tag_of(one): None, tag_of(two): None}
    assert peer.transfers() == [], "without credit nothing is resumed"
    peer.grant(5)
    found = peer.transfers()
    assert [(t.delivery_tag, t.resume, t.settled, t.state) for t, _ in found] == [
        (tag_of(one), True, False, Received(0, 0)),
        (tag_of(two), True, False, Received(0, 0)),
    ]
    assert [body_of(payload) for _, payload in found] == ["one", "two"]
    assert [Sections(payload).header.delivery_count for _, payload in found] == [0, 0]
    for transfer, _ in found:
        peer.settle(transfer.delivery_id, Accepted())
    assert node.stored("q") == 0


@clause("2.6.13:receivers-outcome", "3.4.6:terminal-known", "3.4.2:at-source")
def test_an_outcome_that_the_receiver_had_decided_is_taken() -> None:
    node = Node()
    one, two = lend(node, "one", "two")
    peer = node.peer("consumer")
    attach = peer.receiver(source(), 5, unsettled={tag_of(one): DONE, tag_of(two): Described(ULong(0x26), [])})
    assert attach.unsettled == {tag_of(one): DONE, tag_of(two): Described(ULong(0x26), [])}
    found = peer.transfers()
    told = [(t.delivery_tag, t.resume, t.settled, t.state, payload) for t, payload in found if t.resume]
    assert told == [
        (tag_of(one), True, True, Accepted(), b""),
        (tag_of(two), True, True, Released(), b""),
    ]
    anew = [body_of(payload) for t, payload in found if not t.resume]
    assert anew == ["two"], "what was released comes again"
    assert node.stored("q") == 1


@clause("2.6.13:not-in-receivers-map", "3.3.1:returned", "3.2.1:delivery-count")
def test_what_the_receiver_does_not_have_is_sent_anew() -> None:
    node = Node()
    lend(node, "one")
    peer = node.peer("consumer")
    assert peer.receiver(source(), 5).unsettled is None
    ((transfer, payload),) = peer.transfers()
    assert (transfer.resume, body_of(payload)) == (False, "one")
    assert Sections(payload).header.delivery_count == 1


@clause("2.6.13:new-tags", "2.6.12:tag-unique")
def test_new_deliveries_have_tags_that_no_unsettled_one_has() -> None:
    node = Node()
    lent = lend(node, "one", "two", "three")
    producer = node.peer("producer")
    producer.sender("q")
    for number in range(5):
        producer.deliver(durable(number))
    peer = node.peer("consumer")
    peer.receiver(source(), 20, unsettled={tag_of(transfer): None for transfer in lent})
    tags = [tag_of(transfer) for transfer, _ in peer.transfers()]
    assert tags[:3] == [tag_of(transfer) for transfer in lent]
    assert len(set(tags)) == len(tags) == 8


@clause("2.6.13:sender-resumes", "2.6.13:new-tags")
def test_a_delivery_is_resumed_again_and_again() -> None:
    node = Node()
    (lent,) = lend(node, "one")
    for _ in range(3):
        peer = node.peer("consumer")
        peer.receiver(source(), 5, unsettled={tag_of(lent): None})
        ((transfer, payload),) = peer.transfers()
        assert (transfer.delivery_tag, transfer.resume, body_of(payload)) == (tag_of(lent), True, "one")
        peer.cut()


@clause("2.6.13:sender-resumes")
def test_what_there_was_no_credit_to_resume_is_held_on() -> None:
    node = Node()
    lent = lend(node, "one", "two")
    peer = node.peer("consumer")
    peer.receiver(source(), 1, unsettled={tag_of(transfer): None for transfer in lent})
    assert len(peer.transfers()) == 1
    peer.cut()
    again = node.peer("consumer")
    again.receiver(source(), 5, unsettled={tag_of(transfer): None for transfer in lent})
    assert sorted(again.bodies()) == ["one", "two"]


@clause("2.7.3:incomplete-unsettled")
def test_a_receiver_with_an_incomplete_map_is_sent_nothing_new() -> None:
    node = Node()
    one, two = lend(node, "one", "two")
    producer = node.peer("producer")
    producer.sender("q")
    producer.deliver(durable("three"))
    peer = node.peer("consumer")
    peer.receiver(source(), 9, unsettled={tag_of(one): None}, incomplete_unsettled=True)
    ((transfer, payload),) = peer.transfers()
    assert (transfer.resume, body_of(payload)) == (True, "one")
    peer.settle(transfer.delivery_id, Accepted())
    assert peer.transfers() == []
    peer.say(Detach(1, closed=False))
    peer.hear()
    peer.receiver(source(), 9, unsettled={tag_of(two): DONE})
    assert [(t.resume, bool(t.settled)) for t, _ in peer.transfers()] == [(True, True), (False, False)]
    assert node.stored("q") == 1


@clause("3.3.1:available-acquired", "2.6.4:state-kept")
def test_what_is_held_for_one_is_not_given_to_another_until_it_expires() -> None:
    node = Node()
    lend(node, "one", made=Source("q", timeout=30))
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == []
    node.harness.advance(31)
    assert other.bodies() == ["one"]


@clause("3.4.4:at-source", "2.6.12:unsettled-kept")
def test_a_receiver_that_asks_for_nothing_is_not_waited_for() -> None:
    node = Node()
    lend(node, "one", made=Source("q"))
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == ["one"]


@clause("3.5.5:configuration", "3.5.5:unsettled-state", "2.6.13:sender-resumes")
def test_a_durable_subscription_keeps_what_is_unsettled_and_what_comes_meanwhile() -> None:
    node = Node()
    made = source("t", durable=2)
    (lent,) = lend(node, "one", made=made)
    producer = node.peer("producer")
    producer.sender("t")
    producer.deliver(durable("two"))
    peer = node.peer("consumer")
    peer.receiver(made, 5, unsettled={tag_of(lent): None})
    found = peer.transfers()
    assert [(t.resume, body_of(payload)) for t, payload in found] == [(True, "one"), (False, "two")]


@clause("2.6.13:sender-resumes", "2.6.14:split")
def test_a_large_message_is_resumed_in_parts() -> None:
    node = Node()
    (lent,) = lend(node, "x" * 3000)
    peer = node.peer("consumer", max_frame_size=512)
    peer.receiver(source(), 5, unsettled={tag_of(lent): None})
    found = peer.transfers()
    assert len(found) > 5
    assert found[0][0].resume is True
    assert body_of(b"".join(payload for _, payload in found)) == "x" * 3000
    assert [t.more for t, _ in found] == [True] * (len(found) - 1) + [False]


@clause("2.6.13:sender-resumes")
def test_a_resumed_delivery_may_be_given_back() -> None:
    node = Node()
    (lent,) = lend(node, "one")
    peer = node.peer("consumer")
    peer.receiver(source(), 5, unsettled={tag_of(lent): None})
    ((transfer, _),) = peer.transfers()
    peer.settle(transfer.delivery_id, Modified(delivery_failed=True))
    ((again, payload),) = peer.transfers()
    assert (again.resume, Sections(payload).header.delivery_count) == (False, 1)


# Bounds


@clause("2.6.4:state-kept")
def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.node.amqp.recovery.MAX_TERMINI", 5)
    node = Node()
    for number in range(20):
        peer = node.peer(f"c{number}")
        peer.sender(target())
        peer.deliver(durable(), tag=b"A")
        peer.cut()
    recovery = node.connections.shared(Recovery)
    assert len(recovery) == 5
    assert recovery.deliveries == 5
    monkeypatch.setattr("enmasse.node.amqp.recovery.MAX_HELD_BYTES", 3000)
    for number in range(4):
        producer = node.peer()
        producer.sender("r")
        producer.deliver(durable("x" * 2000))
        consumer = node.peer(f"consumer{number}")
        consumer.receiver(source("r"), 1)
        assert len(consumer.transfers()) == 1
        consumer.cut()
    assert 0 < recovery.held_bytes <= 3000
    node.harness.advance(4000)
    assert (len(recovery), recovery.deliveries, recovery.held_bytes) == (0, 0, 0)


@clause("2.6.4:state-kept")
def test_only_the_latest_outcomes_of_a_link_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.node.amqp.receipts.MAX_RECEIPTS", 3)
    node = Node()
    peer = node.peer()
    peer.sender(target())
    for number in range(10):
        peer.deliver(durable(), tag=b"%d" % number)
    peer.cut()
    attach = node.peer().sender(target(), unsettled={b"%d" % number: None for number in range(10)})
    assert attach.unsettled == {b"7": DONE, b"8": DONE, b"9": DONE}


@clause("2.7.3:incomplete-unsettled")
def test_a_map_that_does_not_fit_the_frame_is_told_to_be_incomplete() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target())
    tags = [b"%032d" % number for number in range(50)]
    for tag in tags:
        peer.deliver(durable(), tag=tag)
    peer.cut()
    again = node.peer(max_frame_size=2500)
    unsettled = dict.fromkeys(tags)
    attach = again.sender(target(), unsettled=unsettled)
    assert attach.incomplete_unsettled
    assert attach.unsettled
    assert len(attach.unsettled) < 50
    again.hear()
    again.send(b"", tag=tags[0], resume=True, settled=True)
    again.send(durable(), tag=b"new")
    assert condition_of(again.hear_one(Detach)) == "amqp:not-allowed"
    assert node.stored("q") == 50


@clause("2.5.1:begin-answered")
def test_a_recovered_session_begins_like_any_other() -> None:
    node = Node()
    lend(node, "one")
    peer = node.peer("consumer")
    peer.say(Begin(None, 0, 10, 10), channel=3)
    assert peer.hear_one(Begin).remote_channel == 3


@clause("2.6.13:new-tags", "2.6.12:tag-unique")
def test_nothing_is_resumed_where_its_tag_could_be_given_again() -> None:
    node = Node()
    lent = lend(node, "one", "two", "three")
    producer = node.peer("producer")
    producer.sender("r")
    producer.deliver(durable("other"))
    peer = node.peer("consumer")
    peer.receiver("r", 1, name="before", handle=2)
    assert [tag_of(transfer) for transfer, _ in peer.transfers()] == [tag_of(lent[0])]
    # The session's next deliveries are to have the tags of the second and the third.
    attach = peer.receiver(source(), 5, unsettled={tag_of(transfer): None for transfer in lent})
    assert attach.unsettled is None
    found = peer.transfers()
    assert [(transfer.resume, body_of(payload)) for transfer, payload in found] == [
        (False, "one"),
        (False, "two"),
        (False, "three"),
    ]
