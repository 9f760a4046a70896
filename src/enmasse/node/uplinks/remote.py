"""A server of a connector as a node is told of it, and how the node's client connects to it.

Rules:
1. A connection goes where the operator lets connectors go, looked at for each one.
2. Certificates and keys are in memory alone. A password is shown only where TLS has proved who gets it; without TLS
   there are mechanisms that prove one without showing it.
"""

from __future__ import annotations

import os
import ssl
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from enmasse.client.carrier import REDIRECT, redirected
from enmasse.client.errors import ConnectionDeniedError
from enmasse.client.options import GIVE, RISK, Options, Url
from enmasse.errors import ConfigError, EnmasseError
from enmasse.net.egress import connect_to, new_trust

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from enmasse.net.egress import Reach

_TEXTS = ("host", "authorities", "certificate", "key", "username", "password")

NAME_US = "give the connector credentials, or tls.clientCert with tls.clientKey"

MAX_SERVERS: Final = 16
"""The most servers of one connector."""

MAX_WORDS: Final = 300
"""Characters of the other container's explanation that are passed on."""

_OF_SERVERS: Final = ("host", "port")

_WORDS = (
    (RISK, ""),
    (GIVE, NAME_US),
    (", or give TlsOptions(server_name=...)", ""),
    ("TlsOptions(ca_file=...)", "tls.caCert"),
    ("TlsOptions(certificate=..., key=...)", "tls.clientCert and tls.clientKey"),
    ("TlsOptions(certificate=...)", "tls.clientCert and tls.clientKey"),
    ("use an amqp:// URL", "leave tls out"),
    ("use an amqps:// URL", "give the connector tls"),
    (", or leave user, password and token out if everybody may come in there", ", or leave credentials out"),
)
"""The client's words for what to do, and those of a connector."""


def in_our_words(error: EnmasseError, place: Url | None) -> str:
    """Return why the client is not let in at a place, or no more, in the words of a connector's fields.

    Where a server sends its clients is for the connector's owner to judge: it is told, never followed.
    """
    text = str(error)
    if isinstance(error, ConnectionDeniedError):
        text = text[:MAX_WORDS]
        if error.condition == REDIRECT and place is not None:
            leads_to = redirected(place, error.info)
            if leads_to is not None:
                return f"the server sends clients on to {str(leads_to)[:MAX_WORDS]}: name that in endpointHosts"
    for client, ours in _WORDS:
        text = text.replace(client, ours)
    return text


