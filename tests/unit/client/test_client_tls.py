"""TLS: who is trusted, and what is said when somebody is not."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import ConnectionDeniedError, Message, Outcome, TlsError, TlsOptions, UnavailableError, connect
from tests.unit.client.authorities import DAY, Authority


@pytest.fixture(name="authority", scope="module")
def authority_fixture(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "ours")


async def test_messages_travel_over_tls(serving: Any, authority: Authority) -> None:
    async with (
        serving(tls=authority.server("127.0.0.1")) as server,
        connect(server.url, tls=TlsOptions(ca_file=authority.ca_file)) as connection,
    ):
        assert str(connection) == server.url
        assert server.shells[0].is_secure
        outcomes = await (await connection.sender("orders")).send_all(Message(bytes(5000)) for _ in range(300))
        assert set(outcomes) == {Outcome.ACCEPTED}
        receiver = await connection.receiver("orders")
        for _ in range(300):
            delivery = await receiver.receive(timeout=30)
            assert delivery is not None
            assert len(delivery.message.body) == 5000
            delivery.accept()


async def test_a_context_of_ones_own_will_do(serving: Any, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    async with serving(tls=authority.server("127.0.0.1")) as server, connect(server.url, tls=context) as connection:
        assert connection.is_connected


async def test_an_unknown_authority_is_told_with_what_to_do(
    serving: Any, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "theirs")
    async with serving(tls=authority.server("127.0.0.1")) as server:
        for options in (None, TlsOptions(ca_file=other.ca_file)):
            with pytest.raises(
                TlsError, match=r"authority that is not known here: give TlsOptions\(ca_file="
            ) as caught:
                await connect(server.url, tls=options, patience=10)
            assert str(caught.value).startswith(f"{server.url} is not to be trusted")
        async with connect(server.url, tls=TlsOptions(verify=False)) as connection:
            assert connection.is_connected


async def test_a_password_is_shown_to_a_server_that_has_proved_who_it_is_alone(
    serving: Any, authority: Authority
) -> None:
    async with serving(tls=authority.server("127.0.0.1")) as server:
        server.mechanisms = ["PLAIN", "ANONYMOUS"]
        anybody, of_ours = ssl.create_default_context(), ssl.create_default_context(cafile=str(authority.ca_file))
        anybody.check_hostname = of_ours.check_hostname = False
        anybody.verify_mode = ssl.CERT_NONE
        for tls in (TlsOptions(verify=False), anybody, of_ours):
            for given in ({"user": "ann", "password": "secret"}, {"token": "secret"}):
                with pytest.raises(ConnectionDeniedError):
                    await connect(server.url, tls=tls, **given)  # type: ignore[arg-type]
        with pytest.raises(ConnectionDeniedError, match=r"show your secret to an unverified server.*ca_file="):
            await connect(server.url, tls=anybody, user="ann", password="secret")
        assert server.mechanisms_used == []
        async with connect(server.url, tls=TlsOptions(ca_file=authority.ca_file), user="ann", password="secret"):
            assert server.mechanisms_used == ["PLAIN"]


async def test_an_expired_certificate_is_told_from_one_that_is_not_valid_yet(
    serving: Any, authority: Authority
) -> None:
    trust = TlsOptions(ca_file=authority.ca_file)
    async with serving(tls=authority.server("127.0.0.1", begins=-2 * DAY, ends=-DAY)) as server:
        with pytest.raises(TlsError, match="certificate has expired: have it renewed"):
            await connect(server.url, tls=trust)
    async with serving(tls=authority.server("127.0.0.1", begins=dt.timedelta(hours=1), ends=DAY)) as server:
        with pytest.raises(TlsError, match="not valid yet"):
            await connect(server.url, tls=trust)


async def test_a_certificate_for_another_host_needs_its_name(serving: Any, authority: Authority) -> None:
    async with serving(tls=authority.server("mq.example.org")) as server:
        with pytest.raises(TlsError, match=r"not for '127.0.0.1': .* TlsOptions\(server_name="):
            await connect(server.url, tls=TlsOptions(ca_file=authority.ca_file))
        options = TlsOptions(ca_file=authority.ca_file, server_name="mq.example.org")
        async with connect(server.url, tls=options) as connection:
            assert connection.is_connected
            assert server.shells[-1].server_name in (None, "mq.example.org")


async def test_a_client_certificate_proves_who_we_are(serving: Any, authority: Authority) -> None:
    context = authority.server("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.ca_file)
    async with serving(tls=context) as server:
        server.mechanisms = ["ANONYMOUS", "EXTERNAL", "PLAIN"]
        with pytest.raises(UnavailableError, match=r"right after the TLS handshake.*TlsOptions\(certificate="):
            await connect(server.url, tls=TlsOptions(ca_file=authority.ca_file))
        pem = authority.sign("robot")
        async with connect(server.url, tls=TlsOptions(ca_file=authority.ca_file, certificate=pem)):
            assert server.mechanisms_used == ["EXTERNAL"]
            assert server.shells[-1].peer_names == ("robot",)
        server.mechanisms = ["ANONYMOUS", "PLAIN"]
        with pytest.raises(ConnectionDeniedError, match="offers ANONYMOUS, PLAIN, and none of EXTERNAL"):
            await connect(server.url, tls=TlsOptions(ca_file=authority.ca_file, certificate=pem), sasl=["EXTERNAL"])
        locked = authority.sign("robot", password="open sesame")
        options = TlsOptions(ca_file=authority.ca_file, certificate=locked, key_password="open sesame")
        assert "sesame" not in repr(options)
        async with connect(server.url, tls=options) as connection:
            assert connection.is_connected


async def test_a_server_that_says_what_it_misses_is_understood(authority: Authority) -> None:
    context = authority.server("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.ca_file)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with suppress(ssl.SSLError), listener.accept()[0] as plain, context.wrap_socket(plain, server_side=True):
                raise AssertionError("it was let in without a certificate")

        refusing = asyncio.ensure_future(asyncio.to_thread(refuse))
        url = f"amqps://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(TlsError, match=r"refused our certificate .* TlsOptions\(certificate="):
            await connect(url, tls=TlsOptions(ca_file=authority.ca_file))
        await refusing


async def test_tls_to_a_plain_port_is_told(serving: Any) -> None:
    async with serving() as server:
        with pytest.raises(TlsError, match="speak TLS"):
            await connect(server.url.replace("amqp:", "amqps:"), tls=TlsOptions(verify=False))


async def test_a_server_that_hangs_up_in_the_handshake_is_told() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    listener = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with listener:
        url = f"amqps://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        with pytest.raises(TlsError, match="hung up during the TLS handshake"):
            await connect(url)


async def test_a_port_with_tls_is_not_reached_without(serving: Any, authority: Authority) -> None:
    async with serving(tls=authority.server("127.0.0.1")) as server:
        with pytest.raises((ConnectionDeniedError, UnavailableError), match=r"speaks TLS|hung up"):
            await connect(server.url.replace("amqps:", "amqp:"))


def test_files_that_are_no_certificates_are_named(tmp_path: Path, authority: Authority) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for options, hint in (
        (TlsOptions(ca_file=tmp_path / "no.crt"), "no.crt"),
        (TlsOptions(ca_file=junk), "PEM"),
        (TlsOptions(certificate=junk), "junk.pem"),
        (TlsOptions(certificate=authority.sign("a"), key=authority.sign("b")), "belong together"),
        (TlsOptions(certificate=authority.sign("a", password="x")), "key_password"),
        (TlsOptions(key=junk), "certificate="),
    ):
        with pytest.raises(TlsError, match=hint):
            connect("amqps://127.0.0.1", tls=options)


async def test_the_connection_comes_back_over_tls(serving: Any, authority: Authority, until: Any) -> None:
    async with (
        serving(tls=authority.server("127.0.0.1")) as server,
        connect(server.url, tls=TlsOptions(ca_file=authority.ca_file)) as connection,
    ):
        sender = await connection.sender("orders")
        await server.drop()
        assert await sender.send(Message(b"x"), timeout=30) == Outcome.ACCEPTED
        await until(lambda: len(server.opens) == 2)
