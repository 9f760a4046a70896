"""Receivers against a small server on a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.client import ClosedError, Connection, LinkDetachedError, Message, connect
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released


async def fill(connection: Connection, address: str, count: int) -> None:
    async with connection.sender(address) as sender:
        await sender.send_all([Message(n) for n in range(count)])


async def test_deliveries_come_in_order(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 50)
        receiver = await connection.receiver("orders", credit=10)
        seen = []
        async for delivery in receiver:
            seen.append(delivery.message.body)
            await delivery.accept()
            if len(seen) == 50:
                break
        assert seen == list(range(50))


async def test_each_outcome_reaches_the_sender_of_the_message(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 4)
        receiver = await connection.receiver("orders")
        deliveries = [await receiver.receive(timeout=30) for _ in range(4)]
        first, second, third, fourth = (d for d in deliveries if d is not None)
        first.accept()
        second.reject("x:why", "because")
        third.modify(failed=True, undeliverable_here=True, annotations={"x-opt-a": 1})
        await until(lambda: len(server.seen["orders"]) == 3)
        assert server.seen["orders"] == [
            Accepted(),
            Rejected(AmqpError("x:why", "because")),
            Modified(True, True, {"x-opt-a": 1}),
        ]
        await fourth.release()
        await until(lambda: server.seen["orders"][-1] == Released())
        again = await receiver.receive(timeout=30)
        assert again is not None
        assert again.message.body == 3


async def test_settling_twice_is_without_effect(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 2)
        receiver = await connection.receiver("orders")
        delivery = await receiver.receive(timeout=30)
        assert delivery is not None
        assert not delivery.settled
        delivery.accept()
        delivery.release()
        delivery.accept()
        last = await receiver.receive(timeout=30)
        assert last is not None
        last.accept()
        await until(lambda: len(server.seen["orders"]) == 2)
        assert server.seen["orders"] == [Accepted(), Accepted()]


async def test_nothing_in_time_is_none(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver("orders")
        for _ in range(3):
            assert await receiver.receive(timeout=0.001) is None
        assert receiver.receive_nowait() is None
        assert not receiver._waiters
        assert not receiver.is_ended


async def test_the_window_bounds_what_comes_and_is_filled_up_at_half(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 30)
        receiver = await connection.receiver("orders", credit=10)
        await until(lambda: receiver.waiting == 10)
        assert receiver.credit == 0
        for _ in range(4):
            receiver.receive_nowait()
        await asyncio.sleep(0.02)
        assert receiver.waiting == 6
        receiver.receive_nowait()
        await until(lambda: receiver.waiting == 10)


async def test_a_window_of_one_goes_on(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 5)
        receiver = await connection.receiver("orders", credit=1)
        for _ in range(5):
            assert await receiver.receive(timeout=30) is not None


async def test_without_a_window_nothing_comes_but_what_was_asked_for(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 10)
        receiver = await connection.receiver("orders", credit=0)
        assert await receiver.receive(timeout=0.02) is None
        receiver.grant(2)
        receiver.grant(1)
        await until(lambda: receiver.waiting == 3)
        assert receiver.credit == 0
        while receiver.receive_nowait():
            pass
        assert await receiver.receive(timeout=0.02) is None


async def test_a_dynamic_receiver_is_told_its_address(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver(dynamic=True)
        assert receiver.address == "temporary-1"
        await (await connection.sender(receiver.address)).send(Message(b"x"))
        assert await receiver.receive(timeout=30) is not None


async def test_settled_deliveries_need_no_outcome(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 1)
        receiver = await connection.receiver("orders", settled=True)
        delivery = await receiver.receive(timeout=30)
        assert delivery is not None
        assert delivery.settled
        delivery.accept()
        assert server.attaches[-1].snd_settle_mode == 1


async def test_filters_capabilities_and_properties_are_told(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await connection.receiver(
            "orders", filters={"enmasse:from": 5}, capabilities=("enmasse:frames",), properties={"a": 1}, name="mine"
        )
        attach = server.attaches[-1]
        assert attach.source is not None
        assert attach.source.filter is not None
        assert {name: described.value for name, described in attach.source.filter.items()} == {"enmasse:from": 5}
        assert attach.source.filter["enmasse:from"].descriptor == "enmasse:from"
        assert (attach.desired_capabilities, attach.properties, attach.name) == (
            ("enmasse:frames",),
            {"a": 1},
            "mine",
        )


async def test_another_format_is_payload_and_no_message(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await (await connection.sender("orders")).send_payload(b"frame", message_format=7)
        delivery = await (await connection.receiver("orders")).receive(timeout=30)
        assert delivery is not None
        assert (delivery.payload, delivery.message_format) == (b"frame", 7)
        assert "format 0x7" in repr(delivery)
        with pytest.raises(DecodeError, match="0x7"):
            _ = delivery.message


async def test_the_peers_end_in_order_ends_the_iteration_after_the_last_delivery(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 3)
        receiver = await connection.receiver("orders")
        bodies = []
        async for delivery in receiver:
            bodies.append(delivery.message.body)
            if len(bodies) == 1:
                server.links[-1].detach()
        assert bodies == [0, 1, 2]
        assert receiver.is_ended
        assert receiver.error is None
        assert await receiver.receive() is None


async def test_the_peers_end_with_an_error_is_raised_after_the_last_delivery(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 1)
        receiver = await connection.receiver("orders")
        await until(lambda: receiver.waiting == 1)
        server.links[-1].detach(AmqpError("amqp:resource-deleted", "gone"))
        await until(lambda: receiver.is_ended)
        assert await receiver.receive() is not None
        with pytest.raises(LinkDetachedError, match="gone"):
            await receiver.receive()
        with pytest.raises(LinkDetachedError, match="gone"):
            await anext(receiver)


async def test_several_may_wait_and_each_delivery_goes_to_one(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver("orders")
        waiting = [asyncio.ensure_future(receiver.receive(timeout=30)) for _ in range(3)]
        given_up = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        given_up.cancel()
        await fill(connection, "orders", 3)
        deliveries = await asyncio.gather(*waiting)
        assert sorted(d.message.body for d in deliveries if d is not None) == [0, 1, 2]


async def test_closing_gives_back_what_was_not_taken(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await fill(connection, "orders", 5)
        receiver = await connection.receiver("orders")
        await until(lambda: receiver.waiting == 5)
        waiting = asyncio.ensure_future(anext(receiver))
        await waiting
        await receiver.close()
        await receiver.close()
        assert server.seen["orders"] == [Released()] * 4
        assert await receiver.receive() is None
        with pytest.raises(ClosedError):
            receiver.grant(1)


async def test_closing_ends_the_iteration_of_another_task(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver("orders")

        async def consume() -> int:
            return len([delivery async for delivery in receiver])

        task = asyncio.ensure_future(consume())
        await asyncio.sleep(0)
        await receiver.close()
        assert await task == 0
