"""Senders against a small server on a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.client import (
    ClosedError,
    DeadlineError,
    FullError,
    LinkDetachedError,
    LinkRefusedError,
    Message,
    Outcome,
    TooLargeError,
    UnavailableError,
    connect,
)
from enmasse.message.outcomes import AmqpError


async def test_a_message_arrives_and_is_accepted(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        assert await sender.send(Message(b"x", subject="k")) == Outcome.ACCEPTED
        assert Message.decode(server.messages["orders"][0].payload).subject == "k"
        assert sender.pending == 0


@pytest.mark.parametrize(("address", "outcome"), [("bad", Outcome.REJECTED), ("empty", Outcome.RELEASED)])
async def test_the_outcome_is_the_receivers(serving: Any, address: str, outcome: Outcome) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender(address)
        assert await sender.send(Message(b"x")) == outcome


async def test_a_rejection_tells_its_reason(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        outcome = await (await connection.sender("bad")).send(Message(b"x"))
        assert (outcome.condition, outcome.description) == ("x:bad", "no good")


async def test_an_unknown_address_is_refused_and_the_connection_lives(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        with pytest.raises(LinkRefusedError, match="'nowhere' at amqp://127") as caught:
            await connection.sender("nowhere")
        assert caught.value.condition == "amqp:not-found"
        assert "there is no address" in caught.value.description
        assert await (await connection.sender("orders")).send(Message(b"x")) == Outcome.ACCEPTED


async def test_a_settled_message_needs_no_outcome(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute")
        assert await sender.send(Message(b"x"), settled=True, timeout=30) == Outcome.SETTLED
        await until(lambda: server.arrived["mute"] == 1)


async def test_messages_wait_for_credit_and_leave_in_order(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full")
        futures = [sender.send_nowait(Message(n)) for n in range(5)]
        futures.append(sender.send_nowait(Message(5), settled=True))
        assert sender.credit == 0
        assert sender.pending == 6
        assert sender.count_available() == 6, "of which the server is told when it asks"
        server.links[-1].grant(3)
        await asyncio.gather(*futures[:3])
        assert not futures[3].done()
        server.links[-1].grant(10)
        await asyncio.gather(*futures)
        await until(lambda: server.arrived["full"] == 6)
        assert [Message.decode(m.payload).body for m in server.messages["full"]] == list(range(6))


async def test_a_send_without_credit_gives_up_in_time_and_is_never_sent(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full")
        with pytest.raises(DeadlineError, match="no credit"):
            await sender.send(Message("late"), timeout=0.01)
        server.links[-1].grant(2)
        await sender.send(Message("in time"), timeout=30)
        assert [Message.decode(m.payload).body for m in server.messages["full"]] == ["in time"]


async def test_a_send_without_outcome_gives_up_in_time(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute")
        with pytest.raises(TimeoutError, match="no outcome"):
            await sender.send(Message(b"x"), timeout=0.05)


async def test_waiting_for_credit_ends_when_some_comes(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full")
        waiting = asyncio.ensure_future(sender.wait_for_credit())
        await asyncio.sleep(0)
        server.links[-1].grant(7)
        assert await waiting == 7
        assert sender.credit == 7


async def test_more_than_the_bound_does_not_wait_for_credit(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full", max_pending=2)
        futures = [sender.send_nowait(Message(b"x")), sender.send_payload_nowait(b"")]
        with pytest.raises(FullError, match="wait_for_credit"):
            sender.send_nowait(Message(b"x"))
        with pytest.raises(FullError):
            sender.send_payload_nowait(b"")
        await sender.close()
        for future in futures:
            with pytest.raises(ClosedError):
                await future


async def test_flush_waits_for_every_outcome(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        futures = [sender.send_nowait(Message(b"x")) for _ in range(500)]
        await sender.flush()
        assert all(future.done() for future in futures)
        assert server.arrived["orders"] == 500
        await sender.flush()


async def test_send_all_keeps_within_the_bound_and_gives_every_outcome(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders", max_pending=3)
        outcomes = await sender.send_all((Message(n) for n in range(300)), timeout=30)
        assert outcomes == [Outcome.ACCEPTED] * 300
        assert [Message.decode(m.payload).body for m in server.messages["orders"]] == list(range(300))
        full = await connection.sender("full")
        with pytest.raises(DeadlineError):
            await full.send_all([Message(b"x")], timeout=0.01)


async def test_a_sender_without_address_goes_by_the_message(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender(None)
        await sender.send(Message(b"x", to="left"))
        await sender.send(Message(b"y", to="right"))
        assert (server.arrived["left"], server.arrived["right"]) == (1, 1)
        assert "anonymous" in str(sender)


async def test_bytes_of_another_format_go_as_they_are(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender(
            "orders", capabilities=["enmasse:frames"], properties={"enmasse:partition": 3}
        )
        await sender.send_payload(b"frame", message_format=0x454D4601)
        stored = server.messages["orders"][0]
        assert (stored.payload, stored.message_format) == (b"frame", 0x454D4601)
        assert server.attaches[-1].desired_capabilities == ("enmasse:frames",)
        assert sender.remote_properties == {"seen": {"enmasse:partition": 3}}


async def test_a_message_of_megabytes_takes_many_frames_and_arrives_whole(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        body = bytes(range(256)) * 20_000
        futures = [sender.send_nowait(Message(body)) for _ in range(3)]
        assert await asyncio.gather(*futures) == [Outcome.ACCEPTED] * 3
        assert all(Message.decode(m.payload).body == body for m in server.messages["orders"])


async def test_a_message_beyond_the_peers_limit_is_not_sent(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.max_message_size = 100
        sender = await connection.sender("orders")
        with pytest.raises(TooLargeError, match="100"):
            await sender.send(Message(b"x" * 101))
        assert await sender.send(Message(b"x")) == Outcome.ACCEPTED


async def test_closing_fails_what_has_no_outcome_and_is_fine_twice(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute")
        under_way = sender.send_nowait(Message(b"x"))
        await sender.close()
        await sender.close()
        with pytest.raises(UnavailableError, match="not known"):
            await under_way
        with pytest.raises(ClosedError):
            await sender.send(Message(b"x"))
        with pytest.raises(ClosedError):
            await sender.wait_for_credit()
        await sender.flush()


async def test_a_sender_may_be_opened_and_closed_by_a_block(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        async with connection.sender("orders") as sender:
            await sender.send(Message(b"x"))
        assert sender.is_ended
        async with await connection.sender("orders") as other:
            assert other.is_attached


async def test_a_detach_by_the_peer_reaches_whoever_sends(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full")
        waiting = sender.send_nowait(Message(b"x"))
        server.links[-1].detach(AmqpError("amqp:resource-deleted", "the address was deleted"))
        with pytest.raises(LinkDetachedError, match="deleted") as caught:
            await waiting
        assert caught.value.condition == "amqp:resource-deleted"
        with pytest.raises(LinkDetachedError):
            sender.send_nowait(Message(b"x"))
        other = await connection.sender("orders")
        server.links[-1].detach()
        await until(lambda: other.is_ended)
        with pytest.raises(UnavailableError, match="closed by the peer"):
            await other.send(Message(b"x"))


async def test_a_drain_uses_up_the_credit(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        await until(lambda: sender.credit == 100)
        link = sender._link
        assert link is not None
        link.drain = True
        sender.on_credit(0, True)
        await until(lambda: server.links[-1].received == 100)
        assert sender.credit == 0


async def test_giving_up_again_and_again_leaves_nothing_behind(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full", max_pending=1)
        for _ in range(3):
            with pytest.raises(DeadlineError):
                await sender.send(Message(b"x"), timeout=0.001)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sender.wait_for_credit(), 0.001)
            sender.send_nowait(Message(b"x")).cancel()
        assert sender.pending <= 1
        assert sender._waiters == []


async def test_a_cancelled_send_takes_no_credit(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("full")
        task = asyncio.ensure_future(sender.send(Message("cancelled")))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.links[-1].grant(1)
        await sender.send(Message("sent"), timeout=30)
        assert [Message.decode(m.payload).body for m in server.messages["full"]] == ["sent"]
