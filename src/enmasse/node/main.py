"""The node's process: arguments, signals, the talk with a supervisor, and the memory that it keeps.

With a supervisor the node writes one JSON line when snapshot and journal are loaded, and opens its
listeners when it reads its *word*, one JSON line with ``open``; so a reader of its ports finds the new process ids
first. The word has the secret by which the nodes of the installation know each other, too, in hexadecimal
(``peers``). End of file means that the supervisor has died: the node stops in order.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NamedTuple

from enmasse.errors import ConfigError, EnmasseError
from enmasse.messaging.transaction import TRANSACTION_TIMEOUT_S, TransactionLimits
from enmasse.net.egress import Reach
from enmasse.net.logs import set_up_logging
from enmasse.net.loop import run as run_loop
from enmasse.node.ports import PortOptions
from enmasse.node.protocols import PROTOCOLS, ProtocolRow, main_protocol
from enmasse.node.server import Server
from enmasse.node.tenancy import DOMAIN
from enmasse.node.users.gate import GateOptions
from enmasse.node.users.password_checker import PASSWORDS_SOCKET, SharedPlace
from enmasse.storage.presence import marker_path

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 << 20
"""A turn's worth of large messages. By default a quarter of what it costs to pass messages of 64 KiB goes into
handing memory back to the kernel and having it zeroed again."""
_MAPPED_FROM_BYTES = 16 << 20


def keep_heap() -> None:
    """Make the C library keep freed memory up to a bound; without effect if it is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


GC_THRESHOLDS = (20_000, 100, 50)
"""Many messages' worth of objects: with Python's own thresholds a tenth of the node's time goes into looking
for cycles. Not more, as a search through the new objects of thousands of clients that come at once holds up
everybody."""

MAX_SOCKET_PATH = 100
"""The longest path of a socket: the kernel takes 107 bytes."""


