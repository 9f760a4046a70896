"""Transactions of the client: commit, rollback, and what becomes of them when something is lost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from enmasse.client import (
    ClosedError,
    Connection,
    Delivery,
    LinkRefusedError,
    Message,
    Outcome,
    Receiver,
    TransactionError,
    UnavailableError,
    blocking,
    connect,
)
from enmasse.messaging.transaction import TransactionLimits
from enmasse.net.loop import run


async def take(receiver: Receiver) -> Delivery:
    delivery = await receiver.receive(timeout=30)
    assert delivery is not None
    return delivery


async def fill(connection: Connection, address: str, *bodies: Any) -> None:
    async with connection.sender(address) as sender:
        await sender.send_all(Message(body, durable=True) for body in bodies)


async def test_a_block_commits_at_its_end(noding: Any) -> None:
    async with noding(q="queue", s="stream") as node, connect(node.url) as connection:
        sender, stream = await connection.sender("q"), await connection.sender("s")
        async with connection.transaction() as transaction:
            assert await sender.send(Message("a", durable=True), transaction=transaction) == Outcome.ACCEPTED
            assert await stream.send(Message("b"), transaction=transaction) == Outcome.ACCEPTED
            assert await sender.send(Message("c"), transaction=transaction, settled=True) == Outcome.SETTLED
            assert node.stored("q", "s") == [0, 0]
            assert transaction.is_open
        with pytest.raises(ClosedError):
            transaction.check()
        assert node.stored("q", "s") == [2, 1]
        receiver = await connection.receiver("q")
        assert [(await take(receiver)).message.body for _ in range(2)] == ["a", "c"]


async def test_a_block_that_raises_rolls_back(noding: Any) -> None:
    async with noding(q="queue", r="queue") as node, connect(node.url) as connection:
        await fill(connection, "r", "in")
        receiver, sender = await connection.receiver("r"), await connection.sender("q")
        with pytest.raises(KeyError):  # noqa: PT012  the block is what is tested
            async with connection.transaction() as transaction:
                await sender.send(Message("x", durable=True), transaction=transaction)
                (await take(receiver)).accept(transaction=transaction)
                raise KeyError
        assert node.stored("q", "r") == [0, 1]
        again = await take(receiver)
        assert (again.message.body, again.message.delivery_count) == ("in", 1)


async def test_every_outcome_can_be_told_within_a_transaction(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        await fill(connection, "q", "accept", "release", "reject", "modify")
        receiver = await connection.receiver("q", credit=4)
        async with connection.transaction() as transaction:
            for delivery in [await take(receiver) for _ in range(4)]:
                getattr(delivery, delivery.message.body)(transaction=transaction)
                assert delivery.settled
        again = [await take(receiver) for _ in range(2)]
        assert sorted((d.message.body, d.message.delivery_count) for d in again) == [("modify", 1), ("release", 0)]
        assert node.stored("q") == [2]


async def test_without_a_block_it_is_ended_by_hand(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("q")
        first, second = await connection.transaction(), await connection.transaction()
        await sender.send_all([Message(n, durable=True) for n in range(3)], transaction=first)
        sender.send_nowait(Message("x", durable=True), transaction=second)
        sender.send_payload_nowait(Message("y").encode(), transaction=second)
        await second.rollback()
        await second.rollback()
        await first.commit()
        assert node.stored("q") == [3]
        with pytest.raises(ClosedError, match="has ended"):
            await first.commit()
        with pytest.raises(ClosedError, match="has ended"):
            await sender.send(Message("late"), transaction=first)
        with pytest.raises(ClosedError, match="has ended"):
            await sender.send_payload(b"", transaction=second)


async def test_a_block_may_end_its_transaction_itself(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("q")
        async with connection.transaction() as transaction:
            await sender.send(Message("x", durable=True), transaction=transaction)
            await transaction.rollback()
        assert node.stored("q") == [0]


async def test_a_commit_waits_for_what_was_sent_without_waiting(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("q")
        async with connection.transaction() as transaction:
            for number in range(3_000):
                sender.send_nowait(Message(number, durable=True), transaction=transaction)
            assert sender.credit == 0
        assert node.stored("q") == [3_000]


async def test_a_commit_that_fails_raises_and_gives_back_what_was_received(noding: Any) -> None:
    async with noding(q="queue", r="queue") as node, connect(node.url) as connection:
        await fill(connection, "r", "in")
        receiver, sender = await connection.receiver("r"), await connection.sender("q")
        transaction = await connection.transaction()
        await sender.send(Message("x", durable=True), transaction=transaction)
        await (await take(receiver)).accept(transaction=transaction)
        node.fails = 1
        with pytest.raises(TransactionError, match="disk is full") as caught:
            await transaction.commit()
        assert caught.value.condition == "amqp:transaction:rollback"
        assert node.stored("q", "r") == [0, 1]
        assert (await take(receiver)).message.body == "in"


async def test_a_transaction_that_takes_too_long_cannot_be_committed(noding: Any) -> None:
    async with noding(q="queue") as node:
        node.limits = TransactionLimits(timeout_s=0.05)
        async with connect(node.url) as connection:
            transaction = await connection.transaction()
            await asyncio.sleep(0.1)
            with pytest.raises(TransactionError) as caught:
                await transaction.commit()
            assert caught.value.condition == "amqp:transaction:timeout"


async def test_what_cannot_be_part_of_it_is_rejected_and_leaves_only_the_rollback(noding: Any) -> None:
    async with noding(q="queue", a="anycast") as node, connect(node.url) as connection:
        await connection.receiver("a")
        sender, direct = await connection.sender("q"), await connection.sender("a")
        transaction = await connection.transaction()
        await sender.send(Message("x", durable=True), transaction=transaction)
        outcome = await direct.send(Message("y"), transaction=transaction)
        assert (outcome, outcome.condition) == (Outcome.REJECTED, "amqp:not-implemented")
        with pytest.raises(TransactionError, match="stores nothing"):
            await transaction.commit()
        assert node.stored("q") == [0]


async def test_a_connection_has_so_many_transactions(noding: Any) -> None:
    async with noding(q="queue") as node:
        node.limits = TransactionLimits(max_open=1)
        async with connect(node.url) as connection:
            first = await connection.transaction()
            with pytest.raises(TransactionError, match="up to 1 transactions"):
                await connection.transaction()
            await first.rollback()
            await (await connection.transaction()).commit()


async def test_transactions_begun_at_once_share_their_control_link(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        transactions = await asyncio.gather(*(_begin(connection) for _ in range(20)))
        assert len({transaction.posted.txn_id for transaction in transactions}) == 20
        assert node.connections.links == 1


async def _begin(connection: Connection) -> Any:
    return await connection.transaction()


async def test_a_transaction_is_lost_with_its_connection(noding: Any) -> None:
    async with noding(q="queue", r="queue") as node, connect(node.url) as connection:
        await fill(connection, "r", "in")
        receiver, sender = await connection.receiver("r"), await connection.sender("q")
        transaction = await connection.transaction()
        await sender.send(Message("x", durable=True), transaction=transaction)
        (await take(receiver)).accept(transaction=transaction)
        await node.drop()
        await sender.wait_attached()
        await connection.wait_connected()
        assert not transaction.is_open
        with pytest.raises(TransactionError, match="connection was lost"):
            await sender.send(Message("y"), transaction=transaction)
        with pytest.raises(TransactionError, match="connection was lost"):
            await transaction.commit()
        assert node.stored("q", "r") == [0, 1]
        again = await take(receiver)
        async with connection.transaction() as transaction:
            await sender.send(Message("z", durable=True), transaction=transaction)
            await again.accept(transaction=transaction)
        assert node.stored("q", "r") == [1, 0]


async def test_what_waits_to_be_sent_in_a_transaction_is_not_sent_after_a_reconnect(noding: Any, until: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("q")
        transaction = await connection.transaction()
        futures = [sender.send_nowait(Message(n, durable=True), transaction=transaction) for n in range(3_000)]
        await node.drop()
        await until(lambda: all(future.done() for future in futures))
        assert isinstance(futures[-1].exception(), TransactionError)
        with pytest.raises(TransactionError):
            await transaction.commit()
        await connection.wait_connected()
        assert await sender.send(Message("after", durable=True)) == Outcome.ACCEPTED
        assert node.stored("q") == [1]


async def test_a_connection_lost_during_the_commit_leaves_its_end_open(noding: Any, until: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("q")
        transaction = await connection.transaction()
        await sender.send(Message("x", durable=True), transaction=transaction)
        committed = node.storage.commit
        node.storage.commit = lambda: None
        node.storage.__dict__["commit"] = committed
        node._commit = lambda: None
        commit = asyncio.ensure_future(transaction.commit())
        await until(lambda: node.storage.pending)
        await node.drop()
        with pytest.raises(UnavailableError, match="not known"):
            await commit
        node.storage.commit()
        assert node.stored("q") == [1]


async def test_a_given_up_message_takes_its_transaction_with_it(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("q")
        transaction = await connection.transaction()
        for number in range(3_000):
            last = sender.send_nowait(Message(number), transaction=transaction)
        last.cancel()
        with pytest.raises(TransactionError, match="given up"):
            await transaction.commit()
        assert node.stored("q") == [0]


async def test_things_of_one_connection_stay_in_its_transactions(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection, connect(node.url) as other:
        transaction = await connection.transaction()
        sender = await other.sender("q")
        with pytest.raises(ClosedError, match="another connection"):
            await sender.send(Message("x", durable=True), transaction=transaction)
        await sender.send(Message("y", durable=True))
        delivery = await take(await other.receiver("q"))
        with pytest.raises(ClosedError, match="another connection"):
            delivery.accept(transaction=transaction)
        await delivery.accept()
        await transaction.commit()
        assert node.stored("q") == [0]


async def test_a_delivery_of_a_closed_receiver_cannot_be_part_of_it(noding: Any) -> None:
    async with noding(q="queue") as node, connect(node.url) as connection:
        await fill(connection, "q", "x")
        receiver = await connection.receiver("q")
        delivery = await take(receiver)
        await receiver.close()
        async with connection.transaction() as transaction:
            with pytest.raises(UnavailableError, match="given back"):
                delivery.accept(transaction=transaction)
        assert node.stored("q") == [1]


async def test_a_peer_without_a_coordinator_refuses(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        with pytest.raises(LinkRefusedError, match="no transactions here"):
            await connection.transaction()


def test_the_blocking_client_has_them_too(noding: Any) -> None:
    started, stopping = threading.Event(), threading.Event()
    found: dict[str, Any] = {}

    async def main() -> None:
        async with noding(q="queue", r="queue") as node:
            found.update(node=node, url=node.url)
            started.set()
            while not stopping.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: run(main()))
    thread.start()
    started.wait()
    try:
        with blocking.connect(found["url"]) as connection:
            sender, receiver = connection.sender("q"), connection.receiver("r")
            connection.sender("r").send(Message("in", durable=True))
            delivery = receiver.receive(timeout=30)
            assert delivery is not None
            with connection.transaction() as transaction:
                sender.send(Message("a", durable=True), transaction=transaction)
                sender.send_all([Message("b", durable=True)], transaction=transaction)
                delivery.accept(transaction=transaction)
                assert transaction.is_open
            assert found["node"].stored("q", "r") == [2, 0]
            with pytest.raises(KeyError), connection.transaction() as transaction:  # noqa: PT012  as above
                sender.send(Message("c", durable=True), transaction=transaction)
                raise KeyError
            transaction = connection.transaction()
            transaction.commit()
            delivery = connection.receiver("q").receive(timeout=30)
            assert delivery is not None
            with pytest.raises(ClosedError):
                delivery.reject(transaction=transaction)
            with connection.transaction() as transaction:
                delivery.release(transaction=transaction)
            with connection.transaction() as transaction:
                transaction.rollback()
            assert found["node"].stored("q", "r") == [2, 0]
    finally:
        stopping.set()
        thread.join()
