"""The layer that reads what a load balancer says of a connection's client, before anything else: the PROXY protocol.

Rules:
1. A connection from one of the operator's networks begins with a header, or is closed with a line in the log. From
   everywhere else a header is nothing but bytes that no protocol begins with.
2. Until its header is there a connection has no part in the limits of connections: the balancer's address would be
   that of everybody. There may be ``most`` of these, for ``HEADER_S`` each; one more takes the place of the oldest.
3. What the header says stands for what the socket says to everything above: ``peername``, ``sockname``, and
   ``proxied``, which is there for such connections alone. A client behind a balancer is never on this machine.
4. A header that tells of TLS (``BalancerTls``) means that the client's TLS, if any, ended at the balancer: that of
   this connection is the balancer's own, and says nothing of the client. Without it TLS here is the client's own,
   passed through.
5. Nobody else reads what is sent (``is_private``) if the client's TLS ends here; or if it ended at the balancer, and
   the way from there is by TLS or does not leave this machine. A client in the clear stays in the clear.
6. A connection without a client is the balancer's own, and may ask for health alone.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from enmasse.net.layer import Layer
from enmasse.net.logs import log_event
from enmasse.net.special_addresses import Address, Network, parse_address
from enmasse.net.tls_layer import TlsLayer
from enmasse.net.tls_names import server_name_of
from enmasse.wire.proxy_header import ProxyHeader, ProxyHeaderError, read_header

HEADER_S = 5.0
"""Balancers send the header with the connection; this is for a packet that was lost."""

_NOT_YET = asyncio.Protocol()
"""The protocol above until the header is there: it does nothing."""

_log = logging.getLogger(__name__)

MakeUpper = Callable[[], asyncio.BaseProtocol]


class Proxied(NamedTuple):
    """The facts of a connection that a balancer has passed on, or another node.

    Attributes:
        header: what it says.
        balancer: its address.
        is_near: whether it is on this machine.
        names: the names in the client's certificate, by the balancer's word, where that counts.
        chain: the certificates that the client has presented, in DER, if another node has handed the connection over.
        front: that node; empty: it is a balancer.
        front_pid: its process.
        is_here: true if the client is on the machine of that node.
    """

    header: ProxyHeader
    balancer: str
    is_near: bool
    names: tuple[str, ...] = ()
    chain: tuple[bytes, ...] = ()
    front: str = ""
    front_pid: int = 0
    is_here: bool = False

    def is_private(self, tls: ssl.SSLObject | None) -> bool:
        """Return true if nobody but the balancer reads what client and server send; see rule 5.

        Args:
            tls: that of this connection, if it has any.
        """
        given = self.header.tls
        if given is None:
            return tls is not None
        return given.is_used and (tls is not None or self.is_near)

    def client_tls(self, tls: ssl.SSLObject | None) -> ssl.SSLObject | None:
        """Return the client's own TLS, given that of this connection; None if it has ended at the balancer."""
        return tls if self.header.tls is None else None

    def names_two_hosts(self, tls: ssl.SSLObject | None) -> bool:
        """Return true if the client has named one host for TLS, and another one as the balancer says."""
        own, given = self.client_tls(tls), self.header.authority
        named = None if own is None else server_name_of(own)
        return named is not None and given is not None and named != given

    def log_refusal(self, reason: str) -> None:
        """Log why the connection is closed."""
        log_refusal(self.balancer, reason)


def log_refusal(balancer: str, reason: str) -> None:
    """Log why the connection of a balancer is closed."""
    log_event(_log, logging.WARNING, "proxy-refused", host=balancer, description=reason)


def _address_of(host: str) -> Address:
    address = parse_address(host)
    # A socket for both families has those of IPv4 in this form. In others a stranger could carry any.
    return getattr(address, "ipv4_mapped", None) or address


class HeaderLayer(Layer):
    """A layer that begins with a header."""

    __slots__ = ()

    def refuse(self, reason: str) -> None:
        """Close the connection, and log why."""
        raise NotImplementedError


