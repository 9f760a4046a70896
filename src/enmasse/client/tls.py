"""TLS: whom to trust, who we are, and what it means when the handshake fails."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from enmasse.client.errors import TlsError
from enmasse.client.url import Url

__all__ = ["TlsOptions", "explain_tls", "has_certificate", "make_context"]

EXPIRED, NOT_YET_VALID, SELF_SIGNED, SELF_SIGNED_CA, NO_ISSUER, NO_FIRST = 10, 9, 18, 19, 20, 21
WRONG_HOST, WRONG_IP = 62, 64
"""What X509_verify_cert_error answers."""

ALERTS_ABOUT_US = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
)
"""Alerts by which a server tells that it wants a client certificate, or another one."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How to protect a connection; without any of it the system's authorities are trusted.

    For anything else give ``connect`` an ``ssl.SSLContext`` of your own.
    """

    ca_file: str | Path | None = None
    """PEM file of the authorities to trust instead of the system's (``enmasse ca`` prints a node's own)."""
    certificate: str | Path | None = None
    """PEM file of our own certificate and its chain, for servers that want one (SASL EXTERNAL)."""
    key: str | Path | None = None
    """PEM file of its private key; by default it is in the same file."""
    key_password: str | None = field(default=None, repr=False)
    """What opens the key, if it is encrypted."""
    server_name: str | None = None
    """The name that the server's certificate must have, and that it is asked for; by default the URL's host."""
    verify: bool = True
    """Whether the server must prove who it is. Without, anybody between can read and change everything."""

    def context(self) -> ssl.SSLContext:
        """The context for it; TLS 1.2 at least.

        Raises:
            TlsError: a file cannot be read, or is not what it should be.
        """
        try:
            context = ssl.create_default_context(cafile=None if self.ca_file is None else str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise TlsError(f"cannot read authorities from {self.ca_file} (a PEM file?): {_reason(error)}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate is not None:
            key = self.key or self.certificate
            try:
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(str(self.certificate), str(key), self.key_password or "")
            except (OSError, ssl.SSLError) as error:
                raise TlsError(
                    f"cannot use the certificate {self.certificate} with the key {key}"
                    f" (PEM files that belong together, key_password given if need be?): {_reason(error)}"
                ) from error
        elif self.key is not None:
            raise TlsError(f"the key {self.key} needs its certificate: give TlsOptions(certificate=...) too")
        return context


def make_context(tls: TlsOptions | ssl.SSLContext | None) -> ssl.SSLContext:
    """The context for what was given to ``connect``.

    Raises:
        TlsError: see ``TlsOptions.context``.
    """
    return tls if isinstance(tls, ssl.SSLContext) else (tls or TlsOptions()).context()


def has_certificate(tls: TlsOptions | ssl.SSLContext | None) -> bool:
    """Whether a certificate of our own is known to be there."""
    return isinstance(tls, TlsOptions) and tls.certificate is not None


def explain_tls(error: BaseException, url: Url, server_name: str) -> TlsError:
    """Say what a failed handshake means, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"{url} is not to be trusted: {_distrust(error, server_name)}")
    reason = getattr(error, "reason", None) or ""
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"):
        return TlsError(f"{url} does not speak TLS: check the port, or use an amqp:// URL")
    if any(reason.endswith(alert) for alert in ALERTS_ABOUT_US):
        return TlsError(
            f"{url} refused our certificate ({reason.lower().replace('_', ' ')}): give TlsOptions(certificate=...,"
            " key=...) of an authority that it trusts"
        )
    if isinstance(error, ssl.SSLError):
        return TlsError(f"{url} and we found no way to speak TLS: {_reason(error)}")
    return TlsError(f"{url} hung up during the TLS handshake: does that port speak TLS?")


def _distrust(error: ssl.SSLCertVerificationError, server_name: str) -> str:
    code = error.verify_code
    if code == EXPIRED:
        return "its certificate has expired: have it renewed (or set this machine's clock)"
    if code == NOT_YET_VALID:
        return "its certificate is not valid yet: set this machine's clock, or the server's"
    if code in (WRONG_HOST, WRONG_IP):
        return (
            f"its certificate is not for {server_name!r}: connect by a name that it has, or give"
            " TlsOptions(server_name=...)"
        )
    if code in (SELF_SIGNED, SELF_SIGNED_CA, NO_ISSUER, NO_FIRST):
        return (
            "its certificate comes from an authority that is not known here: give TlsOptions(ca_file=...) with that"
            f" authority's certificate ({error.verify_message})"
        )
    return f"its certificate was not accepted: {error.verify_message}"


def _reason(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)
