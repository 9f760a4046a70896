"""Content negotiation: forms of answers by the Accept header, compression, and answers to HEAD.

kubectl lists the forms that it prefers, the best first, and ends with plain JSON: a table, an aggregated discovery
document, a protocol buffer.

Long answers are compressed, streams are not: a watch must not wait for a compressor.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.datastructures import Headers, MutableHeaders

from enmasse.api.kube.status import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = "application/json"
T = TypeVar("T")

_LONGEST = 4096  # kubectl's longest has 250 characters


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One media range of an Accept header.

    Attributes:
        name: as in ``application/json``, or with ``*`` for any.
        parameters: without ``q``.
    """

    name: str
    parameters: dict[str, str]

    def covers(self, name: str) -> bool:
        """Return whether a media type without parameters is in the range."""
        return self.name in ("*/*", "*", name) or self.name == f"{name.partition('/')[0]}/*"


@dataclass(frozen=True, slots=True)
class Form:
    """The form of objects in an answer.

    Attributes:
        name: ``Table``, ``PartialObjectMetadata``, ``PartialObjectMetadataList``; empty: whole objects.
        version: the version of the group ``meta.k8s.io``.
    """

    name: str = ""
    version: str = ""

    @property
    def api_version(self) -> str:
        """As ``apiVersion`` has it."""
        return f"meta.k8s.io/{self.version}"


def accepted(request: Request) -> list[MediaRange]:
    """Return what the client accepts, the best first; without a header, anything.

    Raises:
        RequestError: when the header is too long.
    """
    text = ",".join(request.headers.getlist("accept")) or "*/*"
    if len(text) > _LONGEST:
        raise RequestError(400, f"the Accept header is longer than {_LONGEST} characters")
    ranges = [_range(part) for part in text.split(",") if part.strip()]
    chosen = [(quality, item) for quality, item in ranges if quality > 0]
    chosen.sort(key=lambda pair: -pair[0])  # a stable sort: the client's order among equals
    return [item for _, item in chosen]


def choose(request: Request, offers: Sequence[tuple[str, Callable[[MediaRange], bool], T]]) -> T:
    """Return the offer that the client prefers.

    Args:
        request: with the Accept header.
        offers: the media type of each, a test of the parameters, and the result; the first one wins among equals.

    Raises:
        RequestError: 406, when the client accepts none of them.
    """
    for wanted in accepted(request):
        for name, fits, offer in offers:
            if wanted.covers(name) and fits(wanted):
                return offer
    names = ", ".join(dict.fromkeys(name for name, _, _ in offers))
    raise RequestError(406, f"only the following media types are accepted: {names}")


def form_of(request: Request, *, listing: bool = False) -> Form:
    """Return the form of objects that the client asks for.

    Args:
        request: with the Accept header.
        listing: whether the answer is a list.

    Raises:
        RequestError: 406, when the form is unknown.
    """
    partial = "PartialObjectMetadataList" if listing else "PartialObjectMetadata"
    for wanted in accepted(request):
        if not wanted.covers(JSON):
            continue
        name, version = wanted.parameters.get("as", ""), wanted.parameters.get("v", "")
        if not name:
            return Form()
        is_known = wanted.parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1")
        if is_known and name in ("Table", partial):
            return Form(name, version)
    raise RequestError(
        406,
        f"only the following media types are accepted: {JSON}, also with as=Table or {partial};v=v1;g=meta.k8s.io",
    )


def _range(text: str) -> tuple[float, MediaRange]:
    name, *rest = (part.strip() for part in text.split(";"))
    parameters = {}
    for item in rest:
        key, _, value = item.partition("=")
        parameters[key.strip().lower()] = value.strip().strip('"')
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 0.0
    return quality, MediaRange(name.lower(), parameters)


MIN_COMPRESSED_BYTES: Final = 16 * 1024
"""Shorter answers fit into a few packets, and are not worth compressing."""

_LEVEL: Final = 1  # three times as fast as the usual 6, for a tenth more bytes


class Delivery:
    """ASGI middleware that compresses answers with gzip, and answers HEAD."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["method"] == "HEAD":
            await self._app({**scope, "method": "GET"}, receive, _Headless(send))
        elif "gzip" in _codings(scope):
            await self._app(scope, receive, _Compressing(send))
        else:
            await self._app(scope, receive, send)


class _Headless:
    """Sends an answer without its body, but with the length of the body."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


class _Compressing:
    """Holds the head of an answer back until the body has been compressed; forwards streams at once."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and "content-length" in Headers(raw=message["headers"]):
            self._head = message
            return  # an answer without a length is a stream, whose head must not wait
        head, self._head = self._head, None
        if head is not None:
            body: bytes = message.get("body", b"")
            headers = MutableHeaders(scope=head)
            if not message.get("more_body") and _is_worthwhile(headers, body):
                packed = gzip.compress(body, _LEVEL, mtime=0)
                headers["Content-Encoding"] = "gzip"
                headers["Content-Length"] = str(len(packed))
                headers.add_vary_header("Accept-Encoding")
                message = {**message, "body": packed}
            await self._send(head)
        await self._send(message)


def _is_worthwhile(headers: MutableHeaders, body: bytes) -> bool:
    return len(body) >= MIN_COMPRESSED_BYTES and "content-encoding" not in headers


def _codings(scope: Scope) -> set[str]:
    parts = ",".join(Headers(scope=scope).getlist("accept-encoding")).lower().split(",")
    return {part.partition(";")[0].strip() for part in parts if part.replace(" ", "").partition(";q=")[2] != "0"}
