"""HEAD, compression, and methods that a path does not have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.api.kube.negotiation import Delivery

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]

SPACES = "/apis/enmasse.io/v1beta1/namespaces/default/addressspaces"


def space(name: str, text: str = "") -> dict[str, Any]:
    metadata = {"name": name, "annotations": {"text": text}}
    return {"apiVersion": "enmasse.io/v1beta1", "kind": "AddressSpace", "metadata": metadata}


def test_head_tells_what_get_would_without_the_body(api: Api) -> None:
    api("POST", SPACES, json=space("shop"))
    for path in (SPACES, f"{SPACES}/shop", f"{SPACES}/nothing", "/apis", "/healthz", "/openapi/v3"):
        whole, head = (api(method, path, headers={"accept-encoding": "identity"}) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == str(len(whole.content))


@pytest.mark.parametrize("accepted", ["gzip", "br, gzip;q=0.5", "GZIP"])
def test_long_answers_are_compressed_for_who_takes_that(api: Api, accepted: str) -> None:
    api("POST", SPACES, json=space("shop", "x" * 20_000))
    packed = api("GET", SPACES, headers={"accept-encoding": accepted})
    assert packed.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["vary"]
    assert int(packed.headers["content-length"]) < 2000
    assert packed.json()["items"][0]["metadata"]["annotations"]["text"] == "x" * 20_000


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "br"])
def test_who_does_not_take_it_gets_an_answer_as_it_is(api: Api, accepted: str) -> None:
    api("POST", SPACES, json=space("shop", "x" * 20_000))
    plain = api("GET", SPACES, headers={"accept-encoding": accepted})
    assert "content-encoding" not in plain.headers
    assert len(plain.content) > 20_000


def test_short_answers_and_streams_are_not_compressed(api: Api) -> None:
    api("POST", SPACES, json=space("shop"))
    assert "content-encoding" not in api("GET", SPACES, headers={"accept-encoding": "gzip"}).headers
    api("POST", SPACES, json=space("shop2", "x" * 20_000))
    watch = {"watch": "true", "timeoutSeconds": "0.01"}
    stream = api("GET", SPACES, headers={"accept-encoding": "gzip"}, params=watch)
    assert "content-encoding" not in stream.headers
    assert len(stream.content.splitlines()) == 2


def test_a_stream_begins_before_it_has_anything_to_say() -> None:
    sent: list[str] = []

    async def quiet(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert sent == ["http.response.start"], "whoever watches must learn at once that the watch stands"
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "GET", "headers": [(b"accept-encoding", b"gzip")]}
    asyncio.run(Delivery(quiet)(scope, receive, send))
    assert sent == ["http.response.start", "http.response.body"]


def test_a_method_that_a_path_has_not_is_refused_with_those_it_has(api: Api) -> None:
    refused = api("POST", f"{SPACES}/shop", json={})
    assert (refused.status_code, refused.json()["reason"]) == (405, "MethodNotAllowed")
    assert {"GET", "PUT", "PATCH", "DELETE"} <= set(refused.headers["allow"].split(", "))
    asked = api("OPTIONS", SPACES, headers={"origin": "http://evil.example", "access-control-request-method": "POST"})
    assert asked.status_code == 405
    assert "POST" in asked.headers["allow"]
    assert not [name for name in asked.headers if name.startswith("access-control")], "no page may ask from elsewhere"
