"""Clients that come through a load balancer on this machine: none of them is here, whatever they speak."""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from enmasse.client import connect
from enmasse.drivers.authority import Authority
from enmasse.identity.permissions import Permissions
from enmasse.identity.users import User, Users, make_keys
from enmasse.net.connection_limiter import ConnectionLimits
from enmasse.net.egress import networks_of
from enmasse.net.loop import run
from enmasse.node.management.entity_fields import SPACE_TYPE
from enmasse.node.ports import PortOptions
from enmasse.node.server import Server
from enmasse.node.users.gate import GateOptions
from enmasse.wire.mqtt.packets import Version
from tests.support.balancer import BALANCER, balancer
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until_async
from tests.support.proxy_headers import LOCAL, binary, extension, text, tls_extension
from tests.support.stomp_peer import StompPeer

OPEN, GUARDED = "ns/open", "ns/guarded"
PASSWORD = "correct horse"


class Here:
    def __init__(self, server: Server, port: int, tls: Path) -> None:
        self.server = server
        self.port = port
        self.tls = tls

    def connections(self) -> list[Any]:
        return [shell for connection, shell in self.server.connections.shells.items() if connection.space is not None]


BOTH = {OPEN: "none", GUARDED: "standard"}


def play(
    directory: Path,
    story: Callable[[Here], Awaitable[None]],
    *,
    spaces: dict[str, str] = BOTH,
    gate: GateOptions | None = None,
    **options: Any,
) -> None:
    async def main() -> None:
        tls = directory / "tls"
        Authority(tls).keep_server_certificate("default", ("localhost", "127.0.0.1"))
        given = PortOptions(tls=tls, proxy_from=networks_of("--proxy-from", (BALANCER,)), **options)
        server = Server(directory / "node", "node", ports=given, gate=gate)
        await server.load()
        try:
            async with asyncio.timeout(60):
                for space, authentication in spaces.items():
                    stored: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                    record = {"spaceType": "standard", "authentication": authentication}
                    server.entities.create(SPACE_TYPE, space, record, stored.set_result)
                    assert await stored is None
                keys = {name: make_keys(name, PASSWORD, b"salt", 4096) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")}
                rights = Permissions([], lambda _pattern, _user: lambda _address: True)
                user = User("jo", GUARDED, rights, keys, certificates=("meter-1",))
                server._set_users(Users([user], seed=secrets.token_bytes(32)))
                await story(Here(server, await server.listen("127.0.0.1", 0), tls))
        finally:
            await server.stop()

    run(main())


async def by_amqp(port: int, user: str | None = None) -> None:
    url = f"amqp://127.0.0.1:{port}"
    if user is None:
        async with await connect(url, hostname="open.ns"):
            return
    async with await connect(
        url, hostname="guarded.ns", user=user, password=PASSWORD, sasl=("PLAIN",), allow_insecure_plain=True
    ):
        pass


async def by_websocket(port: int, user: str | None = None) -> None:
    async with await connect(f"amqpws://127.0.0.1:{port}/", hostname="open.ns"):
        pass


async def by_mqtt(port: int, user: str | None = None) -> None:
    login = {"user_name": user, "password": PASSWORD.encode()} if user else {"user_name": "anyone@open.ns"}
    async with MqttPeer(port, "me", Version.V5, **login):
        pass


async def by_stomp(port: int, user: str | None = None) -> None:
    login = {"login": user, "passcode": PASSWORD} if user else {}
    async with StompPeer(port, host="guarded.ns" if user else "open.ns", **login):
        pass


async def by_http(port: int, user: str | None = None) -> None:
    space = "guarded.ns" if user else "open.ns"
    login = (user, PASSWORD) if user else None
    async with httpx.AsyncClient(trust_env=False, auth=login) as http:
        found = await http.get(f"http://127.0.0.1:{port}/v1/spaces/{space}/addresses/none/messages?wait=0")
    if "'none'" not in found.text:  # the address, of which only those hear who are let in
        raise PermissionError(found.text)


WAYS = {"AMQP": by_amqp, "WebSocket": by_websocket, "MQTT": by_mqtt, "STOMP": by_stomp, "HTTP": by_http}
HEADERS = {
    "in the clear": text(),
    "from this machine, as it says": text(("127.0.0.1", 5), ("127.0.0.1", 6)),
    "by a Unix socket": binary(source=None),
    "by TLS": binary(tls_extension()),
    "its own": LOCAL,
}


@pytest.mark.parametrize("way", WAYS)
def test_nobody_enters_an_open_space_through_a_balancer(tmp_path: Path, way: str) -> None:
    async def story(here: Here) -> None:
        await WAYS[way](here.port)
        for said, header in HEADERS.items():
            async with balancer(here.port, header) as port:
                try:
                    await WAYS[way](port)
                except AssertionError:
                    assert way in ("STOMP", "MQTT", "HTTP"), (
                        said
                    )  # their peers say so of what was no answer they want
                except Exception:  # noqa: BLE001  each way has its own
                    pass
                else:
                    pytest.fail(f"{way} is let in {said}")
        assert not here.connections()

    # So much is waited where HTTP alone is awaited and does not come.
    play(tmp_path, story, limits=ConnectionLimits(handshake_timeout_s=2))


@pytest.mark.parametrize("way", ["AMQP", "MQTT", "STOMP", "HTTP"])
def test_a_password_is_taken_from_who_has_come_by_tls(tmp_path: Path, way: str) -> None:
    user = "jo" if way == "HTTP" else "jo@guarded.ns"

    async def story(here: Here) -> None:
        async with balancer(here.port, binary(tls_extension())) as port:
            await WAYS[way](port, user)
        for header in (text(), text(("127.0.0.1", 5), ("127.0.0.1", 6)), binary(tls_extension(0))):
            async with balancer(here.port, header) as port:
                with pytest.raises(Exception):  # noqa: B017, PT011  each way has its own
                    await WAYS[way](port, user)

    play(tmp_path, story)


async def amqp_at(port: int, host: str, tls: ssl.SSLContext) -> None:
    async with await connect(f"amqp://127.0.0.1:{port}", hostname=host, reconnect=False):
        pass


async def websocket_at(port: int, host: str, tls: ssl.SSLContext) -> None:
    async with await connect(f"amqpws://127.0.0.1:{port}/", hostname=host, reconnect=False):
        pass


async def stomp_at(port: int, host: str, tls: ssl.SSLContext) -> None:
    async with StompPeer(port, host=host):
        pass


async def mqtt_at(port: int, host: str, tls: ssl.SSLContext) -> None:
    class ByServerName(MqttPeer):
        async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            return await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)

    async with ByServerName(port, "me", Version.V5):
        pass


