"""The names of a TLS connection: those of the peer's certificate, who vouches for it, and the host that was named."""

from __future__ import annotations

import ssl
from typing import Any, Final

_DER: Final = 2
"""The form of certificates, as Python's own library numbers it."""


class ServerTls(ssl.SSLObject):
    """A server's TLS connection, which remembers the host that its client named.

    Have a context make it through ``context.sslobject_class``, and its ``sni_callback`` fill it in.
    """

    asked_name: str | None = None


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


def chain_ends_of(tls: ssl.SSLObject) -> tuple[bytes, bytes] | None:
    """Return the peer's verified certificate, and that of the authority at the end of its chain, in DER."""
    certificate = tls.getpeercert(binary_form=True)
    if certificate is None or tls.context.verify_mode == ssl.CERT_NONE:
        return None
    # Public from Python 3.13 on; there since 3.10.
    chain: Any = tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]  # noqa: SLF001
    return (certificate, chain[-1].public_bytes(_DER)) if chain else None
