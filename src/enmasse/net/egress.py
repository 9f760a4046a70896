"""The rule where connections go whose hosts a tenant names: to no address that the operator does not allow.

For webhooks, for providers of identities that a space chooses, and for connectors.

Rules:
1. A name is resolved for each connection, and the connection goes to an address that was looked at: a name that means
   another one the next moment leads nowhere else.
2. Every address that a name means, of either family, has to be allowed: a name with one that is not leads nowhere.
3. Addresses that carry another one (IPv4 within IPv6) are looked at as what they carry, too.
4. The addresses of a host are tried in turn until one takes the connection; nothing is sent twice.
5. A host proves its name by a certificate, whatever its address. Redirections are looked at as any other host.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_network
from typing import Final

from enmasse.errors import ConfigError, EnmasseError
from enmasse.net.special_addresses import Network, is_listed, is_public, parse_address

CONNECT_S: Final = 5.0
"""The time that one address may take to connect while there are others."""

WEBHOOKS: Final = "--webhook-network"
"""The option by which an operator allows webhooks, and providers of identities, what is not public."""

CONNECTORS: Final = "--connector-network"
"""The option by which an operator allows connectors to go anywhere."""

PROXIES: Final = "--proxy-from"
"""The option by which an operator names load balancers that tell who their clients are."""

PUBLIC: Final = "public"
"""The word that stands for all public addresses, where they have to be allowed."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class EgressError(EnmasseError):
    """A host must not be reached from here, or is unknown."""


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def networks_of(option: str, texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks that an option names.

    Raises:
        ConfigError: one is none.
    """
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}: expected a network such as 10.1.0.0/16") from None


@dataclass(frozen=True, slots=True)
class Reach:
    """The addresses that connections of one sort may go to.

    Attributes:
        option: the option by which an operator allows more.
        networks: networks that are allowed.
        has_public: whether public addresses are allowed, too.
        lookup: returns the addresses of a host.
    """

    option: str
    networks: tuple[Network, ...] = ()
    has_public: bool = True
    lookup: Resolve = _resolve

    @classmethod
    def of_connectors(cls, texts: Sequence[str]) -> Reach:
        """Return where connectors may go: nowhere, but for the networks that an operator has named.

        Raises:
            ConfigError: one is none.
        """
        given = [text for text in texts if text != PUBLIC]
        return cls(CONNECTORS, networks_of(CONNECTORS, given), has_public=len(given) < len(texts))

    def allows(self, address: str) -> bool:
        """Return true if connections may go to an address."""
        parsed = parse_address(address)
        return is_public(parsed, self.networks) if self.has_public else is_listed(parsed, self.networks)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host, all of which are allowed.

        Raises:
            EgressError: one is not, or there is none.
            OSError: the host cannot be looked up.
        """
        found = await self.lookup(host.strip("[]"), port)
        # Which address it is would tell a tenant how names are resolved here.
        if not found or not all(map(self.allows, found)):
            what = "not public" if self.has_public else "not allowed"
            raise EgressError(
                f"{host} has an address that is {what}, or none; the operator allows it by {self.option}"
            )
        return found


async def connect_to(addresses: Sequence[str], port: int) -> socket.socket:
    """Return a socket that is connected to the first of some addresses that takes the connection.

    Raises:
        OSError: none does; TimeoutError if the last one does not answer.
    """
    loop = asyncio.get_running_loop()
    for number, address in enumerate(addresses, 1):
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.sock_connect(made, (address, port))
        except BaseException as error:
            made.close()
            if not isinstance(error, OSError) or number == len(addresses):
                raise
        else:
            return made
    raise OSError("no address to connect to")


@lru_cache(maxsize=64)
def trust_of(authorities: str | None) -> ssl.SSLContext:
    """Return what hosts are verified by; for all who ask for the same the same."""
    return new_trust(authorities)


def new_trust(authorities: str | None) -> ssl.SSLContext:
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
