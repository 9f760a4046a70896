"""EnMasse as it is measured: one real node process with its journal, told what to serve by management."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.accounting import descendants
from benchmarks.cases import Case
from benchmarks.generators import Load
from benchmarks.processes import Process
from enmasse.client.blocking import connect
from enmasse.version import __version__

__all__ = ["SPACE", "Node"]

SPACE = "default/bench"
PARTITIONS = 4

MAX_BYTES = 32 << 30
"""Of each stored address: no case is to end at a limit."""


class Node:
    """A node with an empty journal.

    Args:
        directory: where its data lie: on the disk that commits are to be measured on.
        tls: the directory of its certificates; without one it speaks no TLS.
        options: more of the command's.
    """

    def __init__(self, directory: Path, tls: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self.name = f"EnMasse {__version__}"
        self._more = options if tls is None else ("--tls", str(tls), *options)
        self._data = directory / "node"
        self._data.mkdir()
        # A path below the directory may be longer than the name of a socket may be.
        self._sockets = Path(tempfile.mkdtemp(prefix="enmasse-"))
        self._admin = self._sockets / "admin.sock"
        self._process: Process | None = None
        self.port = 0
        try:
            self.start()
            with connect(f"amqp+unix://{self._admin}") as connection:
                attributes = {"spaceType": "standard", "authentication": "none"}
                connection.management().create("io.enmasse.space", SPACE, attributes)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        """Where it is managed."""
        return f"amqp+unix://{self._admin}"

    def start(self) -> float:
        """Start the process with what lies in its directory, on the port that it had; seconds until it listened."""
        places = ["--data", str(self._data), "--listen", f"127.0.0.1:{self.port}", "--admin", str(self._admin)]
        began = time.perf_counter()
        self._process = process = Process(
            [sys.executable, "-m", "enmasse", "node", *places, *self._more], self._data / "log"
        )

        def told() -> list[str]:
            return [line for line in process.log.read_text().splitlines() if line.startswith("{")]

        process.wait_until(told, "opened its port")
        took = time.perf_counter() - began
        self.port = int(json.loads(told()[0])["url"].rpartition(":")[2])
        return took

    @property
    def processes(self) -> dict[str, list[int]]:
        """The node, and as its journal whatever else it has started."""
        assert self._process is not None
        return {"node": [self._process.pid], "journal": descendants(self._process.pid)}

    @property
    def pids(self) -> list[int]:
        """Of all its processes."""
        return [pid for pids in self.processes.values() for pid in pids]

    def prepare(self, cases: Iterable[Case]) -> None:
        """Declare the addresses that the cases need."""
        # A topic is declared before its subscriptions.
        wanted: dict[str, dict[str, Any]] = {}
        for case in cases:
            wanted |= {address: {"addressType": case.kind} for address in case.addresses}
            wanted |= {name: {"addressType": "subscription", "topic": case.address} for name in case.subscribed}
        for address in sorted(wanted, key=lambda address: "topic" in wanted[address]):
            self.declare(address, **wanted[address])

    def declare(self, address: str, **attributes: Any) -> None:
        """Declare one address."""
        if attributes["addressType"] == "stream":
            attributes = {"partitions": PARTITIONS, **attributes}
        if attributes["addressType"] in ("queue", "subscription", "stream"):
            attributes = {"maxBytes": MAX_BYTES, **attributes}
        with connect(f"amqp+unix://{self._admin}") as connection:
            everything = {"space": SPACE, "address": address, **attributes}
            connection.management().create("io.enmasse.address", f"default/{address}", everything)

    def remove(self, address: str) -> None:
        """Delete an address with what it stores."""
        with connect(f"amqp+unix://{self._admin}") as connection:
            connection.management().delete("io.enmasse.address", f"default/{address}")

    def stored(self, address: str) -> int:
        """How many messages an address stores by its own account."""
        with connect(f"amqp+unix://{self._admin}") as connection:
            return int(connection.management().read("io.enmasse.address", f"default/{address}")["messagesStored"])

    def load(self, case: Case) -> Load | None:
        """The generator for a case."""
        if case.protocol == "stomp":
            return Load("stomp_load", case.stomp(self.port, case.address))
        if case.protocol == "mqtt":
            return Load("mqtt_load", case.mqtt(self.port))
        more: tuple[str, ...] = ()
        if case.subscriptions:
            more = ("--recv-address", "subscription.%d", "--addresses", str(case.fanout))
        return Load("amqp_load", case.amqp(self.port, case.address, *more))

    def kill(self) -> None:
        """End all of it as a crash would; what it wrote stays, for another start."""
        assert self._process is not None
        journal = self.processes["journal"]
        self._process.kill()
        for pid in journal:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the node; its data go with the folder that it was given."""
        if self._process is not None:
            self._process.stop()
        shutil.rmtree(self._sockets)
