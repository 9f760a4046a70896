"""A node's ports: those for clients, those that belong to one space, and the one for the control process.

A space's own port is for clients that need not name the space. These ports are opened and closed while the node runs.
One that cannot be opened is tried again, and the space reports the reason (``portProblem``). Clients that are
connected stay when the port closes.

By HTTP a port serves those who call it by a name that it has (``ServedHosts``).

Load balancers may come to all of these ports, and say who their clients are (``net/proxy_layer.py``). Their own
connections are served the node's health and nothing else.

The port for the control process on another machine (``ManagementPort``) accepts TLS only, and only the control
process's certificate. Its directory of certificates is not the one for clients: an authority that vouches for clients
does not thereby vouch for control.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.net.connection_limiter import ConnectionLimiter, ConnectionLimits, room_for_connections
from enmasse.net.first_bytes import ProtocolSignature
from enmasse.net.listener import MakeEngine, Port
from enmasse.net.origins import RefuseHost, host_refusal
from enmasse.node.errors import TenancyError
from enmasse.node.tenancy import named_space
from enmasse.node.users.peer import is_here

if TYPE_CHECKING:
    import socket
    import ssl

    from enmasse.messaging.space import Space
    from enmasse.net.certificates import CertificateStore, HostAuthorities
    from enmasse.net.loop import Turn
    from enmasse.net.proxy_layer import Proxies
    from enmasse.net.shared_listener import SharedListener, Siblings
    from enmasse.net.special_addresses import Network
    from enmasse.net.transport import Engine, EngineProtocol
    from enmasse.node.connections.client_connection import ClientConnection
    from enmasse.node.connections.connections import Connections
    from enmasse.node.health import Answer
    from enmasse.node.users.gate import Gate

BACKLOG = 4096
"""Connections that the kernel holds until they are accepted, as many as it usually allows: one that finds no place is
tried again after a second."""

FEW_HANDSHAKES = 1_000
"""Up to so many half-open connections may have a quarter of the file descriptors, and more of them an eighth."""


@dataclass(frozen=True, slots=True)
class PortOptions:
    """The operator's options for ports."""

    tls: Path | None = None
    """The directory of certificates; without it there is no TLS."""

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """The limits of connections."""

    origins: tuple[str, ...] = ()
    """Origins of web pages that may open a WebSocket, beside those of this machine; ``*`` is all."""

    names: frozenset[str] = frozenset()
    """The names, in lower case, by which clients of HTTP call the node, beside those that it has."""

    proxy_from: tuple[Network, ...] = ()
    """The networks of load balancers that tell who their clients are."""

    proxy_certificate_names: bool = False
    """Whether the names in clients' certificates count by a load balancer's word."""

    has_peers: bool = False
    """Whether connections may be handed over to other nodes."""

    siblings: Siblings | None = None
    """The processes that listen on the same inherited sockets; None: there are none."""


