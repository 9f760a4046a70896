"""python-qpid-proton's reactor against a real node: what stays, through crashes too."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Endpoint, Link, Message, symbol
from proton.reactor import Filter

from tests.support.node_process import NodeProcess
from tests.support.proton_play import Exchange, Play

pytestmark = pytest.mark.slow


def first(partition: int | None = None) -> Any:
    """A reader's option: from the beginning of the stream."""
    filters: dict[Any, Any] = {symbol("enmasse:start"): "first"}
    if partition is not None:
        filters[symbol("enmasse:partition")] = partition
    return Filter(filters)


def test_a_queue_keeps_messages_until_somebody_comes(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    sender = Exchange(node.url, address, list(range(100)), expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * 100
    assert addresses.read(address)["messagesStored"] == 100
    receiver = Exchange(node.url, address, [], expect=100)
    receiver.play()
    assert receiver.bodies == list(range(100))


def test_a_subscription_keeps_what_its_topic_was_sent(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic")
    subscriptions = [addresses.declare("subscription", topic=topic) for _ in range(2)]
    sender = Exchange(node.url, subscriptions[0], list(range(10)), target=topic, expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * 10
    for subscription in (subscriptions[0], f"{topic}::{subscriptions[1]}"):
        receiver = Exchange(node.url, subscription, [], expect=10)
        receiver.play()
        assert receiver.bodies == list(range(10))


def test_nobody_sends_into_a_subscription(node: NodeProcess, addresses: Any) -> None:
    subscription, _ = addresses.pair("subscription")
    play = Exchange(node.url, subscription, ["x"], expect=0)
    play.ends_on_error = True
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:not-allowed"]


def test_a_stream_is_read_again_and_again(node: NodeProcess, addresses: Any) -> None:
    stream = addresses.declare("stream", partitions=3)
    messages = [Message(body=n, subject=f"device-{n % 7}") for n in range(70)]
    sender = Exchange(node.url, stream, messages, expect=0, credit=0)
    sender.play()
    assert sender.outcomes == ["accepted"] * 70
    for _ in range(2):
        reader = Exchange(node.url, stream, [], expect=70, options=first())
        reader.play()
        assert sorted(reader.bodies) == list(range(70))
        by_device: dict[str, list[int]] = {}
        where: dict[str, set[int]] = {}
        for message in reader.received:
            by_device.setdefault(message.subject, []).append(message.body)
            where.setdefault(message.subject, set()).add(message.annotations[symbol("x-opt-partition")])
        assert all(numbers == sorted(numbers) for numbers in by_device.values())
        assert all(len(partitions) == 1 for partitions in where.values())
    partition = next(iter(where["device-0"]))
    one = Exchange(node.url, stream, [], expect=1, options=first(partition), credit=1)
    one.play()
    assert one.received[0].annotations[symbol("x-opt-offset")] == 0
    assert one.received[0].annotations[symbol("x-opt-partition")] == partition


def test_durable_messages_survive_a_crash_of_the_node(killable_node: Any) -> None:
    process, manage = killable_node
    addresses = manage()
    queue, topic = addresses.declare("queue"), addresses.declare("topic")
    subscription = addresses.declare("subscription", topic=topic)
    stream = addresses.declare("stream")
    durable = [Message(body=n, durable=True) for n in range(100)]
    for target in (queue, topic, stream):
        sender = Exchange(process.url, subscription, durable, target=target, expect=0, credit=0)
        sender.play()
        assert sender.outcomes == ["accepted"] * 100
    taken = Exchange(process.url, queue, [], expect=30, credit=1)
    taken.play()
    # What was settled last may come again, so let a later commit carry it.
    Exchange(process.url, queue, [Message(body="last", durable=True)], expect=0, credit=0).play()

    process.kill()
    process.start()

    for source, options, expected in (
        (queue, None, [*range(30, 100), "last"]),
        (subscription, None, list(range(100))),
        (stream, first(), list(range(100))),
    ):
        reader = Exchange(process.url, source, [], expect=len(expected), options=options)
        reader.play()
        assert reader.bodies == expected


class Forced(Play):
    """Has the node stopped, and waits until it goes."""

    def begin(self) -> None:
        self.container.create_receiver(self.connection, "nowhere")

    def on_link_error(self, event: Any) -> None:
        self.stopping()

    def stopping(self) -> None:
        raise NotImplementedError

    def on_disconnected(self, event: Any) -> None:
        # To proton a forced close is a reason to connect again, and so no error.
        self.errors.append((event.connection.remote_condition.name, event.connection.remote_condition.description))
        event.container.stop()


def test_a_node_that_stops_says_so(own_node: Any) -> None:
    process, _ = own_node
    play = Forced(process.url)
    play.stopping = lambda: os.kill(process.pid, 15)  # type: ignore[method-assign]
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:connection:forced"]
    assert process.stop() == 0


def test_endpoints_know_each_other(node: NodeProcess, addresses: Any) -> None:
    """The link's state as proton sees it, and as the node's management tells it."""
    address = addresses.declare("anycast")
    play = Exchange(node.url, address, [1])
    seen: list[dict[str, Any]] = []
    end = play.end

    def look() -> None:
        assert play.sender.state & Endpoint.REMOTE_ACTIVE
        assert isinstance(play.sender, Link)
        seen.extend(link for link in addresses.query("io.enmasse.link") if link["address"] == address)
        end()

    play.end = look  # type: ignore[method-assign]
    play.play()
    assert {(link["role"], link["deliveries"]) for link in seen} == {("sender", 1), ("receiver", 1)}