@pytest.mark.parametrize(
    "way", [amqp_at, websocket_at, stomp_at, mqtt_at], ids=lambda way: way.__name__.removesuffix("_at")
)
def test_a_misspelt_space_is_refused_from_this_machine_and_any_host_names_nothing_from_elsewhere(
    tmp_path: Path, way: Callable[[int, str, ssl.SSLContext], Awaitable[None]]
) -> None:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE

    async def story(here: Here) -> None:
        for host in ("open.ns", "open", "localhost", "mq"):
            await way(here.port, host, tls)
        for host in ("typo", "typo.other"):
            with pytest.raises(Exception):  # noqa: B017, PT011  each way has its own
                await way(here.port, host, tls)
            async with balancer(here.port, text()) as port:
                await way(port, host, tls)

    play(
        tmp_path,
        story,
        spaces={OPEN: "none"},
        gate=GateOptions(allow_anonymous=True),
        names=frozenset({"mq"}),
        limits=ConnectionLimits(handshake_timeout_s=2),
    )


async def by_plain_websocket(port: int, user: str | None = None) -> None:
    given: dict[str, Any] = {"user": user, "password": PASSWORD, "sasl": ("PLAIN",), "allow_insecure_plain": True}
    async with await connect(f"amqpws://127.0.0.1:{port}/", hostname="guarded.ns", reconnect=False, **given):
        pass


