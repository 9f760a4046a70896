"""The node's process: arguments, signals, and the talk with a supervisor.

With a supervisor the node writes one JSON line when snapshot and journal are loaded, and opens its
listeners when it reads ``open``; so whoever looks for its ports finds the new process ids first. End
of file means that the supervisor has died: the node stops in order.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from pathlib import Path

from enmasse.errors import ConfigError, EnmasseError
from enmasse.net.logs import set_up_logging
from enmasse.net.loop import run as run_loop
from enmasse.node.coordinator import TRANSACTION_TIMEOUT_S, TransactionLimits
from enmasse.node.gate import GateOptions
from enmasse.node.heap import keep_heap
from enmasse.node.ports import PortOptions
from enmasse.node.server import Server
from enmasse.node.tenancy import DOMAIN
from enmasse.storage.presence import marker_path

__all__ = ["run"]

GC_THRESHOLDS = (100_000, 20, 50)
"""Many messages' worth of objects: with Python's own thresholds a tenth of the node's time goes into looking
for cycles."""

MAX_SOCKET_PATH = 100
"""Unix sockets have room for 107 bytes of path."""


def run(
    data: Path,
    name: str,
    listen: list[str],
    admin: Path | None,
    supervised: bool,
    default_space: str | None = None,
    transaction_timeout_s: float = TRANSACTION_TIMEOUT_S,
    log_format: str = "text",
    users: Path | None = None,
    gate: GateOptions | None = None,
    ports: PortOptions | None = None,
    domain: str = DOMAIN,
    management: tuple[str, Path] | None = None,
) -> int:
    """Run a node until it is told to stop.

    Args:
        data: the installation's directory; the node's files lie in ``nodes/NAME`` below it.
        name: the node's name.
        listen: ``HOST:PORT`` of each port for clients; port 0 takes a free one.
        admin: the administrator's socket; by default ``admin.sock`` among the node's files.
        supervised: whether to talk with a supervisor on standard input and output.
        default_space: ``NAMESPACE/SPACE`` of connections that name no space; by default the only one.
        transaction_timeout_s: how long a transaction may go on before it is rolled back; 0 waits for ever.
        log_format: ``text`` or ``json``, for each line on standard error.
        users: the file of users; without it there are none.
        gate: what the operator decides on who may come in.
        ports: what the operator decides on the ports.
        domain: below which spaces have their hosts.
        management: ``HOST:PORT`` for the control process on another machine, with the certificates for it.

    Returns:
        0 after an orderly stop, 1 if it could not start.
    """
    set_up_logging(log_format)
    try:
        limits = TransactionLimits(timeout_s=transaction_timeout_s)
        endpoints = [_endpoint(text) for text in listen]
        run_loop(
            _main(
                data,
                name,
                endpoints,
                admin,
                supervised,
                default_space,
                limits,
                users,
                gate,
                ports,
                domain,
                management,
            )
        )
    except EnmasseError as error:
        print(f"enmasse node: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"{text!r} is no place to listen at: HOST:PORT is expected, such as 127.0.0.1:5672")
    return host.strip("[]"), int(port)


def _tell(**event: object) -> None:
    print(json.dumps(event), flush=True)  # noqa: T201


async def _main(
    data: Path,
    name: str,
    listen: list[tuple[str, int]],
    admin: Path | None,
    supervised: bool,
    default_space: str | None,
    limits: TransactionLimits,
    users: Path | None,
    gate: GateOptions | None,
    ports: PortOptions | None,
    domain: str,
    management: tuple[str, Path] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)

    def journal_changed(pid: int) -> None:
        if supervised:
            _tell(event="journal", journal_pid=pid)

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
        marker=marker_path(data, name),
    )
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    await server.load()
    # What is here now stays. A message makes no cycles, but a deep queue would be walked again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    keep_heap()
    opened = asyncio.Event()
    if supervised:
        await _hear_supervisor(opened, stopped)
        _tell(event="loaded", pid=os.getpid(), journal_pid=server.journal.journal_pid)
        await _first(opened, stopped)
    if not stopped.is_set():
        socket = admin or directory / "admin.sock"
        if len(str(socket.absolute())) > MAX_SOCKET_PATH:
            raise ConfigError(f"the path {socket} is too long for a socket; name a shorter one with --admin")
        await server.listen_admin(socket)
        for host, port in listen:
            port = await server.listen(host, port, default_space)  # noqa: PLW2901
            shown = f"[{host}]" if ":" in host else host
            _tell(event="listening", url=f"amqp://{shown}:{port}")
        if management is not None:
            at, certificates = management
            managed = await server.listen_management(*_endpoint(at), certificates)
            _tell(event="management", port=managed)
        await stopped.wait()
    await server.stop()


async def _hear_supervisor(opened: asyncio.Event, stopped: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    class Supervisor(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            if b"open" in data:
                opened.set()

        def eof_received(self) -> None:
            stopped.set()

        def connection_lost(self, exc: Exception | None) -> None:
            stopped.set()

    await loop.connect_read_pipe(Supervisor, sys.stdin)


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
