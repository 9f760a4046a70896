"""Direct addresses as they are declared: where they fall back to, whom they wait for, and which node serves them."""

from __future__ import annotations

from random import Random

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.messaging.direct.multicast import SET_ASIDE_AFTER_S
from enmasse.messaging.queues.queue import MAX_CREDIT
from enmasse.messaging.space import AnonymousTerminus
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort
from tests.unit.node.entities_scene import Node, bodies


@pytest.fixture
def node() -> Node:
    made = Node()
    made.space()
    return made


def body(number: int) -> bytes:
    return encode_message(b"%d" % number)


def anonymous(node: Node) -> MemoryProducerPort:
    port = MemoryProducerPort()
    port.sink = AnonymousTerminus(node.entities.spaces["ns/shop"], port)
    return port


# The fallback


@pytest.fixture(params=["anycast", "multicast"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def falling(node: Node, kind: str) -> Node:
    """A node with a direct address ``d`` that falls back to the queue ``later``."""
    node.address("later", "queue")
    node.address("d", kind, fallback="later")
    return node


def test_without_receivers_senders_have_the_queues_credit_and_outcome(falling: Node) -> None:
    sender = falling.harness.sender(falling.find("d"))
    falling.harness.turn()
    assert sender.credit == MAX_CREDIT
    for number in range(3):
        sender.send(body(number))
    falling.harness.commit()
    assert sender.states == dict.fromkeys(range(3), ACCEPTED)
    assert bodies(falling.receiver("later")) == [0, 1, 2]
    assert falling.entities.read("io.enmasse.address", "ns/d")["fallbackTaken"] == 3
    assert falling.entities.read("io.enmasse.address", "ns/later")["messagesIn"] == 3


def test_a_receiver_takes_over_and_is_not_given_what_the_queue_has(falling: Node) -> None:
    sender = falling.harness.sender(falling.find("d"))
    falling.harness.turn()
    sender.send(body(1))
    receiver = falling.receiver("d", 10)
    assert sender.credit == 10
    sender.send(body(2))
    receiver.accept()
    assert bodies(receiver) == [2]
    receiver.leave()
    falling.harness.turn()
    assert sender.credit == MAX_CREDIT
    sender.send(body(3))
    assert bodies(falling.receiver("later")) == [1, 3]
    assert sender.states == dict.fromkeys(range(3), ACCEPTED)


def test_what_crossed_the_first_receiver_still_goes_to_the_queue(falling: Node) -> None:
    sender = falling.harness.sender(falling.find("d"))
    falling.harness.turn()
    receiver = falling.receiver("d", 1)
    sender.send(body(1))
    crossed = sender.send(body(2))
    assert bodies(receiver) == [1]
    assert sender.states == {crossed: ACCEPTED}
    assert bodies(falling.receiver("later")) == [2]
    assert falling.find("later").counts()["messagesIn"] == 1


def test_what_waited_for_a_receiver_that_has_gone_goes_to_the_queue(node: Node) -> None:
    node.address("later", "queue")
    node.address("d", "anycast", fallback="later")
    receiver = node.receiver("d", 5)
    sender = node.harness.sender(node.find("d"))
    node.harness.turn()
    receiver.block()
    sender.send(body(1))
    receiver.leave()
    node.harness.turn()
    assert sender.states == {0: ACCEPTED}
    assert bodies(node.receiver("later")) == [1]


def test_with_a_fallback_messages_are_held_whole(node: Node) -> None:
    node.address("d", "anycast")
    assert node.find("d").passes_large
    node.update("ns/d", fallback="later")
    assert not node.find("d").passes_large


def test_an_anonymous_senders_message_goes_to_the_queue_too(falling: Node) -> None:
    port = anonymous(falling)
    sent = port.send(encode_message(b"7", properties=Properties(to="d")))
    assert port.states == {sent: ACCEPTED}
    assert bodies(falling.receiver("later")) == [7]
    port.leave()


def test_a_full_queue_holds_the_senders_back_and_goes_on_when_there_is_room(node: Node, kind: str) -> None:
    node.address("later", "queue", maxBytes=10_000)
    node.address("d", kind, fallback="later")
    sender = node.harness.sender(node.find("d"))
    node.harness.turn()
    while sender.credit:
        sender.send(encode_message(b"1" * 1_000))
        node.harness.turn()
    assert 0 < len(sender.outcomes) < 20
    receiver = node.receiver("later")
    receiver.accept(len(receiver.arrivals))
    node.harness.turn()
    assert sender.credit


def test_a_sender_that_gives_up_its_credit_is_given_more(falling: Node) -> None:
    sender = falling.harness.sender(falling.find("d"))
    falling.harness.turn()
    sender.give_up()
    falling.harness.turn()
    assert sender.credit == MAX_CREDIT


def test_a_sender_that_leaves_is_the_queues_no_longer(falling: Node) -> None:
    sender = falling.harness.sender(falling.find("d"))
    falling.harness.turn()
    assert falling.find("later").counts()["senders"] == 1
    sender.leave()
    assert falling.find("later").counts()["senders"] == 0


def test_without_the_queue_there_is_no_credit_until_it_comes(node: Node, kind: str) -> None:
    node.address("d", kind, fallback="later")
    sender = node.harness.sender(node.find("d"))
    node.harness.turn()
    assert sender.credit == 0
    node.address("later", "queue")
    assert sender.credit == MAX_CREDIT
    node.delete("io.enmasse.address", "ns/later")
    assert sender.credit == 0
    assert not sender.is_detached


def test_a_fallback_comes_and_goes_while_the_address_is_used(node: Node, kind: str) -> None:
    node.address("later", "queue")
    node.address("d", kind)
    sender = node.harness.sender(node.find("d"))
    node.harness.turn()
    assert sender.credit == 0
    node.update("ns/d", fallback="later")
    assert sender.credit == MAX_CREDIT
    node.update("ns/d", fallback=None)
    assert sender.credit == 0
    node.delete("io.enmasse.address", "ns/d")
    assert sender.is_detached
    assert node.entities.spaces["ns/shop"].fallbacks == {}


# Slow receivers of a multicast address


@pytest.mark.parametrize("policy", [None, "drop", "block"])
def test_a_slow_receiver_is_set_aside_or_waited_for(node: Node, policy: str | None) -> None:
    node.address("m", "multicast", slowPolicy=policy)
    slow, quick = node.receiver("m", 1), node.receiver("m", 100)
    sender = node.harness.sender(node.find("m"))
    node.harness.turn()
    sender.send(body(1))
    node.harness.turn()
    assert sender.credit == 0
    node.harness.advance(3 * SET_ASIDE_AFTER_S)
    counts = node.find("m").counts()
    if policy == "block":
        assert (sender.credit, counts["receiversAside"], counts["timesSetAside"]) == (0, 0, 0)
        slow.grant(5)
        node.harness.turn()
        assert sender.credit == 5
    else:
        assert (counts["receiversAside"], counts["timesSetAside"]) == (1, 1)
        assert sender.credit == 99
    assert len(quick.arrivals) == 1


def test_the_policy_may_change_while_senders_wait(node: Node) -> None:
    node.address("m", "multicast", slowPolicy="block")
    node.receiver("m", 1), node.receiver("m", 100)
    sender = node.harness.sender(node.find("m"))
    node.harness.turn()
    sender.send(body(1))
    node.harness.advance(3 * SET_ASIDE_AFTER_S)
    node.update("ns/m", slowPolicy=None)
    node.harness.advance(3 * SET_ASIDE_AFTER_S)
    assert sender.credit == 99


def test_closest_is_the_same_as_balanced_on_one_node(node: Node) -> None:
    node.address("a", "anycast", distribution="closest")
    receivers = [node.receiver("a", 10) for _ in range(2)]
    sender = node.harness.sender(node.find("a"))
    node.harness.turn()
    for number in range(4):
        sender.send(body(number))
    assert [len(receiver.arrivals) for receiver in receivers] == [2, 2]


def test_nobody_is_told_that_a_message_without_receivers_was_taken(node: Node) -> None:
    node.address("d", "anycast")
    port = anonymous(node)
    sent = port.send(encode_message(b"7", properties=Properties(to="d")))
    assert port.states == {sent: RELEASED}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_message_is_received_or_kept_and_answered_once(
    node: Node, kind: str, seed: int
) -> None:
    chance = Random(seed)
    node.address("later", "queue")
    node.address("d", kind, fallback="later")
    senders = [node.harness.sender(node.find("d")) for _ in range(2)]
    receivers: list[MemoryConsumerPort] = []
    taken: list[int] = []
    sent = 0

    def take(receiver: MemoryConsumerPort, count: int) -> None:
        found = receiver.unsettled[:count]
        taken.extend(int(Sections(arrival.payload).body) for arrival in found)
        receiver.accept(len(found))

    node.harness.turn()
    for _ in range(300):
        step = chance.randrange(6)
        if step == 0 and not receivers:
            receivers.append(node.receiver("d", chance.randrange(1, 5)))
        elif step == 1 and receivers:
            receiver = receivers.pop()
            take(receiver, len(receiver.unsettled))
            receiver.leave()
        elif step == 2 and receivers:
            take(receivers[0], chance.randrange(3))
            receivers[0].grant(chance.randrange(5))
        elif step == 3:
            node.harness.turn()
        else:
            sender = chance.choice(senders)
            if sender.received < sender.highest:
                sender.send(body(sent))
                sent += 1
    if receivers:
        take(receivers[0], len(receivers[0].unsettled))
        receivers[0].leave()
    node.harness.commit()
    kept = bodies(node.receiver("later", 1_000))
    states = [state for sender in senders for _, state in sender.outcomes]
    assert len(states) == len([state for sender in senders for state in sender.states]) == sent
    # A copy that waits for the only receiver of a multicast address is released when that leaves.
    released = states.count(RELEASED) if kind == "multicast" else 0
    assert states.count(ACCEPTED) + released == sent
    assert len(set(taken + kept)) == len(taken + kept) == sent - released
    assert node.find("d").counts()["creditExcess"] == 0
