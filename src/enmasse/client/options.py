"""The arguments of ``connect``, once they are read: URLs, TLS, credentials, and the rest.

Of the credentials follow the SASL mechanisms to use at a place, the best first.
"""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from enmasse.client.errors import TlsError, UrlError
from enmasse.wire.amqp.connection_output import MAX_FRAME_SIZE
from enmasse.wire.amqp.performatives import Composite, SaslMechanisms
from enmasse.wire.amqp.sasl import SaslClient
from enmasse.wire.sasl.mechanisms import (
    Anonymous,
    ClientMechanism,
    External,
    OAuthBearer,
    SaslCode,
    XOAuth2,
    password_mechanisms,
)

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
    """The path and query to ask a WebSocket server for."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    address: str | None = None
    """The address that the URL's path names."""
    hostname: str | None = None
    """The host to ask for there, if that is not ``host``; where a redirect leads to."""

    @property
    def is_tls(self) -> bool:
        """True if TLS protects the connection."""
        return self.scheme in {"amqps", "amqpwss"}

    @property
    def is_websocket(self) -> bool:
        """True if WebSocket carries the connection."""
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


EXPIRED, NOT_YET_VALID, SELF_SIGNED, SELF_SIGNED_CA, NO_ISSUER, NO_FIRST = 10, 9, 18, 19, 20, 21
WRONG_HOST, WRONG_IP = 62, 64
"""Codes of X509_verify_cert_error."""

ALERTS_ABOUT_US = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
)
"""Alerts of a server that wants a client certificate, or another one."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The protection of a connection; without any option the system's authorities are trusted.

    For anything else give ``connect`` an ``ssl.SSLContext`` of your own.
    """

    ca_file: str | Path | None = None
    """PEM file of the authorities to trust instead of the system's (``enmasse ca`` prints a node's own)."""
    certificate: str | Path | None = None
    """PEM file of our own certificate and its chain, for servers that want one (SASL EXTERNAL)."""
    key: str | Path | None = None
    """PEM file of its private key; by default it is in the same file."""
    key_password: str | None = field(default=None, repr=False)
    """The password of the key, if it is encrypted."""
    server_name: str | None = None
    """The name that the server's certificate must have, and that it is asked for; by default the URL's host."""
    verify: bool = True
    """True if the server must prove its identity. Without, anybody between can read and change everything."""

    def context(self) -> ssl.SSLContext:
        """Return the context for it; TLS 1.2 at least.

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
    """Return the context for the ``tls`` of ``connect``.

    Raises:
        TlsError: see ``TlsOptions.context``.
    """
    return tls if isinstance(tls, ssl.SSLContext) else (tls or TlsOptions()).context()


def has_certificate(tls: TlsOptions | ssl.SSLContext | None) -> bool:
    """Return true if a certificate of our own is known to be there."""
    return isinstance(tls, TlsOptions) and tls.certificate is not None


def is_verifying(tls: TlsOptions | ssl.SSLContext | None) -> bool:
    """Return true if a server has to prove by its certificate that it is the one that was meant."""
    if isinstance(tls, ssl.SSLContext):
        return tls.verify_mode is ssl.CERT_REQUIRED and tls.check_hostname
    return tls is None or tls.verify


def explain_tls(error: BaseException, url: Url, server_name: str) -> TlsError:
    """Return an error that says what a failed handshake means, and what to do."""
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


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a connection; for what is not explained here see ``connect``."""

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
    max_frame_size: int = MAX_FRAME_SIZE
    connect: Callable[[Url], Awaitable[socket.socket]] | None = None
    """Makes the socket to a place; by default it is connected to any address of the host."""
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


GIVE = "give user= and password=, or a certificate in TlsOptions"
"""The end of errors about a missing name; who connects for others says it in their words."""

RISK = " (or allow_insecure_plain=True where the network is safe)"
"""The end of errors about secrets in the clear; the same."""


