"""What is refused before anyone looks at it: hosts that are not ours, and pages of other origins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, NodeAccess, create_app
from tests.unit.api.conftest import Api, MemoryMessages

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from enmasse.control.store.registry import Registry

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"


def refused(response: httpx.Response) -> str:
    assert response.status_code == 403
    return str(response.json()["message"])


FOREIGN = {
    "of a stranger": {"origin": "http://evil.example"},
    "of nobody": {"origin": "null"},
    "of another port": {"origin": "http://localhost:3000"},
    "with our name before an at sign": {"origin": "http://localhost@evil.example"},
    "with our name behind an at sign": {"origin": "http://evil@localhost"},
    "with our name as the beginning of another": {"origin": "http://localhost.evil.example"},
    "with a dot behind our name": {"origin": "http://localhost."},
    "with a path": {"origin": "http://localhost/"},
    "of no scheme": {"origin": "localhost"},
    "of a file": {"origin": "file://localhost"},
    "with a space": {"origin": "http://localhost evil.example"},
    "of another site": {"sec-fetch-site": "cross-site"},
    "of another part of the site": {"sec-fetch-site": "same-site"},
}


def test_a_page_of_another_origin_changes_nothing_whatever_it_sends(api: Api) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for words, headers in FOREIGN.items():
            for method in ("POST", "PUT", "PATCH", "DELETE", "PURGE"):
                given = headers | {"content-type": "application/json"}
                answer = await client.request(method, SPACES, content=b"{}", headers=given)
                assert "may change nothing here" in refused(answer), (method, words)
            assert (await client.get(SPACES, headers=headers)).status_code == 200, (
                "its browser keeps the answer from it"
            )

    api.talk(ask)


def test_several_origins_are_none(api: Api) -> None:
    both = [("origin", "http://localhost"), ("origin", "http://localhost")]
    assert api("DELETE", SPACES, headers=both).status_code == 403


def test_a_page_opens_no_websocket(api: Api) -> None:
    headers = {"origin": "http://evil.example", "upgrade": "websocket", "connection": "upgrade"}
    refused(api("GET", SPACES, headers=headers))


HOSTS = {
    "evil.example": "--http-name",
    "localhost.evil.example": "--http-name",
    "0x7f000001": "--http-name",
    "2130706433": "--http-name",
    "localhost@evil.example": "expected one name",
    "evil@localhost": "expected one name",
    "localhost.": "expected one name",
    "localhost..": "expected one name",
    "localhost:": "expected one name",
    "localhost:0": "expected one name",
    "localhost:80800": "expected one name",
    "localhost:80:80": "expected one name",
    "localhost, evil.example": "expected one name",
    "localhost/": "expected one name",
    "::1": "expected one name",
    "[::1": "expected one name",
    "[127.0.0.1]": "expected one name",
    "[localhost]": "expected one name",
    "http://localhost": "expected one name",
    "loc\u0430lhost": "expected one name",
    "": "expected one name",
}


def test_a_host_that_is_not_this_machine_is_sent_away(api: Api) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for host, words in HOSTS.items():
            assert words in refused(await client.get(SPACES, headers=[(b"host", host.encode())])), host
        twice = [(b"host", b"localhost")] * 2
        assert "expected one name" in refused(await client.get(SPACES, headers=twice))

    api.talk(ask)


def test_every_address_and_localhost_will_do(api: Api) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for host in (
            "localhost", "LOCALHOST:8080", "127.0.0.1", "127.8.8.8:1", "192.0.2.1", "[::1]", "[0:0::1]:65535",
            "[::ffff:192.0.2.1]",
        ):  # fmt: skip
            own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
            assert (await client.delete(SPACES, headers=own)).status_code == 200, host

    api.talk(ask)


def test_names_that_the_operator_gave_are_served(registry: Registry) -> None:
    async def ask(app: Starlette, at: str, host: str) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"https://{at}") as client:
            return (await client.get("/healthz", headers={"host": host})).status_code

    def app(authenticator: Authenticator | None) -> Starlette:
        return create_app(
            ApiParts(
                registry=registry,
                stop=asyncio.Event(),
                nodes={"node-0": NodeAccess(messages=MemoryMessages())},
                authenticator=authenticator,
                is_own_name=lambda name: name == "api.example",
            )
        )

    of_one, of_accounts = app(None), app(Authenticator(is_required=True, is_local=False))
    for served in (of_one, of_accounts):
        for at in ("127.0.0.1", "10.1.2.3", "[::1]", "[fd00::1]", "8.8.8.8"):
            assert asyncio.run(ask(served, at, "API.example:8080")) == 200
    for at in ("127.0.0.1", "10.1.2.3", "[::1]", "[fd00::1]", "[::ffff:10.1.2.3]"):
        assert asyncio.run(ask(of_accounts, at, "other.example")) == 403, "it may be a name that was turned"
    for at in ("8.8.8.8", "[2606:4700::1]"):
        assert asyncio.run(ask(of_accounts, at, "other.example")) == 200
        assert asyncio.run(ask(of_accounts, at, "other.example.")) == 403
        assert asyncio.run(ask(of_one, at, "other.example")) == 403, "nobody need log in"
