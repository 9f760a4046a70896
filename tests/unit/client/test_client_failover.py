"""Several places, redirects, and who we are there."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import (
    ConnectionDeniedError,
    LinkRefusedError,
    Message,
    Outcome,
    TlsError,
    TlsOptions,
    UnavailableError,
    UrlError,
    connect,
)
from enmasse.message.outcomes import AmqpError
from enmasse.wire.sasl.mechanisms import SaslCode
from tests.unit.client.authorities import Authority

ANN_ALONE: dict[str, Any] = {"user": "ann", "password": "secret"}
ANN = ANN_ALONE | {"allow_insecure_plain": True}


def unused_url() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"amqp://127.0.0.1:{unused.getsockname()[1]}"


async def test_the_first_place_that_answers_is_taken(serving: Any) -> None:
    async with serving() as one, serving() as two:
        async with connect([unused_url(), one.url, two.url]) as connection:
            assert str(connection) == one.url
        assert (len(one.opens), len(two.opens)) == (1, 0)


async def test_every_place_is_named_when_none_answers() -> None:
    urls = [unused_url(), unused_url()]
    with pytest.raises(UnavailableError, match="no place can be reached") as caught:
        await connect(urls)
    assert all(url in str(caught.value) for url in urls)
    assert "connection refused: nothing listens there" in str(caught.value)
    with pytest.raises(UrlError, match="at least one"):
        connect([])


async def test_after_a_loss_the_next_place_is_taken_with_everything_under_way(serving: Any, until: Any) -> None:
    async with serving() as one, serving() as two, connect([one.url, two.url]) as connection:
        sender = await connection.sender("mute")
        receiver = await connection.receiver("orders")
        futures = [sender.send_nowait(Message(n)) for n in range(3)]
        await until(lambda: one.arrived["mute"] == 3)
        del two.outcomes["mute"]
        await one.drop()
        outcomes = await asyncio.gather(*futures)
        assert outcomes == [Outcome.ACCEPTED] * 3
        assert str(connection) == two.url
        await (await connection.sender("orders")).send(Message("there"))
        delivery = await receiver.receive(timeout=30)
        assert delivery is not None
        assert delivery.message.body == "there"
        await two.drop()
        await until(lambda: len(one.opens) == 2)


async def test_shuffled_places_are_all_tried(serving: Any) -> None:
    async with serving() as server:
        urls = [server.url, *(unused_url() for _ in range(4))]
        for _ in range(5):
            async with connect(urls, shuffle=True) as connection:
                assert str(connection) == server.url


async def test_one_place_that_does_not_know_us_does_not_keep_us_from_the_other(serving: Any, until: Any) -> None:
    async with serving() as one, serving() as two:
        one.users.clear()
        for server in (one, two):
            server.mechanisms = ["PLAIN"]
        async with connect([one.url, two.url], **ANN) as connection:
            assert str(connection) == two.url
            await two.drop()
            await until(lambda: len(two.opens) == 2)
        two.users.clear()
        with pytest.raises(ConnectionDeniedError, match="refused the credentials"):
            await connect([one.url, two.url], **ANN)


def redirect(server: Any) -> AmqpError:
    return AmqpError(
        "amqp:connection:redirect",
        "not here",
        {"hostname": "other", "network-host": "127.0.0.1", "port": server.port},
    )


async def test_a_redirected_connection_goes_where_it_is_sent(serving: Any, until: Any) -> None:
    async with serving() as one, serving() as two:
        one.denial = redirect(two)
        async with connect(one.url) as connection:
            assert str(connection) == two.url
            assert two.opens[0].hostname == "other"
            one.denial = None
            await two.drop()
            await until(lambda: len(one.opens) == 2)
        one.denial, two.denial = redirect(two), redirect(one)
        with pytest.raises(UnavailableError, match="circle"):
            await connect(one.url)


async def test_a_connection_that_is_up_can_be_sent_elsewhere(serving: Any, until: Any) -> None:
    async with serving() as one, serving() as two, connect(one.url) as connection:
        sender = await connection.sender("orders")
        one.shells[0].engine.close(redirect(two))
        await until(lambda: str(connection) == two.url)
        assert await sender.send(Message(b"x"), timeout=30) == Outcome.ACCEPTED
        assert two.arrived["orders"] == 1


def moved(server: Any, address: str) -> AmqpError:
    info = {"hostname": "127.0.0.1", "network-host": "127.0.0.1", "port": server.port, "address": address}
    return AmqpError("amqp:link:redirect", "it has moved", info)


async def test_a_link_follows_its_address_on_the_same_connection(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.moved["orders"] = moved(server, "orders.new")
        sender = await connection.sender("orders")
        assert sender.address == "orders.new"
        await sender.send(Message(b"x"))
        assert server.arrived["orders.new"] == 1
        assert len(server.opens) == 1


async def test_a_link_follows_its_address_to_another_place(serving: Any, until: Any) -> None:
    async with serving() as one, serving() as two, connect(one.url) as connection:
        one.moved["orders"] = moved(two, "orders.there")
        receiver = await connection.receiver("orders")
        sender = await connection.sender("orders")
        stays = await connection.sender("invoices")
        await sender.send(Message("over there"))
        delivery = await receiver.receive(timeout=30)
        assert delivery is not None
        assert delivery.message.body == "over there"
        assert (len(one.opens), len(two.opens)) == (1, 1)
        await stays.send(Message(b"x"))
        assert one.arrived["invoices"] == 1
        await two.drop()
        assert await sender.send(Message("again"), timeout=30) == Outcome.ACCEPTED
        assert two.arrived["orders.there"] == 2


async def test_an_attached_link_is_sent_elsewhere_with_what_it_has(serving: Any, until: Any) -> None:
    async with serving() as one, serving() as two, connect(one.url) as connection:
        sender = await connection.sender("full")
        waiting = sender.send_nowait(Message("patient"))
        one.links[-1].detach(moved(two, "roomy"))
        assert await waiting == Outcome.ACCEPTED
        assert two.arrived["roomy"] == 1


async def test_a_redirect_to_nowhere_ends_the_link(serving: Any) -> None:
    async with serving() as server, connect(server.url) as connection:
        server.moved["orders"] = moved(server, "orders")
        with pytest.raises(LinkRefusedError, match="it has moved"):
            await connection.sender("orders")
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            info = {"hostname": "127.0.0.1", "port": unused.getsockname()[1]}
            server.moved["invoices"] = AmqpError("amqp:link:redirect", None, info)
            with pytest.raises(UnavailableError, match="cannot reach"):
                await connection.sender("invoices")


async def test_a_password_is_not_shown_to_the_network(serving: Any) -> None:
    async with serving() as server:
        server.mechanisms = ["PLAIN"]
        with pytest.raises(ConnectionDeniedError, match=r"would show your secret.*amqps://"):
            await connect(server.url, user="ann", password="secret")
        with pytest.raises(ConnectionDeniedError, match="give user= and password="):
            await connect(server.url)
        server.mechanisms = ["ANONYMOUS", "PLAIN"]
        with pytest.raises(ConnectionDeniedError, match="would show"):
            await connect(server.url, user="ann", password="secret")
        assert server.mechanisms_used == []


async def test_who_gave_a_user_is_not_let_in_as_nobody(serving: Any) -> None:
    async with serving() as server:
        server.mechanisms = ["ANONYMOUS"]
        for given in (ANN_ALONE, dict[str, Any](token="secret")):
            with pytest.raises(ConnectionDeniedError, match=r"nobody's credentials are looked at: .* '127\.0\.0\.1'"):
                await connect(server.url, **given)
        assert server.mechanisms_used == []


async def test_mechanisms_can_be_chosen(serving: Any) -> None:
    async with serving() as server:
        async with connect(server.url, **ANN), connect(server.url, sasl=["ANONYMOUS", "PLAIN"], **ANN):
            assert server.mechanisms_used == ["PLAIN", "ANONYMOUS"]
        with pytest.raises(ConnectionDeniedError, match="none of SCRAM-SHA-256"):
            await connect(server.url, sasl=["SCRAM-SHA-256"], **ANN)


async def test_a_token_is_made_for_each_attempt(serving: Any, until: Any) -> None:
    tokens = iter(["one", "two"])
    async with serving() as server:
        server.mechanisms = ["OAUTHBEARER"]
        server.verdict = True
        async with connect(server.url, token=lambda: next(tokens), allow_insecure_plain=True):
            await server.drop()
            await until(lambda: len(server.opens) == 2)
        assert next(tokens, None) is None


async def test_a_server_that_cannot_look_us_up_now_is_tried_again(serving: Any) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving())
        server.verdict = SaslCode.SYS_TEMP
        with pytest.raises(UnavailableError, match="try again later"):
            await connect(server.url, **ANN)
        asyncio.get_running_loop().call_later(0.1, setattr, server, "verdict", None)
        connection = await stack.enter_async_context(connect(server.url, patience=10, **ANN))
        assert connection.is_connected


async def test_a_redirect_may_lead_to_tls_but_never_away_from_it(serving: Any, tmp_path: Path, until: Any) -> None:
    authority = Authority(tmp_path, "ours")
    async with serving() as plain, serving(tls=authority.server("127.0.0.1")) as safe:
        error = redirect(safe)
        assert error.info is not None
        error.info["scheme"] = "amqps"
        plain.denial = error
        trust = TlsOptions(ca_file=authority.ca_file)
        async with connect(plain.url, tls=trust) as connection:
            assert str(connection) == safe.url
            assert safe.opens[0].hostname == "other"
        plain.denial = None
        back = redirect(plain)
        assert back.info is not None
        back.info["scheme"] = "amqp"
        safe.denial = back
        with pytest.raises(TlsError, match=r"does not speak TLS|hung up"):
            await connect(safe.url, tls=trust)
        assert len(plain.opens) == 1
