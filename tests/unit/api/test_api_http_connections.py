"""The API's connections: who says nothing, or too slowly, goes; and nobody has all places while others want some."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from enmasse.api.access.authentication import Authenticator
from enmasse.api.access.authorization import Access
from enmasse.api.access.guard import Guard
from enmasse.api.http_connections import HttpConnections
from enmasse.api.listeners import open_listener, serve_http
from enmasse.api.tls import ApiCertificate
from enmasse.control.access.rights import Rights
from enmasse.control.store.store import ResourceStore
from enmasse.drivers.authority import Authority
from enmasse.identity.rbac import ANONYMOUS, LOCAL_OPERATOR
from enmasse.net.egress import networks_of
from enmasse.net.loop import run
from enmasse.net.origins import SECURITY_HEADERS
from tests.support.proxy_headers import LOCAL, binary, text, tls_extension

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
SOON = 0.05


class Client:
    """One connection, from an address of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def rest(self) -> bytes:
        """All that comes until the server hangs up."""
        try:
            async with asyncio.timeout(60):
                return await self._reader.read()
        except ConnectionError:
            return b""

    async def ask(self) -> bytes:
        """Ask for something, and return the answer's head."""
        self.writer.write(GET + b"\r\n")
        async with asyncio.timeout(60):
            head = await self._reader.readuntil(b"\r\n\r\n")
            await self._reader.readexactly(4)
        return head


class Site:
    def __init__(self, account: HttpConnections, port: int) -> None:
        self.account = account
        self._port = port
        self._clients: list[Client] = []

    async def connect(self, address: str = "127.0.0.1", **options: Any) -> Client:
        found = Client(*await asyncio.open_connection("127.0.0.1", self._port, local_addr=(address, 0), **options))
        self._clients.append(found)
        return found

    async def idle(self, address: str) -> Client:
        """A connection that the server knows of, and that says nothing more."""
        found = await self.connect(address)
        assert b"200" in await found.ask()
        return found

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def site(
    account: HttpConnections, certificate: ApiCertificate | None = None, app: Starlette | None = None
) -> AsyncIterator[Site]:
    async def root(request: Request) -> JSONResponse:
        return JSONResponse(1000 + len(await request.body()))

    app = app or Starlette(routes=[Route("/", root, methods=["GET", "POST"])])
    listener = open_listener("127.0.0.1", 0)
    made = Site(account, listener.getsockname()[1])
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve_http(app, listener, stop, certificate, account))
        try:
            yield made
        finally:
            made.close()
            stop.set()


def said(answer: bytes) -> tuple[int, str]:
    """Code and message of a refusal, which has all headers that browsers are to heed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    for name, value in SECURITY_HEADERS:
        assert f"{name}: {value}".lower() in head.decode().lower()
    return int(head[9:12]), json.loads(body)["message"]


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", None),
        (b"G", "the head of the request did not come within"),
        (GET, "the head of the request did not come within"),
        (POST, "the body of the request did not come within"),
        (POST + b"12345678", "the body of the request did not come within"),
    ],
)
async def test_who_keeps_us_waiting_is_told_so_and_hung_up_on(sent: bytes, message: str | None) -> None:
    async with site(HttpConnections(head_s=SOON, body_s=SOON)) as here:
        client = await here.connect()
        client.writer.write(sent)
        answer = await client.rest()
        if message is None:
            assert answer == b""
        else:
            code, told = said(answer)
            assert (code, message in told) == (408, True)
        assert here.account.timed_out == 1
        assert len(here.account) == 0


async def test_a_body_that_nobody_waits_for_does_not_keep_a_connection() -> None:
    async with site(HttpConnections(body_s=SOON)) as here:
        client = await here.connect()
        client.writer.write(POST.replace(b"POST / ", b"POST /nothing "))
        assert (await client.rest()).startswith(b"HTTP/1.1 404 ")
        assert here.account.timed_out == 1


async def test_a_handshake_that_does_not_end_is_hung_up_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.keep_server_certificate("api", ["localhost"], tmp_path)
    certificate = ApiCertificate(tmp_path / "api.crt", tmp_path / "api.key", authority.path)
    async with site(HttpConnections(1, head_s=2 * SOON), certificate) as here:
        silent = await here.connect()
        while not len(here.account):
            await asyncio.sleep(0)
        late = await here.connect()
        assert await late.rest() == b"", "nothing can be said before the handshake"
        assert here.account.turned_away == 1
        assert await silent.rest() == b""
        context = ssl.create_default_context(cafile=str(authority.path))
        assert b"200" in await (await here.connect(ssl=context, server_hostname="localhost")).ask()


async def test_one_address_has_all_places_only_while_nobody_else_wants_some() -> None:
    async with site(HttpConnections(4)) as here:
        greedy = [await here.idle("127.0.0.1") for _ in range(4)]
        code, message = said(await (await here.connect()).rest())
        assert (code, "try again in" in message) == (503, True)
        others = [await here.idle("127.0.0.2"), await here.idle("127.0.0.2")]
        assert [await client.rest() for client in greedy[:2]] == [b"", b""]
        assert said(await (await here.connect("127.0.0.2")).rest())[0] == 503
        for client in (*greedy[2:], *others):
            assert b"200" in await client.ask()
        assert here.account.turned_away == 4


async def test_of_one_address_who_has_said_nothing_for_long_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enmasse.api.http_connections.GRACE_S", 0.0)
    async with site(HttpConnections(2)) as here:
        first, second = await here.idle("127.0.0.1"), await here.idle("127.0.0.1")
        assert b"200" in await (await here.connect()).ask()
        assert await first.rest() == b""
        assert b"200" in await second.ask()


async def test_what_is_no_request_is_refused_with_all_headers() -> None:
    async with site(HttpConnections()) as here:
        client = await here.connect()
        client.writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
        assert said(await client.rest())[0] == 400
        head = (await (await here.connect()).ask()).decode().lower()
        assert all(f"{name}: {value}".lower() in head for name, value in SECURITY_HEADERS)


BALANCER = "127.0.0.2"
WHO = b"GET /console HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HEALTH = WHO.replace(b"/console", b"/healthz")


@asynccontextmanager
async def open_api(directory: Path, certificate: ApiCertificate | None = None) -> AsyncIterator[Site]:
    """The API, open to whoever is on this machine, with its checks of each request."""

    async def who(request: Request) -> JSONResponse:
        requester = request.state.requester
        client = request.client and request.client.host
        return JSONResponse([client, request.url.scheme, requester is LOCAL_OPERATOR, requester.name])

    async def health(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("well")

    with ResourceStore(directory / "resources.db") as store:
        checks = [
            Middleware(Guard, is_local=True, is_own_name=lambda _host: False),
            Middleware(Access, authenticator=Authenticator(), rights=Rights(store)),
        ]
        app = Starlette(routes=[Route("/console", who), Route("/healthz", health)], middleware=checks)
        account = HttpConnections(proxy_from=networks_of("--proxy-from", (BALANCER,)))
        async with site(account, certificate, app) as here:
            yield here


async def passed_on(here: Site, header: bytes, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """What a balancer's request is answered, body and all."""
    client = await here.connect(BALANCER)
    client.writer.write(header)
    if tls is not None:
        await client.writer.start_tls(tls, server_hostname="localhost")
    client.writer.write(request)
    return await client.rest()


