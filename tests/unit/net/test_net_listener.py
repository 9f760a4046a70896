"""One port for everything, over real sockets."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from enmasse.drivers.authority import Authority
from enmasse.errors import ConfigError
from enmasse.net.certificates import CertificateStore
from enmasse.net.connection_limiter import ConnectionLimits
from enmasse.net.lanes import Quantum
from enmasse.net.origins import SECURITY_HEADERS
from tests.unit.net.port_site import AMQP, HEADER, site


async def test_amqp_in_the_clear_reaches_an_engine_from_its_first_byte(script: Any, until: Any) -> None:
    async with site(script) as here:
        peer = await here.connect()
        for byte in HEADER:
            peer.writer.write(bytes([byte]))
            await asyncio.sleep(0.002)
        await until(lambda: here.engines and here.engines[0].received == HEADER)
        assert not here.shells[0].is_secure
        assert here.shells[0].transport.get_protocol() is here.shells[0]


async def test_amqp_in_tls_reaches_an_engine(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        peer = await here.connect(here.trusting())
        peer.writer.write(HEADER)
        await until(lambda: here.engines and here.engines[0].received == HEADER)
        shell = here.shells[0]
        assert (shell.is_secure, shell.server_name, shell.peer_names) == (True, "localhost", ())
        here.engines[0].put(b"answer")
        assert await peer.reader.readexactly(6) == b"answer"
        here.engines[0].closed = True
        here.engines[0].put(b"!")
        assert await peer.hear() == b"!"


async def test_much_goes_through_tls_whole_in_both_directions(script: Any, until: Any, tmp_path: Path) -> None:
    much = HEADER + os.urandom(3 << 20)
    async with site(script, tmp_path) as here:
        peer = await here.connect(here.trusting())
        peer.writer.write(much)
        await until(lambda: here.engines and len(here.engines[0].received) == len(much))
        assert here.engines[0].received == much
        here.engines[0].put(much)
        async with asyncio.timeout(60):
            assert await peer.reader.readexactly(len(much)) == much


async def test_a_tls_client_that_does_not_read_blocks_the_engine(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        peer = await here.connect(here.trusting())
        peer.writer.write(HEADER)
        await until(lambda: here.engines and here.engines[0].received)
        for _ in range(16):
            here.engines[0].put(bytes(1 << 20))
            await asyncio.sleep(0)
        await until(lambda: "block" in here.engines[0].calls)
        async with asyncio.timeout(20):
            await peer.reader.readexactly(16 << 20)
        await until(lambda: "resume" in here.engines[0].calls)


async def test_amqps_own_header_for_tls_is_answered_and_followed_by_tls(
    script: Any, until: Any, tmp_path: Path
) -> None:
    async with site(script, tmp_path) as here:
        peer = await here.connect()
        peer.writer.write(AMQP.tls_header)
        assert await peer.reader.readexactly(8) == AMQP.tls_header
        await peer.writer.start_tls(here.trusting(), server_hostname="localhost")
        peer.writer.write(HEADER)
        await until(lambda: here.engines and here.engines[0].received == HEADER)
        assert here.shells[0].is_secure


async def test_without_certificates_tls_is_left_to_the_engine(script: Any, until: Any) -> None:
    async with site(script) as here:
        peer = await here.connect()
        peer.writer.write(AMQP.tls_header)
        await until(lambda: here.engines and here.engines[0].received == AMQP.tls_header)


@pytest.mark.parametrize("secure", [False, True])
async def test_http_is_answered_and_closed(script: Any, tmp_path: Path, secure: bool) -> None:
    async with site(script, tmp_path) as here:
        tls = here.trusting() if secure else None
        peer = await here.connect(tls)
        answer = await peer.ask(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"\r\n\r\n/healthz is well\n")
        assert all(f"{name}: {value}\r\n".encode() in answer for name, value in SECURITY_HEADERS)
        for request, beginning in (
            (b"HEAD /healthz HTTP/1.1\r\nHost: here\r\n\r\n", b"HTTP/1.1 200 "),
            (b"GET /other HTTP/1.1\r\nHost: here\r\n\r\n", b"HTTP/1.1 404 "),
            (b"POST /healthz HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 405 "),
            (b"POST /healthz HTTP/1.1\r\nHost: here\r\nOrigin: http://here\r\n\r\n", b"HTTP/1.1 403 "),
            (b"GET /healthz HTTP/1.1\r\nHost: here\r\nHost: there\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET nonsense\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET / HTTP/1.1\r\nX: " + bytes(100_000), b"HTTP/1.1 4"),
        ):
            peer = await here.connect(tls)
            answer = await peer.ask(request)
            assert answer.startswith(beginning), request[:40]
            assert not request.startswith(b"HEAD") or answer.endswith(b"\r\n\r\n")
            await peer.close()
        assert not here.engines


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)


@pytest.mark.parametrize(
    "request_",
    [
        UPGRADE.replace(b"\r\n", b"\n"),
        UPGRADE.replace(b"Host: here", b"Host: here\nX: y"),
        UPGRADE.replace(b"Host: here", b"Host: here\r\n folded"),
        UPGRADE.replace(b"Host: here", b"Host: here\r\nHost: here"),
        UPGRADE.replace(b"Host: here", b"Host: here\r\nX: a\0b"),
        UPGRADE.replace(b"Host: here", b"Host: here\r\nX : y"),
        UPGRADE.replace(b"Host: here", b"Host: here\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"),
    ],
    ids=["line feeds", "a line feed", "a fold", "two hosts", "NUL", "a space before a colon", "two lengths"],
)
async def test_what_proxies_may_read_otherwise_is_no_request_for_websocket(script: Any, request_: bytes) -> None:
    async with site(script) as here:
        peer = await here.connect()
        assert (await peer.ask(request_)).startswith(b"HTTP/1.1 400 ")
        assert not here.engines


@pytest.mark.parametrize("size", [1, 100])
async def test_a_request_for_websocket_in_crumbs_is_understood(script: Any, until: Any, size: int) -> None:
    async with site(script) as here:
        peer = await here.connect()
        for at in range(0, len(UPGRADE), size):
            peer.writer.write(UPGRADE[at : at + size])
            await peer.writer.drain()
            await asyncio.sleep(0)
        assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await until(lambda: here.engines)


async def test_the_host_that_a_client_names_chooses_the_certificate(script: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.keep_server_certificate("shop", ("shop.example.org",))
    authority.keep_server_certificate("wide", ("*.wide.example.org",))
    async with site(script, tmp_path) as here:
        for asked, shown in (
            ("shop.example.org", "shop.example.org"),
            ("SHOP.example.org", "shop.example.org"),
            ("a.wide.example.org", "*.wide.example.org"),
            ("localhost", "localhost"),
            ("stranger.example.org", "localhost"),
        ):
            context = here.trusting()
            context.check_hostname = False
            peer = await here.connect(context, asked)
            certificate = peer.writer.get_extra_info("peercert")
            assert (("DNS", shown)) in certificate["subjectAltName"], asked
            await peer.close()


async def test_a_clients_certificate_gives_its_names(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        mine = Authority(tmp_path).issue_client("meter-1@example.org").write(tmp_path / "mine", "meter")
        peer = await here.connect(here.trusting(mine))
        peer.writer.write(HEADER)
        await until(lambda: here.engines and here.engines[0].received)
        assert here.shells[0].peer_names == ("meter-1@example.org",)


async def test_a_browser_is_not_asked_for_a_certificate(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        mine = Authority(tmp_path).issue_client("meter-1").write(tmp_path / "mine", "meter")
        context = here.trusting(mine)
        context.set_alpn_protocols(["h2", "http/1.1"])
        peer = await here.connect(context)
        peer.writer.write(HEADER)
        await until(lambda: here.engines and here.engines[0].received)
        assert (here.shells[0].is_secure, here.shells[0].peer_names) == (True, ())


async def test_a_client_of_http_that_may_have_a_certificate_is_asked(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        mine = Authority(tmp_path).issue_client("meter-1").write(tmp_path / "mine", "meter")
        for at, (certificate, names) in enumerate(((mine, ("meter-1",)), (None, ()))):
            context = here.trusting(certificate)
            context.set_alpn_protocols(["http/1.1"])
            context.post_handshake_auth = True
            peer = await here.connect(context)
            peer.writer.write(HEADER)
            await until(lambda at=at: len(here.engines) > at and here.engines[at].received)
            assert here.shells[at].peer_names == names
            await peer.close()


async def test_a_tls_hello_in_crumbs_is_understood(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = here.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        peer = await here.connect()
        for at in range(0, len(hello), 50):
            peer.writer.write(hello[at : at + 50])
            await asyncio.sleep(0.001)
        assert (await peer.reader.readexactly(1)) == b"\x16"


async def test_a_certificate_of_a_strange_authority_ends_the_handshake(
    script: Any, until: Any, tmp_path: Path
) -> None:
    async with site(script, tmp_path / "tls") as here:
        strange = Authority(tmp_path / "strange").issue_client("meter-1").write(tmp_path, "strange")
        with suppress(ssl.SSLError, ConnectionError):
            peer = await here.connect(here.trusting(strange))
            assert await peer.ask(HEADER) == b""  # TLS 1.3 tells a client of it after its own handshake
        assert not here.engines
        await until(lambda: len(here.limiter) == 0)


async def test_old_versions_of_tls_are_refused(script: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        context = here.trusting()
        context.set_ciphers("DEFAULT@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await here.connect(context)


async def test_a_new_certificate_is_shown_without_a_restart(script: Any, until: Any, tmp_path: Path) -> None:
    async with site(script, tmp_path) as here:
        assert here.store is not None
        old = await here.connect(here.trusting())
        old.writer.write(HEADER)
        before = old.writer.get_extra_info("peercert")["serialNumber"]
        Authority(tmp_path / "other").keep_server_certificate("default", ("localhost",))
        for name in ("default.key", "default.crt", "authority/ca.crt"):
            shutil.copy(tmp_path / "other" / name, tmp_path / name)
        assert here.store.reload()
        new = await here.connect(here.trusting())
        assert new.writer.get_extra_info("peercert")["serialNumber"] != before
        old.writer.write(b"still here")
        await until(lambda: here.engines and here.engines[0].received.endswith(b"still here"))


async def test_changed_files_are_noticed_and_broken_ones_change_nothing(
    script: Any, until: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.net.certificates.CHECK_EVERY_S", 0.02)
    async with site(script, tmp_path) as here:
        assert here.store is not None
        here.store.watch()
        before = here.store.context(b"")
        sound = (tmp_path / "default.crt").read_bytes()
        (tmp_path / "default.crt").write_bytes(b"no certificate")
        await until(lambda: here.store is not None and here.store._failed is not None)
        assert here.store.context(b"") is before
        (tmp_path / "default.crt").write_bytes(sound)
        await until(lambda: here.store is not None and here.store.context(b"") is not before)


def test_a_directory_without_a_certificate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"default\.crt"):
        CertificateStore(tmp_path)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    for name in ("default", "other"):
        Authority(tmp_path).keep_server_certificate(name, ("localhost",))
    shutil.copy(tmp_path / "other.key", tmp_path / "default.key")
    with pytest.raises(ConfigError, match=r"default\.key"):
        CertificateStore(tmp_path)


@pytest.mark.parametrize("said", [b"", b"AMQ", b"\x16\x03\x01\x02", b"GET /heal", HEADER])
async def test_who_does_not_open_in_time_is_dropped(script: Any, until: Any, tmp_path: Path, said: bytes) -> None:
    async with site(script, tmp_path, ConnectionLimits(handshake_timeout_s=0.1)) as here:
        peer = await here.connect()
        peer.writer.write(said)
        assert await peer.hear() == b""
        assert here.limiter.timed_out == 1
        await until(lambda: len(here.limiter) == 0)


async def test_who_has_opened_in_time_stays(script: Any, until: Any) -> None:
    async with site(script, None, ConnectionLimits(handshake_timeout_s=0.1)) as here:
        peer, late = await here.connect(), await here.connect()
        peer.writer.write(HEADER)
        await until(lambda: here.shells)
        assert here.shells[0].slot is not None
        here.shells[0].slot.admit()
        assert await late.hear() == b""
        peer.writer.write(b"still here")
        await until(lambda: here.engines[0].received == HEADER + b"still here")
        assert len(here.limiter) == 1


async def test_who_has_said_all_in_time_stays_however_late_the_node_is(script: Any, until: Any) -> None:
    def opening_script() -> Any:
        def admit(_data: bytes) -> None:
            slot = here.shells[here.engines.index(engine)].slot
            assert slot is not None
            slot.admit()

        engine = script()
        engine.on_receive = admit
        return engine

    async with site(opening_script) as here:
        peers = [await here.connect() for _ in range(50)]
        await until(lambda: len(here.limiter) == 50)
        for peer in peers:
            peer.writer.write(HEADER)
        for slot in here.limiter.half_open:
            slot.since -= 3600
        here.limiter._expire()
        await until(lambda: sum(engine.received == HEADER for engine in here.engines) == 50)
        assert here.limiter.timed_out == 0


async def test_with_all_places_taken_a_newcomer_is_turned_away(script: Any, until: Any) -> None:
    async with site(script, None, ConnectionLimits(max_handshakes=2)) as here:
        for _ in range(2):
            await here.connect()
        await until(lambda: len(here.limiter) == 2)
        late = await here.connect()
        assert await late.hear() == b""
        assert here.limiter.turned_away == 1


async def test_who_has_waited_long_gives_way(script: Any, until: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.net.connection_limiter.GRACE_S", 0.0)
    async with site(script, None, ConnectionLimits(max_handshakes=2)) as here:
        slow = await here.connect()
        await until(lambda: len(here.limiter) == 1)
        peers = [await here.connect(), await here.connect()]
        assert await slow.hear() == b""
        peers[1].writer.write(HEADER)
        await until(lambda: here.engines and here.engines[0].received == HEADER)


async def test_an_address_that_has_all_half_open_places_gives_some_up_for_others(script: Any, until: Any) -> None:
    async with site(script, None, ConnectionLimits(max_handshakes=4)) as here:
        greedy = [await here.connect() for _ in range(4)]
        await until(lambda: len(here.limiter.half_open) == 4)
        others = [await here.connect(address="127.0.0.2") for _ in range(3)]
        assert await others[2].hear() == b"", "two each is all"
        assert [await peer.hear() for peer in greedy[:2]] == [b"", b""]
        for peer in (*greedy[2:], *others[:2]):
            peer.writer.write(HEADER)
        await until(lambda: sum(engine.received == HEADER for engine in here.engines) == 4)
        assert here.limiter.turned_away == 3


async def test_one_that_waits_for_the_node_is_not_half_open_meanwhile(script: Any, until: Any) -> None:
    limits = ConnectionLimits(max_handshakes=1, handshake_timeout_s=0.1)
    async with site(script, None, limits) as here:
        peer = await here.connect()
        peer.writer.write(HEADER)
        await until(lambda: here.shells)
        slot = here.shells[0].slot
        assert slot is not None
        slot.suspend()
        other = await here.connect()
        assert await other.hear() == b"", "its own time is over"
        assert here.limiter.turned_away == 0
        assert slot not in here.limiter.half_open
        slot.resume()
        assert slot in here.limiter.half_open
        assert await peer.hear() == b"", "the time runs again"
        assert here.limiter.timed_out == 2
        slot.resume()
        assert slot not in here.limiter.half_open, "it is gone"


async def test_many_at_once_are_served_in_several_turns(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.net.lanes.HANDSHAKE_QUANTUM", Quantum(1e-9, 1 << 10))
    turns: list[int] = []

    def counting_script() -> Any:
        turns.append(here.limiter.lane._turn.number)
        return script()

    async with site(counting_script) as here:
        peers = [await here.connect() for _ in range(20)]
        for peer in peers:
            peer.writer.write(HEADER)
        await until(lambda: sum(engine.received == HEADER for engine in here.engines) == 20)
        assert len(set(turns)) == 20
        for shell in here.shells:
            shell.abort()
        await until(lambda: all(shell.is_lost for shell in here.shells))
        for shell in here.shells:
            await shell.wait_closed()


async def test_who_says_all_at_once_while_others_come_is_heard(
    script: Any, until: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The end of what it says comes while its first bytes wait for their turn."""
    monkeypatch.setattr("enmasse.net.lanes.HandshakeLane.is_full", lambda _lane: True)
    async with site(script, tmp_path) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = here.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(4096))
        tls.write(HEADER)
        with suppress(ssl.SSLWantReadError):
            tls.unwrap()
        writer.write(outgoing.read())
        await until(lambda: [engine.received for engine in here.engines] == [HEADER])
        await until(lambda: here.engines[0].calls == ["lost"])
        writer.close()