class Authentication(SaslClient):
    """The client's side of SASL for one carrier.

    A password or a token never leaves this machine as it is unless that was allowed, or TLS has shown who gets it:
    what would show it is left out otherwise. With a user given, ANONYMOUS is used only if it was asked for.
    ``on_admitted`` is called when the server has let us in.
    """

    def __init__(self, options: Options, url: Url, on_admitted: Callable[[], None]) -> None:
        self._on_admitted = on_admitted
        is_trusted = bool(url.path) or (url.is_tls and is_verifying(options.tls))
        self._is_tapped = not (is_trusted or options.allow_insecure_plain)
        self._is_tls = url.is_tls
        self._takes_any = options.sasl is None
        self._usable = _mechanisms(options, url, with_secrets=not self._is_tapped)
        self._is_known = (
            options.user is not None
            or url.user is not None
            or options.token is not None
            or has_certificate(options.tls)
        )
        self.hostname = url.hostname or options.hostname or url.host or None
        """The host, and so the space, that is asked for."""
        super().__init__(self._usable, self.hostname)

    @property
    def is_passing(self) -> bool:
        """True if the server refused for reasons of its own, not for our credentials."""
        return self.code in (SaslCode.SYS, SaslCode.SYS_PERM, SaslCode.SYS_TEMP)

    def receive(self, frame: Composite) -> list[bytes]:
        """Return the frames to send after a frame of the peer; see ``SaslClient``."""
        answer = super().receive(frame)
        if isinstance(frame, SaslMechanisms) and self.error is not None:
            self.error = self._explain(frame.mechanisms)
        elif self.code is SaslCode.AUTH and self.mechanism is not None:
            asked = f" for host {self.hostname!r}" if self.hostname else ""
            self.error = f"the server refused the credentials ({self.mechanism.name}){asked}"
            if self.mechanism.name == "ANONYMOUS":
                self.error = f"the server lets nobody in without a name: {GIVE}"
        elif self.code is SaslCode.OK and self.error is None:
            self._on_admitted()
        return answer

    def _explain(self, offered: Sequence[str]) -> str:
        """Return the reason that none of the server's mechanisms can be used."""
        offers = f"the server offers {', '.join(offered) or 'no mechanism'}"
        showing = [name for name in ("PLAIN", "OAUTHBEARER", "XOAUTH2") if name in offered]
        if showing and self._is_known and self._is_tapped:
            whom, how = "the network", "use an amqps:// URL"
            if self._is_tls:
                whom, how = "an unverified server", "have its certificate verified, as by TlsOptions(ca_file=...)"
            return f"{offers}, and {showing[0]} would show your secret to {whom}: {how}{RISK}"
        if not self._is_known:
            return f"{offers}: {GIVE}"
        if "ANONYMOUS" in offered and self._takes_any:
            return (
                f"{offers}, where nobody's credentials are looked at: check which space the host"
                f" {self.hostname!r} names, or leave user, password and token out if everybody may come in there"
            )
        names = [mechanism.name for mechanism in self._usable]
        return f"{offers}, and none of {', '.join(names) or 'what was asked for'}"


def _mechanisms(options: Options, url: Url, *, with_secrets: bool) -> list[ClientMechanism]:
    """Return the mechanisms that can be used at a place, the best first.

    Args:
        options: the options, with the user and the proof.
        url: the URL of that place; it may name another user.
        with_secrets: whether a password or token may be sent as it is.
    """
    user = options.user if options.user is not None else url.user
    password = (options.password if options.password is not None else url.password) or ""
    token = options.token() if callable(options.token) else options.token
    asked = options.sasl
    found: list[ClientMechanism] = []
    if has_certificate(options.tls) or asked is not None:
        found.append(External())
    if token is not None and with_secrets:
        found.append(OAuthBearer(token, user or "", url.host, url.port))
        if user is not None:
            found.append(XOAuth2(user, token))
    if user is not None and token is None:
        found += password_mechanisms(user, password, secrets.token_urlsafe, with_plain=with_secrets)
    if asked is None:
        if user is None and token is None:
            found.append(Anonymous())
        return found
    found.append(Anonymous())
    by_name = {mechanism.name: mechanism for mechanism in found}
    return [by_name[name] for name in asked if name in by_name]
