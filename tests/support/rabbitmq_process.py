"""A real RabbitMQ with its plugin for AMQP 1.0, as a process of its own, for tests that connect a space to it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from enmasse.drivers.authority import Authority
from tests.support.foreign_tools import HERE

__all__ = ["RabbitmqProcess"]

HOME = HERE / "rabbitmq/usr/lib"

START_S = 120.0
"""It starts in six seconds; a busy machine may take its time."""

SALT = b"salt"
PLUGINS = "[rabbitmq_amqp1_0]."

SETTINGS = """\
listeners.tcp = none
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {tls}/authority/ca.crt
ssl_options.certfile = {tls}/server.crt
ssl_options.keyfile = {tls}/server.key
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
load_definitions = {definitions}
log.console.level = warning
log.file = false
"""


class RabbitmqProcess:
    """Runs a RabbitMQ on free ports of the loopback interface, which is reached by TLS alone.

    Args:
        data: where its data lie; what an earlier one left there is taken up.
        queues: the names of its durable queues, by their type; what they reject goes to the queue ``rejected``.

    Attributes:
        port: the port, the same for all its lives.
        authority: the certificate, in PEM, of the authority that vouches for it.
    """

    username = "miller"
    password = "flour and water"

    def __init__(self, data: Path, **queues: Sequence[str]) -> None:
        self.port, self._names_port, self._nodes_port = _free_ports(3)
        self._data = data
        self._processes: list[subprocess.Popen[bytes]] = []
        data.mkdir(parents=True, exist_ok=True)
        tls = Authority(data / "tls")
        tls.keep_server_certificate("server", ["localhost", "127.0.0.1"])
        self.authority = tls.path.read_text()
        definitions = data / "definitions.json"
        definitions.write_text(json.dumps(self._definitions(queues)))
        (data / "rabbitmq.conf").write_text(
            SETTINGS.format(port=self.port, tls=tls.directory, definitions=definitions)
        )
        (data / "enabled_plugins").write_text(PLUGINS)
        self._environment = {
            **os.environ,
            "PATH": f"{HOME}/erlang/bin:{os.environ['PATH']}",
            "HOME": str(data),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names_port),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(data / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(self._nodes_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "enabled_plugins"),
            "RABBITMQ_FEATURE_FLAGS_FILE": str(data / "feature_flags"),
            "RABBITMQ_LOG_BASE": str(data / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
            "RABBITMQ_NODENAME": "test@localhost",
            # No shell stays before the broker, so that its end can be waited for.
            "detached": "true",
        }

    def _definitions(self, queues: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        shown = base64.b64encode(SALT + hashlib.sha256(SALT + self.password.encode()).digest()).decode()
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "rejected"}
        arguments: dict[str, dict[str, str]] = {"rejected": {}}
        for kind, names in queues.items():
            arguments |= dict.fromkeys(names, letters | {"x-queue-type": kind})
        return {
            "vhosts": [{"name": "/"}],
            "users": [
                {
                    "name": self.username,
                    "password_hash": shown,
                    "hashing_algorithm": "rabbit_password_hashing_sha256",
                    "tags": "",
                }
            ],
            "permissions": [{"user": self.username, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": [
                {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": given}
                for name, given in arguments.items()
            ],
        }

    @property
    def log(self) -> str:
        """What it wrote, over all its lives."""
        path = self._data.with_suffix(".log")
        return path.read_text() if path.exists() else ""

    def start(self) -> None:
        """Start it and wait until it listens.

        Raises:
            RuntimeError: it ended or does not listen in time; the message holds its log.
        """
        # It would start the registry of Erlang's names itself, as a daemon that stays behind.
        (registry,) = (HOME / "erlang").glob("erts-*/bin/epmd")
        (script,) = (HOME / "rabbitmq/lib").glob("*/sbin/rabbitmq-server")
        commands = [str(registry), "-port", str(self._names_port), "-address", "127.0.0.1"], [str(script)]
        with self._data.with_suffix(".log").open("ab") as log:
            for command in commands:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        cwd=self._data,
                        env=self._environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        deadline = time.monotonic() + START_S
        while not self._listens():
            if any(process.poll() is not None for process in self._processes) or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"RabbitMQ does not listen; its log:\n{self.log[-10_000:]}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """End it, and what belongs to it, as a crash would."""
        processes, self._processes = self._processes, []
        for process in processes:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def remove(self) -> None:
        """End it, and leave nothing of it."""
        self.kill()
        shutil.rmtree(self._data, ignore_errors=True)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
