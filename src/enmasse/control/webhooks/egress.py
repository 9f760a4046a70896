"""Connections to the outside, which lead to no host that the operator does not allow.

Rules:
1. A name is resolved for each connection, and the connection goes to an address that was looked at: a name that means
   another one the next moment leads nowhere else.
2. Every address that a name means has to be allowed. Those that are not public (private and shared networks,
   loopback, link-local ones such as the metadata services of clouds) are allowed only if the operator has named them.
3. Addresses that carry another one (IPv4 within IPv6) are looked at as what they carry.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

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
    if address in _TRANSLATED or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


class Egress(httpx.AsyncBaseTransport):
    """A transport of httpx that looks at the address of each connection. It is for one host: it keeps connections.

    Args:
        allowed: networks that are allowed although they are not public.
        resolve: returns the addresses of a host.
    """

    def __init__(self, allowed: Sequence[Network], resolve: Resolve = _resolve) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._inner = httpx.AsyncHTTPTransport(trust_env=False)

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
        request.url = request.url.copy_with(host=addresses[0])
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()
