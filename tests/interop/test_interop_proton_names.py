"""python-qpid-proton's reactor against a real node: replies, unknown names, the anonymous terminus, patterns."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message

from tests.support.node_process import NodeProcess
from tests.support.proton_play import Exchange, Play

pytestmark = pytest.mark.slow

ALL = ["anycast", "multicast", "queue", "topic", "subscription", "stream"]


class Request(Play):
    """Asks over a dynamic reply address; a responder on the same connection answers to it."""

    def __init__(self, url: str, address: str, *, to: str | None) -> None:
        super().__init__(url)
        self.address = address
        self.to = to
        self.replies: list[Any] = []
        self.reply_to = ""
        self.asked = False
        self.service: Any = None
        self.answers: Any = None
        self.reply_receiver: Any = None

    def begin(self) -> None:
        self.service = self.container.create_receiver(self.connection, self.address, name="service")
        self.answers = self.container.create_sender(self.connection, self.to, name="answers")
        self.reply_receiver = self.container.create_receiver(self.connection, None, dynamic=True, name="replies")

    def on_link_opened(self, event: Any) -> None:
        if event.receiver and event.receiver.name == "replies":
            self.reply_to = event.receiver.remote_source.address
            self.container.create_sender(self.connection, self.address, name="requests")

    def on_sendable(self, event: Any) -> None:
        if event.sender.name == "requests" and not self.asked:
            self.asked = True
            event.sender.send(Message(body="ping", reply_to=self.reply_to, correlation_id="c-1"))

    def on_message(self, event: Any) -> None:
        self.accept(event.delivery)
        if event.receiver.name == "service":
            asked = event.message
            answer = Message(body=asked.body + " pong", address=asked.reply_to, correlation_id=asked.correlation_id)
            self.answers.send(answer)
        else:
            self.replies.append(event.message)
            self.end()


@pytest.mark.parametrize("kind", ["anycast", "queue"])
def test_a_request_is_answered_over_a_dynamic_address(node: NodeProcess, addresses: Any, kind: str) -> None:
    play = Request(node.url, addresses.declare(kind), to=None)
    play.play()
    assert play.reply_to
    assert [(reply.body, reply.correlation_id) for reply in play.replies] == [("ping pong", "c-1")]
    other = Request(node.url, addresses.declare(kind), to=None)
    other.play()
    assert other.reply_to != play.reply_to


# Names


class Unknown(Play):
    """Tries addresses that do not exist, then one that does."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(url)
        self.address = address
        self.body = None

    def begin(self) -> None:
        self.container.create_sender(self.connection, "nowhere", name="bad-sender")
        self.container.create_receiver(self.connection, "nowhere", name="bad-receiver")

    def on_link_error(self, event: Any) -> None:
        super().on_link_error(event)
        if len(self.errors) == 2:
            self.container.create_receiver(self.connection, self.address)
            self.container.create_sender(self.connection, self.address)

    def on_sendable(self, event: Any) -> None:
        if event.sender.name != "bad-sender" and self.body is None:
            event.sender.send(Message(body="alive"))

    def on_message(self, event: Any) -> None:
        self.body = event.message.body
        self.accept(event.delivery)
        self.end()


def test_an_unknown_address_is_refused_while_the_connection_lives(node: NodeProcess, addresses: Any) -> None:
    play = Unknown(node.url, addresses.declare("queue"))
    play.play()
    assert [name for name, _ in play.errors] == ["amqp:not-found"] * 2
    assert all("nowhere" in description for _, description in play.errors)
    assert play.body == "alive"


class Anonymous(Exchange):
    """Names the address in each message."""

    def on_link_opened(self, event: Any) -> None:
        if event.receiver:
            self.receivers -= 1
            if not self.receivers:
                self.sender = self.container.create_sender(self.connection, None)


@pytest.mark.parametrize("kind", ALL)
def test_the_anonymous_terminus_reaches_every_address_type(node: NodeProcess, addresses: Any, kind: str) -> None:
    source, target = addresses.pair(kind)
    play = Anonymous(node.url, source, [Message(body=n, address=target) for n in range(5)])
    play.play()
    assert play.bodies == list(range(5))
    assert play.outcomes == ["accepted"] * 5


def test_the_anonymous_terminus_says_what_it_cannot_deliver(node: NodeProcess, addresses: Any) -> None:
    nobody = addresses.declare("anycast")
    messages = [Message(body=1, address="nowhere"), Message(body=2), Message(body=3, address=nobody)]
    play = Anonymous(node.url, addresses.declare("queue"), messages, expect=0)
    play.play()
    assert play.outcomes == ["rejected", "rejected", "released"]
    assert play.details[0][0].name == "amqp:not-found"
    assert play.details[1][0].name == "amqp:precondition-failed"


def test_a_topic_takes_names_below_it_and_patterns(node: NodeProcess, addresses: Any) -> None:
    topic = addresses.declare("topic", "news")
    below = f"{topic}/sport/chess"
    for pattern, expect in ((f"{topic}/#", 3), (f"{topic}/*/chess", 3), (f"{topic}/#/chess", 3), (below, 3)):
        play = Exchange(node.url, pattern, [1, 2, 3], target=below, expect=expect)
        play.play()
        assert play.bodies == [1, 2, 3], pattern
    other = Exchange(node.url, f"{topic}/politics", [1, 2, 3], target=below, expect=0)
    other.play()
    assert other.bodies == []
    assert other.outcomes == ["accepted"] * 3
