"""The hosts by which HTTP of a node is served, on every path, in every version; and what takes messages by GET."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from enmasse.drivers.authority import Authority
from enmasse.net.loop import run
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.server import Server
from tests.unit.node.http_scene import OPEN, SHOP, Scene, play, version  # noqa: F401  a fixture

OWN, OTHER = "own.ns", "open.ns"
SERVED = (
    "localhost", "127.0.0.1", "192.168.7.7:8081", "[::1]", "proxy.example", "PROXY.example:443", "cert.example",
    "a.wild.example", "own.ns", "OWN.NS", "own.ns.enmasse.local", "mq.own.example",
)  # fmt: skip
REFUSED = (
    "evil.example", "localhost.evil.example", "localhost.", "2130706433", "0x7f.1", "a.b.wild.example",
    "wild.example", "none.ns", "own.none", "own.ns.evil.example", "own", "enmasse.local",
    "mq.own.example.evil.example", "x.mq.own.example",
)  # fmt: skip
OF_ANOTHER = ("open.ns", "open.ns.enmasse.local")
"""Names of another space than that whose addresses are asked for."""

BASE = f"/v1/spaces/{OWN}/addresses/orders"
OF_SPACE = (
    ("GET", f"{BASE}/messages"), ("HEAD", f"{BASE}/messages"), ("POST", f"{BASE}/messages"),
    ("POST", f"{BASE}/receive"), ("GET", "/v1/spaces/own.ns/addresses/log/events"), ("POST", f"{BASE}/settle"),
    ("POST", f"{BASE}/renew"), ("POST", f"{BASE}/request?wait=0"), ("OPTIONS", f"{BASE}/messages"),
)  # fmt: skip
OF_NODE = (
    ("GET", "/healthz"), ("HEAD", "/healthz"), ("GET", "/readyz?verbose"), ("GET", "/v1/openapi.json"),
    ("POST", "/v1/openapi.json"), ("GET", "/"), ("GET", "/nothing/is/here"), ("PUT", f"{BASE}/messages"),
    ("POST", "/telemetry"), ("PUT", "/event/tenant/device"), ("OPTIONS", "/telemetry"), ("GET", "/telemetry"),
)  # fmt: skip


async def status_of(client: httpx.AsyncClient, scene: Scene, method: str, path: str, host: str) -> int:
    url = f"{client.base_url.scheme}://localhost:{scene.port}{path}"
    async with client.stream(method, url, headers={"Host": host}) as answer:
        if answer.status_code == 403 and method != "HEAD":
            text = (await answer.aread()).decode()
            assert "--http-name" in text or "expected one name" in text, text
        return answer.status_code


async def opens(scene: Scene, host: str, tls: ssl.SSLContext | None) -> bool:
    """Return true if a WebSocket opens at a host; a page of it would send it as Origin, which others refuse."""
    url = f"{'ws' if tls is None else 'wss'}://{host}"
    place: dict[str, Any] = {"host": "127.0.0.1", "port": scene.port, "proxy": None, "compression": None}
    try:
        async with connect(url, subprotocols=["amqp"], ssl=tls, **place):  # type: ignore[list-item]
            return True
    except InvalidStatus as error:
        return error.response.status_code != 403


@pytest.mark.slow
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_another_name_is_refused_on_every_path(tmp_path: Path, secure: bool) -> None:
    async def story(scene: Scene) -> None:
        await scene.create(SPACE_TYPE, "ns/own", hosts=["mq.own.example"])
        for address, kind in (("orders", "queue"), ("log", "stream")):
            await scene.create(ADDRESS_TYPE, f"ns/own.{address}", space="ns/own", address=address, addressType=kind)
        trusting = scene.trusting
        trusting.check_hostname = False  # whatever it is called
        options: dict[str, Any] = {"verify": trusting} if secure else {}
        async with scene.client(**options) as client:
            for method, path in (*OF_SPACE, *OF_NODE):
                for host in SERVED:
                    found = await status_of(client, scene, method, path, host)
                    assert found != 403, (method, path, host)
                for host in (*REFUSED, *(OF_ANOTHER if (method, path) in OF_SPACE else ())):
                    found = await status_of(client, scene, method, path, host)
                    assert found == 403, (method, path, host)
        tls = trusting if secure else None
        if not scene.is_http2:
            for host in (host for host in SERVED if ":" not in host):
                assert await opens(scene, host, tls), host
            for host in ("evil.example", "localhost.evil.example", "none.ns", "2130706433.example"):
                assert not await opens(scene, host, tls), host

    Authority(tmp_path / "tls").keep_server_certificate("more", ("cert.example", "*.wild.example"))
    play(tmp_path, story, names=frozenset({"proxy.example"}))


RAW = {
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n": 200,
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n": 400,
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n": 400,
    b"GET /healthz HTTP/1.1\r\nHost: localhost, evil.example\r\n\r\n": 400,
    b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n": 403,
    b"GET /healthz HTTP/1.1\r\n\r\n": 400,
    # No browser does that, and some load balancers do.
    b"GET /healthz HTTP/1.0\r\n\r\n": 200,
    b"GET /healthz HTTP/1.0\r\nHost: evil.example\r\n\r\n": 403,
    # The host in the target is meant, whatever Host says.
    b"GET http://localhost/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n": 200,
    b"GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n": 403,
    b"GET HTTP://evil.example/healthz HTTP/1.0\r\n\r\n": 403,
    b"GET http://localhost@evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n": 400,
    b"GET http:///healthz HTTP/1.1\r\nHost: localhost\r\n\r\n": 403,
    b"POST http://evil.example/v1/spaces/open.ns/addresses/orders/receive HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Length: 0\r\n\r\n": 403,
    b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: amqp\r\n"
    b"\r\n": 403,
}


def test_a_host_is_named_once_and_the_one_in_the_target_counts(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        for request, status in RAW.items():
            # The second of two requests on a connection is read by another part of the node.
            for before in (b"", b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"):
                reader, writer = await asyncio.open_connection("127.0.0.1", scene.port)
                writer.write(before + request)
                if before:
                    assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
                    await reader.readuntil(b"}\n")
                assert (await reader.readline()).split()[1] == str(status).encode(), (before, request)
                writer.close()

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("space", "at", "options", "is_served"),
    [
        (SHOP, "8.8.8.8", {}, True),
        (SHOP, "127.0.0.1", {}, False),
        (SHOP, "10.1.2.3", {}, False),
        (SHOP, "fd00::1", {}, False),
        (OPEN, "8.8.8.8", {}, False),
        (OPEN, "8.8.8.8", {"has_login": True}, True),
        (None, "8.8.8.8", {}, False),
    ],
)
def test_on_a_public_address_another_name_is_served_where_a_login_is_asked_for(
    tmp_path: Path, space: str | None, at: str, options: dict[str, bool], is_served: bool
) -> None:
    async def story(scene: Scene) -> None:
        transport: Any = SimpleNamespace(get_extra_info={"sockname": (at, 8081)}.get)
        refusal = scene.server.hosts.refusal("evil.example", transport, "127.0.0.1:9", space, **options)
        assert (refusal is None) is is_served, refusal
        # Another machine does not get into an open space, and so may call the node as it likes.
        assert (scene.server.hosts.refusal("evil.example", transport, "9.9.9.9:9", space) is None) is (
            at == "8.8.8.8"
        )

    play(tmp_path, story)


def test_a_management_port_has_names_too(tmp_path: Path) -> None:
    async def main() -> None:
        Authority(tmp_path / "tls").keep_server_certificate("default", ("node.example", "localhost"))
        server = Server(tmp_path / "node", "node")
        await server.load()
        try:
            port = await server.listen_management("127.0.0.1", 0, tmp_path / "tls")
            trusting = ssl.create_default_context(cafile=str(tmp_path / "tls" / "authority" / "ca.crt"))
            async with httpx.AsyncClient(verify=trusting, trust_env=False) as client:
                for host, status in (("node.example", 200), ("127.0.0.1", 200), ("evil.example", 403)):
                    answer = await client.get(f"https://localhost:{port}/healthz", headers={"Host": host})
                    assert answer.status_code == status, host
        finally:
            await server.stop()

    run(main())


WANTED = "text/event-stream"
TAKEN = {
    (None, None): 406,
    ("*/*", None): 406,
    ("image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8", None): 406,
    ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", None): 406,
    ("text/*", None): 406,
    ("text/event-streams", None): 406,
    (WANTED, None): 200,
    ("application/json, Text/Event-Stream;q=0.9", None): 200,
    (WANTED, "empty"): 200,
    (WANTED, "image"): 403,
    (WANTED, "document"): 403,
    (WANTED, "iframe"): 403,
    (WANTED, "empty, image"): 403,
}


@pytest.mark.parametrize("address", ["orders", "any", "news", "log"])
def test_what_takes_messages_by_get_says_that_it_wants_events(tmp_path: Path, address: str) -> None:
    async def story(scene: Scene) -> None:
        async with scene.client(http1=True, http2=False) as client:
            await client.post(f"{address}/messages?wait=0", content=b"one")
            for (accept, destination), status in sorted(TAKEN.items(), key=lambda item: item[1] == 200):
                if status == 200 and address == "orders":
                    # Those that were refused took nothing.
                    (message,) = (await client.get("orders/messages")).json()["messages"]
                    assert "deliveryCount" not in message
                headers = {"Accept": accept, "Sec-Fetch-Dest": destination}
                given = {name: value for name, value in headers.items() if value is not None}
                if accept is None:
                    client.headers.pop("Accept", None)
                async with client.stream("GET", f"{address}/events", headers=given) as answer:
                    expected = 200 if address == "log" else status
                    assert answer.status_code == expected, (accept, destination)
                    if expected == 406:
                        assert "send Accept: text/event-stream" in (await answer.aread()).decode()
                if status == 200 and address == "orders":
                    break
                # HEAD takes nothing, whoever asks.
                assert (await client.head(f"{address}/events", headers=given)).status_code == 200

    play(tmp_path, story)
