"""Connections that load balancers pass on, over real sockets; balancers come from 127.0.0.2."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from enmasse.drivers.authority import Authority
from enmasse.net import proxy_layer
from enmasse.net.connection_limiter import ConnectionLimits, Slot
from enmasse.net.proxy_layer import Proxies
from enmasse.net.transport import EngineProtocol
from enmasse.wire.proxy_header import read_header
from tests.support.proxy_headers import LOCAL, binary, extension, text, tls_extension
from tests.unit.net.port_site import AMQP, HEADER, Peer, Site, site

BALANCER = "127.0.0.2"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: who.ever\r\n\r\n"


@asynccontextmanager
async def behind(
    script: Any, directory: Path | None = None, *, most: int = 100, trusts_names: bool = False, **limits: Any
) -> AsyncIterator[Site]:
    proxies = Proxies((ip_network(f"{BALANCER}/32"),), most, trusts_names=trusts_names)
    async with site(script, directory, ConnectionLimits(**limits), proxies) as here:
        here.proxies = proxies
        yield here
        assert not len(proxies)


async def passed_on(here: Site, header: bytes, tls: ssl.SSLContext | None = None, name: str = "localhost") -> Peer:
    """A connection of a balancer, with TLS after the header."""
    peer = await here.connect(address=BALANCER)
    peer.writer.write(header)
    if tls is not None:
        await peer.writer.start_tls(tls, server_hostname=name)
    return peer


def slot_of(shell: EngineProtocol) -> Slot:
    assert shell.slot is not None
    return shell.slot


async def facts_of(here: Site, until: Any, peer: Peer) -> tuple[Any, ...]:
    count = len(here.engines)
    peer.writer.write(HEADER)
    await until(lambda: len(here.engines) > count and here.engines[-1].received == HEADER)
    shell = here.shells[-1]
    return shell.peer, shell.is_secure, shell.server_name, shell.peer_names


@pytest.mark.parametrize("size", [0, 1])
async def test_a_header_stands_for_what_the_socket_says(script: Any, until: Any, size: int) -> None:
    async with behind(script) as here:
        v6 = binary(source=("2001:db8::7", 5), destination=("2001:db8::1", 9))
        for header, peer in ((text(), "203.0.113.7:40000"), (v6, "[2001:db8::7]:5")):
            count = len(here.engines)
            other = await here.connect(address=BALANCER)
            data = header + HEADER
            for at in range(0, len(data), size or len(data)):
                other.writer.write(data[at : at + (size or len(data))])
                await other.writer.drain()
                await asyncio.sleep(0)
            await until(lambda count=count: len(here.engines) > count and here.engines[-1].received == HEADER)
            shell = here.shells[-1]
            assert (shell.peer, shell.is_secure, shell.tls) == (peer, False, "")
            assert shell.proxied is not None
            # What comes takes no way through the layer.
            assert shell.transport.get_protocol() is shell
            here.engines[-1].put(b"answer")
            assert await other.reader.readexactly(6) == b"answer"


async def test_everybody_else_comes_as_ever_and_a_header_of_theirs_is_none(script: Any, until: Any) -> None:
    async with behind(script) as here:
        assert (await facts_of(here, until, await here.connect()))[0].startswith("127.0.0.1:")
        assert here.shells[-1].proxied is None
        for header in (text(), binary()):
            peer = await here.connect()
            peer.writer.write(header + HEADER)
            await until(lambda header=header: here.engines[-1].received == header + HEADER)
            assert here.shells[-1].peer.startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (HEADER, "does not begin with a header"),
        (HEALTH, "does not begin with a header"),
        (b"\x16\x03\x01\0\0", "does not begin with a header"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n", "two addresses and two ports"),
        (b"PROXY UNKNOWN" + bytes(1 << 20), "no end within 107 bytes"),
        (binary()[:14] + b"\xff\xff" + bytes(1 << 20), "65551 bytes, and 4096 at most"),
        (binary(b"\2\0\1"), "an extension goes beyond its end"),
    ],
    ids=["AMQP", "HTTP", "TLS", "a wrong line", "an endless line", "huge", "cut"],
)
async def test_a_balancer_that_says_nothing_or_nonsense_is_refused_and_the_log_has_one_line(
    script: Any, until: Any, caplog: pytest.LogCaptureFixture, data: bytes, why: str
) -> None:
    with caplog.at_level(logging.INFO):
        async with behind(script) as here:
            peer = await here.connect(address=BALANCER)
            assert await peer.ask(data) == b""
            assert not here.engines
            assert not len(here.limiter)
            # Nobody else notices.
            await facts_of(here, until, await passed_on(here, text()))
    (line,) = [record for record in caplog.records if record.getMessage() == "proxy-refused"]
    fields = line.__dict__["fields"]
    assert fields["host"] == BALANCER
    assert why in fields["description"]


async def test_a_header_that_is_cut_off_is_told_of_and_a_connection_without_a_word_is_not(
    script: Any, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(script) as here:
        for data in (b"", b"PROXY TCP4 1.2.3.4", binary()[:20]):
            peer = await here.connect(address=BALANCER)
            peer.writer.write(data)
            await until(lambda: len(here.proxies) == 1)
            await peer.close()
            await until(lambda: not len(here.proxies))
    told = [each.__dict__["fields"] for each in caplog.records if each.__dict__.get("event") == "proxy-refused"]
    assert told == [{"host": BALANCER, "description": "it ended within its header"}] * 2


async def test_a_header_that_does_not_come_has_its_time(
    script: Any, until: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy_layer, "HEADER_S", 0.05)
    async with behind(script) as here:
        peers = [await here.connect(address=BALANCER) for _ in range(3)]
        peers[0].writer.write(b"PROXY ")
        assert [await peer.hear() for peer in peers] == [b""] * 3
    assert len([each for each in caplog.records if each.__dict__.get("event") == "proxy-refused"]) == 3


async def test_one_too_many_without_a_header_takes_the_place_of_the_oldest_and_of_nobody_else(
    script: Any, until: Any
) -> None:
    async with behind(script, most=2) as here:
        first = await here.connect(address=BALANCER)
        await until(lambda: len(here.proxies) == 1)
        others = [await here.connect(address=BALANCER) for _ in range(2)]
        assert await first.hear() == b""
        for peer in others:
            peer.writer.write(text())
            await facts_of(here, until, peer)


async def test_limits_count_the_client_and_not_the_balancer(script: Any, until: Any) -> None:
    async with behind(script, max_connections_per_host=1, max_handshakes=2) as here:
        await facts_of(here, until, await passed_on(here, text(("203.0.113.7", 1))))
        assert (here.shells[-1].refusal, slot_of(here.shells[-1]).network) == (None, "203.0.113.7")
        await facts_of(here, until, await passed_on(here, text(("203.0.113.8", 1))))
        assert here.shells[-1].refusal is None
        slot_of(here.shells[-1]).admit()
        await facts_of(here, until, await passed_on(here, text(("203.0.113.7", 2))))
        assert "from 203.0.113.7" in str(here.shells[-1].refusal)
        # Of the half-open ones one address has two, and gives way to another.
        greedy = here.shells[0]
        await facts_of(here, until, await passed_on(here, text(("203.0.113.9", 1))))
        await until(lambda: greedy.is_lost)


async def test_tls_that_is_passed_through_is_the_clients(script: Any, until: Any, tmp_path: Path) -> None:
    async with behind(script, tmp_path) as here:
        mine = Authority(tmp_path).issue_client("meter-1").write(tmp_path / "mine", "meter")
        for header in (text(), binary()):
            found = await facts_of(here, until, await passed_on(here, header, here.trusting(mine)))
            assert found == ("203.0.113.7:40000", True, "localhost", ("meter-1",))
            assert here.shells[-1].tls.startswith("TLSv1.3 ")


async def test_amqps_header_for_tls_follows_that_of_a_balancer(script: Any, until: Any, tmp_path: Path) -> None:
    async with behind(script, tmp_path) as here:
        peer = await here.connect(address=BALANCER)
        peer.writer.write(binary() + AMQP.tls_header)
        assert await peer.reader.readexactly(8) == AMQP.tls_header
        await peer.writer.start_tls(here.trusting(), server_hostname="localhost")
        assert (await facts_of(here, until, peer))[:2] == ("203.0.113.7:40000", True)


async def test_a_hello_in_the_same_read_as_the_header_reaches_tls(script: Any, until: Any, tmp_path: Path) -> None:
    async with behind(script, tmp_path) as here:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = here.trusting().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            client.do_handshake()
        peer = await here.connect(address=BALANCER)
        peer.writer.write(binary() + outgoing.read())
        while True:
            incoming.write(await peer.reader.read(1 << 16))
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.writer.write(outgoing.read())
        client.write(HEADER)
        peer.writer.write(outgoing.read())
        await until(lambda: here.engines and here.engines[0].received == HEADER)
        assert here.shells[0].peer == "203.0.113.7:40000"


HOST = extension(0x02, "Demo.Default.enmasse.local")


async def test_tls_that_ends_at_a_balancer_is_what_the_balancer_says(script: Any, until: Any, tmp_path: Path) -> None:
    async with behind(script, tmp_path) as here:
        balancers = Authority(tmp_path).issue_client("balancer").write(tmp_path / "mine", "balancer")
        trusting = here.trusting(balancers)
        named = "demo.default.enmasse.local"
        peer = "203.0.113.7:40000"
        for extensions, tls, found in (
            # The way from a balancer on this machine is private.
            ((tls_extension(3, 0, "meter-1"), HOST), None, (peer, True, named, ())),
            # By TLS it is as well, whose certificate and host are those of the balancer and no client's.
            ((tls_extension(),), trusting, (peer, True, None, ())),
            ((tls_extension(), HOST), trusting, (peer, True, named, ())),
            # A client in the clear stays there.
            ((tls_extension(0),), None, (peer, False, None, ())),
            ((tls_extension(0),), trusting, (peer, False, None, ())),
            ((HOST,), None, (peer, False, named, ())),
        ):
            header = binary(*extensions)
            assert await facts_of(here, until, await passed_on(here, header, tls)) == found, extensions
        assert here.shells[0].tls == "TLSv1.3 TLS_AES_256_GCM_SHA384"


async def test_the_name_of_a_certificate_counts_by_the_operators_word(script: Any, until: Any) -> None:
    async with behind(script, trusts_names=True) as here:
        for told, names in ((tls_extension(3, 0, "meter-1"), ("meter-1",)), (tls_extension(3, 1, "meter-1"), ())):
            assert (await facts_of(here, until, await passed_on(here, binary(told))))[3] == names


async def test_the_way_from_a_balancer_elsewhere_is_private_by_tls_alone() -> None:
    header = binary(tls_extension())
    found = read_header(header)
    assert found is not None
    far = proxy_layer.Proxied(found[0], "192.0.2.1", False)
    assert not far.is_private(None)
    assert far.is_private(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), True))


async def test_two_hosts_are_one_too_many(
    script: Any, until: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(script, tmp_path) as here:
        same = binary(extension(0x02, "LOCALHOST"))
        assert (await facts_of(here, until, await passed_on(here, same, here.trusting())))[2] == "localhost"
        peer = await here.connect(address=BALANCER)
        peer.writer.write(binary(HOST))
        with suppress(ConnectionError, ssl.SSLError):
            await peer.writer.start_tls(here.trusting(), server_hostname="localhost")
        assert await peer.hear() == b""
        assert len(here.engines) == 1
    assert "proxy-refused" in caplog.text


@pytest.mark.parametrize("own", [LOCAL, b"PROXY UNKNOWN\r\n"], ids=["LOCAL", "UNKNOWN"])
async def test_a_balancers_own_connections_are_told_of_health_alone(script: Any, tmp_path: Path, own: bytes) -> None:
    async with behind(script, tmp_path) as here:
        for tls in (None, here.trusting()):
            peer = await passed_on(here, own, tls)
            assert (await peer.ask(HEALTH.replace(b"who.ever", b"here"))).endswith(b"/healthz is well\n")
            for data in (HEADER + b"\r\n\r\n", UPGRADE, b"CONNECT\nhost:here\n\n\0"):
                peer = await passed_on(here, own, tls)
                assert not (await peer.ask(data)).startswith((b"HTTP/1.1 101", b"AMQP"))
        assert not here.engines


async def test_a_clients_websocket_is_one_through_a_balancer_too(script: Any, until: Any) -> None:
    async with behind(script) as here:
        peer = await passed_on(here, text())
        peer.writer.write(UPGRADE)
        assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        await until(lambda: here.engines)
        assert here.shells[0].peer == "203.0.113.7:40000"


async def test_a_client_of_a_balancers_unix_socket_is_not_taken_for_one_of_ours(script: Any, until: Any) -> None:
    async with behind(script) as here:
        assert (await facts_of(here, until, await passed_on(here, binary(source=None))))[0] == "proxied-unix"


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("10.2.0.9", True),
        ("::ffff:10.2.0.9", True),
        ("10.3.0.9", False),
        ("2001:db8:1::9", True),
        ("fe80::1%eth0", False),
        ("2002:0a02:0009::1", False),  # 6to4 and others carry an address that anybody may choose
        ("64:ff9b::10.2.0.9", False),
    ],
)
def test_a_balancer_is_who_comes_from_its_network(address: str, is_one: bool) -> None:
    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return (address, 1) if name == "peername" else default

    assert Proxies((ip_network("10.2.0.0/16"), ip_network("2001:db8:1::/48")), 1).has(Transport()) is is_one
