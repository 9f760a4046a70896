"""Where to connect to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import SplitResult, unquote, urlsplit

from enmasse.client.errors import UrlError

__all__ = ["DEFAULT_PORTS", "Url", "parse_url"]

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671, "amqpws": 80, "amqpwss": 443}

SYNONYMS = {"ws": "amqpws", "wss": "amqpwss"}


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL; either ``host`` or ``path`` is set."""

    scheme: str = "amqp"
    """``amqp``, ``amqps`` (with TLS), ``amqpws`` and ``amqpwss`` (over WebSocket), or ``amqp+unix``."""
    host: str = ""
    port: int = DEFAULT_PORTS["amqp"]
    path: str = ""
    """The unix socket, for ``amqp+unix``."""
    resource: str = "/"
    """What to ask a WebSocket server for."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    address: str | None = None
    """The address that the URL's path names."""
    hostname: str | None = None
    """The host to ask for there, if that is not ``host``; where a redirect leads to."""

    @property
    def is_tls(self) -> bool:
        """Whether TLS protects the connection."""
        return self.scheme in {"amqps", "amqpwss"}

    @property
    def is_websocket(self) -> bool:
        """Whether WebSocket carries the connection."""
        return self.scheme in {"amqpws", "amqpwss"}

    @property
    def websocket_uri(self) -> str:
        """The same for a WebSocket library."""
        return f"{str(self).removeprefix('amqp')}{self.resource}"

    def __str__(self) -> str:
        """The place, without user, password and address."""
        if self.path:
            return f"amqp+unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Read ``amqp[s]://[user:password@]host[:port][/address]`` or ``amqp+unix:///path/to.sock``.

    For WebSocket it is ``amqpws[s]://[user:password@]host[:port][/path]``, or ``ws[s]://``.

    Raises:
        UrlError: it is neither.
    """
    parts = urlsplit(text if "://" in text else f"amqp://{text}")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    shown = _without_password(text, parts)
    if parts.scheme == "amqp+unix":
        if parts.hostname or not parts.path:
            raise UrlError(f"{shown!r} names no socket: write amqp+unix:///path/to.sock")
        return Url(scheme="amqp+unix", path=unquote(parts.path), user=user, password=password)
    scheme = SYNONYMS.get(parts.scheme, parts.scheme)
    if scheme not in DEFAULT_PORTS:
        raise UrlError(
            f"{shown!r} is no AMQP URL: write amqp://host:port, amqps://host:port, amqpws://host:port/path,"
            " amqpwss://host:port/path or amqp+unix:///path/to.sock"
        )
    if not parts.hostname:
        raise UrlError(f"{shown!r} names no host: write {parts.scheme}://host:port")
    url = Url(scheme=scheme, host=parts.hostname, port=_port(parts, scheme, shown), user=user, password=password)
    if url.is_websocket:
        query = f"?{parts.query}" if parts.query else ""
        return replace(url, resource=f"{parts.path or '/'}{query}")
    return replace(url, address=unquote(parts.path[1:]) or None)


def _without_password(text: str, parts: SplitResult) -> str:
    return text if parts.password is None else text.replace(f":{parts.password}@", ":***@")


def _port(parts: SplitResult, scheme: str, shown: str) -> int:
    try:
        return parts.port or DEFAULT_PORTS[scheme]
    except ValueError as error:
        raise UrlError(f"{shown!r} has no valid port: {error}") from None