class ServedHosts:
    """The names by which a node serves HTTP: those of its spaces, endpoints and certificates, and the operator's.

    A host that names a space is that of its own addresses alone: whoever has a space chooses its name.

    Args:
        listed: the operator's.
        covers: returns true if the node has a certificate for a host.
        spaces: returns the spaces by name.
        gate: tells what hosts mean, and which spaces are open.
    """

    def __init__(
        self,
        listed: frozenset[str],
        covers: Callable[[str], bool],
        spaces: Callable[[], Mapping[str, Space]],
        gate: Gate,
    ) -> None:
        self._listed = listed
        self._covers = covers
        self._spaces = spaces
        self._gate = gate

    def refusal(
        self,
        host: str | None,
        transport: asyncio.Transport,
        peer: str,
        space: str | None = None,
        *,
        has_login: bool = False,
    ) -> str | None:
        """Return why a request is refused for the host that it names; None if it is not.

        Args:
            host: the host as the request names it.
            transport: the transport of the connection.
            peer: the client's end of it, as ``host:port``.
            space: the name of the space that the request is about; None: it may be any.
            has_login: true if nobody is served without a login, not even in an open space.
        """
        at = transport.get_extra_info("sockname")
        asked = self._spaces() if space is None else (space,)
        here = is_here(peer, transport.get_extra_info("proxied"))
        is_open = not has_login and any(self._gate.is_open(each, is_here=here) for each in asked)
        return host_refusal(host, at, lambda name: self._is_own(name, space), is_open=is_open)

    def is_called(self, host: str) -> bool:
        """Return true of a host, in lower case, that the operator lists, or has given the node a certificate for."""
        return host in self._listed or self._covers(host)

    def refuse(self, host: str | None, transport: asyncio.Transport) -> str | None:
        """Return why a request about no space in particular is refused; None if it is not."""
        peer = transport.get_extra_info("peername")
        return self.refusal(host, transport, f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix")

    def _is_own(self, name: str, space: str | None) -> bool:
        if name in self._listed:
            return True
        try:
            named = named_space(self._spaces(), name, names=self._gate.names)
        except TenancyError:
            return False
        return self._covers(name) if named is None else space is None or named.name == space


class Ports:
    """The ports of a node for clients.

    Args:
        turn: the turn of the loop.
        options: the operator's options.
        authorities: the authorities that vouch for clients, beside the operator's.
        folder: for their certificates.
        clients_changed: called when others vouch for clients.
        answer: answers load balancers' requests for the node's health.

    Attributes:
        limiter: counts and limits the connections.

    Raises:
        ConfigError: the certificates cannot be used, or the system allows too few file descriptors.
    """

    def __init__(
        self,
        turn: Turn,
        options: PortOptions,
        authorities: HostAuthorities,
        folder: Path,
        clients_changed: Callable[[], object],
        answer: Answer,
    ) -> None:
        limits = _fit(options.limits, has_proxies=bool(options.proxy_from), has_peers=options.has_peers)
        self.limiter = ConnectionLimiter(turn, limits)
        self._turn = turn
        self._proxies: tuple[Proxies, Port] | None = None
        self._origins = options.origins
        self._siblings = options.siblings
        self._is_closed = False
        self._shared: list[SharedListener] = []
        self._certificates: CertificateStore | None = None
        if options.tls is not None:
            from enmasse.net.certificates import CertificateStore  # noqa: PLC0415  loads much, for TLS alone

            self._certificates = CertificateStore(options.tls, authorities, folder)
            self._certificates.clients_changed = clients_changed
            self._certificates.watch()
        if options.proxy_from:
            from enmasse.net.proxy_layer import Proxies  # noqa: PLC0415  most nodes have no balancers before them

            proxies = Proxies(options.proxy_from, limits.max_handshakes, trusts_names=options.proxy_certificate_names)
            makers = {_HEALTH: partial(_make_health, turn, answer, _refuse_nobody)}
            self._proxies = proxies, Port(turn, makers, self.limiter, _refuse_nobody, context=self._context)

    @property
    def _context(self) -> Callable[[bytes], ssl.SSLContext] | None:
        return None if self._certificates is None else self._certificates.context

    @property
    def speaks_tls(self) -> bool:
        """True if clients may use TLS."""
        return self._certificates is not None

    def covers(self, host: str) -> bool:
        """Return true if there is a certificate for a host, in lower case."""
        return self._certificates is not None and self._certificates.covers(host)

    async def open(
        self,
        place: tuple[str, int] | socket.socket,
        protocols: Mapping[ProtocolSignature, MakeEngine],
        refuse_host: RefuseHost,
    ) -> asyncio.Server | SharedListener:
        """Open one port for clients.

        Args:
            place: the interface and the port's number; or a socket that is bound, which others may share.
            protocols: the functions that make engines, by protocol; the port's own protocol is the first.
            refuse_host: checks the host that a request for WebSocket names.

        Raises:
            OSError: it cannot be opened.
        """
        served = Port(
            self._turn,
            protocols,
            self.limiter,
            refuse_host,
            context=self._context,
            origins=self._origins,
            proxies=self._proxies,
        )
        loop = self._turn.loop
        if isinstance(place, tuple):
            return await loop.create_server(served.make_protocol, *place, backlog=BACKLOG)
        if self._siblings is not None:
            # Few nodes have siblings.
            from enmasse.net.shared_listener import SharedListener  # noqa: PLC0415

            self.limiter.count_changed = self._tell_siblings
            self._tell_siblings()
            shared = SharedListener(loop, place, BACKLOG, served.make_protocol, self._siblings, self.limiter)
            self._shared.append(shared)
            return shared
        return await loop.create_server(served.make_protocol, sock=place, backlog=BACKLOG)

    def leave(self) -> None:
        """Leave it to siblings to accept connections, if there are some."""
        if self._siblings is not None:
            self._is_closed = True
            self._tell_siblings()
            if self._siblings.least() is not None:
                for shared in self._shared:
                    shared.close()

    def _tell_siblings(self) -> None:
        assert self._siblings is not None
        self._siblings.tell(None if self.limiter.is_full or self._is_closed else len(self.limiter))

    def vouches(self, chain: Sequence[bytes]) -> bool:
        """Return true if an authority of the operator's vouches for a client; see ``CertificateStore``."""
        return self._certificates is not None and self._certificates.vouches(chain)

    def reload(self) -> None:
        """Read the certificates again."""
        if self._certificates is not None:
            self._certificates.reload()

    def close(self) -> None:
        """Abort the half-open connections."""
        self._is_closed = True
        if self._siblings is not None:
            self._tell_siblings()
        if self._proxies is not None:
            self._proxies[0].shut()
        self.limiter.shut()
        if self._certificates is not None:
            self._certificates.close()


class HandshakeWatcher:
    """Tells the limiter which connections have opened in time.

    Args:
        connections: the node's.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def on_connected(self, connection: ClientConnection, number: int) -> None:
        """Do nothing: the connection has its slot already."""

    def on_opened(self, connection: ClientConnection, number: int) -> None:
        """End the time limit of the handshake."""
        slot = self._connections.shells[connection].slot
        if slot is not None:
            slot.admit()

    def on_closed(self, connection: ClientConnection) -> None:
        """Do nothing: ``net/transport.py`` gives the slot back."""


def _fit(limits: ConnectionLimits, *, has_proxies: bool = False, has_peers: bool = False) -> ConnectionLimits:
    """Return limits that admit no more connections than this process may have file descriptors.

    Args:
        limits: the operator's.
        has_proxies: true if as many more may be without a header as may be half-open.
        has_peers: true if each connection may take another one, to the home of its space.
    """
    room = room_for_connections() // (2 if has_peers else 1)
    handshakes = min(limits.max_handshakes, max(room // 8, min(FEW_HANDSHAKES, room // 4)))
    left = room - (2 if has_proxies else 1) * handshakes
    return replace(limits, max_handshakes=handshakes, max_connections=min(limits.max_connections, left))


RETRY_S = 2.0
"""Seconds between two attempts to open a port that is in use."""

Open = Callable[[str, int, str], Awaitable["asyncio.Server | SharedListener"]]


def reason_of(error: OSError) -> str:
    """Return why a port cannot be opened, in the system's words: those of asyncio repeat the address."""
    return os.strerror(error.errno) if error.errno else str(error)


class SpacePorts:
    """The ports that each belong to one space.

    Args:
        loop: the event loop.
        open_port: opens a port on an interface for connections to a space; raises ``OSError``.
        problems_changed: called when ``status`` of a space has become another one.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, open_port: Open, problems_changed: Callable[[], object] = lambda: None
    ) -> None:
        self._loop = loop
        self._problems_changed = problems_changed
        self._open_port = open_port
        self._hosts: list[str] = []
        self._wanted: dict[str, int] = {}
        self._open: dict[str, tuple[int, list[asyncio.Server | SharedListener]]] = {}
        self._problems: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self._retry: asyncio.TimerHandle | None = None
        self._is_closed = False

    def serve_on(self, host: str) -> None:
        """Open the spaces' ports on an interface, too."""
        if host not in self._hosts:
            self._hosts.append(host)
            self._reopen_all()

    def set(self, space: str, port: int) -> None:
        """Set the port of a space; 0 is none."""
        if port:
            self._wanted[space] = port
        else:
            self._wanted.pop(space, None)
            if self._problems.pop(space, None) is not None:
                self._problems_changed()
        self._request_reconcile()

    def status(self, space: str) -> dict[str, Any]:
        """Return ``portProblem``, the reason why a space's port is not open, if it should be."""
        problem = self._problems.get(space)
        return {} if problem is None else {"portProblem": problem}

    @property
    def problems(self) -> list[str]:
        """The reasons why ports are not open that should be, without the names of the spaces, which are nobody's."""
        return sorted(set(self._problems.values()))

    def close(self) -> None:
        """Close all ports."""
        self._is_closed = True
        self._wanted.clear()
        if self._retry is not None:
            self._retry.cancel()
        for space in list(self._open):
            self._close(space)

    def _reopen_all(self) -> None:
        for space in list(self._open):
            self._close(space)
        self._request_reconcile()

    def _close(self, space: str) -> None:
        for server in self._open.pop(space)[1]:
            server.close()

    def _request_reconcile(self) -> None:
        """Start to reconcile the open ports with the desired ones, unless that is under way."""
        self._is_stale = True
        if self._hosts and not self._is_closed and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._reconcile())

    async def _reconcile(self) -> None:
        former = dict(self._problems)
        while self._is_stale and not self._is_closed:
            self._is_stale = False
            for space in [name for name, (port, _) in self._open.items() if self._wanted.get(name) != port]:
                self._close(space)
            for space, port in list(self._wanted.items()):
                if space not in self._open and self._wanted.get(space) == port:
                    await self._try(space, port)
        if self._problems != former:
            self._problems_changed()
        if self._problems and not self._is_closed:
            if self._retry is not None:
                self._retry.cancel()
            self._retry = self._loop.call_later(RETRY_S, self._request_reconcile)

    async def _try(self, space: str, port: int) -> None:
        other = next((name for name, (taken, _) in self._open.items() if taken == port), None)
        if other is not None:
            self._problems[space] = f"port {port} belongs to another space already; choose another one"
            return
        servers: list[asyncio.Server | SharedListener] = []
        try:
            for host in self._hosts:
                servers.append(await self._open_port(host, port, space))  # noqa: PERF401  those opened before are closed
        except OSError as error:
            for server in servers:
                server.close()
            self._problems[space] = (
                f"port {port} cannot be opened ({reason_of(error)}); choose another one, or free it"
            )
            return
        self._problems.pop(space, None)
        self._open[space] = port, servers
        if self._is_closed:
            self._close(space)


