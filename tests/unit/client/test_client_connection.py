"""Connecting, and how connections end, against a small server on a real socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import (
    ClosedError,
    ConnectionDeniedError,
    DeadlineError,
    Message,
    Outcome,
    UnavailableError,
    UrlError,
    connect,
)
from enmasse.message.outcomes import AmqpError


async def test_both_ends_learn_who_the_other_is(serving: Any) -> None:
    async with (
        serving() as server,
        connect(
            server.url + "/orders", container_id="me", properties={"a": 1}, hostname="s.ns.example"
        ) as connection,
    ):
        assert connection.remote_container_id == "server"
        assert connection.remote_properties == {}
        assert connection.address == "orders"
        assert connection.is_connected
        opened = server.opens[0]
        assert (opened.container_id, opened.hostname, opened.properties["a"]) == ("me", "s.ns.example", 1)
        assert opened.properties["product"] == "enmasse-python"
    left: list[Any] = [connection.remote_container_id, connection.remote_properties, connection.is_closed]
    assert left == [None, {}, True]


async def test_the_host_of_the_url_is_asked_for_and_a_name_is_made_up(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection, connect(server.url) as other:
        assert server.opens[0].hostname == "127.0.0.1"
        assert server.opens[0].container_id == connection.container_id != other.container_id


async def test_a_unix_socket_will_do(serving: Any, tmp_path: Path) -> None:
    async with serving(tmp_path / "x.sock") as server, connect(server.url) as connection:
        assert server.opens[0].hostname is None
        assert str(connection) == f"amqp+unix://{tmp_path}/x.sock"
        assert await (await connection.sender("orders")).send(Message(b"x")) == Outcome.ACCEPTED


async def test_user_and_password_come_from_the_url_or_the_arguments(serving: Any) -> None:
    async with serving() as server:
        server.mechanisms = ["PLAIN"]
        async with connect(server.url.replace("//", "//ann:secret@"), allow_insecure_plain=True) as connection:
            assert connection.is_connected
            assert "secret" not in str(connection)
        async with connect(server.url, user="ann", password="secret", allow_insecure_plain=True) as connection:
            assert connection.is_connected


async def test_wrong_credentials_are_denied(serving: Any) -> None:
    async with serving() as server:
        with pytest.raises(ConnectionDeniedError, match=server.url) as caught:
            await connect(server.url, user="ann", password="wrong", allow_insecure_plain=True, patience=10)
        assert caught.value.condition == "amqp:unauthorized-access"
        server.mechanisms = ["PLAIN"]
        with pytest.raises(ConnectionDeniedError, match="PLAIN"):
            await connect(server.url)


async def test_a_peer_that_closes_at_once_tells_why(serving: Any) -> None:
    async with serving() as server:
        server.denial = AmqpError("amqp:not-found", "no such space")
        with pytest.raises(ConnectionDeniedError, match="no such space") as caught:
            await connect(server.url)
        assert caught.value.condition == "amqp:not-found"


async def test_nobody_at_the_port_is_told_with_the_place() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"amqp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"cannot reach {url}"):
            await connect(url)
    with pytest.raises(UnavailableError, match="cannot reach"):
        await connect("amqp+unix:///nonexistent/x.sock")


async def test_patience_waits_for_a_server_that_is_not_there_yet(serving: Any) -> None:
    async with serving() as server:
        port = server.port
        await server.close()

        async def start_late() -> None:
            await asyncio.sleep(0.1)
            await server.listen(port)

        late = asyncio.ensure_future(start_late())
        async with connect(server.url, patience=10) as connection:
            assert connection.is_connected
        await late


async def test_a_peer_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeadlineError, match=r"did not answer within 0.05 s"):
            await connect(url, timeout=0.05)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_a_peer_of_another_protocol_is_told_from_an_amqp_server(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    async with server:
        url = f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(
            (ConnectionDeniedError, UnavailableError), match="the peer speaks HTTP" if answer else "hung up"
        ):
            await connect(url)


async def test_a_wrong_url_is_refused_before_anything_is_tried() -> None:
    with pytest.raises(UrlError):
        connect("http://127.0.0.1")


async def test_closing_ends_every_link_and_is_fine_twice(serving: Any) -> None:
    async with serving() as server:
        connection = await connect(server.url)
        sender = await connection.sender("full")
        receiver = await connection.receiver("orders")
        waiting = sender.send_nowait(Message(b"x"))
        receiving = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        await asyncio.gather(connection.close(), connection.close())
        await connection.close()
        with pytest.raises(ClosedError):
            await waiting
        assert await receiving is None
        with pytest.raises(ClosedError):
            await connection.sender("orders")
        with pytest.raises(ClosedError):
            await connection.request("orders", Message())
        with pytest.raises(ClosedError):
            await connection.wait_connected()
        await sender.close()
        await receiver.close()


async def test_an_attach_without_answer_is_given_up(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        with pytest.raises(DeadlineError, match="not attached within"):
            await connection.sender("silent", timeout=0.02)
        task = asyncio.ensure_future(connection.receiver("silent").__aenter__())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await (await connection.sender("orders")).send(Message(b"x")) == Outcome.ACCEPTED


async def test_a_server_that_does_not_answer_the_close_is_left(serving: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("enmasse.client.carrier.CLOSE_TIMEOUT_S", 0.05)
    async with serving() as server:
        connection = await connect(server.url)
        server.shells[0].transport.pause_reading()
        await connection.close()
        assert connection.is_closed


async def test_a_thousand_links_share_a_connection(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        senders = await asyncio.gather(*(connection.sender("orders") for _ in range(1000)))
        await asyncio.gather(*(sender.send(Message(b"x")) for sender in senders))
        assert server.arrived["orders"] == 1000


async def test_links_that_one_session_cannot_hold_go_on_another(serving: Any, until: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.handle_max = 9
        await server.drop()
        await until(lambda: len(server.opens) == 2 and connection.is_connected)
        senders = await asyncio.gather(*(connection.sender("orders") for _ in range(35)))
        outcomes = await asyncio.gather(*(sender.send(Message(n)) for n, sender in enumerate(senders)))
        assert outcomes == [Outcome.ACCEPTED] * 35
        assert len({link.session for link in server.links}) == 4
        await server.drop()
        outcomes = await asyncio.gather(*(sender.send(Message(n)) for n, sender in enumerate(senders)))
        assert outcomes == [Outcome.ACCEPTED] * 35
        assert server.arrived["orders"] == 70
