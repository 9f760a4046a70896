"""python-qpid-proton's reactor against a real node: every address type, every outcome."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Condition, Delivery, Message, symbol

from tests.support.node_process import NodeProcess
from tests.support.proton_play import Exchange

pytestmark = pytest.mark.slow


ALL = ["anycast", "multicast", "queue", "topic", "subscription", "stream"]


@pytest.mark.parametrize("kind", ALL)
def test_messages_pass_through_every_address_type_in_order(node: NodeProcess, addresses: Any, kind: str) -> None:
    source, target = addresses.pair(kind)
    play = Exchange(node.url, source, [f"message {n}" for n in range(50)], target=target)
    play.play()
    assert play.bodies == [f"message {n}" for n in range(50)]
    assert play.outcomes == ["accepted"] * 50
    account = addresses.read(target)
    assert account["messagesIn"] == 50


@pytest.mark.parametrize("kind", ALL)
def test_settled_messages_pass_through_every_address_type(node: NodeProcess, addresses: Any, kind: str) -> None:
    source, target = addresses.pair(kind)
    play = Exchange(node.url, source, list(range(20)), target=target, settled=True)
    play.play()
    assert play.bodies == list(range(20))
    assert addresses.read(target)["dropped"] == 0


@pytest.mark.parametrize("kind", ["anycast", "multicast", "queue", "topic", "stream"])
def test_a_megabyte_passes_through_every_address_type(node: NodeProcess, addresses: Any, kind: str) -> None:
    address = addresses.declare(kind)
    bodies = [os.urandom(1 << 20), os.urandom((1 << 20) + 12345), b"small"]
    play = Exchange(node.url, address, [Message(body=body, durable=True) for body in bodies])
    play.play()
    assert [bytes(body) for body in play.bodies] == bodies
    assert play.outcomes == ["accepted"] * 3


def test_messages_pass_through_frames_of_512_bytes_and_a_small_window(node: NodeProcess, addresses: Any) -> None:
    for kind in ("anycast", "queue"):
        bodies = [os.urandom(size) for size in (0, 1, 450, 500, 50_000, 200_000)]
        play = Exchange(node.url, addresses.declare(kind), bodies)
        play.connect_options = {"max_frame_size": 512}
        play.play()
        assert [bytes(body) for body in play.bodies] == bodies
        assert play.outcomes == ["accepted"] * len(bodies)


def test_every_section_of_a_message_arrives_as_it_was_sent(node: NodeProcess, addresses: Any) -> None:
    for kind in ("anycast", "queue", "stream"):
        address = addresses.declare(kind)
        sent = Message(
            body={"list": [1, 2.5, None, True], "map": {"k": b"bytes"}},
            durable=True,
            priority=7,
            ttl=3600.0,
            id="id-1",
            user_id=b"anonymous",
            address="ignored",
            subject="subject",
            reply_to="replies",
            correlation_id=123,
            content_type="application/x",
            content_encoding="none",
            group_id="group",
            group_sequence=5,
            reply_to_group_id="other",
            properties={"text": "t", "number": 5, "flag": True},
            annotations={symbol("x-opt-mine"): "kept"},
            instructions={symbol("x-opt-hop"): 1},
        )
        play = Exchange(node.url, address, [sent])
        play.play()
        (got,) = play.received
        for field in (
            "body", "durable", "priority", "ttl", "id", "user_id", "address", "subject", "reply_to", "correlation_id",
            "content_type", "content_encoding", "group_id", "group_sequence", "reply_to_group_id", "properties",
        ):  # fmt: skip
            assert getattr(got, field) == getattr(sent, field), (kind, field)
        assert got.annotations[symbol("x-opt-mine")] == "kept"


def test_receivers_of_anycast_share_and_receivers_of_multicast_copy(node: NodeProcess, addresses: Any) -> None:
    shared = Exchange(node.url, addresses.declare("anycast"), list(range(60)), receivers=3, expect=60)
    shared.play()
    assert sorted(shared.bodies) == list(range(60))
    copied = Exchange(node.url, addresses.declare("multicast"), list(range(20)), receivers=3)
    copied.play()
    assert sorted(copied.bodies) == sorted(3 * list(range(20)))
    assert copied.outcomes == ["accepted"] * 20


# Outcomes


def settle_every_way(number: int, event: Any) -> None:
    """One of each: accept, reject with an error, release, modify with details."""
    delivery = event.delivery
    if number == 1:
        delivery.local.condition = Condition("acme:invalid", "no amount", {symbol("field"): "amount"})
        delivery.update(Delivery.REJECTED)
    elif number == 2:
        delivery.update(Delivery.RELEASED)
    elif number == 3:
        delivery.local.failed = True
        delivery.local.undeliverable = True
        delivery.local.annotations = {symbol("x-opt-why"): "tired"}
        delivery.update(Delivery.MODIFIED)
    else:
        delivery.update(Delivery.ACCEPTED)
    delivery.settle()


def test_an_anycast_sender_gets_its_receivers_own_outcome(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    play = Exchange(node.url, address, list(range(5)), answer=settle_every_way)
    play.play()
    assert play.outcomes == ["accepted", "rejected", "released", "modified", "accepted"]
    condition = play.details[1][0]
    assert (condition.name, condition.description) == ("acme:invalid", "no amount")
    assert condition.info == {symbol("field"): "amount"}
    _, failed, undeliverable, annotations = play.details[3]
    assert failed
    assert undeliverable
    assert annotations == {symbol("x-opt-why"): "tired"}
    account = addresses.read(address)
    assert [account[name] for name in ("accepted", "rejected", "released", "modified")] == [2, 1, 1, 1]


def test_multicast_accepts_if_any_receiver_does(node: NodeProcess, addresses: Any) -> None:
    outcomes = {"r0": Delivery.RELEASED, "r1": Delivery.REJECTED, "r2": Delivery.ACCEPTED}

    def answer(_number: int, event: Any) -> None:
        event.delivery.update(outcomes[event.link.name])
        event.delivery.settle()

    play = Exchange(node.url, addresses.declare("multicast"), [1], receivers=3, answer=answer)
    play.play()
    assert play.outcomes == ["accepted"]
    play = Exchange(node.url, addresses.declare("multicast"), [1], receivers=2, answer=answer)
    play.play()
    assert play.outcomes == ["rejected"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_queue_accepts_and_deals_with_its_receivers_outcomes_itself(
    node: NodeProcess, addresses: Any, durable: bool
) -> None:
    address = addresses.declare("queue")
    seen: list[tuple[int, int]] = []

    def answer(_number: int, event: Any) -> None:
        body, attempts = event.message.body, event.message.delivery_count
        again = body in [earlier for earlier, _ in seen]
        seen.append((body, attempts))
        state = Delivery.ACCEPTED
        if body == 1:
            state = Delivery.REJECTED
        elif body == 2 and not again:
            state = Delivery.RELEASED
        elif body == 3 and not again:
            event.delivery.local.failed = True
            state = Delivery.MODIFIED
        event.delivery.update(state)
        event.delivery.settle()

    messages = [Message(body=n, durable=durable) for n in range(5)]
    play = Exchange(node.url, address, messages, answer=answer, expect=7, credit=1)
    play.play()
    assert play.outcomes == ["accepted"] * 5
    assert sorted(body for body, _ in seen) == [0, 1, 2, 2, 3, 3, 4]
    assert [attempts for body, attempts in seen if body == 2] == [0, 0]
    assert [attempts for body, attempts in seen if body == 3] == [0, 1]


class Unsettled(Exchange):
    """Leaves what it receives unsettled and detaches."""

    def on_message(self, event: Any) -> None:
        self.received.append(event.message)
        if len(self.received) == len(self.messages):
            event.receiver.close()

    def on_link_closed(self, event: Any) -> None:
        if event.receiver:
            self.look()


def test_what_a_receiver_left_unsettled_failed_for_the_anycast_sender(node: NodeProcess, addresses: Any) -> None:
    play = Unsettled(node.url, addresses.declare("anycast"), [1, 2, 3])
    play.play()
    assert play.outcomes == ["modified"] * 3
    assert all(failed for _, failed, _, _ in play.details)


def test_what_a_receiver_left_unsettled_stays_in_the_queue(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    Unsettled(node.url, address, [1, 2, 3]).play()
    again = Exchange(node.url, address, [], expect=3)
    again.play()
    assert again.bodies == [1, 2, 3]
    assert [message.delivery_count for message in again.received] == [1, 1, 1]
