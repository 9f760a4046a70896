"""The way Spark starts Python: with PySpark as it is installed, forked from a process that has loaded it.

Spark puts a zip of PySpark before the one that is installed. Python compiles what it reads from a zip at each
start, and keeps the list of all that is in it: a second and 10 MB for each process, of which there are dozens.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

from enmasse.pipeline.workers import start

DAEMON: Final = "enmasse.pipeline.workers.daemon"
"""The module whose process is forked for each worker (``spark.python.daemon.module``)."""

_END_S: Final = 5.0
_BACKLOG: Final = 128


class Zygote:
    """The process from which those are forked that Spark starts; it ends with this one, if not before.

    Args:
        path: the path of its socket, which has to be short; what a former one left there is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(os.fspath(path))
            # Who has processes made as us has to be us; until it listens, nobody can ask.
            path.chmod(0o600)
            listening.listen(_BACKLOG)
            number = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "enmasse.pipeline.workers.zygote", str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[number],
                # As Spark's start script has it, so that all hash alike.
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )

    def close(self) -> None:
        """End it and the processes that it made."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.path.unlink(missing_ok=True)


def write_launcher(folder: Path, zygote: Path) -> Path:
    """Write what Spark is to start as Python: this very Python, which finds modules where this process does.

    Args:
        folder: the folder to write to.
        zygote: the socket of the process to be forked; where no process listens, Python is started as it is.
    """
    path = os.environ.get("PYTHONPATH")
    setting = "unset PYTHONPATH" if path is None else f"export PYTHONPATH={shlex.quote(path)}"
    command = shlex.join([sys.executable, "-I", "-S", start.__file__, os.fspath(zygote)])
    launcher = folder / "python"
    launcher.write_text(f'#!/bin/sh\n{setting}\nexec {command} "$@"\n')
    launcher.chmod(0o755)
    return launcher
