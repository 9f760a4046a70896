"""The names of a TLS connection: those of the peer's certificate, with its chain, and the host that was named."""

from __future__ import annotations

import ssl
from typing import Any, Final

_DER: Final = 2
"""The form of certificates, as Python's own library numbers it."""


class ServerTls(ssl.SSLObject):
    """A server's TLS connection, which remembers the host that its client named.

    Have a context make it through ``context.sslobject_class``, and its ``sni_callback`` fill it in.

    Attributes:
        asked_name: the host, in lower case.
        given: the context that it began with, if the handshake goes on with another one.
    """

    asked_name: str | None = None
    given: ssl.SSLContext | None = None

    def forget_context(self) -> None:
        """Let go of the context of the handshake: that of one host would be kept as long as the connection is."""
        if self.given is not None:
            self.context, self.given = self.given, None


def server_name_of(tls: ssl.SSLObject) -> str | None:
    """Return the host that the client named (SNI), in lower case, on either side of a connection."""
    name = tls.asked_name if isinstance(tls, ServerTls) else tls.server_hostname
    return None if name is None else name.lower()


def peer_names_of(tls: ssl.SSLObject) -> tuple[str, ...]:
    """Return the names of the peer's verified certificate: common name first, then DNS names and mail addresses."""
    # Without verification this is empty, whatever certificate the peer has shown.
    certificate: Any = tls.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    names += [value for key, value in certificate.get("subjectAltName", ()) if key in {"DNS", "email"}]
    return tuple(dict.fromkeys(names))


def presented_chain_of(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """Return the certificates that a client has presented to a server, in DER, its own first; empty: it has none.

    What of it was verified, and by whom, is not said: a session that is resumed was verified when it began.
    """
    if not isinstance(tls, ServerTls) or tls.context.verify_mode == ssl.CERT_NONE:
        return ()
    return chain_of(tls)


def chain_of(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """Return the certificates that a peer has presented, in DER, its own first, verified or not."""
    # Public from Python 3.13 on; there since 3.10, with None in it for a client that has no certificate.
    chain: Any = tls._sslobj.get_unverified_chain()  # type: ignore[attr-defined]  # noqa: SLF001
    return tuple(each.public_bytes(_DER) for each in chain or () if each is not None)
