"""python-qpid-proton's reactor against a real node: credit, aborted messages and silence."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Delivery, Message

from tests.support.node_process import NodeProcess
from tests.support.proton_play import Play

pytestmark = pytest.mark.slow


class Patience(Play):
    """A sender that is there before any receiver."""

    def __init__(self, url: str, address: str, answer: int) -> None:
        super().__init__(url, prefetch=0)
        self.address = address
        self.state = answer
        self.before: list[int] = []
        self.outcome = 0
        self.sender: Any = None
        self.receiver: Any = None
        self.other: Any = None

    def begin(self) -> None:
        self.sender = self.container.create_sender(self.connection, self.address)

    def on_link_opened(self, event: Any) -> None:
        if event.sender and event.sender.name == self.sender.name and self.receiver is None:
            # A round trip on another link shows that no credit was on its way.
            self.other = self.container.create_receiver(self.connection, self.address, name="no-credit")
            self.receiver = self.other
        elif event.receiver and event.receiver.name == "no-credit":
            self.before.append(self.sender.credit)
            self.receiver = self.container.create_receiver(self.connection, self.address, name="credit")
            self.receiver.flow(1)

    def on_sendable(self, event: Any) -> None:
        self.before.append(event.sender.credit)
        event.sender.send(Message(body="at last"))

    def on_message(self, event: Any) -> None:
        event.delivery.update(self.state)
        event.delivery.settle()

    def on_settled(self, event: Any) -> None:
        if event.sender:
            self.outcome = event.delivery.remote_state
            self.end()


@pytest.mark.parametrize("state", [Delivery.RELEASED, Delivery.ACCEPTED])
@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_a_sender_gets_no_credit_before_a_receiver_has_some_and_then_its_outcome(
    node: NodeProcess, addresses: Any, kind: str, state: int
) -> None:
    play = Patience(node.url, addresses.declare(kind), state)
    play.play()
    assert play.before == [0, 1]
    assert play.outcome == state


class Crowd(Play):
    """A thousand senders over a few connections, and one receiver with a credit of 10."""

    CONNECTIONS = 10

    def __init__(self, url: str, address: str, senders: int) -> None:
        super().__init__(url, prefetch=10)
        self.address = address
        self.senders = senders
        self.connections: list[Any] = []
        self.sent: set[str] = set()
        self.got: list[str] = []
        self.accepted = 0

    def begin(self) -> None:
        self.container.create_receiver(self.connection, self.address)
        for number in range(self.CONNECTIONS):
            connection = self.container.connect(self.url, reconnect=False)
            self.connections.append(connection)
            for link in range(number, self.senders, self.CONNECTIONS):
                self.container.create_sender(connection, self.address, name=f"sender-{link}")

    def on_sendable(self, event: Any) -> None:
        self.send(event.sender)

    def send(self, sender: Any) -> None:
        # Proton counts below zero when a delivery has crossed with a lower credit.
        if sender.name not in self.sent and sender.credit > 0:
            self.sent.add(sender.name)
            sender.send(Message(body=sender.name))

    def on_released(self, event: Any) -> None:
        # It had crossed with credit that was called in: the sender tries again.
        self.sent.discard(event.sender.name)
        self.send(event.sender)

    def on_message(self, event: Any) -> None:
        self.got.append(event.message.body)
        self.accept(event.delivery)

    def on_accepted(self, event: Any) -> None:
        self.accepted += 1
        if self.accepted == self.senders:
            for connection in self.connections:
                connection.close()
            self.end()


def test_a_thousand_senders_get_through_to_a_receiver_with_a_credit_of_10(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    play = Crowd(node.url, address, 1000)
    play.play()
    assert sorted(play.got) == sorted(f"sender-{n}" for n in range(1000))
    account = addresses.read(address)
    assert account["accepted"] == 1000
    assert account["creditExcess"] == 0, "granted beyond what the receiver had asked for"


class Abort(Play):
    """Breaks a message off in the middle, then sends a whole one; the receiver's credit is 1."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(url, prefetch=0)
        self.address = address
        self.step = "wait for credit"
        self.partial: Any = None
        self.bodies: list[Any] = []
        self.receiver: Any = None

    def begin(self) -> None:
        self.receiver = self.container.create_receiver(self.connection, self.address)
        self.receiver.flow(1)

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        if self.step == "wait for credit":
            self.step = "abort"
            self.partial = event.sender.delivery("partial")
            event.sender.stream(Message(body=b"x" * 100_000).encode()[:50_000])
            # What was given goes out first; then the rest is called off.
            event.container.schedule(0.05, self)
        elif self.step == "send again" and event.sender.credit > 0:
            self.step = "done"
            event.sender.send(Message(body="whole"))

    def on_timer_task(self, event: Any) -> None:
        if self.step != "abort":
            super().on_timer_task(event)
        self.step = "send again"
        self.partial.abort()

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.accept(event.delivery)

    def on_accepted(self, event: Any) -> None:
        self.end()


def test_an_aborted_message_takes_nobodys_credit_away(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("anycast")
    play = Abort(node.url, address)
    play.play()
    assert play.bodies == ["whole"]
    assert addresses.read(address)["creditExcess"] == 0


class Quiet(Play):
    """Says nothing for longer than both sides' idle time-outs."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "nowhere")

    def on_link_error(self, event: Any) -> None:
        super().on_link_error(event)
        event.container.schedule(3.0, self)

    def on_timer_task(self, event: Any) -> None:
        assert self.errors, "the time-out of the whole"
        self.end()

    def on_transport_error(self, event: Any) -> None:
        self.errors.append((event.transport.condition.name, event.transport.condition.description))
        event.container.stop()


def test_heartbeats_keep_a_quiet_connection(node: NodeProcess) -> None:
    play = Quiet(node.url)
    play.connect_options = {"heartbeat": 1.0}
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:not-found"]