async def test_above_the_limits_a_connection_is_let_in_to_be_told(script: Any, until: Any) -> None:
    async with site(script, None, ConnectionLimits(max_connections=1, max_connections_per_host=2)) as here:
        peers = []
        for count in range(1, 4):
            peers.append(await here.connect())
            peers[-1].writer.write(HEADER)
            await until(lambda count=count: len(here.shells) == count)
            slot = here.shells[-1].slot
            assert slot is not None
            slot.admit()
        told = [shell.refusal for shell in here.shells]
        assert told[0] is None
        assert "the node has 1 connections" in (told[1] or "")
        assert "the node has 1 connections" in (told[2] or "")


async def test_one_host_may_have_so_many_connections(script: Any, until: Any) -> None:
    async with site(script, None, ConnectionLimits(max_connections_per_host=1)) as here:
        first, second = await here.connect(), await here.connect()
        for peer in (first, second):
            peer.writer.write(HEADER)
        await until(lambda: len(here.shells) == 2)
        told = {shell.refusal for shell in here.shells}
        assert told == {None, "there are 1 connections from 127.0.0.1, as many as one host may have"}
        await first.close()
        await second.close()
        await until(lambda: len(here.limiter) == 0)
        third = await here.connect()
        third.writer.write(HEADER)
        await until(lambda: len(here.shells) == 3)
        assert here.shells[2].refusal is None
