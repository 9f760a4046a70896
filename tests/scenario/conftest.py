"""A node with streams, whole installations, and one Spark session and one runner for the whole run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.pipeline.session import start_session
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.support.foreign_tools import require
from tests.support.installation import Installation
from tests.support.stream_node import StreamNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def stream_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamNode]:
    with StreamNode(tmp_path_factory.mktemp("node") / "n") as node:
        yield node


@pytest.fixture
def stream_node(stream_process: StreamNode) -> Iterator[StreamNode]:
    """A node without addresses, which may be killed and started again."""
    stream_process.clear()
    yield stream_process
    stream_process.disconnect()


@pytest.fixture(scope="module")
def node(stream_process: StreamNode) -> Iterator[StreamNode]:
    """A node that was without addresses when the module began."""
    stream_process.clear()
    yield stream_process
    stream_process.disconnect()


@pytest.fixture(scope="session")
def needs_spark() -> None:
    require("Java 17 for Spark")


@pytest.fixture(scope="session")
def runner(
    needs_spark: None, stream_process: StreamNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunnerPlace]:
    """The runner process of this worker; modules that share it are of the group ``runner``."""
    place = RunnerPlace(stream_process.url, tmp_path_factory.mktemp("space"))
    place.start()
    place.next_event("ready")
    yield place
    assert place.stop() == 0
    assert "Traceback" not in (place.folder / "runner.err").read_text()


@pytest.fixture(scope="module")
def place(node: StreamNode, runner: RunnerPlace) -> RunnerPlace:
    """The runner, with nothing of what the last module left."""
    if runner.process is None or runner.process.poll() is not None:
        runner.start()
        runner.next_event("ready")
    runner.forget()
    return runner


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


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The one of this worker, in the state that the last test left it in."""
    found = Installation(tmp_path_factory.mktemp("up") / "data")
    try:
        found.start()
        yield found
    finally:
        code = found.stop() if found.is_running else 0
    assert code == 0


@pytest.fixture
def shared(installation: Installation) -> Installation:
    """An installation with the examples applied, for tests that leave it as it is."""
    installation.have_examples()
    return installation


@pytest.fixture
def own(installation: Installation) -> Installation:
    """An installation without spaces, which a test may change, kill and stop; its data must be sound in the end."""
    installation.be_empty()
    return installation