def test_a_client_of_a_balancer_is_itself_and_not_on_this_machine(tmp_path: Path) -> None:
    async def body() -> None:
        async with open_api(tmp_path) as here:
            client = await here.connect()
            client.writer.write(WHO)
            told = (await client.rest()).partition(b"\r\n\r\n")[2]
            assert json.loads(told) == ["127.0.0.1", "http", True, LOCAL_OPERATOR.name]
            by_tls = binary(tls_extension(3, 0, LOCAL_OPERATOR.name))
            told = (await passed_on(here, by_tls, WHO)).partition(b"\r\n\r\n")[2]
            assert json.loads(told) == ["203.0.113.7", "https", False, ANONYMOUS.name]
            # In the clear nothing is served but health, wherever the client says that it is.
            for header in (text(), text(("127.0.0.1", 5), ("127.0.0.1", 6)), binary(tls_extension(0)), LOCAL):
                code, _ = said(await passed_on(here, header, WHO))
                assert code == 403, header
                assert (await passed_on(here, header, HEALTH)).endswith(b"well")
            assert await passed_on(here, b"", WHO) == b""
            assert len(here.account) == 0

    asyncio.run(body())


@pytest.mark.parametrize("loop", [asyncio.run, run], ids=["asyncio", "uvloop"])
def test_tls_of_a_balancer_is_passed_through_to_the_api(tmp_path: Path, loop: Callable[..., None]) -> None:
    authority = Authority(tmp_path)
    authority.keep_server_certificate("api", ["localhost"], tmp_path)
    certificate = ApiCertificate(tmp_path / "api.crt", tmp_path / "api.key", authority.path)
    trusting = ssl.create_default_context(cafile=str(authority.path))
    trusting.load_cert_chain(*authority.issue_client("ops", groups=("night",)).write(tmp_path, "ops"))

    async def body() -> None:
        async with open_api(tmp_path, certificate) as here:
            # Of two that shake hands one may be the balancer, whose certificate is no client's.
            for header, name in ((text(), "ops"), (binary(tls_extension()), ANONYMOUS.name)):
                told = (await passed_on(here, header, WHO, trusting)).partition(b"\r\n\r\n")[2]
                assert json.loads(told) == ["203.0.113.7", "https", False, name]
            code, _ = said(await passed_on(here, binary(tls_extension(0)), WHO, trusting))
            assert code == 403
            client = await here.connect(ssl=trusting, server_hostname="localhost")
            client.writer.write(WHO)
            told = (await client.rest()).partition(b"\r\n\r\n")[2]
            assert json.loads(told) == ["127.0.0.1", "https", False, "ops"]

    loop(body())
