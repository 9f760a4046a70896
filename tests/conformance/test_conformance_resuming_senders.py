"""2.6.13, 3.4.6 and 3.5.6: senders come back, and hear what became of what they had sent."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Described, Symbol, ULong
from enmasse.node.amqp.recovery import Recovery
from enmasse.wire.amqp.performatives import Attach, Detach, Disposition, End, Source, Target, Transfer
from tests.conformance.clause_list import clause
from tests.conformance.node_scene import Node, NodePeer, durable
from tests.conformance.server_scene import condition_of

DONE = Described(ULong(0x24), [])
"""Accepted, as it stands in a map."""


def target(address: str = "q", **fields: Any) -> Target:
    return Target(address, expiry_policy=Symbol("never"), **fields)


def source(address: str = "q", **fields: Any) -> Source:
    return Source(address, **{"expiry_policy": Symbol("never"), **fields})


def outcomes(peer: NodePeer) -> list[tuple[int, Any]]:
    return [(told.first, told.state) for told in peer.hear_all(Disposition) if told.role]


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


@clause("2.6.1:stolen")
@pytest.mark.parametrize("is_same_connection", [True, False])
@pytest.mark.parametrize("is_sender", [True, False])
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_link_is_stolen_from_another_session_only_if_it_may_come_back(
    comes_back: bool, is_sender: bool, is_same_connection: bool
) -> None:
    node = Node()
    before = node.peer()
    after = before if is_same_connection else node.peer()
    channel = 1 if is_same_connection else 0
    if is_same_connection:
        before.begin(1)
    policy = Symbol("never" if comes_back else "session-end")
    ends = (
        (Source(), Target("q", expiry_policy=policy)) if is_sender else (Source("q", expiry_policy=policy), Target())
    )
    wish = Attach("n", 0, not is_sender, source=ends[0], target=ends[1], initial_delivery_count=0)
    before.say(wish)
    before.hear()
    after.say(wish, channel=channel)
    heard = after.hear()
    heard += [] if is_same_connection else before.hear()
    assert [frame.performative.name for frame in heard if isinstance(frame.performative, Attach)] == ["n"]
    told = [condition_of(frame.performative) for frame in heard if isinstance(frame.performative, Detach)]
    assert told == (["amqp:link:stolen"] if comes_back else [])


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
    assert len(node.connections.shared(Recovery)) == 0


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


@clause("3.5.6:timeout")
def test_every_terminus_has_its_own_time() -> None:
    node = Node()
    peer = node.peer()
    for handle, timeout in enumerate((5, 50, 20)):
        link = Target("q", expiry_policy=Symbol("link-detach"), timeout=timeout)
        peer.sender(link, name=f"after-{timeout}", handle=handle)
        assert peer.deliver(durable(), tag=b"A", handle=handle) == ACCEPTED
    peer.cut()
    left = []
    for _ in range(6):
        left.append(len(node.connections.shared(Recovery)))
        node.harness.advance(10)
    assert left == [3, 2, 1, 1, 1, 0]


@clause("2.6.13:known-outcome", "2.6.4:state-kept")
@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (Rejected(AmqpError("example:bad", "why")), Rejected(AmqpError("example:bad", "why"))),
        (Modified(True, False, {Symbol("x-opt-a"): 1}), Modified(True, False, {Symbol("x-opt-a"): 1})),
        (Rejected(AmqpError("example:bad", "w" * 5000)), Rejected(AmqpError("example:bad", "w" * 128))),
        (Modified(True, True, {Symbol("x-opt-a"): "a" * 5000}), Modified(True, True)),
        (Released(), Released()),
    ],
)
def test_an_outcome_is_kept_without_much_of_its_reason(told: Any, kept: Any) -> None:
    node = Node()
    consumer, before = node.peer("consumer"), node.peer("producer")
    consumer.receiver("a")
    before.sender(target("a"))
    before.hear()
    before.send(durable(), tag=b"A")
    ((transfer, _),) = consumer.transfers()
    before.cut()
    consumer.settle(transfer.delivery_id, told)
    after = node.peer("producer")
    after.sender(target("a"), unsettled={b"A": None})
    number = after.send(b"", tag=b"A", resume=True)
    assert outcomes(after) == [(number, kept)]
