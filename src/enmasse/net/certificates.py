"""The TLS certificates of a directory, chosen by the host that a client names, and reloaded when they change.

- ``NAME.crt`` with ``NAME.key``, both PEM: a certificate with its chain, for clients that name (SNI) one of the
  hosts in it. ``*.example.org`` stands for one label.
- ``NAME.hosts``, optional: the hosts for which that pair is shown, one to a line, whatever its certificate says.
  Pairs without it come first.
- ``default.crt`` with ``default.key``: for clients that name no host, or none of the others. Without it, the first
  pair by name.
- ``clients-ca.crt``, optional: who may vouch for clients. Clients are then asked for a certificate, and may come
  without one; a certificate of somebody else ends the handshake. Browsers are not asked: when they open a
  WebSocket they have nobody to choose a certificate, and would fail. They are clients that offer ``http/1.1``, and
  not to authenticate after the handshake, as curl and others do that may have a certificate.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enmasse.errors import ConfigError
from enmasse.net.tls_names import ServerTls

DEFAULT = "default"
CLIENTS = "clients-ca.crt"

CHECK_EVERY_S = 0.25
"""Seconds until a changed file is noticed, as a client may be waiting for a new endpoint; a check costs one ``stat``
for each file."""

REST = 20.0
"""The pause after a check, as a multiple of the time that it took."""

SETTLED_NS = 1_000_000_000
"""The age of a directory's last change from which on its listing is trusted."""

WEB = b"\x08http/1.1"
"""The ALPN name of HTTP in a client's hello; AMQP clients send none."""

POST_HANDSHAKE_AUTH = 49
"""The extension by which a client offers to authenticate after the handshake [RFC 8446 4.2.6]. Browsers do not send
it; in Firefox a user would have to turn it on."""

State = dict[str, tuple[int, int, int]]
"""The modification time, size and inode of each file, by name."""

_log = logging.getLogger(__name__)


