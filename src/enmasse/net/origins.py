"""Protects HTTP servers from pages of other origins: headers of answers, and checks of Host and Origin.

For every HTTP server here: the node's, WebSocket on it, and the API.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable

from enmasse.net.special_addresses import is_public, parse_address

SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)
"""Headers of every answer: no page of another origin can show, run or guess at it."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing: a page of another origin may use them, without seeing the answer."""

RefuseHost = Callable[[str | None, asyncio.Transport], str | None]
"""Returns why a request is refused for the host that it names; None if it is not: see ``host_refusal``."""

HTTP_NAME = "--http-name"
"""The option that adds a name to those by which a server is called."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|((?:[A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]+))(?::([0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def host_of(text: str, scheme: str = "http") -> tuple[str, int] | None:
    """Return name and port of a Host header, in lower case; None if it has another form."""
    found = _HOST.fullmatch(text)
    if found is None:
        return None
    address, name, port = found.groups()
    number = _DEFAULT_PORTS.get(scheme, 80) if port is None else int(port)
    if not 0 < number < 1 << 16:
        return None
    if address is None:
        return str(name).lower(), number
    try:
        return str(ipaddress.IPv6Address(address)), number
    except ValueError:
        return None


def scheme_of(origin: str) -> str:
    """Return the scheme of an Origin header."""
    return origin.partition("://")[0].lower()


def page_host_of(origin: str) -> tuple[str, int] | None:
    """Return name and port of an Origin header; None if it is of no web page with a host, such as ``null``."""
    scheme = scheme_of(origin)
    return host_of(origin.partition("://")[2], scheme) if scheme in _DEFAULT_PORTS else None


def is_loopback_name(name: str) -> bool:
    """Return true if a name or address, as ``host_of`` returns it, can only mean this machine."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_address(name: str) -> bool:
    """Return true if a name, as ``host_of`` returns it, is an address: its spelling is the one that browsers send."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def plain_name(text: str) -> str:
    """Return a host name as ``host_of`` returns it.

    Raises:
        ValueError: the text is none.
    """
    found = host_of(text)
    if found is None or ":" in text or is_address(found[0]):
        raise ValueError(f"{text!r:.100} is no host name: expected one such as shop.example.org, without a port")
    return found[0]


def host_refusal(host: str | None, at: object, is_own: Callable[[str], bool], *, is_open: bool) -> str | None:
    """Return why a request is refused for the host that it names; None if it is served.

    The owner of a name can have it mean another address from one moment to the next (DNS rebinding). To a browser a
    page of that name and the server that is there now are the same: nothing but the name tells them apart. So names
    that nobody gave to this server are served only where such a page could not have come from a browser that is
    nearer than the page's owner: on a public address, and if that asks for a login, too.

    Args:
        host: the host as the client names it, in ``Host``, ``:authority`` or the target; None: not at all, as no
            browser does.
        at: this end of the connection, as the socket names it.
        is_own: returns true for the names of this server, in lower case.
        is_open: true if what is asked for may need no login.
    """
    if host is None:
        return None
    found = host_of(host)
    if found is None:
        return f"the Host is {host!r:.100}: expected one name or address, and perhaps a port"
    name = found[0]
    if name == "localhost" or is_address(name) or is_own(name):
        return None
    if not is_open and _is_public_end(at):
        return None
    return (
        f"this server is not called {name!r:.100}: use a name that it has, or its address; behind a proxy, have it "
        f"started with {HTTP_NAME} {name:.100}"
    )


def _is_public_end(at: object) -> bool:
    try:
        return isinstance(at, tuple) and is_public(parse_address(str(at[0])))
    except ValueError:
        return False
