"""The connections of the API: their number, fair shares of it, and time-outs.

Rules:
1. The head and the body of a request have a time-out each. A client that has begun a request is answered 408; one
   that has sent nothing is disconnected. After an answer uvicorn closes idle connections itself.
2. A connection whose client does not read the answer is closed.
3. Slots are shared by addresses (IPv6: networks of /64). When all are taken, a connection without a complete request
   is closed for a new one: one of the address that has most, if the new one's has fewer; or one of the same address
   that is older than a second. If there is none, the new connection is answered 503.
4. Load balancers say who their clients are (``net/proxy_layer.py``). Such a client is on no machine but its own:
   it is served if TLS protects what it sends, and has to prove who it is even where nobody else has to. A balancer's
   own connections, and clients in the clear, are told of the API's health and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from enmasse.api.kube.status import status_of
from enmasse.api.tls import peer_of
from enmasse.identity.throttle import network_of
from enmasse.net.connection_limiter import room_for_connections
from enmasse.net.origins import SECURITY_HEADERS
from enmasse.net.shares import Owner, Shares
from enmasse.net.tls_layer import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from enmasse.api.tls import ApiCertificate
    from enmasse.net.proxy_layer import Proxied, Proxies
    from enmasse.net.special_addresses import Network

MAX_CONNECTIONS = 4_000
"""Watches included, of which there are fewer."""

HEAD_S = 10.0
"""From accepting the connection, or from the previous answer, to the end of the head; includes the TLS handshake."""

BODY_S = 30.0
"""From the end of the head to the end of the body, which has a megabyte at most."""

UNREAD_S, UNREAD_BYTES = 30.0, 32 << 10
"""The client must read this many bytes of an answer in this time."""

GRACE_S = 1.0
"""The age at which a connection can be closed for one of its own address: a normal client has sent a request by
then."""

RETRY_S = 5

_AWAITED = {h11.IDLE: "head", h11.SEND_BODY: "body"}


class HttpConnections:
    """Limits the connections of all ports of the API.

    Args:
        most: the limit; lower if the system allows fewer descriptors.
        proxy_from: the networks of load balancers that tell who their clients are.
        head_s: time-out of a head, in seconds.
        body_s: time-out of a body.

    Attributes:
        turned_away: connections that were closed or refused because there were too many.
        timed_out: connections that exceeded a time-out.
    """

    def __init__(
        self,
        most: int = MAX_CONNECTIONS,
        *,
        head_s: float = HEAD_S,
        body_s: float = BODY_S,
        proxy_from: tuple[Network, ...] = (),
    ) -> None:
        self.time_for = {"head": head_s, "body": body_s}
        self.turned_away = 0
        self.timed_out = 0
        room = room_for_connections()
        self._proxies: Proxies | None = None
        if proxy_from:
            from enmasse.net.proxy_layer import Proxies  # noqa: PLC0415  most installations have no balancers

            self._proxies = Proxies(proxy_from, min(most, room // 2))
            room -= room // 2
        self._shares: Shares[HttpProtocol] = Shares(min(most, room))

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._shares)

    def protocols(self, certificate: ApiCertificate | None) -> Callable[..., asyncio.BaseProtocol]:
        """Return the factory of protocols for a port, as uvicorn calls it."""

        def make(
            config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: object = None
        ) -> asyncio.BaseProtocol:
            def make_known() -> asyncio.BaseProtocol:
                http = HttpProtocol(config, server_state, app_state, self)
                return http if certificate is None else _Secured(http, certificate)

            if self._proxies is None:
                return make_known()
            from enmasse.net.proxy_layer import ProxyLayer  # noqa: PLC0415  the same

            return ProxyLayer(self._proxies, make_known, make_known)

        return make

    def enter(self, connection: HttpProtocol, owner: Owner) -> bool:
        """Give a new connection a slot; return false if there is none."""
        if self._shares.is_full:
            self.turned_away += 1
            victim = next((one for one in self._shares.richer_than(owner) if one.is_awaited), None)
            if victim is None:
                latest = connection.since - GRACE_S
                own = self._shares.of(owner)
                victim = next((one for one in own if one.is_awaited and one.since < latest), None)
            if victim is None:
                return False
            victim.drop()
        self._shares.take(owner, connection)
        return True

    def leave(self, connection: HttpProtocol, owner: Owner) -> None:
        """Free the slot of a connection."""
        self._shares.leave(owner, connection)

    def shut(self) -> None:
        """Close the connections without a complete request, as the server stops."""
        if self._proxies is not None:
            self._proxies.shut()
        for connection in self._shares:
            if connection.is_awaited:
                connection.drop()


class HttpProtocol(H11Protocol):
    """The protocol of one connection: uvicorn's, with a slot, time-outs, and more state for requests.

    The state of each request has ``peer``, user and groups of the client certificate, if there is one, ``cut``, a
    function that closes the connection at once and drops unsent data, ``is_proxied``, true for clients that come
    through a load balancer, and ``refusal``, why there is nothing but health for a connection, if so.

    Attributes:
        since: the time at which it was accepted, by the clock of the loop.
    """

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], account: HttpConnections
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.since = self.loop.time()
        self._account = account
        self._owner: Owner = ()
        self._socket: asyncio.Transport
        self._awaited: str | None = None
        self._has_begun = False
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def is_awaited(self) -> bool:
        """True if a request, or the rest of one, has not arrived."""
        return self._awaited is not None

    def accept(self, transport: asyncio.Transport) -> bool:
        """Take a slot for a connection as it is accepted; return false if there is none."""
        self._socket = transport
        peer = transport.get_extra_info("peername")
        owner = (network_of(str(peer[0])) if isinstance(peer, tuple) and peer else "",)
        if not self._account.enter(self, owner):
            return False
        self._owner = owner
        self._wait_for("head")
        return True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it likewise
        """Read the client certificate, once for all requests of the connection."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, "cut": transport.abort}
        is_secure = tls is not None
        proxied: Proxied | None = transport.get_extra_info("proxied")
        if proxied is not None:
            self.client, self.server = proxied.header.source, proxied.header.destination
            is_secure = proxied.is_private(tls)
            tls = proxied.client_tls(tls)
            self.app_state |= {"is_proxied": True, "refusal": _refusal_of(proxied, is_secure=is_secure)}
        self.scheme = "https" if is_secure else "http"
        peer = None if tls is None else peer_of(tls.getpeercert())
        if peer is not None:
            self.app_state["peer"] = peer
        if not self._owner and not self.accept(transport):
            self._respond(503, f"the API has as many connections as it may: try again in {RETRY_S} s")

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        if self.transport.is_closing():
            return
        self._has_begun = True
        super().data_received(data)
        self._keep_time()

    def on_response_complete(self) -> None:
        """Start the time-out of the next request."""
        self._has_begun = False
        super().on_response_complete()
        self._keep_time()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(400, msg)
        else:  # an answer is being sent already
            self.transport.close()

    def _keep_time(self) -> None:
        awaited = _AWAITED.get(self.conn.their_state)
        if awaited != self._awaited:
            self._wait_for(awaited)

    def _wait_for(self, awaited: str | None) -> None:
        self._awaited = awaited
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if awaited is not None:
            self._timer = self.loop.call_later(self._account.time_for[awaited], self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._account.timed_out += 1
        if self.transport is not None and self._has_begun and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            assert self._awaited is not None
            seconds = self._account.time_for[self._awaited]
            self._respond(408, f"the {self._awaited} of the request did not come within {seconds:g} s")
        else:
            self._socket.abort()

    def _respond(self, code: int, message: str) -> None:
        """Send an error in place of the application's answer, and close."""
        body = json.dumps(status_of(code, message)).encode()
        headers = [
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *([("Retry-After", str(RETRY_S))] if code == 503 else []),
            *SECURITY_HEADERS,
        ]
        response = h11.Response(status_code=code, headers=headers, reason=HTTPStatus(code).phrase)
        events = (response, h11.Data(data=body), h11.EndOfMessage())
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    def pause_writing(self) -> None:
        """Start the time-out of reading, as the client does not keep up."""
        super().pause_writing()
        self._await_reading(self.transport.get_write_buffer_size())

    def _await_reading(self, unread: int) -> None:
        self._unread = self.loop.call_later(UNREAD_S, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left > unread - UNREAD_BYTES:
            self._account.timed_out += 1
            self._socket.abort()
        else:
            self._await_reading(left)

    def resume_writing(self) -> None:
        """Stop the time-out of reading."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def drop(self) -> None:
        """Close the connection; its slot is free at once, though the loop closes the socket a little later."""
        self._account.leave(self, self._owner)
        self._wait_for(None)
        self._socket.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot."""
        self._account.leave(self, self._owner)
        self._wait_for(None)
        if self._unread is not None:
            self._unread.cancel()
        if self.transport is not None:  # else the TLS handshake was not complete
            super().connection_lost(exc)


def _refusal_of(proxied: Proxied, *, is_secure: bool) -> str | None:
    if not proxied.header.has_client:
        return "this connection is the load balancer's own, which is told of /healthz and /readyz alone"
    if not is_secure:
        return "the API is served by TLS alone to clients of a load balancer; have it say that they come by TLS"
    return None


class _Secured(TlsLayer):
    """TLS beneath a connection, which takes its slot before the handshake."""

    def __init__(self, http: HttpProtocol, certificate: ApiCertificate) -> None:
        super().__init__(http, certificate.context)
        self._http = http

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a slot, or close: no answer can be sent before the handshake."""
        super().connection_made(transport)
        if not self._http.accept(self.lower):
            self.lower.abort()
