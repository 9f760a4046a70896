"""What each benchmark of pipelines begins with: a node, a folder, Spark or a runner, and streams full of rows."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.node import Node
from enmasse.client.blocking import connect
from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.streams.producers import FRAME_FORMAT
from enmasse.pipeline.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HEAD", "Columns", "Runner", "fill", "node_in_folder", "spark_beside_node"]

HEAD = b"\0\x53\x75\xa0\x64"
"""What precedes a body of 100 bytes."""

FRAME_ROWS = 4096


class Columns(NamedTuple):
    """Rows as a frame has them."""

    times_us: Sequence[int]
    keys: Sequence[bytes]
    bodies: Sequence[bytes]


@contextmanager
def node_in_folder() -> Iterator[tuple[Node, Path]]:
    """A node with an empty journal, and a folder for all else; both are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="enmasse-spark-"))
    try:
        node = Node(folder)
        try:
            yield node, folder
        finally:
            node.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def spark_beside_node(settings: Mapping[str, str] | None = None) -> Iterator[tuple[SparkSession, Node, Path]]:
    """A session of Spark's, the node that it reads and writes, and a folder for its checkpoints."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    with node_in_folder() as (node, folder):
        spark = start_session("benchmark", folder / "spark", settings=settings)
        try:
            yield spark, node, folder
        finally:
            spark.stop()


def fill(
    node: Node,
    address: str,
    numbers: Sequence[range],
    columns: Callable[[range], Columns],
    *,
    frame_rows: int = FRAME_ROWS,
) -> float:
    """Declare a stream and append its rows; seconds that appending took.

    Args:
        node: which serves it.
        address: its name.
        numbers: of the rows of each partition.
        columns: the rows of so many numbers.
        frame_rows: how many come at once.
    """
    node.declare(address, addressType="stream", partitions=len(numbers))
    began = time.perf_counter()
    with connect(node.url) as connection:
        for partition, own in enumerate(numbers):
            properties = {"enmasse:partition": partition}
            with connection.sender(address, capabilities=("enmasse:frames",), properties=properties) as sender:
                for sequence, first in enumerate(range(0, len(own), frame_rows), 1):
                    times_us, keys, bodies = columns(own[first : first + frame_rows])
                    heads = [HEAD[:-1] + bytes((len(body),)) for body in bodies]
                    frame = encode_frame(0, times_us, keys, heads, bodies, producer=b"bench", sequence=sequence)
                    outcome = sender.send_payload(frame, message_format=FRAME_FORMAT)
                    assert str(outcome) == "accepted", outcome
    return time.perf_counter() - began


class Runner:
    """The runner of one space, as a host starts it.

    Args:
        url: of the node.
        folder: everything of the space's pipelines; made.
        more: further arguments of its command.
    """

    def __init__(self, url: str, folder: Path, *more: str) -> None:
        command = [sys.executable, "-m", "enmasse.pipeline", "run", "--space", "default/bench", "--url", url]
        folder.mkdir(exist_ok=True)
        with (folder / "runner.err").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--folder", str(folder), *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.rows: dict[str, int] = {}
        self._statuses: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "status":
                self.rows[event["pipeline"]] = event["status"].get("rows", 0)
                self._statuses.put(event["status"])

    def next_status(self) -> dict[str, Any]:
        """The next status of any pipeline, once there is one."""
        return self._statuses.get(timeout=600)

    def put(self, name: str, spec: Mapping[str, Any], address: str) -> None:
        """Declare a pipeline that reads a stream."""
        resource = {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Pipeline",
            "metadata": {"name": f"bench.{name}", "namespace": "default", "generation": 1},
            "spec": spec,
        }
        command = {
            "command": "put",
            "pipeline": resource,
            "credentials": "",
            "addresses": {address: {"type": "stream"}},
        }
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """End it in order."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
