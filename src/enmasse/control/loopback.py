"""Which hosts are this very machine.

Where there are no users, reaching a port is all the permission there is: that
is served on no interface that others can reach.
"""

from __future__ import annotations

import ipaddress

from enmasse.errors import ConfigError

__all__ = ["is_loopback", "require_loopback"]


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address, without port, is this very machine."""
    host = host.removeprefix("[").removesuffix("]")
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def require_loopback(host: str) -> None:
    """Refuse every interface but the loopback ones.

    Raises:
        ConfigError: for any other, with the reason.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"host {host}: only loopback interfaces can be served, such as 127.0.0.1 or ::1, because there are "
            "no users: whoever reaches the port may do everything (a node with --users can serve others)"
        )
