"""HTTP on a port of other protocols: short answers, and the upgrade to WebSocket.

A connection has one request; it is closed with the answer, unless the request asks for WebSocket. What asks for
neither that nor the node's health is of the protocol that answers HTTP, if the port has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import h11

from enmasse.net.origins import SAFE_METHODS, SECURITY_HEADERS

if TYPE_CHECKING:
    from enmasse.net.connection_limiter import Slot
    from enmasse.net.first_bytes import ProtocolSignature


Answer = Callable[[str], tuple[int, str] | None]
"""Returns status and text for a request's target; None if there is nothing."""

RefuseHost = Callable[[str | None, asyncio.Transport], str | None]
"""Returns why a request is refused for the host that it names; None if it is not: see ``origins.host_refusal``."""

MAX_HEAD_BYTES = 16 << 10
"""Browsers send a few KiB of headers at most."""


class WebProtocol(asyncio.Protocol):
    """One connection whose first bytes are HTTP.

    Args:
        slot: the connection's slot.
        answer: returns the answer to a request.
        refuse_host: checks the host that a request names.
        carried: the protocols that WebSocket may carry, by sub-protocol.
        make_upper: makes a carried protocol.
        origins: origins of web pages that may open a WebSocket, beside those of this machine.
        make_other: makes the protocol of all other requests; without it they are answered here.
    """

    def __init__(
        self,
        slot: Slot,
        answer: Answer,
        refuse_host: RefuseHost,
        carried: Mapping[str, ProtocolSignature],
        make_upper: Callable[[ProtocolSignature], asyncio.Protocol],
        origins: Collection[str],
        make_other: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self._slot = slot
        self._answer = answer
        self._refuse_host = refuse_host
        self._carried = carried
        self._make_upper = make_upper
        self._origins = origins
        self._make_other = make_other
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._given = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read the request."""
        if self._transport.is_closing():
            return
        self._given += data
        try:
            self._http.receive_data(data)
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            if self._hand_over():
                return
            self._respond(error.error_status_hint, f"this is no request that is understood here: {error}\n")
            return
        if isinstance(event, h11.Request):
            self._serve(event)

    def _serve(self, request: h11.Request) -> None:
        headers = {name.lower(): value.lower() for name, value in request.headers}
        # A host in the target would take the place of Host [RFC 9112 3.2.2]: that is for those who read it.
        is_websocket = (
            headers.get(b"upgrade") == b"websocket" and request.method == b"GET" and request.target[:1] == b"/"
        )
        found = None if is_websocket else self._answer(request.target.decode("ascii", "replace"))
        if found is None and not is_websocket and self._hand_over():
            return
        host = headers.get(b"host")
        refusal = self._refuse_host(None if host is None else host.decode("latin-1"), self._transport)
        if refusal is not None:
            self._respond(403, f"{refusal}\n")
        elif is_websocket:
            self._upgrade()
        elif b"origin" in headers and request.method.decode("ascii") not in SAFE_METHODS:
            self._respond(403, "web pages may only ask here\n")
        elif found is None:
            self._respond(
                404, f"there is /healthz, /readyz, and WebSocket with the sub-protocol {' or '.join(self._carried)}\n"
            )
        elif request.method not in (b"GET", b"HEAD"):
            self._respond(405, "GET or HEAD is expected\n", (("Allow", "GET, HEAD"),))
        else:
            self._respond(*found)

    def _upgrade(self) -> None:
        # Its library takes time to load, and requests for health do not need it.
        from enmasse.net.websocket_layer import WebSocketLayer  # noqa: PLC0415

        layer = WebSocketLayer(self, self._carried, self._origins)
        given, self._given = self._given, b""
        self._transport.set_protocol(layer)
        layer.connection_made(self._transport)
        layer.begin(given, self._make_upper)

    def _hand_over(self) -> bool:
        """Give the connection to the protocol of all other requests, with what has come; false if there is none."""
        if self._make_other is None:
            return False
        other, given, self._given = self._make_other(), self._given, b""
        self._transport.set_protocol(other)
        other.connection_made(self._transport)
        other.data_received(given)
        return True

    def _respond(self, status: int, text: str, more: tuple[tuple[str, str], ...] = ()) -> None:
        """Send an answer and close."""
        body = text.encode()
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
            *SECURITY_HEADERS,
            *more,
        ]
        response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
        # What HEAD asks for has no body, and the library sees to that.
        said = [response, *([] if self._is_head() else [h11.Data(data=body)]), h11.EndOfMessage()]
        self._transport.write(b"".join(self._http.send(event) or b"" for event in said))
        self._transport.close()

    def _is_head(self) -> bool:
        return self._given.startswith(b"HEAD ")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the slot back."""
        self._slot.leave()
