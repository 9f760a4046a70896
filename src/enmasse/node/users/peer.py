"""Describes the client at the other end of a connection: its address and certificates."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from enmasse.net.proxy_layer import Proxied
    from enmasse.node.devices.authorities import Shown


class PeerInfo(NamedTuple):
    """Describes a client by its socket and TLS.

    Attributes:
        peer: the client's address, as ``host:port`` or ``unix``.
        proxied: what a load balancer says of it, or the node that has handed its connection over; None: neither has.
        is_private: true if nobody else can read what is sent.
        server_name: the host that the client named for TLS.
        certified: the names in the client's certificate, if that was verified.
        refusal: the reason why the node has no room for the connection, if it has none.
        shown: the client's certificates, if an authority of a tenant of devices vouches for them.
        is_vouched_for: returns true if an authority of the operator's vouches for the client's certificate now.
        certified_until: the time at which that certificate ends, in seconds since 1970 UTC.
    """

    peer: str
    proxied: Proxied | None = None
    is_private: bool = False
    server_name: str | None = None
    certified: tuple[str, ...] = ()
    refusal: str | None = None
    shown: Shown | None = None
    is_vouched_for: Callable[[], bool] = bool
    certified_until: float | None = None

    @property
    def is_here(self) -> bool:
        """True if the client is on this machine."""
        return is_here(self.peer, self.proxied)


def is_here(peer: str, proxied: Proxied | None) -> bool:
    """Return true if a client is on this machine: none is that comes through a load balancer, be that here or not.

    Args:
        peer: the client's address, as ``host:port`` or ``unix``.
        proxied: what a balancer says of it, or the node that has handed its connection over; None: neither has.
    """
    if proxied is not None:
        return proxied.is_here
    return peer == "unix" or _is_loopback(peer.rpartition(":")[0].strip("[]"))


@lru_cache(1_024)
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
