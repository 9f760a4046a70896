"""What a message becomes in a webhook's request, where that may go, and what its answer means."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from base64 import b64decode, b64encode
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from enmasse.client import Message
from enmasse.control.webhooks.request import (
    backoff_s,
    body_of,
    headers_of,
    key_of,
    key_problem,
    retry_after_s,
    signed_headers,
    verdict_of,
)
from enmasse.model.kinds.webhooks import header_problem
from enmasse.model.schema.errors import InvalidResourceError
from enmasse.model.schema.objects import decode
from enmasse.net.egress import WEBHOOKS, Reach, trust_of
from enmasse.net.egress_http import Egress

if TYPE_CHECKING:
    from collections.abc import Sequence


@pytest.mark.parametrize(
    ("body", "content_type", "wanted"),
    [
        (b"\x00\xff", None, (b"\x00\xff", "application/octet-stream")),
        (b"{}", "application/json", (b"{}", "application/json")),
        ("grün", None, ("grün".encode(), "text/plain; charset=utf-8")),
        ({"a": [1, None]}, None, (b'{"a": [1, null]}', "application/json")),
        (None, None, (b"", "application/octet-stream")),
    ],
)
def test_a_body_goes_as_it_is_or_as_json(body: Any, content_type: str | None, wanted: tuple[bytes, str]) -> None:
    assert body_of(Message(body, content_type=content_type)) == wanted


def test_headers_say_what_the_message_says_and_cannot_be_split() -> None:
    properties = {"region": "nörd\r\nX-Evil: 1", "bad name": "x", "count": 3, "hot": True, "blob": b"x"}
    said = headers_of(Message(b"", subject="s", correlation_id=b"\x00", properties=properties), "orders")
    assert said == {
        "X-Address": "orders",
        "X-Subject": "s",
        "X-Delivery-Count": "0",
        "X-Property-region": "n%C3%B6rd%0D%0AX-Evil: 1",
        "X-Property-count": "3",
        "X-Property-hot": "true",
    }


def test_a_request_is_signed_as_standard_webhooks_are() -> None:
    key = b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert key_of(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n") == key
    assert key_of(b"plain") == b"plain"
    headers = signed_headers(key, "msg_1", 1_614_265_330, b'{"test": 2432232314}')
    signed = hmac.new(key, b'msg_1.1614265330.{"test": 2432232314}', hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{b64encode(signed).decode()}"
    assert headers["webhook-timestamp"] == "1614265330"
    assert "webhook-signature" not in signed_headers(None, "m", 1, b"")


@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        (b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", ""),
        (b"x" * 24, ""),
        (b"x" * 64, ""),
        (b"whsec_", "the key has 0 bytes"),
        (b" whsec_ \n", "the key has 0 bytes"),
        (b"  ", "the key has 0 bytes"),
        (b"whsec_c2hvcnQ=", "the key has 5 bytes; expected 24 to 64, such as 32 of chance"),
        (b"x" * 23, "the key has 23 bytes"),
        (b"x" * 65, "the key has 65 bytes"),
        (b"whsec_no base64 but long enough for a key", "what follows whsec_ is no base64"),
    ],
)
def test_a_key_is_as_long_as_standard_webhooks_want_it(secret: bytes, problem: str) -> None:
    assert key_problem(secret).startswith(problem)
    assert bool(key_problem(secret)) is bool(problem)


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(200, "accepted"), (204, "accepted"), (301, "again"), (400, "rejected"), (408, "again"), (410, "rejected"),
     (425, "again"), (429, "again"), (500, "again"), (503, "again")],
)  # fmt: skip
def test_the_status_of_an_answer_decides(status: int, verdict: str) -> None:
    assert verdict_of(status) == verdict


def test_attempts_come_apart_and_heed_what_the_answer_asks() -> None:
    assert [backoff_s(failures, 1, 60) for failures in (1, 2, 3, 7, 1_000)] == [1, 2, 4, 60, 60]
    assert backoff_s(1, 1, 60, asked_s=30) == 30
    assert backoff_s(1, 1, 60, asked_s=9_000) == 60
    assert retry_after_s({"retry-after": "7"}) == 7
    assert retry_after_s({"retry-after": "Fri, 31 Dec 2027 23:59:59 GMT"}) == 0


def test_the_next_address_is_tried_when_one_takes_no_connection_and_nothing_is_sent_twice() -> None:
    posted = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        posted.append((head.split(b"\r\n")[1], await reader.readexactly(4)))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> int:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]

        async def resolve(_host: str, _port: int) -> Sequence[str]:
            return ["127.0.0.2", "::1", "127.0.0.1"]  # only the last one listens

        allowed = Reach(WEBHOOKS, (ip_network("127.0.0.0/8"), ip_network("::1/128")), lookup=resolve)
        async with server, httpx.AsyncClient(transport=Egress(allowed, trust_of(None))) as client:
            return (await client.post(f"http://shop.example:{port}/", content=b"once")).status_code

    assert asyncio.run(ask()) == 204
    assert [body for _, body in posted] == [b"once"]
    assert posted[0][0].lower().startswith(b"host: shop.example")


def test_authorities_are_certificates_and_tls_is_new_enough() -> None:
    assert trust_of(None).minimum_version == ssl.TLSVersion.TLSv1_2
    assert trust_of(None).check_hostname
    for text in ("", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(ValueError, match="expected certificates in PEM"):
            trust_of(text)


def test_no_header_can_be_smuggled_in_by_a_secret() -> None:
    assert header_problem("Authorization", "Bearer x") is None
    for name, value in (("A", "b\nX-Evil: 1"), ("A\r", "b"), ("webhook-id", "1"), ("Host", "inner")):
        problem = header_problem(name, value)
        assert problem is not None
        assert "Evil" not in problem


def webhook(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "Webhook",
        "metadata": {"name": "shop.bills", "namespace": "default"},
        "spec": {"address": "bills", "url": "https://example.com/bills"} | spec,
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"url": "ftp://example.com"}, "expected https://HOST/PATH"),
        ({"url": "https://jo:secret@example.com/"}, "a URL has no password in it"),
        ({"url": "https:///nowhere"}, "expected https://HOST/PATH"),
        ({"url": "https://example.com/#x"}, "expected no fragment"),
        ({"url": "https://example.com:99999/"}, "expected a URL"),
        ({"url": "http://example.com/", "caSecret": "ours"}, "needs a url that begins with https://"),
        ({"headers": {"Authorization": "Bearer x"}}, "Authorization is secret"),
        ({"headers": {"webhook-id": "x"}}, "is said by the webhook itself"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "are no header"),
        ({"timeout": "10m"}, "expected at most 120s"),
        ({"retry": {"delay": "2m"}}, "expected at least delay, 2m"),
        ({"concurrency": 100}, "concurrency"),
    ],
)
def test_a_webhook_that_cannot_be_is_refused(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidResourceError) as refused:
        decode(webhook(**spec))
    assert problem in str(refused.value)
    assert "secret@" not in str(refused.value)
