"""A queue of Artemis behind a connector, over every protocol that a space speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.client import Message, TransactionError
from tests.interop.foreign_clients import CLIENTS, qpid_jms
from tests.support.artemis_process import ArtemisProcess
from tests.support.chance import kills
from tests.support.foreign_tools import require
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until
from tests.support.stomp_peer import StompPeer
from tests.support.stream_node import StreamNode

require("Artemis")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


JMS = (
    "messages-of-every-kind", "completions", "many", "transactions", "recover", "selector", "browser", "expiry",
    "delay", "priority", "large-message",
)  # fmt: skip
"""What Qpid JMS plays at a queue there, as it does at one of ours."""


class Place:
    """A node whose space has the connector ``old``, which leads to an Artemis."""

    def __init__(self, folder: Path) -> None:
        self.broker = ArtemisProcess(folder / "artemis", "orders", "tries", "kept")
        self.broker.start()
        self.node = StreamNode(folder / "node", "--connector-network", "127.0.0.1/32").start()
        old = {"servers": [{"host": "127.0.0.1", "port": self.broker.port}], "patterns": ["#"]}
        self.node.manage(lambda m: m.update("io.enmasse.space", "default/demo", {"connectors": {"old": old}}))

    def problem(self) -> str:
        (found,) = self.node.manage(lambda m: m.read("io.enmasse.space", "default/demo"))["connectorStatus"]
        return str(found["problem"])

    def stop(self) -> None:
        code = self.node.stop()
        self.broker.remove()
        assert code == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("connector"))
    yield made
    made.stop()


def test_a_queue_there_is_filled_and_emptied_by_every_protocol(place: Place) -> None:
    async def by_others() -> list[bytes]:
        url = f"http://127.0.0.1:{place.node.port}/v1/spaces/demo.default/addresses/old%2Forders"
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(f"{url}/messages", content=b"http", headers={"content-type": "text/plain"})
            assert answer.status_code == 200, answer.text
        async with MqttPeer(place.node.port) as peer:
            assert await peer.answer("old/orders", b"mqtt") == 0
            assert await peer.subscribed("old/orders", qos=1) == [1]
            found = [(await peer.message()).payload for _ in range(2)]
        async with StompPeer(place.node.port, host="demo.default") as stomp:
            stomp.say("SEND", b"stomp", destination="old/orders", receipt="sent")
            await stomp.receipt("sent")
            await stomp.subscribe("old/orders", ack="client-individual")
            got = await stomp.next("MESSAGE")
            stomp.say("ACK", id=got["ack"], receipt="done")
            await stomp.receipt("done")
        return [*found, got.body]

    # The first message takes a busy broker longer than HTTP waits for an answer.
    with place.node.connect() as connection, connection.sender("old/orders") as sender:
        assert str(sender.send(Message("x" * 1_500_000, subject="large", durable=True))) == "accepted"
        with connection.receiver("old/orders") as receiver:
            got = receiver.receive(60)
            assert got is not None
            assert (len(got.message.body), got.message.subject) == (1_500_000, "large")
            got.accept()
    assert asyncio.run(by_others()) == [b"http", b"mqtt", b"stomp"]


def test_a_service_there_answers_to_an_address_that_was_made_there(place: Place) -> None:
    with (
        place.node.connect() as connection,
        connection.sender("old/orders") as sender,
        connection.receiver("old", dynamic=True) as replies,
    ):
        assert replies.address is not None
        sender.send(Message("how much?", reply_to=replies.address.removeprefix("old/")))
        with connection.receiver("old/orders") as requests, connection.sender(None) as answers:
            got = requests.receive(60)
            assert got is not None
            assert str(answers.send(Message("3.20", to=f"old/{got.message.reply_to}"))) == "accepted"
            got.accept()
        answer = replies.receive(60)
        assert answer is not None
        assert answer.message.body == "3.20"
        answer.accept()

    async def by_http() -> None:
        url = f"http://127.0.0.1:{place.node.port}/v1/spaces/demo.default/addresses/old%2Forders/request"
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            asking = asyncio.create_task(http.post(url, content=b"and now?"))
            await asyncio.to_thread(answer_one)
            assert (await asking).text == "3.30"

    def answer_one() -> None:
        with place.node.connect() as connection, connection.receiver("old/orders") as requests:
            got = requests.receive(60)
            assert got is not None
            with connection.sender(f"old/{got.message.reply_to}") as answers:
                answers.send(Message("3.30", correlation_id=got.message.correlation_id))
            got.accept()

    asyncio.run(by_http())


@pytest.mark.parametrize("name", CLIENTS)
def test_it_is_filled_and_emptied_by_every_foreign_client(place: Place, name: str, tmp_path: Path) -> None:
    play = partial(qpid_jms, scenarios=JMS) if name == "Qpid JMS" else CLIENTS[name]
    play(place.node.port, "old/orders", tmp_path)


def test_outcomes_of_a_receiver_are_those_of_the_queue_there(place: Place) -> None:
    with place.node.connect() as connection, connection.sender("old/tries") as sender:
        with connection.receiver("old/tries", credit=1) as receiver:
            for failed, count in ((None, 0), (True, 1)):
                sender.send(Message(str(failed), durable=True))
                got = receiver.receive(60)
                assert got is not None
                if failed is None:
                    got.release()
                else:
                    got.modify(failed=True)
                again = receiver.receive(60)
                assert again is not None
                assert (again.message.body, again.message.delivery_count) == (str(failed), count)
                again.accept()
            sender.send(Message("rejected", durable=True))
            got = receiver.receive(60)
            assert got is not None
            got.reject("amqp:precondition-failed", "not this one")
        with connection.receiver("old/DLQ") as letters:
            letter = letters.receive(60)
            assert letter is not None
            assert letter.message.body == "rejected"
            letter.accept()


def test_a_transaction_there_is_all_or_nothing(place: Place) -> None:
    with place.node.connect() as connection, connection.sender("old/orders") as sender:
        for commits in (False, True):
            transaction = connection.transaction()
            for number in range(2):
                outcome = sender.send(Message(f"{commits} {number}", durable=True), transaction=transaction)
                assert str(outcome) == "accepted"
            if commits:
                transaction.commit()
            else:
                transaction.rollback()
        with connection.receiver("old/orders", credit=2) as receiver:
            for commits in (False, True):
                transaction = connection.transaction()
                for number in range(2):
                    got = receiver.receive(60)
                    assert got is not None
                    assert (got.message.body, got.message.delivery_count) == (f"True {number}", int(commits))
                    got.accept(transaction=transaction)
                if commits:
                    transaction.commit()
                else:
                    transaction.rollback()
            assert receiver.receive(0.5) is None
        transaction = connection.transaction()
        sender.send(Message("lost", durable=True), transaction=transaction)
        place.broker.kill()
        with pytest.raises(TransactionError) as lost:
            transaction.commit()
        assert lost.value.condition == "amqp:transaction:rollback"
        place.broker.start()
        until(lambda: sender.credit > 0, place.problem, seconds=120)
        with connection.receiver("old/orders") as receiver:
            assert receiver.receive(0.5) is None


def test_a_clients_filters_and_capabilities_reach_the_queue_there(place: Place) -> None:
    require("python-qpid-proton")
    from proton import Message as ProtonMessage
    from proton import symbol
    from proton.reactor import ReceiverOption, Selector, SenderOption
    from proton.utils import BlockingConnection

    class AsQueue(SenderOption, ReceiverOption):
        """Has Artemis make a queue of that name, where it would else make a topic."""

        def apply(self, link: Any) -> None:
            terminus = link.target if link.is_sender else link.source
            terminus.capabilities.put_object(symbol("queue"))

    connection: Any = BlockingConnection(place.node.url, timeout=60)
    try:
        sender = connection.create_sender("old/made", options=AsQueue())
        for colour in ("red", "blue"):
            sender.send(ProtonMessage(colour, properties={"colour": colour}))
        chosen = connection.create_receiver("old/made", options=[AsQueue(), Selector("colour = 'blue'")])
        assert chosen.receive(timeout=60).body == "blue"
        chosen.accept()
        chosen.close()
        rest = connection.create_receiver("old/made", options=AsQueue())
        assert rest.receive(timeout=60).body == "red"
        rest.accept()
    finally:
        connection.close()


@pytest.mark.chance
@pytest.mark.timeout(300 + 30 * kills(1))
def test_nothing_accepted_is_lost_as_the_broker_is_killed(place: Place) -> None:
    accepted: set[str] = set()
    told = 0
    with place.node.connect() as connection, connection.sender("old/kept") as sender:
        for life in range(kills(1)):
            names = [f"{life}-{number}" for number in range(300)]
            sending = [sender.send_nowait(Message(name, durable=True)) for name in names]
            assert str(sending[20].result(60)) == "accepted"
            place.broker.kill()
            for name, one in zip(names, sending, strict=True):
                told += 1
                if str(one.result(120)) == "accepted":
                    accepted.add(name)
            place.broker.start()
            until(lambda: sender.credit > 0, place.problem, seconds=120)
        assert str(sender.send(Message("last", durable=True))) == "accepted"
        found: list[str] = []
        with connection.receiver("old/kept") as receiver:
            while "last" not in found:
                got = receiver.receive(60)
                assert got is not None
                found.append(got.message.body)
                got.accept()
    assert told == 300 * kills(1)
    assert accepted - set(found) == set()
    assert len(found) == len(set(found))