class CertificateStore:
    """The certificates that a node shows its clients.

    Args:
        directory: see above.

    Raises:
        ConfigError: the directory holds no certificate, or one that cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listed: State = {}
        self._own: list[str] = []
        self._listed_at = -1
        """The directory's modification time at the listing, if no later change can be missed."""
        self._seen = self._state()
        self._failed: object = None
        self._watch: asyncio.TimerHandle | None = None
        self._by_host: dict[str, ssl.SSLContext] = {}
        self._pairs: dict[str, tuple[object, ssl.SSLContext, list[str]]] = {}
        """The state of each pair's files by name, with its context and hosts."""
        self._authorities: tuple[bytes, ...] = ()
        self._context: ssl.SSLContext
        self._web_context: ssl.SSLContext
        self._load(self._seen)

    def context(self, hello: bytes) -> ssl.SSLContext:
        """Return the context for a handshake that a client begins with ``hello``."""
        is_browser = WEB in hello and POST_HANDSHAKE_AUTH not in _extensions_of(hello)
        return self._web_context if is_browser else self._context

    def reload(self) -> bool:
        """Load the files as they are now, for new handshakes.

        Returns:
            False if they cannot be used; then everything stays as it was, and the log says why.
        """
        return self._take(self._state())

    def _take(self, seen: State) -> bool:
        try:
            self._load(seen)
        except ConfigError as error:
            if self._failed != seen:
                _log.error("TLS certificates stay as they were: %s", error)
            self._failed = seen
            return False
        self._seen = seen
        self._failed = None
        _log.info("TLS certificates were read anew from %s", self._directory)
        return True

    def trust(self, authorities: Iterable[bytes]) -> None:
        """Take certificates of clients that others vouch for, too, from the next handshake on.

        Args:
            authorities: certificates in DER; those of ``clients-ca.crt`` are left out, and what TLS cannot use.
        """
        own = self._clients()
        usable = filter(_is_usable, authorities)
        self._authorities = tuple(found for found in usable if _named_key(found) not in own)
        self._pairs = {}
        self.reload()

    def _clients(self) -> set[tuple[bytes, bytes]]:
        """Return names and keys of those in ``clients-ca.crt``."""
        try:
            found = x509.load_pem_x509_certificates((self._directory / CLIENTS).read_bytes())
        except (OSError, ValueError):
            return set()
        return {_named_key(each.public_bytes(Encoding.DER)) for each in found}

    def watch(self, rest_s: float = 0.0) -> None:
        """Check the files regularly, and reload them when they have changed.

        Args:
            rest_s: the least seconds until the first check.
        """
        self._watch = asyncio.get_running_loop().call_later(max(CHECK_EVERY_S, rest_s), self._check)

    def close(self) -> None:
        """Stop checking."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _check(self) -> None:
        began = time.perf_counter()
        seen = self._state()
        if seen not in (self._seen, self._failed):
            self._take(seen)
        self.watch((time.perf_counter() - began) * REST)

    def _state(self) -> State:
        """Return the state of the files, which differs after any change.

        Files with ``NAME.hosts`` are many and are always replaced, never changed in place: as long as the
        directory is as it was, so are they.
        """
        try:
            changed = self._directory.stat().st_mtime_ns
            if changed != self._listed_at:
                found = _list(self._directory)
                self._listed = {
                    name: entry for name, entry in found.items() if f"{name.rpartition('.')[0]}.hosts" in found
                }
                self._own = [name for name in found if name not in self._listed]
                # A change within the same tick of the file system's clock would look the same.
                self._listed_at = changed if time.time_ns() - changed > SETTLED_NS else -1
        except OSError:
            return {}  # it is being replaced
        own = {}
        for name in self._own:
            try:
                stat = (self._directory / name).stat()
            except OSError:
                continue  # it is being replaced
            own[name] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        return self._listed | own

    def _load(self, state: State) -> None:
        names = [name[:-4] for name in state if name.endswith(".crt") and name != CLIENTS]
        names.sort(key=lambda name: (f"{name}.hosts" in state, name))
        if not names:
            raise ConfigError(f"{self._directory} holds no certificate: put default.crt and default.key (PEM) there")
        clients = self._directory / CLIENTS if CLIENTS in state else None
        by_host: dict[str, ssl.SSLContext] = {}
        contexts: dict[str, ssl.SSLContext] = {}
        pairs: dict[str, tuple[object, ssl.SSLContext, list[str]]] = {}
        for name in names:
            # There may be one for each of many spaces: what has not changed is not read again.
            files = [state.get(f"{name}.{kind}") for kind in ("crt", "key", "hosts")]
            mark = (*files, state.get(CLIENTS))
            pair = self._pairs.get(name)
            if pair is None or pair[0] != mark:
                path = self._directory / f"{name}.crt"
                context = self._make_context(path, clients)
                pair = mark, context, hosts_of(path)
            pairs[name] = pair
            contexts[name] = pair[1]
            for host in pair[2]:
                by_host.setdefault(host, pair[1])
        self._pairs = pairs
        self._by_host = by_host
        first = DEFAULT if DEFAULT in contexts else names[0]
        self._context = contexts[first]
        self._web_context = self._make_context(self._directory / f"{first}.crt", None, is_asking=False)

    def _make_context(self, path: Path, clients: Path | None, *, is_asking: bool = True) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.sslobject_class = ServerTls
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.sni_callback = self._choose
        key = path.with_suffix(".key")
        try:
            context.load_cert_chain(path, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} and {key.name} cannot be used: {_reason(error)}") from None
        if self._authorities and is_asking:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=b"".join(self._authorities))
        if clients is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            try:
                context.load_verify_locations(clients)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{clients} cannot be used: {_reason(error)}") from None
        return context

    def _choose(self, tls: ssl.SSLObject | ssl.SSLSocket, host: str | None, _: ssl.SSLContext) -> None:
        """Show the certificate of the host that a client names."""
        if host is None:
            return
        host = host.lower()
        if isinstance(tls, ServerTls):
            tls.asked_name = host
        found = self._found(host)
        if found is not None:
            tls.context = found

    def covers(self, host: str) -> bool:
        """Return true if one of the certificates is for a host, in lower case."""
        return self._found(host) is not None

    def _found(self, host: str) -> ssl.SSLContext | None:
        return self._by_host.get(host) or self._by_host.get(wildcard_of(host))


def wildcard_of(host: str) -> str:
    """Return what a certificate has in the place of a host and all that are beside it."""
    return "*." + host.partition(".")[2]


def _extensions_of(hello: bytes) -> Iterator[int]:
    """Iterate over the numbers of a client's extensions [RFC 8446 4.1.2]."""
    at = 43  # behind the heads of record and message, the version and the random bytes
    for size in (1, 2, 1):  # of the lengths of session id, cipher suites and compression methods
        at += size + int.from_bytes(hello[at : at + size], "big")
    at += 2
    while at + 4 <= len(hello):
        yield int.from_bytes(hello[at : at + 2], "big")
        at += 4 + int.from_bytes(hello[at + 2 : at + 4], "big")


def _list(directory: Path) -> State:
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((".crt", ".key", ".hosts")):
                stat = entry.stat()
                found[entry.name] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


def _is_usable(certificate: bytes) -> bool:
    """Return true if TLS can verify others with a certificate: one that it cannot must not keep the others out."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=certificate)
    except (OSError, ValueError) as error:
        _log.warning("an authority of clients cannot be used: %s", error)
        return False
    return True


def _named_key(certificate: bytes) -> tuple[bytes, bytes]:
    """Return what makes an authority: its name and its key."""
    found = x509.load_der_x509_certificate(certificate)
    key = found.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found.subject.public_bytes(), key


def _no_password() -> str:
    raise ValueError("the key is encrypted, and nobody is here to give its password; store it without one")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def hosts_of(path: Path) -> list[str]:
    """Return the hosts for which a certificate is shown, in lower case; ``*.`` stands for one label.

    Raises:
        ConfigError: it cannot be read.
    """
    hosts = path.with_suffix(".hosts")
    try:
        if hosts.exists():
            return [line.strip().lower() for line in hosts.read_text(encoding="ascii").splitlines() if line.strip()]
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as a certificate: {error}") from None
    return [name.lower() for name in names.get_values_for_type(x509.DNSName)]