@pytest.mark.parametrize("way", ["AMQP", "WebSocket", "MQTT", "STOMP", "HTTP"])
def test_a_password_in_the_clear_is_taken_from_this_machine_alone_and_its_refusal_locks_nobody_out(
    tmp_path: Path, way: str
) -> None:
    user = "jo" if way == "HTTP" else "jo@guarded.ns"
    enter = (WAYS | {"WebSocket": by_plain_websocket})[way]

    async def strict(here: Here) -> None:
        await enter(here.port, user)
        for _ in range(6):  # one more than wrong ones may be
            async with balancer(here.port, text()) as port:
                with pytest.raises(Exception):  # noqa: B017, PT011  each way has its own
                    await enter(port, user)
        assert not here.server.gate.logins._by_user._failures
        async with balancer(here.port, binary(tls_extension())) as port:
            await enter(port, user)

    async def lax(here: Here) -> None:
        async with balancer(here.port, text()) as port:
            await enter(port, user)

    play(tmp_path / "strict", strict)
    play(tmp_path / "lax", lax, gate=GateOptions(allow_insecure_plain=True))


def test_what_is_told_of_a_client_is_its_own_in_lists_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(here: Here) -> None:
        named = extension(0x02, "guarded.ns")  # the space, as the host for TLS would
        async with (
            balancer(here.port, binary(tls_extension(), named)) as port,
            await connect(f"amqp://127.0.0.1:{port}", user="jo", password=PASSWORD),
        ):
            connections = here.server.connections
            (row,) = map(connections._connection, connections._of(here.server.entities.spaces[GUARDED]))
            assert (row["host"], row["tls"], row["user"]) == (
                "203.0.113.7:40000", "TLSv1.3 TLS_AES_256_GCM_SHA384", "jo",
            )  # fmt: skip
        async with balancer(here.port, binary(tls_extension(), named)) as port:
            with pytest.raises(Exception, match=r"."):
                await connect(f"amqp://127.0.0.1:{port}", user="jo", password="wrong")
        assert here.server.gate.logins._by_user._failures  # counted for the client's network
        assert {key[0] for key in here.server.gate.logins._by_user._failures} == {"203.0.113.7"}

    with caplog.at_level(logging.INFO):
        play(tmp_path, story)
    hosts = {each.__dict__["fields"]["host"] for each in caplog.records if "fields" in each.__dict__}
    assert hosts == {"203.0.113.7:40000"}


def test_the_name_of_a_certificate_is_a_proof_by_the_operators_word(tmp_path: Path) -> None:
    shown = binary(tls_extension(3, 0, "meter-1"), extension(0x02, "guarded.ns"))

    async def enter(here: Here) -> None:
        async with (
            balancer(here.port, shown) as port,
            await connect(f"amqp://127.0.0.1:{port}", sasl=("EXTERNAL",)),
        ):
            assert [shell.peer for shell in here.connections()] == ["203.0.113.7:40000"]
            # It is looked at again, and still holds.
            here.server.reviews.review_all()
            await asyncio.sleep(0)
            assert len(here.connections()) == 1

    async def refused(here: Here) -> None:
        with pytest.raises(Exception, match=r"the server offers SCRAM"):
            await enter(here)

    play(tmp_path / "by its word", enter, proxy_certificate_names=True)
    play(tmp_path / "without", refused)


def test_tls_passed_through_ends_at_the_node(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        trusting = ssl.create_default_context(cafile=str(here.tls / "authority" / "ca.crt"))
        async with (
            balancer(here.port, binary()) as port,
            await connect(
                f"amqps://localhost:{port}", tls=trusting, user="jo@guarded.ns", password=PASSWORD,
                sasl=("PLAIN",),
            ),
        ):  # fmt: skip
            (shell,) = here.connections()
            assert (shell.peer, shell.is_secure) == ("203.0.113.7:40000", True)

    play(tmp_path, story)


def test_a_balancer_asks_for_health_and_a_space_of_its_own_port_is_no_exception(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        own = await here.server._open_space_port("127.0.0.1", 0, OPEN)
        for target in (here.port, own.sockets[0].getsockname()[1]):
            async with balancer(target, LOCAL) as port, httpx.AsyncClient(trust_env=False) as http:
                assert (await http.get(f"http://127.0.0.1:{port}/readyz")).text == "ok\n"
                assert (await http.get(f"http://127.0.0.1:{port}/v1/spaces/open.ns")).status_code == 404
            async with balancer(target, b"") as port:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert await reader.read() == b""
                writer.close()
        own.close()
        await until_async(lambda: not len(here.server.ports.limiter))

    play(tmp_path, story)
