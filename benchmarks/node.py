"""EnMasse as it is measured: one real node process with its journal, told what to serve by management."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.generators import Load
from benchmarks.processes import Process
from enmasse.client.blocking import connect
from enmasse.version import __version__

__all__ = ["Node"]

SPACE = "default/bench"
PARTITIONS = 4


class Node:
    """A node with an empty journal.

    Args:
        directory: where its data lie: on the disk that commits are to be measured on.
    """

    def __init__(self, directory: Path) -> None:
        self.name = f"EnMasse {__version__}"
        data = directory / "node"
        data.mkdir()
        # A path below the directory may be longer than the name of a socket may be.
        self._sockets = Path(tempfile.mkdtemp(prefix="enmasse-"))
        self._admin = self._sockets / "admin.sock"
        places = ["--data", str(data), "--listen", "127.0.0.1:0", "--admin", str(self._admin)]
        self._process = Process([sys.executable, "-m", "enmasse", "node", *places], data / "log")
        try:
            self._process.wait_until(self._has_opened, "opened its port")
            self.port = self._find_port()
            self.processes = {"node": [self._process.pid], "journal": [self._create_space()]}
        except BaseException:
            self.stop()
            raise

    def _lines(self) -> list[str]:
        return [line for line in self._process.log.read_text().splitlines() if line.startswith("{")]

    def _has_opened(self) -> bool:
        return bool(self._lines())

    def _find_port(self) -> int:
        return int(json.loads(self._lines()[0])["url"].rpartition(":")[2])

    def _create_space(self) -> int:
        """Make the only space, and return the journal's process id."""
        with connect(f"amqp+unix://{self._admin}") as connection:
            management = connection.management()
            management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
            return int(management.query("io.enmasse.statistics", ["journalPid"])[0]["journalPid"])

    def prepare(self, cases: Iterable[Case]) -> None:
        """Declare the addresses that the cases need."""
        addresses = {(address, case.kind) for case in cases for address in case.addresses}
        with connect(f"amqp+unix://{self._admin}") as connection:
            management = connection.management()
            for address, kind in sorted(addresses):
                attributes: dict[str, object] = {"space": SPACE, "address": address, "addressType": kind}
                if kind == "stream":
                    attributes["partitions"] = PARTITIONS
                management.create("io.enmasse.address", f"default/{address}", attributes)

    def load(self, case: Case) -> Load | None:
        """The generator for a case."""
        return Load("amqp_load", case.amqp(self.port, case.address))

    def stop(self) -> None:
        """End the node; its data go with the folder that it was given."""
        self._process.stop()
        shutil.rmtree(self._sockets)
