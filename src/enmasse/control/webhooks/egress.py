"""Connections to the outside, which lead to no host that the operator does not allow.

Rules:
1. A name is resolved for each connection, and the connection goes to an address that was looked at: a name that means
   another one the next moment leads nowhere else.
2. Every address that a name means has to be allowed. Those that are not public (private and shared networks,
   loopback, link-local ones such as the metadata services of clouds) are allowed only if the operator has named them.
3. Addresses that carry another one (IPv4 within IPv6) are looked at as what they carry.
4. The addresses of a host are tried in turn until one takes the connection; nothing is sent twice.
5. A host proves its name by a certificate of an authority of this machine, or of those that the webhook names, which
   are the only ones then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

CONNECT_S: Final = 5.0
"""How long one address may take to connect while there are others."""

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")


class EgressError(EnmasseError):
    """A host must not be reached from here, or is unknown."""


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    """Return whether a connection may go to an address."""
    address = _carried(ipaddress.ip_address(text.partition("%")[0]))
    if any(address.version == network.version and address in network for network in allowed):
        return True
    return address.is_global and not address.is_multicast


def _carried(address: Address) -> Address:
    if not isinstance(address, ipaddress.IPv6Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _TRANSLATED or (int(address) >> 32 == 0 and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


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
    """A transport of httpx that looks at the address of each connection. It is for one host: it keeps connections.

    Args:
        allowed: networks that are allowed although they are not public.
        authorities: certificates in PEM that hosts are verified by; None: those of this machine.
        resolve: returns the addresses of a host.
    """

    def __init__(
        self, allowed: Sequence[Network], authorities: str | None = None, resolve: Resolve = _resolve
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._inner = httpx.AsyncHTTPTransport(verify=trust_of(authorities), trust_env=False)

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
        refused = next((address for address in addresses if not is_allowed(address, self._allowed)), None)
        if refused is not None or not addresses:
            raise EgressError(
                f"{host} is {refused}, which is not public; the operator allows it by --webhook-network"
            )
        request.extensions = request.extensions | {"sni_hostname": host}
        *others, last = addresses
        for address in others:
            try:
                return await self._send(request, address, CONNECT_S)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._send(request, last, None)

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
        return await self._inner.handle_async_request(chosen)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()
