"""Streams joined with a table that changes: each batch joins it as it is then, and the same when it is repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from enmasse.client.blocking import Message
from enmasse.pipeline.lake.compaction import compact
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.timeout(600),
]

STREAM = {"type": "stream"}


@pytest.fixture(scope="module")
def node(stream_process: StreamNode) -> Iterator[StreamNode]:
    stream_process.clear()
    yield stream_process
    stream_process.disconnect()


@pytest.fixture
def place(node: StreamNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunnerPlace]:
    place = RunnerPlace(node.url, tmp_path_factory.mktemp("space"))
    place.start()
    place.next_event("ready")
    yield place
    assert place.stop() == 0


def send(node: StreamNode, address: str, *rows: dict[str, Any]) -> None:
    with node.connect() as connection:
        messages = [Message(json.dumps(row).encode(), durable=True) for row in rows]
        connection.sender(address).send_all(messages, timeout=60)


def declared(name: str, **changed: Any) -> dict[str, Any]:
    """The spec of a pipeline of the example."""
    example = Path(__file__).parents[2] / "examples" / "pipelines" / "enrich.yaml"
    objects = {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(example.read_text())}
    spec: dict[str, Any] = objects["Pipeline", name]["spec"] | changed
    return spec


def places(place: RunnerPlace) -> list[tuple[str, str | None]]:
    return sorted((row["device"], row["place"]) for row in place.rows("enriched"))


def test_batches_join_the_table_as_it_is_and_repeat_what_they_joined(node: StreamNode, place: RunnerPlace) -> None:
    for address in ("registry", "levels"):
        node.create(address, partitions=1)  # a task that waits for a receiver leaves a core to others
    node.create("live", "anycast")
    kinds = {"registry": STREAM, "levels": STREAM, "live": {"type": "anycast"}}
    place.put("demo.registry", declared("park.registry"), kinds)
    place.put("demo.enrich", declared("park.enrich"), kinds)
    send(node, "levels", {"device": "a", "level": 1.0})

    def waits() -> bool:
        ready = place.statuses["demo.enrich"]["conditions"][0]
        return ready["reason"] == "TableEmpty" and "whenEmpty: warn" in ready["message"]

    # Nothing is joined with a table that is about to be filled.
    place.until(lambda: place.state("demo.registry") == {"Running"})
    place.until(waits)
    send(node, "registry", {"device": "a", "place": "cellar"}, {"device": "b", "place": "roof"})
    place.until(lambda: places(place) == [("a", "cellar")])
    send(node, "registry", {"device": "a", "place": "attic"})
    place.until(lambda: {row["place"] for row in place.rows("devices")} == {"attic", "roof"})
    send(node, "levels", {"device": "a", "level": 2.0}, {"device": "c", "level": 3.0})
    place.until(lambda: places(place) == [("a", "attic"), ("a", "cellar"), ("c", None)])
    (told,) = place.until(lambda: place.statuses["demo.enrich"]["queries"][0].get("tables"))
    assert told["name"] == "devices"
    assert place.until(lambda: place.statuses["demo.enrich"]["rows"] == 3)

    # A batch that nobody takes is written down with its version, and repeated with it by the next runner.
    place.put("demo.live", declared("park.enrich", sinks=[{"address": "live"}]), kinds)
    pins = place.folder / "checkpoints" / "demo.live" / "1" / "to-live" / "tables" / "devices"
    place.until((pins / "0").exists)
    send(node, "registry", {"device": "a", "place": "moved away"})
    place.until(lambda: {row["place"] for row in place.rows("devices")} == {"moved away", "roof"})
    place.kill()
    compact(place.folder / "lake" / "devices", keep_h=0)
    place.start()
    place.next_event("ready")
    with node.connect() as connection:
        receiver = connection.receiver("live")
        place.put("demo.live", declared("park.enrich", sinks=[{"address": "live"}]), kinds)
        taken: list[dict[str, Any]] = []
        while len(taken) < 3:
            delivery = receiver.receive(timeout=120)
            assert delivery is not None
            taken.append(json.loads(delivery.message.body))
            delivery.accept()
        send(node, "levels", {"device": "a", "level": 4.0})
        delivery = receiver.receive(timeout=120)
        assert delivery is not None
        assert json.loads(delivery.message.body)["place"] == "moved away"
        delivery.accept()
    assert sorted((row["device"], row.get("place")) for row in taken) == [("a", "attic"), ("a", "attic"), ("c", None)]
    place.send(command="delete", name="demo.live", purge=True)
    place.until(lambda: not list((place.folder / "lake" / "_pinned").glob("demo.live_*")))
