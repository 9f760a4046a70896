"""What is measured beside us: whatever of it is installed on this machine.

Each peer is started in a folder of the benchmark's own on free ports of the loopback, with the
settings that it is shipped with, and exactly what was started is stopped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.accounting import descendants
from benchmarks.cases import Case
from benchmarks.generators import Load, build
from benchmarks.processes import Process, free_port

__all__ = ["Floor", "Mosquitto", "Peer", "RabbitMQ", "Server"]


class Server(Protocol):
    """Something that carries messages.

    Attributes:
        name: with its version.
    """

    name: str

    @property
    def processes(self) -> dict[str, list[int]]:
        """Role to process ids; their CPU time together is the server's."""

    def prepare(self, cases: Iterable[Case]) -> None:
        """Make what the cases need."""

    def load(self, case: Case) -> Load | None:
        """The generator for a case; ``None`` where this server has nothing that compares."""

    def stop(self) -> None:
        """End it; its files go with the folder that it was given."""


class Peer(Server, Protocol):
    """A server that others make.

    Attributes:
        INSTALL: its name, and how to get it.
    """

    INSTALL: ClassVar[str]

    def __init__(self, directory: Path) -> None: ...

    @classmethod
    def is_installed(cls) -> bool:
        """Whether it can be started."""


class RabbitMQ:
    """RabbitMQ with its plugins of AMQP 1.0, STOMP and MQTT, and classic durable queues.

    Overload is spared to it: it takes what it is sent, and with more than some thousand messages on
    their way its throughput falls to a tenth.

    Args:
        directory: where its data lie.
    """

    INSTALL: ClassVar[str] = "RabbitMQ: apt-get install rabbitmq-server"
    BINARIES = Path("/usr/lib/rabbitmq/bin")
    """Not the wrappers in /usr/sbin, which change user and folder."""
    OUTSTANDING = 1_000

    @classmethod
    def is_installed(cls) -> bool:
        """Whether it can be started."""
        return (cls.BINARIES / "rabbitmq-server").exists()

    def __init__(self, directory: Path) -> None:
        home = directory / "rabbitmq"
        home.mkdir()
        self._definitions = home / "definitions.json"
        self._output = home / "output"
        self._port, self._stomp_port = free_port(), free_port()
        self.mqtt_port = free_port()
        epmd_port = str(free_port())
        (home / "enabled_plugins").write_text("[rabbitmq_amqp1_0,rabbitmq_stomp,rabbitmq_mqtt].\n")
        (home / "env.conf").touch()
        (home / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self._port}\nstomp.listeners.tcp.1 = 127.0.0.1:{self._stomp_port}\n"
            f"mqtt.listeners.tcp.1 = 127.0.0.1:{self.mqtt_port}\n"
            f"loopback_users.guest = true\nload_definitions = {self._definitions}\n"
        )
        self._environment = {
            "HOME": str(home),
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_PORT": epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        # Erlang's port mapper would otherwise start by itself and stay.
        self._epmd = Process(["epmd", "-port", epmd_port, "-address", "127.0.0.1"], home / "epmd")
        self._broker: Process | None = None
        self.processes: dict[str, list[int]] = {}
        self.name = "RabbitMQ"

    def prepare(self, cases: Iterable[Case]) -> None:
        """Start it with the queues that the cases need."""
        queues = [
            {"name": address, "vhost": "/", "durable": True, "auto_delete": False, "arguments": self._arguments(case)}
            for case in cases
            for address in case.addresses
            if case.kind != "topic"
        ]
        subscribed = {name: case.address for case in cases for name in case.subscribed}
        queues += [
            {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
            for name in subscribed
        ]
        bindings = [
            {
                "source": "amq.topic",
                "vhost": "/",
                "destination": name,
                "destination_type": "queue",
                "routing_key": topic,
                "arguments": {},
            }
            for name, topic in subscribed.items()
        ]
        by_name = {str(queue["name"]): queue for queue in queues}
        definitions = {
            "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
            "vhosts": [{"name": "/"}],
            "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
            "queues": list(by_name.values()),
            "bindings": bindings,
        }
        self._definitions.write_text(json.dumps(definitions))
        self._broker = Process([str(self.BINARIES / "rabbitmq-server")], self._output, self._environment)
        self._broker.wait_for_port(self._port)
        self._control("await_startup")
        self.name = f"RabbitMQ {self._control('version').strip()}"
        self.processes = {"broker": [self._broker.pid, *descendants(self._broker.pid)]}

    @staticmethod
    def _arguments(case: Case) -> dict[str, str]:
        return {"x-queue-type": "stream" if case.kind == "stream" else "classic"}

    def _control(self, *arguments: str) -> str:
        return subprocess.run(
            [str(self.BINARIES / "rabbitmqctl"), "--silent", *arguments],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    def load(self, case: Case) -> Load | None:
        """A queue stands in for anycast, since a broker knows nothing more direct."""
        address = f"/topic/{case.address}" if case.kind in ("topic", "multicast") else f"/amq/queue/{case.address}"
        more = ["--user", "guest", "--pass", "guest"]
        if case.protocol == "stomp":
            more += ["--max-outstanding", str(self.OUTSTANDING)]
            return Load("stomp_load", case.stomp(self._stomp_port, address, *more))
        if case.protocol == "mqtt":
            # It knows no QoS 2: it would answer with QoS 1.
            return None if case.qos == 2 else Load("mqtt_load", case.mqtt(self.mqtt_port, *more))
        if case.subscriptions:
            more += ["--recv-address", "/amq/queue/subscription.%d", "--addresses", str(case.fanout)]
        if case.stores:
            more += ["--window", str(self.OUTSTANDING // case.senders)]
        elif not case.outstanding and not case.rate:
            more += ["--max-outstanding", str(self.OUTSTANDING)]
        return Load("amqp_load", case.amqp(self._port, address, *more))

    def stop(self) -> None:
        """Shut it down, and then the port mapper."""
        if self._broker is not None:
            with suppress(subprocess.SubprocessError):
                self._control("shutdown")
            self._broker.stop()
        self._epmd.stop()


class Mosquitto:
    """Mosquitto, which speaks MQTT: beside AMQP, QoS 1 for unsettled messages and QoS 0 for settled ones.

    Args:
        directory: where its settings lie; it stores nothing.
    """

    INSTALL: ClassVar[str] = "Mosquitto: apt-get install mosquitto"
    PLACES = ("mosquitto", "/usr/sbin/mosquitto")
    INFLIGHT = 100
    OUTSTANDING = 1_000

    @classmethod
    def is_installed(cls) -> bool:
        """Whether it can be started."""
        return any(map(shutil.which, cls.PLACES))

    def __init__(self, directory: Path) -> None:
        self.mqtt_port = free_port()
        program = next(filter(None, map(shutil.which, self.PLACES)))
        settings = directory / "mosquitto.conf"
        settings.write_text(f"listener {self.mqtt_port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
        self._process = Process([program, "-c", str(settings)], directory / "mosquitto.log")
        self._process.wait_for_port(self.mqtt_port)
        self.processes = {"broker": [self._process.pid]}
        version = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout.split()
        self.name = f"Mosquitto {version[2]} (MQTT)"

    def prepare(self, cases: Iterable[Case]) -> None:
        """Topics need not be made."""

    def load(self, case: Case) -> Load | None:
        """Direct addresses only: it stores nothing here."""
        if case.protocol == "mqtt":
            return Load("mqtt_load", case.mqtt(self.mqtt_port, "--inflight", str(self.INFLIGHT)))
        if case.protocol != "amqp":
            return None
        if case.kind not in ("anycast", "multicast"):
            return None
        arguments = ["--port", str(self.mqtt_port), "--topic", case.address, "--size", str(case.size)]
        arguments += ["--qos", "0" if case.settled else "1", "--inflight", str(self.INFLIGHT)]
        arguments += ["--connections", str(case.pairs)]
        if case.fanout > 1:
            arguments += ["--fanout", str(case.fanout)]
        if case.rate:
            arguments += ["--rate", str(case.rate)]
        else:
            arguments += ["--max-outstanding", str(case.outstanding or self.OUTSTANDING)]
        return Load("mqtt_load", tuple(arguments))

    def stop(self) -> None:
        """End it."""
        self._process.stop()


class Floor:
    """A relay of bytes over TCP that knows nothing of messages: what the machine itself costs.

    Args:
        directory: for what it prints.
    """

    def __init__(self, directory: Path) -> None:
        self.name = "bytes alone"
        self._directory = directory
        self._relay: Process | None = None
        self.processes: dict[str, list[int]] = {}

    def prepare(self, cases: Iterable[Case]) -> None:
        """It is started for each case, as it must know how long a frame is."""

    def load(self, case: Case) -> Load | None:
        """One sender and one receiver; it answers nothing, so settled messages are the same to it."""
        if case.protocol != "amqp":
            return None
        if case.kind != "anycast" or case.pairs > 1 or case.settled:
            return None
        self.stop()
        port = free_port()
        frame = case.size + (29 if case.size < 256 else 32)
        where = ("--port", str(port), "--frame", str(frame))
        self._relay = Process([str(build("tcp_floor")), "--mode", "relay", *where], self._directory / "floor.log")
        self._relay.wait_for_port(port)
        self.processes = {"relay": [self._relay.pid]}
        return Load("tcp_floor", (*where, *(["--rate", str(case.rate)] if case.rate else [])))

    def stop(self) -> None:
        """End the relay."""
        if self._relay is not None:
            self._relay.stop()
            self._relay = None
