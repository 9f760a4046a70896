"""Qpid Dispatch as a peer: the router in C that passes outcomes through, as EnMasse's anycast does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from benchmarks.cases import Case
from benchmarks.generators import Load
from benchmarks.processes import Process, free_port

__all__ = ["QpidDispatch"]

SETTINGS = """
router {{
    mode: standalone
    id: bench
}}
listener {{
    host: 127.0.0.1
    port: {port}
    authenticatePeer: no
    saslMechanisms: ANONYMOUS
}}
address {{
    prefix: multicast
    distribution: multicast
}}
"""


def _program() -> str | None:
    return os.environ.get("QDROUTERD") or shutil.which("qdrouterd")


class QpidDispatch:
    """One router with the four threads that it takes by itself.

    Args:
        directory: where its settings lie; it stores nothing.
    """

    INSTALL: ClassVar[str] = (
        "Qpid Dispatch: no distribution has it any more; name a qdrouterd built from source in QDROUTERD"
    )

    @classmethod
    def is_installed(cls) -> bool:
        """Whether it can be started."""
        return _program() is not None

    def __init__(self, directory: Path) -> None:
        program = _program()
        assert program is not None
        self._port = free_port()
        settings = directory / "qdrouterd.conf"
        settings.write_text(SETTINGS.format(port=self._port))
        self._process = Process([program, "-c", str(settings)], directory / "qdrouterd.log")
        self._process.wait_for_port(self._port)
        self.processes = {"router": [self._process.pid]}
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()
        self.name = f"Qpid Dispatch {version[0] if version else ''}".strip()

    def prepare(self, cases: Iterable[Case]) -> None:
        """It makes addresses by itself."""

    def load(self, case: Case) -> Load | None:
        """Direct addresses only: it stores nothing."""
        if case.protocol != "amqp":
            return None
        if case.kind not in ("anycast", "multicast"):
            return None
        return Load("amqp_load", case.amqp(self._port, case.address))

    def stop(self) -> None:
        """End it."""
        self._process.stop()
