"""How to connect: what ``connect`` was asked for, once it is read."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from enmasse.client.tls import TlsOptions, make_context
from enmasse.client.url import Url

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """How to connect; for what is not explained here see ``connect``."""

    places: tuple[Url, ...]
    container_id: str
    hostname: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    sasl: Sequence[str] | None = None
    allow_insecure_plain: bool = False
    tls: TlsOptions | ssl.SSLContext | None = None
    context: ssl.SSLContext | None = None
    """Made of ``tls`` where a place needs it."""
    shuffle: bool = False
    idle_timeout_s: float = 60.0
    properties: Mapping[str, Any] = field(default_factory=dict)

    def server_name(self, url: Url) -> str:
        """The name that the certificate at a place must have.

        It is not the host that a redirect has us ask for, which may be no more than the name of a space.
        """
        asked = self.tls.server_name if isinstance(self.tls, TlsOptions) else None
        return asked or url.host

    def context_for(self, url: Url) -> ssl.SSLContext | None:
        """The TLS context for a place, if it takes one.

        Raises:
            TlsError: see ``TlsOptions.context``.
        """
        if not url.is_tls:
            return None
        return self.context or make_context(self.tls)