def run(
    data: Path,
    name: str,
    listen: list[ListeningPlace],
    admin: Path | None,
    supervised: bool,
    default_space: str | None = None,
    transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
    log_format: str = "text",
    users: Path | None = None,
    gate: GateOptions | None = None,
    ports: PortOptions | None = None,
    domain: str = DOMAIN,
    machine: frozenset[str] = frozenset(),
    management: tuple[str, Path] | None = None,
    reach: Reach | None = None,
    peers: tuple[Path, Path | None] | None = None,
    drain_delay_s: float = 0.0,
) -> int:
    """Run a node until it gets a signal to stop.

    Args:
        data: the installation's directory; the node's files lie in ``nodes/NAME`` below it.
        name: the node's name.
        listen: the ports for clients.
        admin: the administrator's socket; by default ``admin.sock`` among the node's files.
        supervised: report to a supervisor on standard output, and wait for its word on standard input; see above.
        default_space: ``NAMESPACE/SPACE`` of connections that name no space; by default the only one.
        transaction_timeout_s: the seconds that a transaction may go on before it is rolled back; 0 waits for ever.
        log_format: ``text`` or ``json``, for each line on standard error.
        users: the file of users, if there is one.
        gate: the operator's options for logins.
        ports: the operator's options for ports.
        domain: the domain of the spaces' hosts.
        machine: this machine's own names, in lower case.
        management: ``HOST:PORT`` for the control process on another machine, with the certificates for it.
        reach: where connectors may go; by default nowhere.
        peers: the directory of the sockets by which nodes reach each other, and the file with their secret; without
            a file it is in the supervisor's word.
        drain_delay_s: the time that it serves on after the signal to stop, without being ready; a second one ends it.

    Returns:
        0 after an orderly stop, 1 if it could not start.
    """
    set_up_logging(log_format)
    try:
        limits = TransactionLimits(timeout_s=transaction_timeout_s)
        run_loop(
            _main(
                data,
                name,
                listen,
                admin,
                supervised,
                default_space,
                limits,
                users,
                gate,
                ports,
                domain,
                machine,
                management,
                reach,
                peers,
                drain_delay_s,
            )
        )
    except EnmasseError as error:
        print(f"enmasse node: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


class ListeningPlace(NamedTuple):
    """A port for clients: its own protocol, its interface, its number, and its socket if that was inherited."""

    row: ProtocolRow
    host: str
    port: int
    inherited: socket.socket | None = None


def listening_place(text: str) -> ListeningPlace:
    """Parse ``[PROTOCOL=]HOST:PORT`` or ``[PROTOCOL=]fd:NUMBER``, an inherited descriptor; port 0 takes a free one.

    Raises:
        ConfigError: the text has another form, there is no such protocol, or the descriptor is no socket of a port.
    """
    named, equals, place = text.rpartition("=")
    row = PROTOCOLS.get(named) if equals else main_protocol(PROTOCOLS)
    if row is None:
        raise ConfigError(f"{named!r} is no protocol of clients: {' or '.join(PROTOCOLS)} is expected before the =")
    kind, _, number = place.rpartition(":")
    if kind != "fd" or not number.isdigit():
        return ListeningPlace(row, *_endpoint(place))
    try:
        inherited = socket.socket(fileno=int(number))
        if inherited.family in (socket.AF_INET, socket.AF_INET6) and inherited.type == socket.SOCK_STREAM:
            host, port = inherited.getsockname()[:2]
            return ListeningPlace(row, host, port, inherited)
        inherited.close()
    except OSError:
        pass
    raise ConfigError(f"{text!r} is no place to listen at: descriptor {number} is no socket of TCP")


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{text!r} is no place to listen at: HOST:PORT is expected, such as 127.0.0.1:5672")
    return host.strip("[]"), int(port)


def _report(**event: object) -> None:
    print(json.dumps(event), flush=True)  # noqa: T201


async def _main(
    data: Path,
    name: str,
    listen: list[ListeningPlace],
    admin: Path | None,
    supervised: bool,
    default_space: str | None,
    limits: TransactionLimits,
    users: Path | None,
    gate: GateOptions | None,
    ports: PortOptions | None,
    domain: str,
    machine: frozenset[str],
    management: tuple[str, Path] | None,
    reach: Reach | None,
    peers: tuple[Path, Path | None] | None,
    drain_delay_s: float,
) -> None:
    loop = asyncio.get_running_loop()
    stopped, hurried = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        if stopped.is_set():
            hurried.set()
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)

    def journal_changed(pid: int) -> None:
        if supervised:
            _report(event="journal", journal_pid=pid)

    directory = data / "nodes" / name
    server = Server(
        directory,
        name,
        journal_changed=journal_changed,
        limits=limits,
        gate=gate,
        users=users,
        ports=ports,
        domain=domain,
        machine=machine,
        marker=marker_path(data, name),
        reach=reach,
    )
    if supervised or management is not None:
        server.devices.expect_tenants()
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    await server.load()
    # Objects that exist now stay. Messages make no cycles, but the collector would walk a deep queue again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    keep_heap()
    opened = asyncio.Event()
    word: dict[str, object] = {}
    if supervised:
        await _watch_supervisor(word, opened, stopped, hurried)
        _report(event="loaded", pid=os.getpid(), journal_pid=server.journal.journal_pid)
        await _first(opened, stopped)
    if not stopped.is_set():
        at_admin = admin or directory / "admin.sock"
        if len(str(at_admin.absolute())) > MAX_SOCKET_PATH:
            raise ConfigError(f"the path {at_admin} is too long for a socket; name a shorter one with --admin")
        await server.listen_admin(at_admin)
        if peers is not None:
            # Before the ports for clients, whose spaces may be at home elsewhere.
            await server.listen_peers(peers[0], _secret_of(peers[1], word))
            if supervised:
                server.checker.share(SharedPlace(peers[0] / PASSWORDS_SOCKET, str(word["peers"])))
        urls = [
            row.url(host, await server.listen(host, port, default_space, row.name, inherited))
            for row, host, port, inherited in listen
        ]
        for url in urls:
            _report(event="listening", url=url)
        if management is not None:
            at, certificates = management
            managed = await server.listen_management(*_endpoint(at), certificates)
            _report(event="management", port=managed)
        await stopped.wait()
        if drain_delay_s:
            await server.drain(drain_delay_s, hurried)
    await server.stop()


def _secret_of(path: Path | None, word: dict[str, object]) -> bytes:
    """Return the secret by which the nodes of an installation know each other.

    Raises:
        ConfigError: it cannot be read, or there is none.
    """
    try:
        return bytes.fromhex(str(word.get("peers", "")) if path is None else path.read_text().strip())
    except (OSError, ValueError) as error:
        where = "the supervisor's word" if path is None else str(path)
        raise ConfigError(f"{where} has no secret of the nodes in hexadecimal: {error}") from None


async def _watch_supervisor(
    word: dict[str, object], opened: asyncio.Event, stopped: asyncio.Event, hurried: asyncio.Event
) -> None:
    loop = asyncio.get_running_loop()

    class Supervisor(asyncio.Protocol):
        _given = b""

        def data_received(self, data: bytes) -> None:
            *lines, self._given = (self._given + data).split(b"\n")
            for line in lines:
                word.update(json.loads(line))
                if word.get("open"):
                    opened.set()

        def eof_received(self) -> None:
            hurried.set()  # nobody starts another one
            stopped.set()

        def connection_lost(self, exc: Exception | None) -> None:
            hurried.set()
            stopped.set()

    await loop.connect_read_pipe(Supervisor, sys.stdin)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
