"""The platform under the demonstration: ``enmasse up`` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.child import die_with_parent
from enmasse.errors import ConfigError, UnavailableError

CUSTOMARY_PORTS = (5672, 8080)
START_S = 60.0
STOP_S = 30.0


class Service:
    """Starts, fills and stops one platform.

    Args:
        data: its folder.
        log: file for what it says.
        automatic_ports: take free ports, even where the customary ones are free now.
        held: file descriptors that it keeps open until it has ended.
        nodes: the number of its nodes; None: as many as it had.
    """

    def __init__(
        self,
        data: Path,
        log: Path,
        *,
        automatic_ports: bool = False,
        held: Sequence[int] = (),
        nodes: int | None = None,
    ) -> None:
        self.data = data
        self._log = log
        self._has_automatic_ports = automatic_ports
        self._held = held
        self._nodes = nodes
        self._process: Process | None = None

    async def start(self) -> None:
        """Start it and wait until its endpoints are known.

        Raises:
            ConfigError: another platform runs on this data, or it cannot be written.
            UnavailableError: it ended, or did not come up in time.
        """
        other = self._running()
        if other is not None:
            raise ConfigError(f"a platform runs on {self.data} already (process {other}); stop it first")
        # What an earlier run left would be taken for this one's.
        try:
            self._endpoints_path().unlink(missing_ok=True)
            self._log.parent.mkdir(parents=True, exist_ok=True)
            log = self._log.open("ab")
        except OSError as error:
            raise ConfigError(
                f"{error.filename} cannot be written ({error.strerror}): name a directory that you may write "
                "with --data"
            ) from None
        said_from = log.tell()
        command = ["up", "--data", str(self.data)]
        if self._has_automatic_ports or not all(_is_free(port) for port in CUSTOMARY_PORTS):
            command += ["--ports", "auto"]
        if self._nodes is not None:
            command += ["--nodes", str(self._nodes)]
        with log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "enmasse",
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # It runs for minutes: compiling Java's code twice takes longer than it saves.
                env={"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"} | os.environ,
                # Ctrl-C is ours to pass on, in the right order.
                start_new_session=True,
                pass_fds=self._held,
                # Whoever kills us leaves nothing that runs on.
                preexec_fn=die_with_parent,
            )
        deadline = asyncio.get_running_loop().time() + START_S
        while self.url("amqp") is None:
            if self._process.returncode is not None:
                said = self._log.read_bytes()[said_from:].decode(errors="replace").strip()
                raise UnavailableError(f"the platform ended while it started; {self._log} ends with:\n{said}")
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(f"the platform did not come up in {START_S:.0f} s; see {self._log}")
            await asyncio.sleep(0.1)

    async def run(self, *arguments: str, given: str = "") -> str:
        """Run one ``enmasse`` command on this platform, with a text as its standard input; what it printed.

        Raises:
            UnavailableError: it failed; the message holds its complaint.
        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "enmasse",
            *arguments,
            "--data",
            str(self.data),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said = (await process.communicate(given.encode()))[0].decode(errors="replace").strip()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode != 0:
            raise UnavailableError(f"enmasse {' '.join(arguments)} failed: {said}")
        return said

    async def password(self, secret: str) -> str:
        """Return the password in a Secret of an earlier run; empty: there is none."""
        try:
            found = json.loads(await self.run("get", "secret", secret, "-o", "json"))
            return b64decode(found["data"]["password"]).decode()
        except (UnavailableError, ValueError, KeyError):
            return ""

    async def home(self, space: str) -> str:
        """Return the name of the node that has a space, which is named with its namespace.

        Raises:
            UnavailableError: that cannot be said now.
        """
        namespace, _, name = space.partition("/")
        found = json.loads(await self.run("get", "space", name, "--namespace", namespace, "-o", "json"))
        status = found.get("status") or {}
        if not status.get("home"):
            raise UnavailableError(f"space {space} has no node yet")
        return str(status["home"])

    async def stop(self) -> None:
        """Stop it in order, or by force after a while."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    def url(self, protocol: str) -> str | None:
        """Return the URL at which this protocol is served, once it is known."""
        for endpoint in self._endpoints().get("endpoints", []):
            if endpoint["protocol"] == protocol:
                return str(endpoint["url"])
        return None

    def console_link(self, page: str) -> str:
        """Return the link that logs a browser in and opens a page of the console."""
        token = Layout(self.data).operator_token.read_text()
        return f"{self.url('api')}/login?token={token}&page={page}"

    def processes(self, kind: str) -> Sequence[dict[str, Any]]:
        """The platform's processes of one kind, with ``name`` and ``pid``."""
        return [process for process in self._endpoints().get("processes", []) if process["kind"] == kind]

    def admin_url(self, node: str) -> str:
        """Return the URL at which a node's management is reached with full rights."""
        return f"amqp+unix://{Layout(self.data).admin_socket(node)}"

    def _endpoints_path(self) -> Path:
        return self.data / "endpoints.json"

    def _endpoints(self) -> dict[str, Any]:
        try:
            found = json.loads(self._endpoints_path().read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _running(self) -> int | None:
        for process in self.processes("supervisor"):
            try:
                command = Path(f"/proc/{int(process['pid'])}/cmdline").read_bytes()
            except (OSError, ValueError):
                continue
            # After a crash the number may be another program's by now.
            if b"enmasse" in command:
                return int(process["pid"])
        return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
