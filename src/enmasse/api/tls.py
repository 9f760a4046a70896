"""TLS of the API: its certificate, and those of its clients.

A client certificate is accepted if the platform's own authority has issued it for the API, with a group
(organisation). Other authorities that nodes trust for clients of messaging are not trusted here.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any

from enmasse.errors import ConfigError
from enmasse.net.certificates import hosts_of, wildcard_of

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

_CHECK_EVERY_S = 2.0


class ApiCertificate:
    """The certificate of the API, reloaded when its files change.

    Args:
        certificate: PEM, with its chain.
        key: PEM, without a password.
        clients: the authority of client certificates, PEM.

    Attributes:
        context: for new connections; the same object after a reload.

    Raises:
        ConfigError: when a file cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, clients: Path) -> None:
        self._paths = (certificate, key)
        self._clients = clients
        self._loaded = self._read_stats()
        self.context = self._make_context()
        self._hosts = hosts_of(certificate)

    def covers(self, host: str) -> bool:
        """Return true if the certificate is for a host, in lower case."""
        return host in self._hosts or wildcard_of(host) in self._hosts

    def reload(self) -> bool:
        """Load the files if they have changed, for new connections.

        Returns:
            Whether a new certificate was loaded; if it cannot be used, the old one stays, and the log says why.
        """
        stats = self._read_stats()
        if stats == self._loaded:
            return False
        self._loaded = stats
        try:
            self._make_context()  # a certificate and key that do not match must not replace those in use
            self.context.load_cert_chain(*self._paths)
            self._hosts = hosts_of(self._paths[0])
        except (ConfigError, OSError, ValueError) as error:
            _log.error("the API keeps its present certificate: %s", error)
            return False
        _log.info("the API's certificate was reloaded from %s", self._paths[0])
        return True

    async def watch(self) -> None:
        """Reload the files when they change, until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            self.reload()

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        context.verify_mode = ssl.CERT_OPTIONAL
        certificate, key = self._paths
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
            context.load_verify_locations(self._clients)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{certificate} and {key} cannot be used by the API: {error}") from None
        return context

    def _read_stats(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in self._paths:
            try:
                stat = path.stat()
            except OSError:
                continue  # it is being replaced
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(found)


def peer_of(certificate: dict[str, Any] | None) -> tuple[str, tuple[str, ...]] | None:
    """Return user and groups of a verified certificate; None if it was not issued for the API."""
    fields = [field for part in (certificate or {}).get("subject", ()) for field in part]
    names = [value for key, value in fields if key == "commonName"]
    groups = tuple(value for key, value in fields if key == "organizationName")
    return (names[0], groups) if len(names) == 1 and groups else None


def _no_password() -> str:
    raise ValueError("the key is encrypted; store it without a password")
