"""2.5.6 and 2.6.12: what is sent settled while the session's window is shut is its receiver's once it goes out."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import Accepted, Released
from enmasse.wire.amqp.performatives import Detach, Disposition, End, Flow
from tests.conformance.node_scene import Node, NodePeer, body_of, durable

LARGE = "x" * 100_000


def shut(peer: NodePeer, *, window: int, credit: int = 10, sent: int = 0) -> None:
    """Grant credit to the receiver, and a window of so few frames."""
    peer.say(
        Flow(
            next_incoming_id=sent, incoming_window=window, outgoing_window=10_000, handle=1, delivery_count=0,
            link_credit=credit,
        )
    )  # fmt: skip


def filled(*bodies: Any, address: str = "q") -> Node:
    node = Node(q={"maxAttempts": 1})
    sender = node.peer("sender")
    sender.sender(address)
    for body in bodies:
        sender.deliver(durable(body))
    return node


def held_up(node: Node, address: str = "q") -> NodePeer:
    """A receiver that settles nothing, whose window lets one frame through."""
    peer = node.peer("receiver")
    peer.receiver(address, 0, snd_settle_mode=1)
    shut(peer, window=1)
    return peer


@pytest.mark.parametrize("how", ["detach", "end", "lost"])
def test_what_the_window_held_back_goes_back_to_its_queue_as_it_was(how: str) -> None:
    node = filled("one", "two", "three")
    peer = held_up(node)
    assert peer.bodies() == ["one"]
    if how == "lost":
        peer.cut()
    else:
        peer.say(Detach(1, closed=True) if how == "detach" else End())
        peer.hear()
    assert node.stored("q") == 2
    other = node.peer("other")
    other.receiver("q", snd_settle_mode=1)
    payloads = [payload for _, payload in other.transfers()]
    assert payloads == [durable("two"), durable("three")]
    assert node.stored("q") == 0


def test_what_the_window_held_back_is_settled_once_it_goes_out() -> None:
    node = filled("one", "two", "three")
    peer = held_up(node)
    assert peer.bodies() == ["one"]
    assert node.stored("q") == 2
    shut(peer, window=10, sent=1)
    assert peer.bodies() == ["two", "three"]
    assert node.stored("q") == 0
    peer.cut()
    assert node.stored("q") == 0


def test_a_message_that_went_out_in_part_goes_back() -> None:
    node = filled(LARGE)
    peer = node.peer("receiver", max_frame_size=4_096)
    peer.receiver("q", 0, snd_settle_mode=1)
    shut(peer, window=3)
    assert len(peer.transfers()) == 3
    peer.cut()
    other = node.peer("other")
    other.receiver("q")
    assert other.bodies() == [LARGE]


@pytest.mark.parametrize("settled", [True, False])
def test_an_anycast_message_that_never_went_out_is_not_taken_for_received(settled: bool) -> None:
    node = Node()
    peer = held_up(node, "a")
    sender = node.peer("sender")
    sender.sender("a")
    sender.hear()
    sender.send(durable("one"), settled=settled)
    sender.send(durable("two"), settled=settled)
    assert peer.bodies() == ["one"]
    told = [frame.performative for frame in sender.hear() if isinstance(frame.performative, Disposition)]
    assert [disposition.state for disposition in told] == ([] if settled else [Accepted()])
    other = node.peer("other")
    other.receiver("a", snd_settle_mode=1)
    peer.cut()
    told = [frame.performative for frame in sender.hear() if isinstance(frame.performative, Disposition)]
    assert [disposition.state for disposition in told] == ([] if settled else [Released()])
    assert [body_of(payload) for _, payload in other.transfers()] == (["two"] if settled else [])