@dataclass(frozen=True, slots=True)
class Remote:
    """A server of a connector, as whom to come, and whom to trust.

    Attributes:
        host: its name or address.
        port: its port.
        is_tls: true if the connection is protected by TLS.
        authorities: the authorities that may vouch for it, in PEM; empty: those of the machine.
        certificate: our certificate, with its chain, in PEM; empty: none.
        key: the key of that, in PEM.
        username: who we are; empty: nobody.
        password: the password of that.
        idle_timeout_s: seconds of its silence after which the connection counts as lost; 0: never; None: our own.
        max_frame_size: the most bytes of a frame that it may send; None: our own.
    """

    host: str
    port: int
    is_tls: bool = False
    authorities: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)
    username: str = ""
    password: str = field(default="", repr=False)
    idle_timeout_s: int | None = None
    max_frame_size: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Remote:
        """Return the server that a map of management describes.

        Raises:
            ConfigError: a value is none of its kind.
        """
        texts = {name: given.get(name) or "" for name in _TEXTS}
        numbers = {name: given.get(name) for name in ("port", "idleTimeout", "maxFrameSize")}
        for name, value in texts.items():
            if not isinstance(value, str):
                raise ConfigError(f"{name} is a text, not {type(value).__name__}")
        for name, value in numbers.items():
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ConfigError(f"{name} is a number, not {value!r:.100}")
        port, idle, frame = numbers.values()
        if not texts["host"] or port is None:
            raise ConfigError("a server has a host and a port")
        return cls(port=port, is_tls=bool(given.get("tls")), idle_timeout_s=idle, max_frame_size=frame, **texts)

    @property
    def url(self) -> Url:
        """The place to connect to."""
        return Url(scheme="amqps" if self.is_tls else "amqp", host=self.host.strip("[]"), port=self.port)

    def trust(self) -> ssl.SSLContext:
        """Return whom to trust and what to show.

        Raises:
            ConfigError: authorities, certificate or key are none.
        """
        try:
            context = new_trust(self.authorities or None)
        except ValueError as error:
            raise ConfigError(f"tls.caCert: {error}") from None
        if self.certificate:
            with ExitStack() as held:
                certificate, key = (_in_memory(text, held) for text in (self.certificate, self.key))
                try:
                    # Without a password OpenSSL would ask for one on the terminal.
                    context.load_cert_chain(certificate, key, password="")
                except (OSError, ValueError) as error:
                    reason = getattr(error, "reason", None) or str(error)
                    raise ConfigError(
                        "tls.clientCert and tls.clientKey: expected a certificate with its chain and its own key, "
                        f"both PEM and without a password: {reason}"
                    ) from None
        return context

    def options(self, reach: Reach, container_id: str) -> Options:
        """Return how the client connects.

        Args:
            reach: where connections of connectors may go.
            container_id: the name of ours.

        Raises:
            ConfigError: as for ``trust``.
        """

        async def connect(url: Url) -> socket.socket:
            return await connect_to(await reach.addresses(url.host, url.port), url.port)

        context = self.trust() if self.is_tls else None
        given: dict[str, Any] = {} if self.max_frame_size is None else {"max_frame_size": self.max_frame_size}
        if self.idle_timeout_s is not None:
            given["idle_timeout_s"] = float(self.idle_timeout_s)
        return Options(
            places=(self.url,),
            container_id=container_id,
            user=self.username or None,
            password=self.password or None,
            # Who has both proves itself by the password.
            sasl=("EXTERNAL", "ANONYMOUS") if self.certificate and not self.username else None,
            tls=context,
            context=context,
            connect=connect,
            **given,
        )


def check_connectors(given: Mapping[str, Any]) -> None:
    """Check the attribute of a space.

    Raises:
        ConfigError: a connector is not described as ``Remote`` reads it.
    """
    for name, one in given.items():
        if not isinstance(one, dict) or not isinstance(one.get("servers"), list):
            raise ConfigError(f"connector {name!r:.100} is a map with a list of servers")
        if not 1 <= len(one["servers"]) <= MAX_SERVERS:
            raise ConfigError(f"connector {name!r:.100} has 1 to {MAX_SERVERS} servers")
        patterns = one.get("patterns", [])
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ConfigError(f"connector {name!r:.100}: patterns is a list of strings")
        origins = one.get("origins", {})
        if not isinstance(origins, dict) or not all(isinstance(origin, str) for origin in origins.values()):
            raise ConfigError(f"connector {name!r:.100}: origins is a map of strings")
        remotes_of(one)


def remotes_of(given: Mapping[str, Any]) -> list[Remote]:
    """Return the servers of a connector that a map of management describes, the preferred one first.

    Raises:
        ConfigError: a value is none of its kind.
    """
    shared = {key: value for key, value in given.items() if key not in ("servers", "patterns")}
    found = []
    for server in given["servers"]:
        if not isinstance(server, dict):
            raise ConfigError("a server is a map with host and port")
        found.append(Remote.read(shared | {key: server.get(key) for key in _OF_SERVERS}))
    return found


def _in_memory(text: str, held: ExitStack) -> str:
    """Return the path of a file in memory, for as long as it is held: OpenSSL reads certificates from files alone."""
    number = os.memfd_create("pem")
    held.callback(os.close, number)
    os.write(number, text.encode())
    return f"/proc/self/fd/{number}"
