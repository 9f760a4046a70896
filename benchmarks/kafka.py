"""Apache Kafka as a peer of streams: one broker that is its own controller, and Spark's own source of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from benchmarks.processes import Process, free_port
from enmasse.errors import UnavailableError

__all__ = ["Kafka"]

HOME = Path(__file__).parent.parent / "build" / "kafka"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
"""Any uuid in its short form."""

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Kafka:
    """One broker with the settings that it is shipped with.

    Args:
        directory: where its data lie.
        partitions: of every topic.
    """

    INSTALL: ClassVar[str] = "Kafka and Spark's source of it: make bench-tools (Java and Maven, 60 MB)"

    @classmethod
    def is_installed(cls) -> bool:
        """Whether it can be started."""
        return (HOME / "versions").exists() and shutil.which("java") is not None

    @staticmethod
    def jars() -> str:
        """Spark's own source of it, for the setting ``spark.jars``."""
        return ",".join(map(str, sorted((HOME / "spark").glob("*.jar"))))

    def __init__(self, directory: Path, partitions: int) -> None:
        home = directory / "kafka"
        home.mkdir()
        port = free_port()
        settings = home / "server.properties"
        where = {"port": port, "controller": free_port(), "data": home / "data", "partitions": partitions}
        settings.write_text(_SETTINGS.format(**where))
        java = ["java", "-Xmx1g", "-cp", f"{HOME}/broker/*"]
        formatted = subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)],
            capture_output=True,
            text=True,
            check=False,
        )
        if formatted.returncode:
            raise UnavailableError(f"Kafka made no storage: {formatted.stdout}{formatted.stderr}")
        self._process = Process([*java, "kafka.Kafka", str(settings)], home / "kafka.log")
        self._process.wait_for_port(port)
        self.pid = self._process.pid
        self.servers = f"127.0.0.1:{port}"
        version = next((HOME / "broker").glob("kafka_2.13-*.jar")).stem.rpartition("-")[2]
        self.name = f"Kafka {version}"

    def stop(self) -> None:
        """End it; its files go with the folder that it was given."""
        self._process.stop()
