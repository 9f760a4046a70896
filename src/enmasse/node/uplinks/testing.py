"""The test of a connector's server: the steps of a connection, each with its time, and what failed with the remedy.

Rules:
1. Nothing is sent but what a connection needs, and nothing is taken: the link that is attached has no credit.
2. A test ends: each step has a limit, and only so many tests run at a time.
3. Of a certificate that is not trusted it is told what it says. It is looked at on a connection of its own, which
   shows nothing of ours.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509

from enmasse.client.carrier import UNAUTHORIZED, Carrier
from enmasse.client.errors import ConnectionDeniedError, DeadlineError, TlsError
from enmasse.errors import ConfigError, EnmasseError
from enmasse.net.egress import EgressError, connect_to
from enmasse.net.tls_names import chain_of
from enmasse.node.errors import EntityError
from enmasse.node.uplinks.remote import MAX_WORDS, NAME_US, Remote, in_our_words
from enmasse.wire.amqp.performatives import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enmasse.client.carrier import Step
    from enmasse.client.options import Url
    from enmasse.message.outcomes import AmqpError
    from enmasse.net.egress import Reach
    from enmasse.wire.amqp.link import Link
    from enmasse.wire.amqp.performatives import Attach, Open

LOOKUP_S: Final = 5.0
"""Seconds that a name may take to be looked up."""

OPEN_S: Final = 10.0
"""Seconds for TLS, SASL and the open of AMQP together."""

ATTACH_S: Final = 10.0
"""Seconds for an attach."""

MAX_TESTS: Final = 8
"""The tests that run at a time."""

MAX_TESTS_OF_SPACE: Final = 2
"""Those of one space."""

MAX_LOOKUPS: Final = 2
"""The names that are looked up at a time. The loop has four threads for that, which logins by providers need too, and
a lookup keeps one for as long as its name's server likes."""

MAX_CERTIFICATES: Final = 5
"""The certificates of a chain that are described."""

SOON_DAYS: Final = 14
"""A certificate that ends sooner is remarked upon."""

_NO_AMQP: Final = "does that port speak AMQP 1.0?"
_PERHAPS_TLS: Final = "does that port speak AMQP 1.0, or want TLS? Then give the connector tls"

_log = logging.getLogger(__name__)


