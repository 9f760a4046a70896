"""Addresses of IP that are not public, by a table of our own: Python's idea of them differs by its version.

Made from IANA's registries of special-purpose addresses, for IPv4 and IPv6, as of 2025-10-09 [RFC 6890, RFC 8190].

Rules:
1. An address of IPv6 is public only within the one block that is given out for that, 2000::/3.
2. What is within a block for protocols (192.0.0.0/24, 2001::/23) is not public, not even where the registry says so:
   those are services of whichever network one is in.
3. An address that carries one of IPv4 is what it carries, too.

It is read by what starts a runner of pipelines before anything of ours is loaded: the standard library must do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_LOOPBACK = tuple(map(ip_network, ("127.0.0.0/8", "::1/128")))
"""This machine [RFC 1122 3.2.1.3, RFC 4291 2.5.3]."""

_SECRET = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this network [RFC 791 3.2]
            "169.254.0.0/16",  # link local [RFC 3927], where clouds tell their machines secrets
            "224.0.0.0/4",  # multicast [RFC 1112]
            "255.255.255.255/32",  # limited broadcast [RFC 919 7]
            "::/128",  # unspecified [RFC 4291 2.5.2]
            "fe80::/10",  # link local [RFC 4291 2.5.6]
            "ff00::/8",  # multicast [RFC 4291 2.7]
            # Clouds tell secrets there, too: Oracle's and Azure's, Alibaba's, Amazon's.
            "192.0.0.192/32",
            "168.63.129.16/32",
            "100.100.100.200/32",
            "fd00:ec2::/32",
        ),
    )
)
"""This machine's link, what is no host's, and where clouds tell a machine what is for it alone."""

_SPECIAL = tuple(
    map(
        ip_network,
        (
            "10.0.0.0/8",  # private use [RFC 1918]
            "100.64.0.0/10",  # shared among customers of a provider [RFC 6598]
            "172.16.0.0/12",  # private use [RFC 1918]
            "192.0.0.0/24",  # protocols [RFC 6890 2.1]
            "192.0.2.0/24",  # documentation [RFC 5737]
            "192.88.99.0/24",  # relays of 6to4, deprecated [RFC 7526]
            "192.168.0.0/16",  # private use [RFC 1918]
            "198.18.0.0/15",  # benchmarks [RFC 2544]
            "198.51.100.0/24",  # documentation [RFC 5737]
            "203.0.113.0/24",  # documentation [RFC 5737]
            "240.0.0.0/4",  # reserved [RFC 1112 4]
            # Within 2000::/3; 64:ff9b:1::/48, 100::/64, 100:0:0:1::/64, 5f00::/16, fc00::/7 and fec0::/10 are not.
            "2001::/23",  # protocols [RFC 2928]
            "2001:db8::/32",  # documentation [RFC 3849]
            "3fff::/20",  # documentation [RFC 9637]
        ),
    )
)

_GIVEN_OUT = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""The beginning of an interface's id that has an address of IPv4 behind it [RFC 5214 6.1]."""

_WAYS = (_MAPPED, _NAT64, _6TO4, _TEREDO)
"""Blocks whose addresses lead to what they carry, and nowhere else."""

_LOW = 0xFFFF_FFFF


def _carried(address: Address) -> Iterable[IPv4Address]:
    """Return the addresses of IPv4 that one of IPv6 has within."""
    if isinstance(address, IPv4Address):
        return ()
    number = int(address)
    low = number & _LOW
    if address in _TEREDO:
        # The server, and the client with its bits turned over [RFC 4380 4].
        return IPv4Address(number >> 64 & _LOW), IPv4Address(low ^ _LOW)
    if address in _6TO4:
        return (IPv4Address(number >> 80 & _LOW),)
    if any(address in block for block in (_MAPPED, _TRANSLATED, _NAT64)) or (address in _COMPATIBLE and number > 1):
        return (IPv4Address(low),)
    return (IPv4Address(low),) if number >> 32 & _LOW in _ISATAP else ()


def parse_address(text: str) -> Address:
    """Return the address that a text is, without its zone.

    Raises:
        ValueError: it is none.
    """
    return ip_address(text.partition("%")[0])


def is_public(address: Address, listed: Sequence[Network] = ()) -> bool:
    """Return true if an address is one that anybody may reach, for it is public, or an operator lists it.

    Args:
        address: the address.
        listed: networks of the operator's that count as public.
    """
    if _is_in(address, listed):
        return True
    if isinstance(address, IPv4Address):
        return not any(_is_in(address, table) for table in (_LOOPBACK, _SECRET, _SPECIAL))
    if not all(is_public(each, listed) for each in _carried(address)):
        return False
    return _is_in(address, _WAYS) or (address in _GIVEN_OUT and not _is_in(address, _SPECIAL))


def is_listed(address: Address, listed: Sequence[Network]) -> bool:
    """Return true if an operator lists an address, or what it leads to."""
    if _is_in(address, listed):
        return True
    return _is_in(address, _WAYS) and all(is_listed(each, listed) for each in _carried(address))


def is_own(address: Address) -> bool:
    """Return true if an address leads to this machine, or is secret."""
    return _is_in(address, _LOOPBACK) or is_secret(address) or any(map(is_own, _carried(address)))


def is_secret(address: Address) -> bool:
    """Return true if an address leads to this machine's link, to no host, or where a cloud tells secrets."""
    if _is_in(address, _SECRET):
        return True
    if address in _MAPPED:
        return any(map(is_secret, _carried(address)))
    # No way but that of this machine itself leads to its loopback interface.
    return any(map(is_own, _carried(address)))


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
