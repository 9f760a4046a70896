"""Connections to hosts that a tenant names, which lead to no address that the operator does not allow.

For webhooks, and for providers of identities that a space chooses.

Rules:
1. A name is resolved for each connection, and the connection goes to an address that was looked at: a name that means
   another one the next moment leads nowhere else.
2. Every address that a name means, of either family, has to be public, or in a network that the operator has named:
   a name with one that is not leads nowhere.
3. Addresses that carry another one (IPv4 within IPv6) are looked at as what they carry, too.
4. The addresses of a host are tried in turn until one takes the connection; nothing is sent twice.
5. A host proves its name by a certificate, whatever its address. Redirections are not followed: they are answers.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.errors import EnmasseError
from enmasse.net.special_addresses import is_public, parse_address

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from enmasse.net.special_addresses import Network

    Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

CONNECT_S: Final = 5.0
"""How long one address may take to connect while there are others."""

MAX_HOSTS: Final = 8
"""The most hosts to which connections are kept: a webhook has one, and a provider names some more."""

NETWORK_OPTION: Final = "--webhook-network"
"""The option by which an operator allows what is not public."""


class EgressError(EnmasseError):
    """A host must not be reached from here, or is unknown."""


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


@lru_cache(maxsize=64)
def trust_of(authorities: str | None) -> ssl.SSLContext:
    """Return what hosts are verified by.

    Args:
        authorities: certificates in PEM; None: those of this machine.

    Raises:
        ValueError: they are no certificates.
    """
    try:
        # An empty text would mean those of this machine.
        context = ssl.create_default_context(cadata=authorities if authorities is None else authorities or "-")
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"expected certificates in PEM: {error}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Egress(httpx.AsyncBaseTransport):
    """A transport of httpx that looks at the address of each connection.

    Args:
        allowed: networks that are allowed although they are not public.
        trust: what hosts are verified by.
        resolve: returns the addresses of a host.
    """

    def __init__(self, allowed: Sequence[Network], trust: ssl.SSLContext, resolve: Resolve = _resolve) -> None:
        self._allowed = allowed
        self._trust = trust
        self._resolve = resolve
        self._inner: dict[str, httpx.AsyncHTTPTransport] = {}
        """The connections to each host: those of one address may be to several, which prove different names."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request.

        Raises:
            EgressError: the host must not be reached.
            httpx.TransportError: it cannot be reached.
        """
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        try:
            addresses = await self._resolve(host.strip("[]"), port)
        except OSError as error:
            raise httpx.ConnectError(f"{host} has no address: {error}") from None
        # Which address it is would tell a tenant how names are resolved here.
        if not addresses or not all(is_public(parse_address(address), self._allowed) for address in addresses):
            raise EgressError(
                f"{host} has an address that is not public, or none; the operator allows it by {NETWORK_OPTION}"
            )
        request.extensions = request.extensions | {"sni_hostname": host}
        *others, last = addresses
        for address in others:
            try:
                return await self._send(request, address, CONNECT_S)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._send(request, last, None)

    async def _connections(self, host: str) -> httpx.AsyncHTTPTransport:
        found = self._inner.get(host)
        if found is None:
            if len(self._inner) >= MAX_HOSTS:
                await self._inner.pop(next(iter(self._inner))).aclose()
            found = self._inner[host] = httpx.AsyncHTTPTransport(verify=self._trust, trust_env=False)
        return found

    async def _send(self, request: httpx.Request, address: str, connect_s: float | None) -> httpx.Response:
        timeout = dict(request.extensions.get("timeout", {}))
        if connect_s is not None:
            timeout["connect"] = min(connect_s, timeout.get("connect") or connect_s)
        chosen = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions | {"timeout": timeout},
        )
        inner = await self._connections(request.url.host)
        return await inner.handle_async_request(chosen)

    async def aclose(self) -> None:
        """Close all connections."""
        inner, self._inner = self._inner, {}
        for each in inner.values():
            await each.aclose()
