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

Beside the operator's authorities there may be others, for some hosts alone (``HostAuthorities``). Where clients are
asked for certificates they are given no tickets to resume their sessions with: OpenSSL would take them at another
host, and after an authority is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from enmasse.errors import ConfigError
from enmasse.identity.authorities import AuthorityId, verified_end
from enmasse.net.authority_folder import AuthorityFolder
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

MAX_CONTEXTS = 500
"""Contexts of hosts with authorities of their own that are kept: 25 KB each, and 0.6 ms to make one anew."""

MAX_AT_ONCE = 50
"""Authorities that are made and put into the folder while everything else waits: 0.5 ms each."""

State = dict[str, tuple[int, int, int]]
"""The modification time, size and inode of each file, by name."""

_log = logging.getLogger(__name__)


class HostAuthorities(Protocol):
    """Further authorities that may vouch for clients, depending on the host that these name.

    Attributes:
        changed: to be called when others count for clients who name no host, and when there are the first; once more
            a moment later, if it returns true.
    """

    changed: Callable[[], bool]

    @property
    def is_empty(self) -> bool:
        """True if there are none for any host."""

    def exclude(self, operators: Collection[AuthorityId]) -> None:
        """Have those that have the name or the key of one of the operator's vouch for nobody."""

    def counting(self, most: int) -> tuple[list[bytes], bool]:
        """Return the certificates of those that count for clients who name no host, in DER.

        Args:
            most: the most certificates to make, beside those that were made before.

        Returns:
            And true if some are left to be made.
        """

    def of_host(self, host: str | None) -> tuple[bytes, ...] | None:
        """Return the certificates of those that count for a host, in DER; None: the same as for no host."""


