"""Queues of RabbitMQ 3 behind a connector, over every protocol that a space speaks, and what its plugin cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from enmasse.client import LinkRefusedError, Message, TransactionError
from tests.interop.foreign_clients import CLIENTS
from tests.support.chance import kills
from tests.support.foreign_tools import require
from tests.support.polling import until
from tests.support.rabbitmq_process import RabbitmqProcess
from tests.support.stream_node import StreamNode

require("RabbitMQ")

# A life of the broker takes up to a quarter of a minute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = ("orders", "drained", "tries", "kept", "rejected")
ORDERS, DRAINED, TRIES, KEPT, REJECTED = (f"old//amq/queue/{name}" for name in NAMES)


class Place:
    """A node whose space has the connector ``old``, which leads to a RabbitMQ."""

    def __init__(self, folder: Path) -> None:
        self.broker = RabbitmqProcess(folder / "rabbitmq", quorum=["drained"], classic=["orders", "tries", "kept"])
        self.broker.start()
        self.node = StreamNode(folder / "node", "--connector-network", "127.0.0.1/32").start()
        old = {
            "servers": [{"host": "localhost", "port": self.broker.port}],
            "patterns": ["#"],
            "tls": True,
            "authorities": self.broker.authority,
            "username": self.broker.username,
            "password": self.broker.password,
        }
        self.node.manage(lambda m: m.update("io.enmasse.space", "default/demo", {"connectors": {"old": old}}))

    def status(self) -> dict[str, Any]:
        (found,) = self.node.manage(lambda m: m.read("io.enmasse.space", "default/demo"))["connectorStatus"]
        return dict(found)

    def stop(self) -> None:
        code = self.node.stop()
        self.broker.remove()
        assert code == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("rabbitmq"))
    yield made
    made.stop()


@pytest.mark.parametrize("name", CLIENTS)
def test_a_queue_there_is_filled_and_emptied_by_every_client(place: Place, name: str, tmp_path: Path) -> None:
    # Qpid JMS drains its credit, by which 3.10.8 fails at classic queues.
    CLIENTS[name](place.node.port, DRAINED if name == "Qpid JMS" else ORDERS, tmp_path)
    assert place.status()["connections"] == 1


def test_large_messages_pass_both_ways(place: Place) -> None:
    with place.node.connect() as connection, connection.sender(TRIES) as sender:
        assert str(sender.send(Message("x" * 1_500_000, subject="large", durable=True))) == "accepted"
        with connection.receiver(TRIES) as receiver:
            got = receiver.receive(60)
            assert got is not None
            assert (len(got.message.body), got.message.subject) == (1_500_000, "large")
            got.accept()


def test_outcomes_of_a_receiver_are_those_that_it_knows(place: Place) -> None:
    with place.node.connect() as connection, connection.sender(TRIES) as sender:
        with connection.receiver(TRIES, credit=1) as receiver:
            # It knows no failed deliveries: they are released.
            for failed in (False, True):
                sender.send(Message("again", durable=True))
                got = receiver.receive(60)
                assert got is not None
                if failed:
                    got.modify(failed=True)
                else:
                    got.release()
                again = receiver.receive(60)
                assert again is not None
                assert (again.message.body, again.message.delivery_count) == ("again", 0)
                again.accept()
            sender.send(Message("rejected", durable=True))
            got = receiver.receive(60)
            assert got is not None
            got.reject("amqp:precondition-failed", "not this one")
            sender.send(Message("left", durable=True))
            assert receiver.receive(60) is not None
        # What a receiver leaves behind is there again, and costs the client nothing.
        assert str(sender.send(Message("after", durable=True))) == "accepted"
        for address, bodies in ((TRIES, {"left", "after"}), (REJECTED, {"rejected"})):
            found = set()
            with connection.receiver(address) as receiver:
                for _ in bodies:
                    got = receiver.receive(60)
                    assert got is not None
                    found.add(got.message.body)
                    got.accept()
            assert found == bodies


def test_exchanges_and_queues_made_on_request_are_reached_by_their_names(place: Place) -> None:
    with place.node.connect() as connection:
        for source, target in (
            ("old/made", "old/made"),
            ("old//queue/also", "old//queue/also"),
            ("old//exchange/amq.topic/news.*", "old//exchange/amq.topic/news.local"),
            ("old//topic/weather.#", "old//topic/weather.north.sea"),
        ):
            with connection.receiver(source) as receiver, connection.sender(target) as sender:
                assert str(sender.send(Message(target))) == "accepted"
                got = receiver.receive(60)
                assert got is not None
                assert got.message.body == target
                got.accept()


def test_what_it_refuses_costs_the_client_no_other_link(place: Place) -> None:
    with place.node.connect() as connection, connection.sender(TRIES) as sender:
        for name, condition, words in (
            ("old//amq/queue/none", "amqp:not-found", "no queue 'none'"),
            ("old/tries", "amqp:precondition-failed", "durable"),
            ("old/no/such", "amqp:invalid-field", "unknown_destination"),
        ):
            with pytest.raises(LinkRefusedError) as refused:
                connection.receiver(name)
            assert refused.value.condition == condition
            assert words in str(refused.value)
            assert str(sender.send(Message(name, durable=True))) == "accepted"
        with connection.receiver(TRIES) as receiver:
            for _ in range(3):
                got = receiver.receive(60)
                assert got is not None
                got.accept()


def test_what_its_plugin_cannot_do_is_refused(place: Place) -> None:
    require("python-qpid-proton")
    from proton import Link
    from proton.reactor import LinkOption, Selector
    from proton.utils import BlockingConnection, LinkDetached

    class SettlesSecond(LinkOption):
        """Has a receiver settle once its outcome has taken effect."""

        def apply(self, link: Any) -> None:
            link.rcv_settle_mode = Link.RCV_SECOND

    connection: Any = BlockingConnection(place.node.url, timeout=60)
    try:
        sender = connection.create_sender(TRIES)
        with pytest.raises(LinkDetached, match="rcv-settle-mode second not supported"):
            connection.create_receiver(TRIES, options=SettlesSecond())
        sender.close()
        # A selector is no error there; the answer says that it is not in effect.
        receiver = connection.create_receiver(TRIES, options=Selector("colour = 'red'"))
        receiver.link.remote_source.filter.rewind()
        assert not receiver.link.remote_source.filter.next()
    finally:
        connection.close()
    with place.node.connect() as ours, ours.sender(TRIES) as target:
        with pytest.raises(LinkRefusedError, match="Dynamic sources not supported"):
            ours.receiver("old", dynamic=True)
        transaction = ours.transaction()
        outcome = str(target.send(Message("within", durable=True), transaction=transaction))
        assert outcome.startswith("rejected (amqp:not-implemented")
        with pytest.raises(TransactionError, match="Transactions not supported"):
            transaction.commit()
        assert str(target.send(Message("after", durable=True))) == "accepted"
        with ours.receiver(TRIES) as receiver:
            got = receiver.receive(60)
            assert got is not None
            assert got.message.body == "after"
            got.accept()


def test_who_would_browse_or_select_takes_nothing(place: Place) -> None:
    """RabbitMQ 3 repeats in its answer that it browses and selects, and hands out any message, to be taken."""
    base = f"http://127.0.0.1:{place.node.port}/v1/spaces/demo.default/addresses/{quote(ORDERS, safe='')}"
    with httpx.Client(trust_env=False, timeout=60) as http:
        answer = http.get(f"{base}/messages")
        assert answer.json()["condition"] == "amqp:not-implemented", answer.text
        assert "does not know browsing" in answer.json()["detail"]
        answer = http.post(f"{base}/receive", params={"selector": "colour = 'red'"})
        assert "does not know the filter" in answer.json()["detail"], answer.text


def test_a_client_has_more_links_than_one_connection_there_takes(place: Place) -> None:
    with place.node.connect() as connection:
        senders = [connection.sender(TRIES) for _ in range(260)]
        assert str(senders[-1].send(Message("last", durable=True))) == "accepted"
        with connection.receiver(TRIES) as receiver:
            got = receiver.receive(60)
            assert got is not None
            got.accept()
    assert place.status()["connections"] == 2


@pytest.mark.chance
@pytest.mark.timeout(300 + 30 * kills(1))
def test_nothing_accepted_is_lost_as_the_broker_is_killed(place: Place) -> None:
    accepted: set[str] = set()
    told = 0
    lives = min(10, kills(1))
    with place.node.connect() as connection, connection.sender(KEPT) as sender:
        for life in range(lives):
            names = [f"{life}-{number}" for number in range(300)]
            sending = [sender.send_nowait(Message(name, durable=True)) for name in names]
            assert str(sending[20].result(60)) == "accepted"
            place.broker.kill()
            # Without credit it waits for the broker; what it had sent has an outcome.
            for name, one in zip(names, sending, strict=True):
                told += 1
                if str(one.result(120)) == "accepted":
                    accepted.add(name)
            until(lambda: sender.credit == 0, lambda: str(place.status()))
            place.broker.start()
            until(lambda: sender.credit > 0, lambda: str(place.status()), seconds=120)
        assert str(sender.send(Message("last", durable=True))) == "accepted"
        found: list[str] = []
        with connection.receiver(KEPT) as receiver:
            while "last" not in found:
                got = receiver.receive(60)
                assert got is not None
                found.append(got.message.body)
                got.accept()
    assert told == 300 * lives
    assert accepted - set(found) == set()
    assert len(found) == len(set(found))
