"""The examples of pipelines, and exactly what they make of what is sent; batches that are repeated."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
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
    pytest.mark.xdist_group("runner"),
]

STREAM = {"type": "stream"}


def send(node: StreamNode, address: str, *rows: dict[str, Any]) -> None:
    with node.connect() as connection:
        messages = [Message(json.dumps(row).encode(), durable=True) for row in rows]
        connection.sender(address).send_all(messages, timeout=60)


def example(file: str) -> dict[tuple[str, str], Any]:
    """The objects of an example by kind and name."""
    text = (Path(__file__).parents[2] / "examples" / "pipelines" / f"{file}.yaml").read_text()
    return {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(text)}


def declared(name: str, **changed: Any) -> dict[str, Any]:
    """The spec of a pipeline of the example about enriching."""
    spec: dict[str, Any] = example("enrich")["Pipeline", name]["spec"] | changed
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
    place.send(command="delete", name="demo.enrich", purge=True)

    # A batch that nobody takes is written down with its version, and repeated with it when its query starts again.
    live = declared("park.enrich", sinks=[{"address": "live"}])
    place.put("demo.live", live, kinds)
    pins = place.folder / "checkpoints" / "demo.live" / "1" / "to-live" / "tables" / "devices"
    place.until((pins / "0").exists)
    send(node, "registry", {"device": "a", "place": "moved away"})
    place.until(lambda: {row["place"] for row in place.rows("devices")} == {"moved away", "roof"})
    place.send(command="delete", name="demo.registry", purge=True)
    place.put("demo.live", live | {"paused": True}, kinds)
    place.until(lambda: place.statuses["demo.live"]["conditions"][0]["reason"] == "Paused")
    compact(place.folder / "lake" / "devices", keep_h=0)
    with node.connect() as connection:
        receiver = connection.receiver("live")
        place.put("demo.live", live, kinds)
        seen = set()

        def taken() -> dict[str, Any]:
            """The next message: a direct address has each at least once, with one id."""
            while (delivery := receiver.receive(timeout=120)) is not None:
                delivery.accept()
                if delivery.message.message_id not in seen:
                    seen.add(delivery.message.message_id)
                    found: dict[str, Any] = json.loads(delivery.message.body)
                    return found
            pytest.fail("nothing came")

        repeated = [taken() for _ in range(3)]
        send(node, "levels", {"device": "a", "level": 4.0})
        assert taken() == {"device": "a", "level": 4.0, "place": "moved away"}
    assert sorted((row["device"], row.get("place")) for row in repeated) == [
        ("a", "attic"),
        ("a", "attic"),
        ("c", None),
    ]
    place.send(command="delete", name="demo.live", purge=True)
    place.until(lambda: not list((place.folder / "lake" / "_pinned").glob("demo.live_*")))


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-31T{clock}+00:00")


def test_changes_of_a_database_become_its_table(node: StreamNode, place: RunnerPlace) -> None:
    node.create("changes", partitions=1)
    place.put("demo.customers", example("changes")["Pipeline", "crm.customers"]["spec"], {"changes": STREAM})

    def change(op: str, identity: int, second: int, name: str | None = None) -> dict[str, Any]:
        return {"id": identity, "op": op, "name": name, "at": f"2026-01-31T12:00:{second:02d}Z"}

    def customers() -> list[tuple[int, str]]:
        return sorted((row["id"], row["name"]) for row in place.rows("customers"))

    send(node, "changes", change("c", 1, 1, "Ada"), change("c", 2, 1, "Bob"), change("c", 3, 1, "Eve"))
    place.until(lambda: customers() == [(1, "Ada"), (2, "Bob"), (3, "Eve")])
    # In the wrong order, and over batches: the newest change of each row counts.
    send(node, "changes", change("u", 1, 9, "Ada L."), change("u", 1, 5, "Ada K."), change("d", 2, 7))
    place.until(lambda: customers() == [(1, "Ada L."), (3, "Eve")])
    send(
        node,
        "changes",
        change("u", 2, 6, "Bobby"),
        change("d", 3, 3),
        change("c", 4, 1, "Kim"),
        change("c", 3, 8, "Eva"),
    )
    place.until(lambda: customers() == [(1, "Ada L."), (3, "Eva"), (4, "Kim")])

    def versions() -> list[tuple[int, str, int, int | None]]:
        rows = place.rows("customer_history")
        times = [(row["valid_from"].second, row["valid_to"] and row["valid_to"].second) for row in rows]
        return sorted((row["id"], row["name"], *time) for row, time in zip(rows, times, strict=True))

    expected = [
        (1, "Ada", 1, 5),
        (1, "Ada K.", 5, 9),
        (1, "Ada L.", 9, None),
        (2, "Bob", 1, 6),
        (2, "Bobby", 6, 7),
        (3, "Eva", 8, None),
        (3, "Eve", 1, 3),
        (4, "Kim", 1, None),
    ]
    place.until(lambda: versions() == expected)
    place.send(command="delete", name="demo.customers", purge=True)


def test_patterns_over_one_stream(node: StreamNode, place: RunnerPlace) -> None:
    objects = example("patterns")
    node.create("readings", partitions=1)
    node.create("top", "topic")
    code = place.folder / "code" / "demo.scores"
    code.mkdir(parents=True)
    for name, text in objects["ConfigMap", "hall-code"]["data"].items():
        (code / name).write_text(text)
    kinds = {"readings": STREAM, "top": {"type": "topic"}}
    with node.connect() as connection:
        receiver = connection.receiver("top")
        for name in ("sessions", "once", "top", "scores"):
            place.put(f"demo.{name}", objects["Pipeline", f"hall.{name}"]["spec"], kinds)

        def reading(identity: str, device: str, clock: str, level: float) -> dict[str, Any]:
            return {"id": identity, "device": device, "level": level, "at": f"2026-01-31T{clock}Z"}

        first = [
            reading("1", "a", "12:00:05", 1.0),
            reading("2", "a", "12:00:50", 3.0),
            reading("2", "a", "12:00:50", 3.0),
            reading("3", "b", "12:00:20", 2.0),
            reading("4", "a", "12:04:00", 5.0),
        ]
        send(node, "readings", *first)
        place.until(lambda: place.count("once") == 4)
        # What began before the watermark is over by then, and what comes so late counts no more.
        for name in ("sessions", "top"):
            place.until(lambda: "T12:03:50" in place.statuses[f"demo.{name}"]["queries"][0]["watermark"])  # noqa: B023  # called at once
        send(node, "readings", reading("5", "b", "12:00:59", 9.0), reading("1", "a", "12:00:05", 1.0))
        send(node, "readings", reading("6", "a", "12:30:00", 1.0))
        delivery = receiver.receive(timeout=120)
        assert delivery is not None
        told = json.loads(delivery.message.body)
        delivery.accept()
    highest = [{"level": 3.0, "device": "a"}, {"level": 3.0, "device": "a"}]
    assert (datetime.fromisoformat(told["minute"]), told["highest"]) == (at("12:00:00"), highest)

    def sessions() -> list[tuple[Any, ...]]:
        return sorted((row["device"], row["began"], row["ended"], row["readings"]) for row in place.rows("sessions"))

    place.until(lambda: len(sessions()) == 3)
    assert sessions() == [
        ("a", at("12:00:05"), at("12:01:50"), 3),
        ("a", at("12:04:00"), at("12:05:00"), 1),
        ("b", at("12:00:20"), at("12:01:20"), 1),
    ]
    place.until(lambda: place.count("once") == 6)
    assert {row["id"] for row in place.rows("once")} == {"1", "2", "3", "4", "5", "6"}
    place.until(lambda: place.count("scores") == 8)
    scores = Counter((row["device"], row["level"], row["score"]) for row in place.rows("scores"))
    assert scores == Counter(
        (row["device"], row["level"], row["level"] / 4)
        for row in [*first, reading("5", "b", "", 9.0), reading("1", "a", "", 1.0), reading("6", "a", "", 1.0)]
    )
