"""A real Keycloak, as a process of its own, for tests that log in there."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["PASSWORD", "KeycloakProcess"]

PASSWORD = "admin of tests"

DATABASE = "db.mv.db"

START_S = 120.0
"""It starts in 15 seconds the first time, and in half of that later; a busy machine may take its time."""


class KeycloakProcess:
    """Runs a Keycloak on a free port of the loopback interface; a context manager.

    Args:
        home: where Keycloak was unpacked, and made ready by ``kc.sh build --db=dev-file``. If ``ready/db.mv.db``
            is there, a database that has an administrator ``admin`` with the password ``PASSWORD``, it begins
            with that: ten seconds less.
        data: where it keeps what it is told; what an earlier one left there is taken up.

    Attributes:
        url: where it is, the same for all its lives.
        user: the administrator's name.
        password: the administrator's password.
    """

    def __init__(self, home: Path, data: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port: int = taken.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.user, self.password = "admin", PASSWORD
        self._home = home
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port of ``url``."""
        return self._port

    @property
    def log(self) -> str:
        """What it wrote, over all its lives."""
        path = self._data / "keycloak.log"
        return path.read_text() if path.exists() else ""

    def start(self) -> Self:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: it ended or did not answer in time; the message holds its log.
        """
        assert self._process is None, "it runs already"
        self._data.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "JAVA_OPTS_KC_HEAP": "-Xms128m -Xmx384m",
            # It is used for a minute: what takes longer to compile than it saves is not worth it.
            "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1",
        }
        ready, database = self._home / "ready" / DATABASE, self._data / DATABASE
        if not database.exists():
            if ready.exists():
                shutil.copyfile(ready, database)
            else:
                environment |= {
                    "KC_BOOTSTRAP_ADMIN_USERNAME": self.user,
                    "KC_BOOTSTRAP_ADMIN_PASSWORD": self.password,
                }
        with (self._data / "keycloak.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._home / "bin" / "kc.sh"), "start", "--optimized", "--cache=local",
                    "--http-enabled=true", "--hostname-strict=false", "--http-host=127.0.0.1",
                    f"--http-port={self._port}", f"--db-url=jdbc:h2:file:{self._data}/db;NON_KEYWORDS=VALUE",
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"Keycloak does not answer; its log:\n{self.log[-10_000:]}")
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/realms/master", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """End it as a crash would, without any warning."""
        process = self._process
        if process is None:
            return
        self._process = None
        # A script of the shell is between us and it.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
