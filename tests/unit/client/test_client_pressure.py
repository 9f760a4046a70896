"""What may wait where: bounded buffers of senders, bounded windows of receivers, and drains."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.client import DeadlineError, FullError, LinkDetachedError, Message, Outcome, connect
from enmasse.message.outcomes import AmqpError


async def test_sending_waits_for_room_in_order(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full", max_pending=2)
        sending = [asyncio.ensure_future(sender.send(Message(n))) for n in range(6)]
        await until(lambda: sender.pending == 2)
        with pytest.raises(FullError, match=r"2 messages of \d+ bytes wait"):
            sender.send_nowait(Message())
        with pytest.raises(DeadlineError, match="no credit"):
            await sender.send(Message(), timeout=0.01)
        sending[3].cancel()
        (link,) = server.links
        for _ in range(5):
            link.grant(1)
            link.session.connection.wake(link.session.connection)
            await asyncio.sleep(0.01)
        await asyncio.wait(sending)
        assert [Message.decode(m.payload).body for m in server.messages["full"]] == [0, 1, 2, 4, 5]
        assert (sender.pending, sender.pending_bytes) == (0, 0)


async def test_sending_waits_for_room_in_bytes(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full", max_pending_bytes=10_000)
        big = asyncio.ensure_future(sender.send(Message(bytes(50_000))))
        await until(lambda: sender.pending_bytes > 50_000)
        small = asyncio.ensure_future(sender.send(Message(b"small")))
        many = asyncio.ensure_future(sender.send_all(Message(n) for n in range(3)))
        await asyncio.sleep(0.01)
        assert sender.pending == 1
        server.links[0].grant(100)
        assert [await big, await small] == [Outcome.ACCEPTED] * 2
        assert await many == [Outcome.ACCEPTED] * 3


async def test_whoever_waits_for_room_hears_of_the_end(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full", max_pending=1)
        sending = [asyncio.ensure_future(sender.send(Message(n))) for n in range(4)]
        await asyncio.sleep(0.01)
        server.links[0].detach(AmqpError("amqp:resource-deleted", "gone"))
        for outcome in await asyncio.gather(*sending, return_exceptions=True):
            assert isinstance(outcome, LinkDetachedError)


async def test_what_is_sent_again_says_so(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute")
        first = sender.send_nowait(Message("first", annotations={"x-opt-mine": 1}))
        raw = sender.send_payload_nowait(b"raw", message_format=7)
        await until(lambda: server.arrived["mute"] == 2)
        del server.outcomes["mute"]
        await server.drop()
        assert (await first).is_resent
        assert (await raw).is_resent
        later = await sender.send(Message("second"))
        assert later == Outcome.ACCEPTED
        assert not later.is_resent
        receiver = await connection.receiver("mute")
        seen = [await receiver.receive(timeout=30) for _ in range(3)]
        told = [d.message_format or (d.message.body, d.may_be_repeated) for d in seen if d is not None]
        assert told == [("first", True), 7, ("second", False)]
        assert seen[0] is not None
        assert seen[0].message.annotations == {"x-opt-mine": 1, "x-opt-resent": True}


async def test_a_window_shrinks_while_messages_are_large(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.credit = 10_000
        await (await connection.sender("orders")).send_all([Message(bytes(100_000)) for _ in range(300)])
        receiver = await connection.receiver("orders", credit=200, prefetch_bytes=1_000_000)
        await until(lambda: receiver.waiting == 15 and not receiver.credit)
        got = 0
        most = 0
        while got < 300:
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            delivery.accept()
            got += 1
            if receiver.waiting <= 5:
                most = max(most, receiver.waiting + receiver.credit)
        assert 1 <= most <= 11
        await (await connection.sender("orders")).send_all([Message(b"small") for _ in range(300)])
        for _ in range(300):
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
        await until(lambda: receiver.credit > 90)


async def test_a_window_opens_when_the_first_size_is_known(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        assert (await connection.receiver("others", credit=200)).credit == 200
        receiver = await connection.receiver("orders", credit=500)
        assert receiver.credit == 256
        sender = await connection.sender("orders")
        await sender.send(Message(b"small"))
        await until(lambda: receiver.credit == 499)
        await server.drop()
        await until(lambda: receiver.credit + receiver.waiting == 500)


async def test_credit_is_taken_back_when_messages_turn_out_far_too_large(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.credit = 10_000
        receiver = await connection.receiver("orders", credit=200, prefetch_bytes=100_000)
        sender = await connection.sender("orders")
        await sender.send(Message(b"small"))
        await until(lambda: receiver.credit == 199)
        sending = asyncio.gather(sender.send_all([Message(bytes(60_000)) for _ in range(300)]))
        await until(lambda: receiver.waiting_bytes > 400_000)
        await until(lambda: receiver.credit == 0 and not server.links[0].credit)
        for _ in range(301):
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            delivery.accept()
        await sending


async def test_one_message_larger_than_the_room_still_comes(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await (await connection.sender("orders")).send_all([Message(bytes(5000)) for _ in range(20)])
        receiver = await connection.receiver("orders", prefetch_bytes=1)
        for _ in range(20):
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            delivery.accept()


async def test_a_drain_brings_what_there_is_and_takes_the_credit_back(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        await sender.send_all([Message(n) for n in range(3)])
        receiver = await connection.receiver("orders", credit=0)
        assert await receiver.drain() == 0
        receiver.grant(10)
        assert await receiver.drain(timeout=30) == 3
        assert receiver.credit == 0
        await sender.send(Message("later"))
        bodies = []
        while (delivery := receiver.receive_nowait()) is not None:
            bodies.append(delivery.message.body)
            delivery.accept()
        assert bodies == [0, 1, 2]


async def test_a_drain_ends_with_the_last_credit(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await (await connection.sender("orders")).send_all([Message(n) for n in range(5)])
        receiver = await connection.receiver("orders", credit=0)
        receiver.grant(3)
        assert await receiver.drain(timeout=30) == 3
        receiver.grant(1)
        assert await receiver.drain(timeout=30) == 4


async def test_a_drained_window_opens_again_when_somebody_waits(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver("orders")
        assert await receiver.drain(timeout=30) == 0
        assert receiver.credit == 0
        receiving = asyncio.ensure_future(receiver.receive(timeout=30))
        await (await connection.sender("orders")).send(Message("x"))
        delivery = await receiving
        assert delivery is not None
        assert receiver.credit > 0


async def test_a_drain_goes_on_after_a_loss(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.drains = False
        receiver = await connection.receiver("orders")
        draining = asyncio.ensure_future(receiver.drain())
        with pytest.raises(DeadlineError, match="was not drained within"):
            await receiver.drain(timeout=0.01)
        await until(lambda: receiver.is_attached and not draining.done())
        server.drains = True
        await server.drop()
        assert await draining == 0
        server.links[-1].detach(AmqpError("amqp:resource-deleted", "gone"))
        await until(lambda: receiver.is_ended)
        with pytest.raises(LinkDetachedError):
            await receiver.drain()