class ConnectorTests:
    """The tests of connectors' servers that a node is asked for.

    Args:
        reach: where connections of connectors may go.
        container_id: the name of our end.
    """

    def __init__(self, reach: Reach, container_id: str) -> None:
        self._reach = replace(reach, lookup=self._look_up)
        self._lookup = reach.lookup
        self._lookups = asyncio.Semaphore(MAX_LOOKUPS)
        self._looking: set[asyncio.Future[Sequence[str]]] = set()
        self._container_id = container_id
        self._running: dict[asyncio.Task[None], str] = {}

    def start(self, space: str, body: Any, answer: Callable[[dict[str, Any] | EntityError], None]) -> None:
        """Test one server, which the body of a request describes, and answer with its steps once that is over.

        Raises:
            EntityError: 400 it describes none, 503 too many tests run.
        """
        given = body if isinstance(body, dict) else {}
        address = given.get("address") or ""
        if not isinstance(address, str):
            raise EntityError(400, f"address is a text, not {address!r:.100}")
        try:
            remote = Remote.read(given)
        except ConfigError as error:
            raise EntityError(400, str(error)) from None
        others = list(self._running.values())
        if len(others) >= MAX_TESTS or others.count(space) >= MAX_TESTS_OF_SPACE:
            raise EntityError(503, "other connectors are tested already: try again in a moment")

        async def run() -> None:
            test = _Test(remote, address, self._reach, self._container_id)
            try:
                answer({"steps": await test.run()})
            except Exception:  # noqa: BLE001  # whoever asks is answered
                _log.exception("the test of a connector's server failed")
                answer(EntityError(500, "the test itself failed; the log of the node says more"))

        task = asyncio.create_task(run(), name=f"test of {remote.host}")
        self._running[task] = space
        task.add_done_callback(self._running.pop)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; a lookup for which nobody waits any more keeps its place until it ends."""
        has_begun = False

        async def look_up() -> Sequence[str]:
            nonlocal has_begun
            async with self._lookups:
                has_begun = True
                return await self._lookup(host, port)

        looking = asyncio.ensure_future(look_up())
        self._looking.add(looking)
        looking.add_done_callback(self._looking.discard)
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            if not has_begun:
                looking.cancel()
            raise

    async def stop(self) -> None:
        """Cancel the tests that run."""
        left: list[asyncio.Future[Any]] = [*self._running, *self._looking]
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class _FailedError(Exception):
    """A step has failed; the sentence says why, and what to do.

    Attributes:
        step: the step; empty: the one that is next.
    """

    def __init__(self, why: str, step: str = "") -> None:
        super().__init__(why)
        self.step = step


@dataclass
class _Attaching:
    """The sink of the one link that is attached."""

    answered: asyncio.Future[Attach] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def on_attached(self, link: Link) -> None:
        """The server has answered: without a source it refuses, and a detach follows."""
        remote = link.remote_attach
        if remote is not None and remote.source is not None and not self.answered.done():
            self.answered.set_result(remote)

    def on_detached(self, _link: Link, error: AmqpError | None) -> None:
        """The server has refused, or the connection has ended."""
        if not self.answered.done():
            why = "the server gives no reason" if error is None else f"{error.condition}: {error.description or ''}"
            self.answered.set_exception(_FailedError(why[:MAX_WORDS]))


class _Test:
    def __init__(self, remote: Remote, address: str, reach: Reach, container_id: str) -> None:
        self._remote = remote
        self._address = address
        self._reach = reach
        self._container_id = container_id
        self._steps: list[dict[str, Any]] = []
        self._names = [
            "DNS",
            "TCP",
            *(["TLS"] if remote.is_tls else []),
            "SASL",
            "open",
            *(["attach"] if address else []),
        ]
        self._began = 0.0

    async def run(self) -> list[dict[str, Any]]:
        """Return the steps, of which the last may have failed; those after it are not there."""
        self._began = time.monotonic()
        try:
            await self._connect()
        except _FailedError as error:
            self._note(str(error), has_failed=True, step=error.step)
        except EnmasseError as error:
            self._note(in_our_words(error, self._remote.url), has_failed=True)
        return self._steps

    def _note(self, text: str, *, has_failed: bool = False, step: str = "") -> None:
        now = time.monotonic()
        name = step or self._names[len(self._steps)]
        self._steps.append(
            {"step": name, "succeeded": not has_failed, "milliseconds": (now - self._began) * 1000, "message": text}
        )
        self._began = now

    async def _connect(self) -> None:
        remote = self._remote
        try:
            options = remote.options(self._reach, self._container_id)
        except ConfigError as error:
            raise _FailedError(str(error), "TLS") from None
        self._began = time.monotonic()  # certificates are read: now it is the server's time
        addresses = await self._look_up()
        many = f"{len(addresses)} addresses" if len(addresses) > 1 else "an address"
        self._note(f"{remote.host} has {many} that connectors may go to")
        made = await self._dial(addresses)
        self._note(f"port {remote.port} takes connections")

        async def connected(_url: Url) -> socket.socket:
            return made

        carrier: Carrier | None = None

        def on_step(step: Step) -> None:
            assert carrier is not None
            if step == "TLS":
                self._note(_described(carrier.tls))
            elif step == "SASL":
                self._note(f"let in {_as_whom(remote)} by {carrier.mechanism}")
            elif carrier.remote is not None:
                self._note(_introduced(carrier.remote))

        options = replace(options, connect=connected)
        carrier = Carrier(options, remote.url, lambda _carrier, _error: None, on_step=on_step)
        try:
            await carrier.dial(OPEN_S)
        except EnmasseError as error:
            # A server opens a connection that it refuses, and closes it at once.
            if len(self._steps) > self._names.index("open"):
                self._steps.pop()
            raise _FailedError(await self._explained(error, addresses)) from None
        try:
            if self._address:
                await self._attach(carrier)
        finally:
            await carrier.close()

    async def _look_up(self) -> Sequence[str]:
        host, port = self._remote.host, self._remote.port
        try:
            async with asyncio.timeout(LOOKUP_S):
                return await self._reach.addresses(host, port)
        except TimeoutError:
            raise _FailedError(
                f"{host} was not looked up within {LOOKUP_S:g} s: does this machine's DNS answer?"
            ) from None
        except socket.gaierror as error:
            raise _FailedError(f"the name {host} is not known ({error.strerror}): is it spelt so?") from None
        except EgressError as error:
            raise _FailedError(str(error)) from None

    async def _dial(self, addresses: Sequence[str]) -> socket.socket:
        host, port = self._remote.host, self._remote.port
        try:
            return await connect_to(addresses, port)
        except TimeoutError:
            why = "no answer: does a firewall drop it, or is the machine down?"
        except ConnectionRefusedError:
            why = "connection refused: nothing listens there; is it started, and is that its port?"
        except OSError as error:
            why = error.strerror or str(error)
        raise _FailedError(f"{host}, port {port}: {why}")

    async def _explained(self, error: EnmasseError, addresses: Sequence[str]) -> str:
        """Return why a server that takes connections does not let us in."""
        is_tls, step = self._remote.is_tls, self._names[len(self._steps)]
        text = in_our_words(error, self._remote.url)
        if isinstance(error, TlsError):
            return text + await self._shown(addresses)
        if isinstance(error, ConnectionDeniedError):
            # Some let everybody in, and look only then.
            is_nobody = step == "open" and not (self._remote.username or self._remote.certificate)
            hint = f": {NAME_US}" if is_nobody and error.condition == UNAUTHORIZED else ""
            return text[:MAX_WORDS] + hint
        if isinstance(error, DeadlineError):
            text = f"no answer within {OPEN_S:g} s"
        elif step != "SASL" or is_tls:
            return text
        hints = {"TLS": "does that port speak TLS?", "SASL": _NO_AMQP if is_tls else _PERHAPS_TLS}
        return f"{text}: {hints[step]}" if step in hints else text

    async def _shown(self, addresses: Sequence[str]) -> str:
        """Return what the certificate says that a server shows, as another sentence; empty if it shows none."""
        look = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        look.check_hostname, look.verify_mode = False, ssl.CERT_NONE
        loop, name = asyncio.get_running_loop(), self._remote.url.host
        try:
            async with asyncio.timeout(OPEN_S):
                made = await connect_to(addresses, self._remote.port)
                transport, _ = await loop.create_connection(
                    asyncio.Protocol, sock=made, ssl=look, server_hostname=name
                )
        except OSError:  # and TimeoutError
            return ""
        try:
            return f". It shows {_certificates(transport.get_extra_info('ssl_object'))}"
        finally:
            transport.abort()

    async def _attach(self, carrier: Carrier) -> None:
        sink = _Attaching()
        assert carrier.session is not None
        self._began = time.monotonic()
        link = carrier.session.attach_receiver("enmasse-connector-test", sink, Source(address=self._address))
        try:
            async with asyncio.timeout(ATTACH_S):
                attach = await sink.answered
        except TimeoutError:
            raise _FailedError(f"no answer within {ATTACH_S:g} s to a receiver of {self._address!r:.100}") from None
        except _FailedError as error:
            raise _FailedError(f"a receiver of {self._address!r:.100} is refused: {error}") from None
        size = attach.max_message_size
        most = f", messages up to {size} bytes" if size else ""
        self._note(f"a receiver of {self._address!r:.100} is attached{most}; it had no credit, and took nothing")
        link.detach()


def _as_whom(remote: Remote) -> str:
    if remote.username:
        return f"as {remote.username!r:.100}"
    return "by certificate" if remote.certificate else "as nobody in particular"


def _introduced(remote: Open) -> str:
    """Return what a server says of itself."""
    told = remote.properties or {}
    product = (
        " ".join(str(told[name]) for name in ("product", "version") if name in told) or "a product without a name"
    )
    idle = "" if remote.idle_time_out is None else f", idle after {remote.idle_time_out / 1000:g} s"
    room = f"frames up to {remote.max_frame_size} bytes, {remote.channel_max + 1} sessions"
    return f"{product[:MAX_WORDS]}, container {remote.container_id!r:.100}: {room}{idle}"


def _described(tls: ssl.SSLObject | None) -> str:
    if tls is None:
        return ""
    cipher = tls.cipher()
    return f"{tls.version()}, {cipher[0] if cipher else 'no cipher'}; {_certificates(tls)}"


def _certificates(tls: ssl.SSLObject) -> str:
    """Return the chain that a server shows: whose each certificate is, from whom, and how long it holds."""
    chain = chain_of(tls)
    found = [_certificate(each) for each in chain[:MAX_CERTIFICATES]]
    more = f", and {len(chain) - len(found)} more" if len(chain) > len(found) else ""
    return f"{'; below '.join(found)}{more}" if found else "no certificate"


def _certificate(der: bytes) -> str:
    try:
        return _read_certificate(x509.load_der_x509_certificate(der))
    except ValueError as error:
        return f"a certificate that cannot be read ({str(error)[:100]})"


def _read_certificate(found: x509.Certificate) -> str:
    names: list[str] = []
    with suppress(x509.ExtensionNotFound, ValueError):
        extension = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [
            *extension.get_values_for_type(x509.DNSName),
            *map(str, extension.get_values_for_type(x509.IPAddress)),
        ]
    ends = found.not_valid_after_utc
    days = (ends - datetime.now(UTC)).days
    left = f"ended {ends:%Y-%m-%d}" if days < 0 else f"ends {ends:%Y-%m-%d}"
    soon = f", in {days} days" if 0 <= days < SOON_DAYS else ""
    for_names = f" for {', '.join(names)[:MAX_WORDS]}" if names else ""
    subject, issuer = (each.rfc4514_string()[:100] for each in (found.subject, found.issuer))
    return f"{subject}{for_names} (from {issuer}, {left}{soon})"