class AwaitedHeaders:
    """The connections whose header has not come.

    Args:
        most: the most that there may be.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[HeaderLayer, float] = {}
        """In the order of their arrival, with the time at which the header is due."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of connections whose header has not come."""
        return len(self._waiting)

    def await_header(self, layer: HeaderLayer) -> None:
        """Give the header of a connection its time."""
        if len(self._waiting) >= self._most:
            next(iter(self._waiting)).refuse(f"{self._most} others wait for their header, as many as may")
        loop = asyncio.get_running_loop()
        self._waiting[layer] = due = loop.time() + HEADER_S
        if self._timer is None:
            self._timer = loop.call_at(due, self._expire, loop)

    def forget(self, layer: HeaderLayer) -> None:
        """Take a connection's time back: its header is there, or it is lost."""
        self._waiting.pop(layer, None)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for layer, due in list(self._waiting.items()):
            if due > now:
                self._timer = loop.call_at(due, self._expire, loop)
                return
            layer.refuse(f"there was no header within {HEADER_S:g} s")

    def shut(self) -> None:
        """Abort the connections whose header has not come, as the server stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for layer in list(self._waiting):
            layer.abort()
            self.forget(layer)


class Proxies(AwaitedHeaders):
    """The load balancers that tell who their clients are.

    Args:
        networks: theirs.
        most: the most connections whose header has not come.
        trusts_names: whether the names in clients' certificates count by the balancer's word.
    """

    def __init__(self, networks: tuple[Network, ...], most: int, *, trusts_names: bool = False) -> None:
        super().__init__(most)
        self._networks = networks
        self._trusts_names = trusts_names

    def has(self, transport: asyncio.BaseTransport) -> bool:
        """Return true if a connection comes from a balancer."""
        peer = transport.get_extra_info("peername")
        if not isinstance(peer, tuple):
            return False
        address = _address_of(str(peer[0]))
        return any(address.version == network.version and address in network for network in self._networks)

    def facts(self, balancer: str, header: ProxyHeader) -> Proxied:
        """Return the facts of a connection, given its balancer's address and its header."""
        tls = header.tls
        names = (tls.certified,) if self._trusts_names and tls is not None and tls.certified is not None else ()
        return Proxied(header, balancer, _address_of(balancer).is_loopback, names)


class ProxyLayer(HeaderLayer, asyncio.Protocol):
    """One connection to a port that balancers may come to.

    That of anybody else is handed to the protocol above and is gone. Once the header is there, the socket is the
    protocol's above, too, and what comes takes no way through here.

    Args:
        proxies: the balancers.
        make_client: makes the protocol of a client's connection, with a balancer or without one.
        make_own: makes that of a balancer's own.
    """

    __slots__ = ("_balancer", "_given", "_make_client", "_make_own", "_proxies", "proxied")

    def __init__(self, proxies: Proxies, make_client: MakeUpper, make_own: MakeUpper) -> None:
        super().__init__(_NOT_YET)
        self._proxies = proxies
        self._make_client = make_client
        self._make_own = make_own
        self._given = b""
        self._balancer = ""
        self.proxied: Proxied | None = None

    # A protocol to the socket, until the header is there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the header, if the connection is a balancer's."""
        super().connection_made(transport)
        if self._proxies.has(transport):
            self._balancer = str(transport.get_extra_info("peername")[0])
            self._proxies.await_header(self)
            return
        upper = self._make_client()
        self.lower.set_protocol(upper)
        upper.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the header."""
        if self.is_closing():
            return
        self._given += data
        try:
            found = read_header(self._given)
        except ProxyHeaderError as error:
            self.refuse(str(error))
            return
        if found is not None:
            header, size = found
            given, self._given = self._given, b""
            self._hand_over(header, given[size:])

    def _hand_over(self, header: ProxyHeader, rest: bytes) -> None:
        self._proxies.forget(self)
        self.proxied = self._proxies.facts(self._balancer, header)
        upper = (self._make_client if header.has_client else self._make_own)()
        self.lower.set_protocol(upper)
        if isinstance(upper, asyncio.BufferedProtocol):
            # uvloop heeds what kind of protocol it reads for when it begins to read.
            self.lower.pause_reading()
            self.lower.resume_reading()
        upper.connection_made(self)
        if rest and not self.is_closing():
            if isinstance(upper, TlsLayer):
                upper.take(rest)
            else:
                upper.data_received(rest)  # type: ignore[attr-defined]  # it is either kind

    def refuse(self, reason: str) -> None:
        """Close the connection, and log why."""
        self._proxies.forget(self)
        self._given = b""
        log_refusal(self._balancer, reason)
        self.lower.abort()

    def eof_received(self) -> bool | None:
        """Close the connection: nobody has begun to speak."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, whose header has not come, or not all of it."""
        self._proxies.forget(self)
        if self._given:
            log_refusal(self._balancer, "it ended within its header")

    # A transport to the protocol above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the balancer says of the client; what is not its to say, as the socket has it."""
        proxied = self.proxied
        if proxied is not None:
            if name == "proxied":
                return proxied
            if proxied.header.has_client and name in ("peername", "sockname"):
                found = proxied.header.source if name == "peername" else proxied.header.destination
                return "" if found is None else found
        return self.lower.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol above, to which the socket speaks itself."""
        self.lower.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        return self.lower.get_protocol()
