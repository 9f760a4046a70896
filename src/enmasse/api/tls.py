"""The API with TLS: the certificate that it shows, and those that its clients show.

A client certificate counts if the platform's own authority has issued it for the API, which is to say with a
group (organisation). Who else may vouch for clients of a messaging node is no authority here.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from enmasse.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ApiCertificate", "PeerProtocol", "peer_of"]

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 2.0


class ApiCertificate:
    """What the API shows its clients, read again when it changes.

    Args:
        certificate: PEM, with its chain.
        key: PEM, without a password.
        clients: the authority that vouches for clients, PEM.

    Attributes:
        context: what connections begin with, for the server to keep.

    Raises:
        ConfigError: when a file cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, clients: Path) -> None:
        self._paths = (certificate, key)
        self._clients = clients
        self._seen = self._look()
        self.context = self._make_context()

    def reload(self) -> bool:
        """Show the files as they are now to clients to come.

        Returns:
            Whether they had changed and can be used; if they cannot, all stays as it was and the log says why.
        """
        seen = self._look()
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._make_context()  # a pair that does not fit must not spoil the one in use
            self.context.load_cert_chain(*self._paths)
        except (ConfigError, OSError, ValueError) as error:
            _log.error("the API's certificate stays as it was: %s", error)
            return False
        _log.info("the API's certificate was read anew from %s", self._paths[0])
        return True

    async def watch(self) -> None:
        """Look at the files from time to time, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
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

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in self._paths:
            try:
                stat = path.stat()
            except OSError:
                continue  # it is being replaced
            found.append((stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(found)


class PeerProtocol(H11Protocol):
    """HTTP that tells the application more of its client, in the state of each request.

    As ``peer``, who its certificate is for, if it has one; as ``cut``, what to call to close the
    connection at once, unsent data or not.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it likewise
        """Look at the certificate once, for all requests of the connection."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        peer = None if tls is None else peer_of(tls.getpeercert())
        self.app_state = {**self.app_state, "cut": transport.abort} | ({} if peer is None else {"peer": peer})


def peer_of(certificate: dict[str, Any] | None) -> tuple[str, tuple[str, ...]] | None:
    """Return user and groups of a verified certificate; None if it is not one for the API."""
    fields = [field for part in (certificate or {}).get("subject", ()) for field in part]
    names = [value for key, value in fields if key == "commonName"]
    groups = tuple(value for key, value in fields if key == "organizationName")
    return (names[0], groups) if len(names) == 1 and groups else None


def _no_password() -> str:
    raise ValueError("the key is encrypted, and nobody is here to give its password; store it without one")