class CertificateStore:
    """The certificates that a node shows its clients, and the authorities that vouch for theirs.

    Args:
        directory: see above.
        authorities: beside the operator's.
        folder: for the certificates of these, made if it is missing.

    Raises:
        ConfigError: the directory holds no certificate, or one that cannot be used.
    """

    def __init__(
        self, directory: Path, authorities: HostAuthorities | None = None, folder: Path | None = None
    ) -> None:
        self._directory = directory
        self._listed: State = {}
        self._own: list[str] = []
        self._listed_at = -1
        """The directory's modification time at the listing, if no later change can be missed."""
        self._seen = self._state()
        self._failed: object = None
        self._watch: asyncio.TimerHandle | None = None
        self._by_host: dict[str, str] = {}
        """The pair that is shown for each host."""
        self._pairs: dict[str, tuple[object, ssl.SSLContext, list[str]]] = {}
        """The state of each pair's files by name, with its context and hosts."""
        self._of_hosts: OrderedDict[tuple[str, tuple[bytes, ...]], ssl.SSLContext] = OrderedDict()
        """The contexts of pairs with the authorities of some hosts, the last used last."""
        self.clients_changed: Callable[[], object] = lambda: None
        """Called when other authorities than before vouch for the operator's clients."""
        self._clients: tuple[bytes, ...] = ()
        self._authorities = authorities
        self._folder = None if folder is None else AuthorityFolder(folder)
        self._first = ""
        self._stale: set[str] = set()
        """The pairs whose contexts know authorities that are gone, and are made anew when they are next used."""
        self._web_context: ssl.SSLContext
        self._load(self._seen)
        if authorities is not None:
            authorities.changed = self._authorities_changed

    def context(self, hello: bytes) -> ssl.SSLContext:
        """Return the context for a handshake that a client begins with ``hello``."""
        is_browser = WEB in hello and POST_HANDSHAKE_AUTH not in _extensions_of(hello)
        return self._web_context if is_browser else self._fresh(self._first)

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

    def vouches(self, chain: Sequence[bytes]) -> bool:
        """Return true if an authority of the operator's vouches for a client.

        Args:
            chain: the certificates that it has presented, in DER, its own first.
        """
        return verified_end(chain, self._clients) is not None

    def _authorities_changed(self) -> bool:
        """Take the authorities beside the operator's as they are now, for new handshakes; true: some are left."""
        if self._authorities is None or self._folder is None:
            return False
        found, is_more = self._authorities.counting(MAX_AT_ONCE)
        has_gone = self._folder.put(found)
        if has_gone or self._pairs[self._first][1].verify_mode == ssl.CERT_NONE:
            # A context keeps what it has read of the folder, and whether it asks at all.
            self._stale = set(self._pairs)
            self._fresh(self._first)
        return is_more

    def _fresh(self, name: str) -> ssl.SSLContext:
        """Return the context of a pair for clients who name no host with authorities of its own."""
        mark, context, hosts = self._pairs[name]
        if name in self._stale:
            self._stale.discard(name)
            try:
                context = self._make_context(name, self._clients)
            except ConfigError as error:
                # The files are being replaced. Whoever has gone vouches for nobody in any case: see ``vouches``.
                _log.error("TLS certificates stay as they were: %s", error)
            self._pairs[name] = mark, context, hosts
        return context

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
        clients = _read_clients(self._directory / CLIENTS) if CLIENTS in state else ()
        self._take_authorities(clients)
        by_host: dict[str, str] = {}
        pairs: dict[str, tuple[object, ssl.SSLContext, list[str]]] = {}
        for name in names:
            # There may be one for each of many spaces: what has not changed is not read again.
            files = [state.get(f"{name}.{kind}") for kind in ("crt", "key", "hosts")]
            mark = (*files, state.get(CLIENTS))
            pair = self._pairs.get(name)
            if pair is None or pair[0] != mark or name in self._stale:
                pair = mark, self._make_context(name, clients), hosts_of(self._directory / f"{name}.crt")
            pairs[name] = pair
            for host in pair[2]:
                by_host.setdefault(host, name)
        first = DEFAULT if DEFAULT in pairs else names[0]
        self._web_context = self._make_context(first, (), is_asking=False)
        has_changed = clients != self._clients
        self._pairs, self._by_host, self._first, self._clients = pairs, by_host, first, clients
        self._of_hosts.clear()
        self._stale.clear()
        if has_changed:
            self.clients_changed()

    def _take_authorities(self, clients: tuple[bytes, ...]) -> None:
        if self._authorities is not None and self._folder is not None:
            found = (x509.load_der_x509_certificate(each) for each in clients)
            self._authorities.exclude([AuthorityId.of_certificate(each) for each in found])
            counting, _ = self._authorities.counting(0)
            if self._folder.put(counting):
                self._stale = set(self._pairs)

    def _make_context(
        self,
        name: str,
        clients: tuple[bytes, ...],
        authorities: tuple[bytes, ...] | None = None,
        *,
        is_asking: bool = True,
    ) -> ssl.SSLContext:
        """Make a context that shows a pair.

        Args:
            name: the name of the pair.
            clients: the operator's authorities.
            authorities: beside them; None: those that count for clients who name no host.
            is_asking: whether it asks for certificates at all.
        """
        path = self._directory / f"{name}.crt"
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
        has_others = self._authorities is not None and not self._authorities.is_empty
        if is_asking and (clients or has_others):
            context.verify_mode = ssl.CERT_OPTIONAL
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET
            if authorities is None and self._folder is not None:
                context.load_verify_locations(capath=self._folder.path)
            if known := b"".join((*clients, *(authorities or ()))):
                try:
                    context.load_verify_locations(cadata=known)
                except (OSError, ValueError) as error:
                    raise ConfigError(f"authorities of clients cannot be used: {_reason(error)}") from None
        return context

    def _choose(self, tls: ssl.SSLObject | ssl.SSLSocket, host: str | None, given: ssl.SSLContext) -> int | None:
        """Show the certificate of the host that a client names, and have it verified by who may vouch there."""
        if host is not None:
            host = host.lower()
            if isinstance(tls, ServerTls):
                tls.asked_name = host
        name = self._found(host or "") or self._first
        try:
            found = self._context_of(name, host, given)
        except ConfigError as error:
            _log.error("a TLS handshake was refused: %s", error)
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        if found is not given:
            tls.context = found
            if isinstance(tls, ServerTls):
                tls.given = given
        return None

    def covers(self, host: str) -> bool:
        """Return true if one of the certificates is for a host, in lower case."""
        return self._found(host) is not None

    def _found(self, host: str) -> str | None:
        """Return the pair that is shown for a host."""
        return self._by_host.get(host) or self._by_host.get(wildcard_of(host))

    def _context_of(self, name: str, host: str | None, given: ssl.SSLContext) -> ssl.SSLContext:
        plain = self._fresh(name)
        if self._authorities is None or self._authorities.is_empty or given.verify_mode == ssl.CERT_NONE:
            return given if name == self._first and given.verify_mode == ssl.CERT_NONE else plain
        authorities = self._authorities.of_host(host)
        if authorities is None:
            return plain
        key = name, authorities
        found = self._of_hosts.get(key)
        if found is None:
            if len(self._of_hosts) >= MAX_CONTEXTS:
                self._of_hosts.popitem(last=False)
            found = self._of_hosts[key] = self._make_context(name, self._clients, authorities)
        self._of_hosts.move_to_end(key)
        return found


def _read_clients(path: Path) -> tuple[bytes, ...]:
    """Return the operator's authorities of clients, in DER."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be used: {_reason(error)}") from None
    return tuple(each.public_bytes(Encoding.DER) for each in found)


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
