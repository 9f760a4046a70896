"""Bodies as older and newer kubectl send them: without a type, and as protocol buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from enmasse.api.kube.protobuf import read_object
from enmasse.api.kube.status import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    Api = Callable[..., httpx.Response]

NAMESPACES = "/api/v1/namespaces"
PROTOBUF = {"content-type": "application/vnd.kubernetes.protobuf"}
BODY = b'{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "red"}}'


def field(number: int, value: bytes) -> bytes:
    """A field of bytes [protocol buffers: wire type 2]."""
    return bytes([number << 3 | 2, len(value)]) + value


def envelope(kind: bytes, raw: bytes, api_version: bytes = b"v1") -> bytes:
    return b"k8s\0" + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def test_an_object_is_read_from_protocol_buffers() -> None:
    labels = field(11, field(1, b"team") + field(2, b"red"))
    metadata = field(1, field(1, b"door") + field(3, b"default") + labels)
    secret = envelope(
        b"Secret", metadata + field(2, field(1, b"password") + field(2, b"\x00\xff")) + field(3, b"Opaque")
    )
    assert read_object(secret) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "door", "namespace": "default", "labels": {"team": "red"}},
        "data": {"password": "AP8="},
        "type": "Opaque",
    }
    port = field(1, field(1, b"amqp") + b"\x18\xa8\x2c" + field(4, b"\x10\xa8\x2c"))
    service = read_object(envelope(b"Service", field(2, port)))
    assert service["spec"] == {"ports": [{"name": "amqp", "port": 5672, "targetPort": 5672}]}


def test_quantities_by_name_are_read_from_protocol_buffers() -> None:
    most = field(1, field(1, b"count/secrets") + field(2, field(1, b"3")))
    assert read_object(envelope(b"ResourceQuota", field(2, most)))["spec"] == {"hard": {"count/secrets": "3"}}


def test_what_is_created_so_is_answered_as_json(api: Api) -> None:
    created = api("POST", NAMESPACES, content=envelope(b"Namespace", field(1, field(1, b"red"))), headers=PROTOBUF)
    assert (created.status_code, created.json()["metadata"]["name"]) == (201, "red")
    options = field(2, field(1, b"no-such-uid"))
    refused = api("DELETE", f"{NAMESPACES}/red", content=envelope(b"DeleteOptions", options), headers=PROTOBUF)
    assert refused.status_code == 409


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\0\xff",
        envelope(b"Pod", b""),
        envelope(b"Secret", b"\xff\xff"),
        envelope(b"Secret", b"\x0a\xff"),
    ],
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        read_object(body)
    assert refused.value.code in (400, 415)


def test_a_body_without_a_type_is_json_but_not_from_a_page_in_a_browser(api: Api) -> None:
    for of_browser in ({"origin": "http://localhost"}, {"sec-fetch-site": "none"}):
        refused = api("POST", NAMESPACES, content=BODY, headers=of_browser)
        assert (refused.status_code, refused.json()["reason"]) == (415, "UnsupportedMediaType")
    assert api("POST", NAMESPACES, content=BODY).status_code == 201
