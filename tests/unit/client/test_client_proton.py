"""The client against a foreign server: a container of python-qpid-proton that listens."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

import pytest

from enmasse.client import LinkRefusedError, Message, Outcome, connect
from tests.support.foreign_tools import require

require("python-qpid-proton")

import proton
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

pytestmark = pytest.mark.slow

BIG = b"x" * 3_000_000


class Exchange(MessagingHandler):
    """Keeps messages by address and hands them to whoever receives; answers requests itself."""

    def __init__(self, port: int) -> None:
        super().__init__(auto_accept=False, prefetch=0)
        self.port = port
        self.injector = EventInjector()
        self.messages: defaultdict[str, deque[Any]] = defaultdict(deque)
        self.links: defaultdict[str, list[Any]] = defaultdict(list)
        self.seen: list[Any] = []
        self.outcomes: list[str] = []
        self.made = 0

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.container.selectable(self.injector)
        self.acceptor = event.container.listen(f"127.0.0.1:{self.port}")

    def on_stop_asked(self, event: Any) -> None:
        self.acceptor.close()
        self.injector.close()
        self.container.stop()

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            if link.remote_source.dynamic:
                self.made += 1
                link.source.address = f"made-{self.made}"
            else:
                link.source.address = link.remote_source.address
            self.links[link.source.address].append(link)
        elif link.remote_target.address == "nowhere":
            link.target.type = proton.Terminus.UNSPECIFIED
        else:
            link.target.address = link.remote_target.address
            link.flow(1000)

    def on_link_local_open(self, event: Any) -> None:
        link = event.link
        if link.is_receiver and link.target.type == proton.Terminus.UNSPECIFIED:
            link.condition = proton.Condition("amqp:not-found", "no such address")
            link.close()

    def on_message(self, event: Any) -> None:
        message = event.message
        address = event.link.target.address or message.address
        self.seen.append((address, message))
        if event.link.credit < 500:
            event.link.flow(500)
        if address == "bad":
            event.delivery.local.condition = proton.Condition("x:bad", "no good")
            self.settle(event.delivery, proton.Delivery.REJECTED)
            return
        self.settle(event.delivery, proton.Delivery.ACCEPTED)
        if address == "service":
            address = message.reply_to
            message = proton.Message(body="pong", correlation_id=message.id)
        self.messages[address].append(message)
        self.dispatch(address)

    def on_sendable(self, event: Any) -> None:
        self.dispatch(event.link.source.address)

    def dispatch(self, address: str) -> None:
        for link in self.links[address]:
            while link.credit and self.messages[address]:
                link.send(self.messages[address].popleft())

    def on_accepted(self, event: Any) -> None:
        self.outcomes.append("accepted")

    def on_rejected(self, event: Any) -> None:
        self.outcomes.append("rejected")

    def on_released(self, event: Any) -> None:
        self.outcomes.append("modified" if event.delivery.remote_state == proton.Delivery.MODIFIED else "released")


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    exchange = Exchange(port)
    container = Container(exchange)
    thread = threading.Thread(target=container.run)
    thread.start()
    yield exchange
    exchange.injector.trigger(ApplicationEvent("stop_asked"))
    thread.join()


def url(exchange: Exchange) -> str:
    return f"amqp://127.0.0.1:{exchange.port}"


async def test_a_foreign_server_reads_what_we_write(exchange: Exchange) -> None:
    async with connect(url(exchange), patience=10) as connection:
        sender = await connection.sender("orders")
        message = Message(
            {"a": [1, "b"]}, subject="s", message_id="id", content_type="x/y", properties={"n": 5}, durable=True,
            annotations={"x-opt-a": "b"}, ttl=5, priority=7, creation_time=1700000000.5, group_sequence=3,
        )  # fmt: skip
        assert await sender.send(message, timeout=30) == Outcome.ACCEPTED
        address, found = exchange.seen[0]
        assert address == "orders"
        assert found.body == {"a": [1, "b"]}
        assert (found.subject, found.id, found.content_type, found.properties) == ("s", "id", "x/y", {"n": 5})
        assert (found.durable, found.ttl, found.priority, found.creation_time) == (True, 5, 7, 1700000000.5)
        assert (found.annotations, found.group_sequence) == ({"x-opt-a": "b"}, 3)


async def test_we_read_what_a_foreign_server_writes(exchange: Exchange) -> None:
    exchange.messages["orders"].extend(
        [
            proton.Message(body=b"bytes", subject="s", properties={"n": 5}, ttl=2, annotations={"x-opt-a": "b"}),
            proton.Message(body="text", id=proton.ulong(7)),
            proton.Message(body=BIG, inferred=True),
        ]
    )
    async with connect(url(exchange), patience=10) as connection:
        receiver = await connection.receiver("orders", credit=2)
        found = []
        for settle in ("accept", "reject", "modify"):
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            found.append(delivery.message)
            getattr(delivery, settle)()
        assert (found[0].body, found[0].subject, found[0].properties, found[0].ttl) == (b"bytes", "s", {"n": 5}, 2)
        assert found[0].annotations == {"x-opt-a": "b"}
        assert (found[1].body, found[1].message_id) == ("text", 7)
        assert found[2].body == BIG
    assert exchange.outcomes == ["accepted", "rejected", "modified"]


async def test_outcomes_and_refusals_of_a_foreign_server_are_understood(exchange: Exchange) -> None:
    async with connect(url(exchange), patience=10) as connection:
        outcome = await (await connection.sender("bad")).send(Message(b"x"), timeout=30)
        assert (outcome.name, outcome.condition, outcome.description) == ("rejected", "x:bad", "no good")
        with pytest.raises(LinkRefusedError, match="no such address") as caught:
            await connection.sender("nowhere")
        assert caught.value.condition == "amqp:not-found"


async def test_many_and_large_messages_pass_through_a_foreign_server(exchange: Exchange) -> None:
    async with connect(url(exchange), patience=10) as connection:
        sender = await connection.sender("orders")
        bodies: list[Any] = [*range(3000), BIG]
        outcomes = await sender.send_all([Message(body) for body in bodies], timeout=60)
        assert outcomes == [Outcome.ACCEPTED] * 3001
        receiver = await connection.receiver("orders")
        for body in bodies:
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            assert delivery.message.body == body
            delivery.accept()


async def test_a_foreign_server_answers_requests(exchange: Exchange) -> None:
    async with connect(url(exchange), patience=10) as connection:
        reply = await connection.request("service", Message("ping"), timeout=30)
        assert reply.body == "pong"
