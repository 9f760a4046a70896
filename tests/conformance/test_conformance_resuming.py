"""2.6.4, 2.6.13, 3.4.6, 3.5.5 and 3.5.6: links come back with what is unsettled."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.wire.amqp.outcomes import ACCEPTED
from enmasse.wire.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from enmasse.wire.amqp.sections import Sections
from enmasse.wire.amqp.types import Described, Symbol, ULong
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


# The node receives


@clause("2.6.13:maps-exchanged", "2.6.13:known-outcome", "2.6.4:reattach", "3.4.6:terminal-known")
def test_a_delivery_that_was_accepted_is_not_stored_twice() -> None:
    node = Node()
    before = node.peer()
    before.sender(target())
    before.send(durable("one"), tag=b"A")
    node.harness.commit()
    before.cut()
    after = node.peer()
    attach = after.sender(target(), unsettled={b"A": None, b"B": None}, initial_delivery_count=1)
    assert attach.unsettled == {b"A": DONE}
    number = after.send(durable("one"), tag=b"A", resume=True)
    assert outcomes(after) == [(number, ACCEPTED)]
    after.deliver(durable("two"), tag=b"B")
    assert node.stored("q") == 2


@clause("2.6.13:pending", "2.6.4:state-kept")
def test_a_delivery_that_is_not_on_disk_yet_is_answered_when_it_is() -> None:
    node = Node()
    again = node.peer()
    before = node.peer()
    before.sender(target())
    before.hear()
    before.send(durable("one"), tag=b"A")
    assert before.hear_uncommitted() == []
    before.engine.lost()
    again.say(
        Attach("in", 0, False, source=Source(), target=target(), unsettled={b"A": None}, initial_delivery_count=1)
    )
    again.hear_uncommitted()
    number = again.send(durable("one"), tag=b"A", resume=True)
    assert again.hear_uncommitted() == []
    assert outcomes(again) == [(number, ACCEPTED)]
    assert node.stored("q") == 1


@clause("2.6.13:pending", "2.6.13:known-outcome")
@pytest.mark.parametrize("decides_late", [True, False])
def test_the_outcome_of_a_direct_receiver_is_told_after_the_sender_has_come_back(decides_late: bool) -> None:
    node = Node()
    consumer = node.peer("consumer")
    consumer.receiver("a")
    before = node.peer("producer")
    before.sender(target("a"))
    before.hear()
    before.send(durable("one"), tag=b"A")
    (transfer, _), *_ = consumer.transfers()
    before.cut()
    rejected = Rejected()
    if not decides_late:
        consumer.settle(transfer.delivery_id, rejected)
    after = node.peer("producer")
    attach = after.sender(target("a"), unsettled={b"A": None})
    assert (attach.unsettled or {}).keys() == {b"A"}
    number = after.send(b"", tag=b"A", resume=True)
    if decides_late:
        assert outcomes(after) == []
        consumer.settle(transfer.delivery_id, rejected)
    assert outcomes(after) == [(number, rejected)]
    assert consumer.transfers() == []


@clause("2.6.13:unknown-resume")
def test_a_resumed_delivery_that_nobody_knows_is_ignored() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target(), unsettled={b"A": None})
    peer.hear()
    peer.send(durable("one"), tag=b"A", resume=True)
    assert outcomes(peer) == []
    assert node.stored("q") == 0
    assert peer.deliver(durable("two"), tag=b"B") == ACCEPTED


@clause("2.6.13:unknown-resume", "2.7.5:resume")
def test_only_the_first_transfer_of_a_resumed_delivery_needs_to_say_so() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target(), unsettled={b"A": None})
    peer.hear()
    peer.send(b"part", tag=b"A", resume=True, more=True)
    peer.say(Transfer(0, more=True), payload=b"part")
    peer.say(Transfer(0), payload=b"part")
    assert outcomes(peer) == []
    assert peer.deliver(durable("two"), tag=b"B") == ACCEPTED
    assert node.stored("q") == 1


@clause("2.6.13:not-in-senders-map")
def test_what_the_sender_does_not_ask_for_is_forgotten() -> None:
    node = Node()
    before = node.peer()
    before.sender(target())
    before.deliver(durable(), tag=b"A")
    before.cut()
    again = node.peer()
    assert again.sender(target()).unsettled is None
    again.cut()
    assert node.peer().sender(target(), unsettled={b"A": None}).unsettled is None


@clause("2.6.4:detach-answered", "2.6.4:state-kept", "2.6.4:reattach")
def test_a_link_is_suspended_and_resumed_on_the_same_session() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target())
    peer.hear()
    assert peer.deliver(durable(), tag=b"A") == ACCEPTED
    peer.say(Detach(0, closed=False))
    assert peer.hear_one(Detach).closed is False
    assert peer.sender(target(), unsettled={b"A": None}, initial_delivery_count=1).unsettled == {b"A": DONE}


@clause("2.6.6:reattach-close")
def test_a_link_that_was_closed_starts_anew() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target())
    peer.deliver(durable(), tag=b"A")
    peer.say(Detach(0, closed=True))
    assert peer.hear_one(Detach).closed is True
    assert peer.sender(target(), unsettled={b"A": None}).unsettled is None


@clause("2.6.13:known-outcome", "2.6.12:settle-second")
def test_exactly_once_with_the_receiver_settling_second() -> None:
    node = Node()
    before = node.peer()
    before.sender(target(), rcv_settle_mode=1)
    before.hear()
    before.send(durable(), tag=b"A")
    assert before.hear_one(Disposition).settled is False
    before.cut()
    after = node.peer()
    after.sender(target(), rcv_settle_mode=1, unsettled={b"A": None})
    number = after.send(b"", tag=b"A", resume=True)
    told = after.hear_one(Disposition)
    assert (told.first, told.settled, told.state) == (number, False, ACCEPTED)
    after.say(Disposition(False, number, settled=True, state=Accepted()))
    assert node.stored("q") == 1


@clause("2.6.13:known-outcome")
def test_a_resumed_delivery_that_is_settled_only_tells_that_the_sender_knows() -> None:
    node = Node()
    before = node.peer()
    before.sender(target())
    before.deliver(durable(), tag=b"A")
    before.cut()
    after = node.peer()
    after.sender(target(), unsettled={b"A": None})
    after.hear()
    after.send(b"", tag=b"A", resume=True, settled=True, state=Accepted())
    assert outcomes(after) == []
    after.cut()
    assert node.peer().sender(target(), unsettled={b"A": None}).unsettled is None
    assert node.stored("q") == 1


@clause("2.6.12:tag-unique")
def test_a_tag_may_be_used_again_once_its_delivery_is_settled() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target())
    for _ in range(3):
        assert peer.deliver(durable(), tag=b"same") == ACCEPTED
    assert node.stored("q") == 3


@clause("2.7.5:tag-size", "2.7.5:tag-on-first", "2.8.7:size")
@pytest.mark.parametrize("tag", [None, b"x" * 33])
def test_a_link_that_may_be_resumed_needs_tags(tag: bytes | None) -> None:
    peer = Node().peer()
    peer.sender(target())
    peer.hear()
    peer.say(Transfer(0, 0, tag), payload=durable())
    assert condition_of(peer.hear_one(End)) == "amqp:invalid-field"


@clause("2.6.1:stolen", "2.6.4:reattach")
def test_a_link_is_taken_over_from_a_connection_that_only_seems_to_live() -> None:
    node = Node()
    before = node.peer()
    before.sender(target())
    before.deliver(durable(), tag=b"A")
    after = node.peer()
    assert after.sender(target(), unsettled={b"A": None}).unsettled == {b"A": DONE}
    assert condition_of(before.hear_one(Detach)) == "amqp:link:stolen"


@clause("2.6.3:terminus-told", "3.5.5:unsettled-state")
def test_the_terminus_in_effect_is_told() -> None:
    peer = Node().peer()
    answer = peer.sender(Target("q", durable=2, expiry_policy=Symbol("connection-close"), timeout=7)).target
    assert isinstance(answer, Target)
    assert (answer.durable, answer.expiry_policy, answer.timeout) == (2, "connection-close", 7)


@clause("2.6.4:state-kept")
def test_nobody_elses_link_is_resumed() -> None:
    node = Node()
    before = node.peer("one")
    before.sender(target())
    before.deliver(durable(), tag=b"A")
    before.cut()
    assert node.peer("two").sender(target(), unsettled={b"A": None}).unsettled is None
    assert node.peer("one").sender(target(), name="other", unsettled={b"A": None}).unsettled is None
    assert node.peer("one").sender(target("r"), unsettled={b"A": None}).unsettled is None
    assert node.peer("one").sender(target(), unsettled={b"A": None}).unsettled is None, "r has it by now"


@clause("2.6.14:parts", "2.6.13:unknown-resume")
@pytest.mark.parametrize("abort", [True, False])
def test_a_delivery_that_came_in_part_only_did_not_come(abort: bool) -> None:
    node = Node()
    before = node.peer()
    before.sender(target())
    before.hear()
    payload = durable("whole")
    before.send(payload[:5], tag=b"A", more=True)
    before.say(Transfer(0, more=not abort, aborted=abort))
    before.cut()
    after = node.peer()
    assert after.sender(target(), unsettled={b"A": None}).unsettled is None
    after.hear()
    after.send(payload[:5], tag=b"A", more=True)
    after.say(Transfer(0), payload=payload[5:])
    assert outcomes(after) == [(0, ACCEPTED)]
    assert node.stored("q") == 1
    after.cut()
    assert node.peer().sender(target(), unsettled={b"A": None}).unsettled == {b"A": DONE}


@clause("2.6.5:detach-with-error")
def test_a_link_that_was_detached_for_a_breach_is_not_resumed() -> None:
    node = Node()
    peer = node.peer()
    peer.sender(target())
    assert peer.deliver(durable(), tag=b"A") == ACCEPTED
    node.delete("q")
    assert condition_of(peer.hear_one(Detach)) == "amqp:resource-deleted"
    peer.say(Detach(0, closed=False))
    peer.hear()
    assert len(node.connections.recovery) == 0


# Expiry


def known(node: Node, policy: str, timeout: int) -> bool:
    """Whether the outcome of a delivery of the link is still known."""
    attach = node.peer().sender(Target("q", expiry_policy=Symbol(policy), timeout=timeout), unsettled={b"A": None})
    return attach.unsettled == {b"A": DONE}


def leave(policy: str, timeout: int, how: str) -> Node:
    node = Node()
    peer = node.peer()
    peer.begin(1)
    peer.sender(Target("q", expiry_policy=Symbol(policy), timeout=timeout))
    assert peer.deliver(durable(), tag=b"A") == ACCEPTED
    if how == "detach":
        peer.say(Detach(0, closed=False))
    elif how == "end":
        peer.say(End())
    else:
        peer.cut()
    peer.hear()
    return node


@pytest.mark.parametrize(
    ("policy", "kept", "given_up"),
    [
        pytest.param("link-detach", (), ("detach", "end", "cut"), marks=clause("3.5.6:link-detach")),
        pytest.param("session-end", ("detach",), ("end", "cut"), marks=clause("3.5.6:session-end")),
        pytest.param("connection-close", ("detach", "end"), ("cut",), marks=clause("3.5.6:connection-close")),
        pytest.param("never", ("detach", "end", "cut"), (), marks=clause("3.5.6:never")),
    ],
)
@clause("3.5.6:timeout")
def test_the_expiry_policy_says_when_the_time_starts(
    policy: str, kept: tuple[str, ...], given_up: tuple[str, ...]
) -> None:
    for how in kept:
        node = leave(policy, 20, how)
        node.harness.advance(100)
        assert known(node, policy, 20), how
    for how in given_up:
        node = leave(policy, 20, how)
        node.harness.advance(15)
        assert known(node, policy, 20), how
        node = leave(policy, 20, how)
        node.harness.advance(25)
        assert not known(node, policy, 20), how


@clause("3.5.6:reset")
def test_a_link_that_comes_back_stops_the_clock() -> None:
    node = leave("link-detach", 20, "cut")
    node.harness.advance(15)
    peer = node.peer()
    peer.sender(Target("q", expiry_policy=Symbol("link-detach"), timeout=20), unsettled={b"A": None})
    node.harness.advance(15)
    peer.cut()
    node.harness.advance(15)
    assert known(node, "link-detach", 20)


# The node sends


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
    monkeypatch.setattr("enmasse.node.recovery.MAX_TERMINI", 5)
    node = Node()
    for number in range(20):
        peer = node.peer(f"c{number}")
        peer.sender(target())
        peer.deliver(durable(), tag=b"A")
        peer.cut()
    recovery = node.connections.recovery
    assert len(recovery) == 5
    assert recovery.deliveries == 5
    monkeypatch.setattr("enmasse.node.recovery.MAX_HELD_BYTES", 3000)
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
    monkeypatch.setattr("enmasse.node.receipts.MAX_RECEIPTS", 3)
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
