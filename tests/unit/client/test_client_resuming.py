"""Senders whose peer remembers outcomes, against a node's real addresses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.client import Message, Outcome, UnavailableError, connect


async def test_what_the_node_has_is_not_sent_again(noding: Any, until: Any) -> None:
    async with noding(orders="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("orders", resume=True)
        for turn in range(1, 4):
            futures = [sender.send_nowait(Message(n, durable=True)) for n in range(20)]
            await until(lambda turn=turn: node.stored("orders") == [20 * turn])
            await node.drop()
            outcomes = await asyncio.gather(*futures)
            assert outcomes == [Outcome.ACCEPTED] * 20
            assert not any(outcome.is_resent for outcome in outcomes)
        await sender.send(Message("last", durable=True))
        assert node.stored("orders") == [61]
        assert sender.pending == 0


async def test_what_the_receiver_decides_after_the_loss_is_told(noding: Any, until: Any) -> None:
    async with noding(calls="anycast") as node, connect(node.url) as connection, connect(node.url) as other:
        receiver = await other.receiver("calls")
        sender = await connection.sender("calls", resume=True)
        asked = [sender.send_nowait(Message(n)) for n in range(3)]
        deliveries = [await receiver.receive(timeout=30) for _ in range(3)]
        node.cut(connection.container_id)
        await until(lambda: not connection.is_connected)
        await connection.wait_connected()
        await sender.wait_attached()
        assert not any(future.done() for future in asked)
        for delivery, settle in zip(deliveries, ("accept", "reject", "release"), strict=True):
            assert delivery is not None
            getattr(delivery, settle)()
        assert [str(outcome).split(" ")[0] for outcome in await asyncio.gather(*asked)] == [
            "accepted", "rejected", "released",
        ]  # fmt: skip
        assert receiver.receive_nowait() is None


async def test_a_message_in_parts_is_sent_again_and_says_so(noding: Any, until: Any) -> None:
    async with noding(orders="queue") as node, connect(node.url) as connection:
        sender = await connection.sender("orders", resume=True)
        node.holds = True
        future = sender.send_nowait(Message(bytes(3 << 20), durable=True))
        await until(lambda: node["orders"].counts()["messagesIn"] == 1)
        await node.drop()
        node.holds = False
        assert (await future).is_resent


async def test_a_peer_that_remembers_nothing_is_sent_everything_again(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute", resume=True)
        futures = [sender.send_nowait(Message(n)) for n in range(3)]
        await until(lambda: server.arrived["mute"] == 3)
        await server.drop()
        await until(lambda: server.arrived["mute"] == 6)
        assert len(server.attaches[-1].unsettled) == 3
        del server.outcomes["mute"]
        await server.drop()
        assert all(outcome.is_resent for outcome in await asyncio.gather(*futures))


async def test_closing_while_the_node_is_away_tells_everybody(serving: Any, until: Any) -> None:
    async with serving() as server:
        connection = await connect(server.url)
        sender = await connection.sender("mute", resume=True)
        future = sender.send_nowait(Message())
        await until(lambda: server.arrived["mute"] == 1)
        await server.close()
        await until(lambda: not connection.is_connected)
        assert sender.pending == 1
        await connection.close()
        with pytest.raises(UnavailableError, match="outcome is not known"):
            await future


async def test_what_is_sent_after_a_loss_is_not_taken_for_what_was_lost(noding: Any, until: Any) -> None:
    async with noding(calls="anycast") as node, connect(node.url) as connection, connect(node.url) as other:
        receiver = await other.receiver("calls")
        sender = await connection.sender("calls", resume=True)

        async def exchange(count: int) -> None:
            futures = [sender.send_nowait(Message("soon")) for _ in range(count)]
            for _ in range(count):
                delivery = await receiver.receive(timeout=30)
                assert delivery is not None
                delivery.accept()
            await asyncio.gather(*futures)

        await exchange(6)
        late = sender.send_nowait(Message("late"))
        held = await receiver.receive(timeout=30)
        assert held is not None
        node.cut(connection.container_id)
        await until(lambda: not connection.is_connected)
        await connection.wait_connected()
        await sender.wait_attached()
        await exchange(10)
        held.reject()
        assert str(await late).startswith("rejected")
