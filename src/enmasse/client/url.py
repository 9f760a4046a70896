"""Where to connect to."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from enmasse.client.errors import UrlError

__all__ = ["Url", "parse_url"]

DEFAULT_PORT = 5672


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL; either ``host`` or ``path`` is set."""

    host: str = ""
    port: int = DEFAULT_PORT
    path: str = ""
    """The unix socket, for ``amqp+unix``."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    address: str | None = None
    """The address that the URL's path names."""

    def __str__(self) -> str:
        """The place, without user, password and address."""
        if self.path:
            return f"amqp+unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp://{host}:{self.port}"


def parse_url(text: str) -> Url:
    """Read ``amqp://[user:password@]host[:port][/address]`` or ``amqp+unix:///path/to.sock``.

    Raises:
        UrlError: it is neither.
    """
    parts = urlsplit(text if "://" in text else f"amqp://{text}")
    user = unquote(parts.username) if parts.username else None
    password = unquote(parts.password) if parts.password is not None else None
    if parts.scheme == "amqp+unix":
        if parts.hostname or not parts.path:
            raise UrlError(f"{text!r} names no socket: write amqp+unix:///path/to.sock")
        return Url(path=unquote(parts.path), user=user, password=password)
    if parts.scheme == "amqps":
        raise UrlError(f"{text!r} asks for TLS, which this version does not speak: use an amqp:// URL")
    if parts.scheme != "amqp":
        raise UrlError(f"{text!r} is no AMQP URL: write amqp://host:port or amqp+unix:///path/to.sock")
    if not parts.hostname:
        raise UrlError(f"{text!r} names no host: write amqp://host:port")
    return Url(
        host=parts.hostname,
        port=_port(parts, text),
        user=user,
        password=password,
        address=unquote(parts.path[1:]) or None,
    )


def _port(parts: SplitResult, text: str) -> int:
    try:
        return parts.port or DEFAULT_PORT
    except ValueError as error:
        raise UrlError(f"{text!r} has no valid port: {error}") from None
