"""What happens when the connection is lost, against a small server on a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from enmasse.client import (
    ConnectionDeniedError,
    LinkRefusedError,
    Message,
    Outcome,
    UnavailableError,
    connect,
)
from enmasse.message.outcomes import AmqpError
from enmasse.wire.amqp.session import Session


async def test_links_come_back_and_go_on(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        receiver = await connection.receiver("orders")
        for n in range(3):
            assert await sender.send(Message(n)) == Outcome.ACCEPTED
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            assert delivery.message.body == n
            delivery.accept()
            await until(lambda n=n: len(server.seen["orders"]) == n + 1)
            await server.drop()
        assert len(server.opens) >= 3


async def test_a_message_without_outcome_is_sent_again(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute")
        futures = [sender.send_nowait(Message(n)) for n in range(3)]
        await until(lambda: server.arrived["mute"] == 3)
        del server.outcomes["mute"]
        await server.drop()
        assert await asyncio.gather(*futures) == [Outcome.ACCEPTED] * 3
        assert [Message.decode(m.payload).body for m in server.messages["mute"]] == [0, 1, 2]


async def test_without_resending_the_sender_is_told(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("mute", resend=False)
        under_way = sender.send_nowait(Message("lost"))
        await until(lambda: server.arrived["mute"] == 1)
        del server.outcomes["mute"]
        await server.drop()
        with pytest.raises(UnavailableError, match="outcome is not known"):
            await under_way
        assert await sender.send(Message("new"), timeout=30) == Outcome.ACCEPTED
        assert [Message.decode(m.payload).body for m in server.messages["mute"]] == ["new"]


async def test_messages_wait_while_the_server_is_away(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        port = server.port
        await server.close()
        await until(lambda: not connection.is_connected)
        assert sender.credit == 0
        waiting = sender.send_nowait(Message(b"x"))
        attaching = asyncio.ensure_future(connection.receiver("orders").__aenter__())
        with pytest.raises(UnavailableError, match="not connected"):
            await sender.send(Message(b"impatient"), timeout=0.01)
        await asyncio.sleep(0.1)
        await server.listen(port)
        await connection.wait_connected()
        assert await waiting == Outcome.ACCEPTED
        receiver = await attaching
        delivery = await receiver.receive(timeout=30)
        assert delivery is not None
        assert delivery.message.body == b"x"


async def test_deliveries_of_the_lost_connection_settle_without_effect(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        await (await connection.sender("orders")).send_all([Message(n) for n in range(4)])
        receiver = await connection.receiver("orders")
        held = await receiver.receive(timeout=30)
        assert held is not None
        await until(lambda: receiver.waiting == 3)
        await server.drop()
        await until(lambda: receiver.waiting == 4)
        held.accept()
        bodies = set()
        for _ in range(4):
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            bodies.add(delivery.message.body)
        assert bodies == {0, 1, 2, 3}
        assert server.seen["orders"] == []


async def test_credit_granted_by_hand_is_granted_again(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver("orders", credit=0)
        receiver.grant(3)
        await until(lambda: server.links[-1].credit == 3)
        port = server.port
        await server.close()
        await until(lambda: not receiver.is_attached)
        assert receiver.credit == 3
        receiver.grant(1)
        await server.listen(port)
        await until(lambda: receiver.is_attached)
        await until(lambda: server.links[-1].credit == 4)


async def test_filters_changed_meanwhile_count_when_attached_again(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver("orders", filters={"enmasse:from": 0})
        receiver.filters["enmasse:from"] = 9
        await server.drop()
        await until(lambda: len(server.attaches) == 2)
        assert server.attaches[-1].source.filter["enmasse:from"].value == 9


async def test_a_dynamic_address_is_new_after_the_loss(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        receiver = await connection.receiver(dynamic=True)
        assert receiver.address == "temporary-1"
        await server.drop()
        await until(lambda: receiver.address == "temporary-2")


async def test_an_address_that_comes_late_is_waited_for(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        server.unknown.add("orders")
        await server.drop()
        waiting = sender.send_nowait(Message(b"x"))
        await until(lambda: len(server.attaches) >= 3)
        assert not waiting.done()
        server.unknown.remove("orders")
        assert await waiting == Outcome.ACCEPTED


async def test_an_address_that_does_not_come_back_ends_the_link(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.client.link.RETURN_S", 0.0)
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        server.unknown.add("orders")
        await server.drop()
        with pytest.raises(LinkRefusedError, match="there is no address"):
            await sender.send(Message(b"x"), timeout=30)
        assert connection.is_connected


async def test_a_link_that_was_forced_off_comes_back_over_the_same_connection(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        server.links[-1].detach(AmqpError("amqp:link:detach-forced", "the address moves"))
        await until(lambda: not sender.is_attached)
        assert await sender.send(Message(b"x"), timeout=30) == Outcome.ACCEPTED
        assert len(server.opens) == 1


async def test_a_lost_session_is_a_lost_connection(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        sender = await connection.sender("orders")
        session = server.links[-1].session
        assert isinstance(session, Session)
        session.end(AmqpError("amqp:internal-error", "oops"))
        await until(lambda: len(server.opens) == 2)
        assert await sender.send(Message(b"x"), timeout=30) == Outcome.ACCEPTED


async def test_without_reconnecting_everything_ends(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url, reconnect=False) as connection:
        sender = await connection.sender("full")
        receiver = await connection.receiver("orders")
        waiting = sender.send_nowait(Message(b"x"))
        await server.drop()
        with pytest.raises(UnavailableError, match="lost"):
            await waiting
        with pytest.raises(UnavailableError, match="lost"):
            await receiver.receive()
        with pytest.raises(UnavailableError, match="lost"):
            await connection.sender("orders")
        assert connection.is_closed
        assert len(server.opens) == 1


async def test_credentials_that_no_longer_work_end_the_connection(serving: Any, until: Any) -> None:
    async with (
        serving() as server,
        connect(server.url, user="ann", password="secret", allow_insecure_plain=True) as connection,
    ):
        receiver = await connection.receiver("orders")
        server.users.clear()
        await server.drop()
        with pytest.raises(ConnectionDeniedError):
            await receiver.receive()
        assert connection.is_closed


async def test_a_denial_that_may_pass_is_tried_again(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.denial = AmqpError("amqp:connection:forced", "not yet")
        await server.drop()
        await until(lambda: len(server.opens) >= 3)
        server.denial = None
        await connection.wait_connected()


async def test_closing_while_the_server_is_away_leaves_nothing_behind(serving: Any, until: Any) -> None:
    async with serving() as server:
        connection = await connect(server.url)
        sender = await connection.sender("orders")
        await server.close()
        await until(lambda: not connection.is_connected)
        waiting = sender.send_nowait(Message(b"x"))
        closing = asyncio.ensure_future(connection.wait_connected())
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(Exception, match="closed"):
            await waiting
        with pytest.raises(Exception, match="closed"):
            await closing


async def test_a_server_that_drops_everybody_at_once_is_not_stormed(
    serving: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []

    def without_pause(delay_s: float) -> float:
        paused.append(delay_s)
        return 0.0

    monkeypatch.setattr("enmasse.client.connection.jittered", without_pause)
    async with serving() as server, connect(server.url) as connection:
        for lives in range(2, 9):
            await server.drop()
            await until(lambda lives=lives: len(server.opens) == lives and connection.is_connected)
        assert paused == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
        monkeypatch.setattr("enmasse.client.connection.STABLE_S", -1.0)
        await server.drop()
        await until(lambda: len(server.opens) == 9)
        assert paused[-1] == 0.05
