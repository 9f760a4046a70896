"""Protects HTTP servers from pages of other origins: headers of answers, and the parsing of Host and Origin.

For every HTTP server here: the node's, WebSocket on it, and the API.
"""

from __future__ import annotations

import ipaddress
import re

SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)
"""Headers of every answer: no page of another origin can show, run or guess at it."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing: a page of another origin may use them, without seeing the answer."""

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
