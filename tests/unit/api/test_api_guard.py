"""What is refused before anyone looks at it: hosts that are not ours, and pages of other origins."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx

from enmasse.api.access.authentication import Authenticator
from enmasse.api.app import ApiParts, NodeAccess, create_app
from tests.unit.api.conftest import Api, MemoryMessages

if TYPE_CHECKING:
    from fastapi import FastAPI

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
    "evil.example": "(--api-name)",
    "localhost.evil.example": "(--api-name)",
    "192.0.2.1": "(--api-name)",
    "[::ffff:192.0.2.1]": "(--api-name)",
    "0x7f000001": "(--api-name)",
    "2130706433": "(--api-name)",
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


def test_every_name_of_the_loopback_interface_will_do(api: Api) -> None:
    async def ask(client: httpx.AsyncClient) -> None:
        for host in ("localhost", "LOCALHOST:8080", "127.0.0.1", "127.8.8.8:1", "[::1]", "[0:0::1]:65535"):
            own = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin"}
            assert (await client.delete(SPACES, headers=own)).status_code == 200, host

    api.talk(ask)


def test_names_that_the_operator_gave_are_served(registry: Registry) -> None:
    async def ask(app: FastAPI, url: str) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=url) as client:
            return (await client.get("/healthz")).status_code

    messages = MemoryMessages()
    app = create_app(
        ApiParts(
            registry=registry,
            stop=asyncio.Event(),
            nodes={"node-0": NodeAccess(messages=messages)},
            names=("API.example",),
        )
    )
    guarded = create_app(
        ApiParts(
            registry=registry,
            stop=asyncio.Event(),
            nodes={"node-0": NodeAccess(messages=messages)},
            authenticator=Authenticator(is_required=True),
        )
    )
    assert asyncio.run(ask(app, "http://api.example:8080")) == 200
    assert asyncio.run(ask(app, "https://other.example")) == 403
    assert asyncio.run(ask(guarded, "http://other.example")) == 403, "in the clear it may be a name that was turned"
    assert asyncio.run(ask(guarded, "https://other.example")) == 200, "the client has checked it by the certificate"
