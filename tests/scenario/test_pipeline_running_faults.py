"""What happens around a runner: its node goes and comes back, its address is deleted, its Java dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.client.blocking import Message
from tests.scenario.conftest import StreamNode
from tests.scenario.pipeline_runner_place import RunnerPlace

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(900),
]

STREAM = {"type": "stream"}

SPOILING = """
import runpy

from enmasse.pipeline.running import runner
from enmasse.pipeline.workers.environment import source_environment


def spoil(spark):
    shared = source_environment(spark.newSession())
    inner = shared.getClass().getDeclaredField("underlying")
    inner.setAccessible(True)
    size = inner.get(shared).getClass().getDeclaredField("contentSize")
    size.setAccessible(True)
    size.setInt(inner.get(shared), 4)


runner.guard_source_environment = spoil
runpy.run_module("enmasse.pipeline", run_name="__main__")
"""
"""A runner whose Java is as two queries leave it that begin in the same moment: what they share has a wrong size."""


@pytest.fixture
def unstarted(stream_node: StreamNode, tmp_path: Path) -> Iterator[RunnerPlace]:
    place = RunnerPlace(stream_node.url, tmp_path / "space")
    yield place
    if place.process is not None and place.process.poll() is None:
        place.kill()


@pytest.fixture
def place(unstarted: RunnerPlace) -> RunnerPlace:
    unstarted.start()
    return unstarted


def send(node: StreamNode, address: str, *bodies: str) -> None:
    with node.connect() as connection:
        outcomes = connection.sender(address).send_all([Message(body.encode()) for body in bodies], timeout=60)
        assert {str(outcome) for outcome in outcomes} == {"accepted"}


def put(place: RunnerPlace, name: str) -> None:
    spec = {
        "sources": [{"name": "readings", "address": name}],
        "steps": [{"name": "texts", "sql": "SELECT CAST(value AS STRING) AS text FROM readings"}],
        "sinks": [{"table": name}],
    }
    place.put(f"demo.{name}", spec, {name: STREAM})


def texts(place: RunnerPlace, table: str) -> list[str]:
    return sorted(row["text"] for row in place.rows(table))


def test_a_runner_outlives_its_node_and_tells_of_an_address_that_is_gone(
    stream_node: StreamNode, place: RunnerPlace
) -> None:
    for name in ("stays", "goes"):
        send(stream_node, stream_node.create(name), "a")
        put(place, name)
    place.until(lambda: texts(place, "stays") == ["a"] and texts(place, "goes") == ["a"], 300)

    stream_node.kill()
    stream_node.start()
    send(stream_node, "stays", "b")
    send(stream_node, "goes", "b")
    place.until(lambda: texts(place, "stays") == ["a", "b"] and texts(place, "goes") == ["a", "b"], 300)

    stream_node.delete("goes")
    place.until(lambda: place.state("demo.goes") == {"Failed"}, 300)
    assert "goes" in place.statuses["demo.goes"]["lastError"]
    send(stream_node, "stays", "c")
    place.until(lambda: texts(place, "stays") == ["a", "b", "c"], 300)
    assert place.stop() == 0


def test_a_runner_whose_java_dies_ends_with_a_word(stream_node: StreamNode, place: RunnerPlace) -> None:
    place.next_event("ready")
    assert place.process is not None
    children = Path(f"/proc/{place.process.pid}/task/{place.process.pid}/children").read_text().split()
    (java,) = [pid for pid in children if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
    os.kill(int(java), signal.SIGKILL)
    assert place.process.wait(120) == 1
    assert place.stop() == 1
    assert "Spark's Java process ended" in (place.folder / "runner.err").read_text()


def test_a_runner_whose_queries_all_fail_in_java_ends_with_the_reason(
    stream_node: StreamNode, unstarted: RunnerPlace
) -> None:
    unstarted.start(program=["-c", SPOILING])
    for name in ("one", "other"):
        send(stream_node, stream_node.create(name), "a")
        put(unstarted, name)
    reason = unstarted.next_event("failed")["error"]
    assert "every query fails in Java" in reason
    assert "IllegalStateException: Illegal size 5 of collection, expected 8" in reason
    assert unstarted.process is not None
    assert unstarted.process.wait(60) == 1
    assert unstarted.stop() == 1
