"""A node process with a stream, whole installations, and one Spark session for the whole run."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from enmasse.cli.app import run_app
from enmasse.client.blocking import Connection, connect
from enmasse.engines.embedded.paths import Layout
from enmasse.pipeline.session import start_session
from tests.foreign_tools import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLES = Path(__file__).parents[2] / "examples"


class StreamNode:
    """A node process that can be killed and comes back at the same port with the same data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.url = ""
        self.start()
        space = {"spaceType": "standard", "authentication": "none", "uid": "space-1", "generation": 1}
        self.manage(lambda m: m.create("io.enmasse.space", "default/demo", space))

    def start(self) -> None:
        where = ["--data", str(self._folder), "--name", "node-0", "--listen", f"127.0.0.1:{self._port}"]
        with (self._folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "enmasse", "node", *where],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._folder / "node.log").read_text()
        self.url = json.loads(line)["url"]
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        process.send_signal(number)
        process.wait()
        process.stdout.close()

    def manage(self, act: Callable[[Any], Any]) -> Any:
        with connect(f"amqp+unix://{Layout(self._folder).admin_socket('node-0')}", patience=10) as connection:
            return act(connection.management())

    def create(self, address: str, kind: str = "stream", *, uid: str | None = None, partitions: int = 2) -> str:
        """Declare an address; its name."""
        attributes: dict[str, Any] = {
            "space": "default/demo",
            "address": address,
            "addressType": kind,
            "uid": uid or address,
            "generation": 1,
        }
        if kind == "stream":
            attributes["partitions"] = partitions
        self.manage(lambda m: m.create("io.enmasse.address", f"default/demo.{address}", attributes))
        return address

    def delete(self, address: str) -> None:
        self.manage(lambda m: m.delete("io.enmasse.address", f"default/demo.{address}"))

    def connect(self) -> Connection:
        return connect(self.url, patience=10)


@pytest.fixture
def stream_node(tmp_path: Path) -> Iterator[StreamNode]:
    folder = tmp_path / "n"
    folder.mkdir()
    node = StreamNode(folder)
    yield node
    node.stop()


@pytest.fixture(scope="session")
def needs_spark() -> None:
    require("Java 17 for Spark")


@pytest.fixture(scope="session")
def credentials_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where Spark's processes find ``NAME.json`` for option ``credentials``."""
    folder = tmp_path_factory.mktemp("credentials")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENMASSE_CREDENTIALS", str(folder))
        yield folder


@pytest.fixture(scope="session")
def spark(
    needs_spark: None, credentials_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    # Java hands the environment that it was started with to Spark's Python processes.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        session = start_session("tests", tmp_path_factory.mktemp("spark"), quick=True)
    yield session
    session.stop()


@dataclass
class Done:
    code: int
    out: str
    err: str


class Installation:
    """One ``enmasse up`` and the commands on it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.log = data.with_name(data.name + ".log")
        self.supervisor: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-m", "enmasse", "up", "--data", str(self.data), "--ports", "auto"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.ok("status", "--wait", "60")

    def stop(self) -> int:
        assert self.supervisor is not None
        self.supervisor.send_signal(signal.SIGINT)
        return self.supervisor.wait(40)

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command in this process, which is the same but for the start of Python."""
        out, err = io.StringIO(), io.StringIO()
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            mock.patch.object(sys, "argv", ["enmasse", *arguments, "--data", str(self.data)]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        ):
            try:
                code = run_app()
            except SystemExit as end:
                code = int(end.code or 0)
        return Done(code, out.getvalue(), err.getvalue())

    def ok(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.code == 0, (arguments, done.out, done.err, self.log.read_text())
        return done.out

    def endpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.data / "endpoints.json").read_text())
        return found

    def pid(self, kind: str) -> int:
        return next(int(item["pid"]) for item in self.endpoints()["processes"] if item["kind"] == kind)

    def url(self, protocol: str) -> str:
        return next(str(item["url"]) for item in self.endpoints()["endpoints"] if item["protocol"] == protocol)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation with the examples applied, for tests that leave it as it is."""
    installation = Installation(tmp_path_factory.mktemp("up") / "data")
    try:
        installation.start()
        installation.ok("apply", "-f", str(EXAMPLES))
        installation.ok("status", "--wait", "60")
        yield installation
    finally:
        code = installation.stop()
    assert code == 0


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Installation]:
    """An installation to break."""
    installation = Installation(tmp_path / "data")
    try:
        installation.start()
        yield installation
    finally:
        assert installation.supervisor is not None
        if installation.supervisor.poll() is None:
            installation.stop()
