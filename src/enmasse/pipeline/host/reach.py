"""The places outside that a runner may reach, and where it finds them inside its own network. Pure.

It is read by what starts a runner before anything of ours is loaded, so it needs the standard library alone.

Rules:
1. What an operator lists is an address, a network or a name, with a port or without: then 80 and 443.
2. A name has an address of its own inside; outside it is resolved for each connection, so it may move.
3. A name and a network never lead to this machine's loopback interface, nor to where clouds give out secrets: who
   wants those lists the very address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network

from enmasse.net.special_addresses import Address, Network, is_own, is_secret, parse_address

ANNOTATION = "enmasse.io/pipeline-hosts"
"""The annotation of a namespace; only operators write it."""

RELAYED = "ENMASSE_RELAYED"
"""Set in the environment of a runner whose connections a relay carries: it looks names up, and judges addresses."""

WEB_PORTS = (80, 443)
MAX_PLACES = 100
"""Each is a listening socket, and all of them are handed on in one message."""

_NAME = re.compile(r"(?!.*\.\.)[a-z0-9_]([-a-z0-9_.]{0,251}[a-z0-9])?")
_INSIDE = IPv4Address("127.1.0.0")
"""Names have the addresses that follow."""


@dataclass(frozen=True, slots=True)
class Place:
    """A port of some hosts.

    Attributes:
        host: a name, or a network as text.
        port: of it.
        network: the addresses; None: the host is a name.
        is_ours: whether it is a port of EnMasse, wherever that is.
    """

    host: str
    port: int
    network: Network | None = None
    is_ours: bool = False

    @property
    def is_one_address(self) -> bool:
        """True if somebody named this very address."""
        return self.network is not None and self.network.num_addresses == 1


class Reach:
    """All places of a runner.

    Args:
        places: each once or several times.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = tuple(dict.fromkeys(places))
        names = dict.fromkeys(place.host for place in self.places if place.network is None)
        self.names: dict[str, Address] = {name: _INSIDE + number for number, name in enumerate(names, 1)}
        """The address inside by name."""

    @property
    def networks(self) -> list[Network]:
        """The networks that the runner's own network has to take for its own."""
        found = (place.network for place in self.places if place.network is not None)
        return [network for network in dict.fromkeys(found) if not network.network_address.is_loopback]

    @property
    def ports(self) -> list[tuple[int, int]]:
        """Version of IP and port of each socket that is to listen inside."""
        return sorted({(4 if place.network is None else place.network.version, place.port) for place in self.places})

    def covers(self, place: Place) -> bool:
        """Return whether all of a place belongs to one of these; inside addresses of names are none of theirs."""
        if not place.is_one_address:
            return place in self.places
        address = place.host.partition("/")[0]
        return any(
            one.port == place.port
            and one.network is not None
            and ip_address(address) in one.network
            and may_lead_to(one, address)
            for one in self.places
        )

    def target(self, inside: str, port: int) -> tuple[Place, str] | None:
        """Return where a connection leads to.

        Args:
            inside: the address that was connected to, in the runner's network.
            port: of it.

        Returns:
            What allows it, and the host outside; None: nothing does.
        """
        address = ip_address(inside)
        for place in self.places:
            if place.port != port:
                continue
            if place.network is None:
                if self.names[place.host] == address:
                    return place, place.host
            elif address in place.network and may_lead_to(place, inside):
                return place, inside
        return None


def may_lead_to(place: Place, outside: str) -> bool:
    """Return whether an address is one that a place may stand for."""
    return place.is_ours or place.is_one_address or not is_own(parse_address(outside))


def is_never(outside: str) -> bool:
    """Return whether an address is no tenant's, whoever names it: a link's, or where clouds tell secrets."""
    return is_secret(parse_address(outside))


def parse_hosts(text: str) -> tuple[list[Place], list[str]]:
    """Understand what an operator listed.

    Args:
        text: entries with commas between them: ``HOST``, ``HOST:PORT``, ``NETWORK/BITS`` or ``NETWORK/BITS:PORT``.

    Returns:
        The places, and a sentence for each entry that is none.
    """
    places: list[Place] = []
    problems = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, port = _cut(entry.lower())
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            problems.append(f"{entry!r}: expected a port from 1 to 65535 after the colon, got {port!r}")
            continue
        try:
            found = [place_of(host, int(number)) for number in ([port] if port else WEB_PORTS)]
        except ValueError:
            problems.append(f"{entry!r}: expected a host, an address or a network, with :PORT if it is not {_WEB}")
            continue
        if len({*places, *found}) > MAX_PLACES:
            problems.append(f"{entry!r}: expected at most {MAX_PLACES} ports of hosts; this one and what follows")
            break
        places += found
    return places, problems


def place_of(host: str, port: int, *, is_ours: bool = False) -> Place:
    """Return a place.

    Args:
        host: a name, an address or a network.
        port: of it.
        is_ours: whether it is a port of EnMasse.

    Raises:
        ValueError: the host is neither an address, a network nor a name.
    """
    if host == "localhost":
        host = "127.0.0.1"
    if "/" in host or ":" in host or _is_address(host):
        network = ip_network(host, strict=False)
        return Place(str(network), port, network, is_ours)
    if not _NAME.fullmatch(host) or host.rpartition(".")[2].isdigit():
        raise ValueError(host)
    return Place(host, port, None, is_ours)


_WEB = " and ".join(map(str, WEB_PORTS))


def _cut(entry: str) -> Sequence[str]:
    """Host and port of an entry; the port may be empty."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":")
    if entry.count(":") > 1:
        return entry, ""
    host, _, port = entry.partition(":")
    return host, port


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
