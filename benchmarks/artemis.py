"""Apache ActiveMQ Artemis as a peer: the broker that speaks AMQP 1.0 by nature."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from benchmarks.accounting import descendants
from benchmarks.cases import Case
from benchmarks.generators import Load, run
from benchmarks.processes import Process, free_port
from enmasse.errors import UnavailableError

__all__ = ["Artemis"]

WARMUP_S = 5.0
"""After that its figures hardly change any more."""

BUILD = Path(__file__).parent.parent / "build"


def _home() -> Path | None:
    """Where it lies: where ``ARTEMIS_HOME`` says, or unpacked below ``build``."""
    given = os.environ.get("ARTEMIS_HOME")
    places = [Path(given)] if given else sorted(BUILD.glob("apache-artemis-*"), reverse=True)
    return next((place for place in places if (place / "bin" / "artemis").exists()), None)


class Artemis:
    """One broker with the journal that it chooses for this disk.

    Args:
        directory: where its instance lies.
    """

    INSTALL: ClassVar[str] = (
        "Artemis: unpack apache-artemis-*-bin.tar.gz of Maven Central in build/, or set ARTEMIS_HOME; needs Java"
    )
    OUTSTANDING = 1_000

    @classmethod
    def is_installed(cls) -> bool:
        """Whether it can be started."""
        return _home() is not None and shutil.which("java") is not None

    def __init__(self, directory: Path) -> None:
        home = _home()
        assert home is not None
        instance = directory / "artemis"
        self._port = free_port()
        unused = ("--no-amqp-acceptor", "--no-hornetq-acceptor", "--no-mqtt-acceptor", "--no-stomp-acceptor")
        access = ("--user", "bench", "--password", "bench", "--allow-anonymous")
        where = ("--host", "127.0.0.1", "--default-port", str(self._port))
        command = [str(home / "bin" / "artemis"), "create", str(instance), "--silent", "--no-web"]
        made = subprocess.run([*command, *where, *unused, *access], capture_output=True, text=True, check=False)
        if made.returncode:
            raise UnavailableError(f"Artemis made no instance: {made.stdout}{made.stderr}")
        self._process = Process([str(instance / "bin" / "artemis"), "run"], directory / "artemis.log")
        self._process.wait_for_port(self._port)
        version = re.search(r"artemis-(\d[\d.]*)", home.resolve().name)
        self.name = f"Artemis {version[1] if version else ''}".strip()
        self.processes = {"broker": [self._process.pid, *descendants(self._process.pid)]}

    def prepare(self, cases: Iterable[Case]) -> None:
        """It makes addresses by itself, but its machine code only under load."""
        for load in filter(None, map(self.load, cases)):
            run(load, (), seconds=WARMUP_S)
            return

    def load(self, case: Case) -> Load | None:
        """A queue stands in for anycast; it knows no streams, and subscriptions only by other names."""
        if case.protocol != "amqp":
            return None
        if case.kind == "stream" or case.subscriptions:
            return None
        more = ["--capability", "topic" if case.kind in ("topic", "multicast") else "queue"]
        if not case.outstanding and not case.rate:
            more += ["--max-outstanding", str(self.OUTSTANDING)]
        return Load("amqp_load", case.amqp(self._port, case.address, *more))

    def stop(self) -> None:
        """End it; its files go with the folder that it was given."""
        self._process.stop()