_HEALTH = ProtocolSignature("http", (), answers_http=True)
"""HTTP on a port that serves nothing but the node's health by it."""


def _make_health(
    turn: Turn,
    answer: Answer,
    refuse_host: RefuseHost,
    shell: EngineProtocol,
) -> Engine:
    from enmasse.node.health_port import HealthHandler  # noqa: PLC0415  of ports that few nodes have

    return HealthHandler(turn.now, answer, lambda host: refuse_host(host, shell.transport)).engine


def _refuse_nobody(_host: str | None, _transport: asyncio.Transport) -> str | None:
    """Return None: no page of a browser comes by a load balancer's own connections."""
    return None


def admin_port(turn: Turn, protocols: Mapping[ProtocolSignature, MakeEngine], answer: Answer) -> Port:
    """Return what serves the administrator's socket, by which one node of several is asked for its health.

    Args:
        turn: the turn of the loop.
        protocols: the functions that make engines.
        answer: answers requests for the node's health.
    """
    makers: dict[ProtocolSignature, MakeEngine] = {
        **protocols,
        _HEALTH: partial(_make_health, turn, answer, _refuse_nobody),
    }
    return Port(turn, makers, ConnectionLimiter(turn, ConnectionLimits()), _refuse_nobody)


_LIMITS = ConnectionLimits(max_connections=64, max_handshakes=64)
"""A control process has two connections; peers that never finish the handshake must not keep it out."""


class ManagementPort:
    """The port for the control process on another machine, with certificates on both sides.

    Args:
        turn: the turn of the loop.
        tls: the directory of certificates: the node's, and ``clients-ca.crt``.
        answer: answers requests for the node's health.
        names: the operator's, by which clients of HTTP call the node.

    Raises:
        ConfigError: the certificates cannot be used.
    """

    def __init__(self, turn: Turn, tls: Path, answer: Answer, names: frozenset[str]) -> None:
        self._turn = turn
        self._answer = answer
        self._names = names
        self._limiter = ConnectionLimiter(turn, _LIMITS)
        from enmasse.net.certificates import CertificateStore  # noqa: PLC0415  loads much, for TLS alone

        self._certificates = CertificateStore(tls)
        self._certificates.watch()

    async def open(self, host: str, port: int, protocols: Mapping[ProtocolSignature, MakeEngine]) -> asyncio.Server:
        """Open the port.

        Raises:
            OSError: it cannot be opened.
        """
        context = self._certificates.context
        served = Port(
            self._turn,
            {**protocols, _HEALTH: partial(_make_health, self._turn, self._answer, self._refuse_host)},
            self._limiter,
            self._refuse_host,
            context=context,
            is_tls_only=True,
        )
        return await self._turn.loop.create_server(served.make_protocol, host, port)

    def _refuse_host(self, host: str | None, transport: asyncio.Transport) -> str | None:
        at = transport.get_extra_info("sockname")

        def is_own(name: str) -> bool:
            return name in self._names or self._certificates.covers(name)

        return host_refusal(host, at, is_own, is_open=False)

    def reload(self) -> None:
        """Read the certificates again."""
        self._certificates.reload()

    def close(self) -> None:
        """Abort the half-open connections."""
        self._limiter.shut()
        self._certificates.close()
