"""Tables in S3-compatible storage that throttles, is away, is slow or has new keys, while runners are killed."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from enmasse.client.blocking import Message
from tests.scenario.pipeline_runner_place import RunnerPlace
from tests.scenario.test_pipeline_objects import SLOW_DOWN, THROTTLED, storage
from tests.support.chance import kills
from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.relay import Relay
from tests.support.stream_node import StreamNode

__all__ = ["storage"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.usefixtures("needs_spark"),
    pytest.mark.xdist_group("runner"),
]


@pytest.mark.chance
@pytest.mark.timeout(900)
def test_each_message_is_in_the_tables_once_whatever_the_storage_does_and_whoever_is_killed(
    node: StreamNode,
    place: RunnerPlace,
    storage: ObjectStorage,
    story_chance: random.Random,
) -> None:
    relay = Relay(storage.port)
    credentials = place.folder / "credentials"
    credentials.mkdir(exist_ok=True)
    endpoint = f"http://127.0.0.1:{relay.port}"
    settings = storage.write_settings(credentials, endpoint=endpoint, prefix="story/lake")
    node.create("numbers", "stream", partitions=2)
    sent = 0

    def send() -> None:
        nonlocal sent
        with node.connect() as connection:
            sender = connection.sender("numbers")
            messages = [Message(b'{"n": %d}' % n, subject=f"k{n % 7}") for n in range(sent, sent + 50)]
            assert {str(outcome) for outcome in sender.send_all(messages, timeout=60)} == {"accepted"}
        sent += 50

    def table(name: str) -> list[dict[str, Any]]:
        try:
            found = DeltaTable(f"s3://{BUCKET}/story/lake/{name}", storage_options=storage.options())
        except TableNotFoundError:
            return []
        rows: list[dict[str, Any]] = found.to_pyarrow_table().to_pylist()
        return rows

    def is_there() -> bool:
        return len(table("every")) >= sent and sum(row["seen"] for row in table("counts")) >= sent

    def error() -> str:
        return " ".join(str(query.get("error") or "") for query in place.statuses["demo.n"]["queries"])

    spec = {
        "sources": [{"name": "rows", "address": "numbers", "format": "json", "schema": "n INT"}],
        "steps": [{"name": "counted", "sql": "SELECT n % 7 AS k, count(*) AS seen FROM rows GROUP BY n % 7"}],
        "sinks": [
            {"input": "rows", "table": "every"},
            {"input": "counted", "table": "counts", "mode": "update", "keys": ["k"]},
        ],
        "trigger": "200ms",
    }

    addresses = {"numbers": {"type": "stream"}}

    def put() -> None:
        place.put("demo.n", spec, addresses)

    def kill() -> None:
        place.kill()
        place.start()
        put()

    put()
    try:
        send()
        place.until(is_there)
        answer = place.ask("SELECT count(*) FROM every")
        assert answer["rows"] == [[50]], answer
        assert [row[0] for row in place.ask_tables()["rows"]] == ["counts", "every"]
        relay.answer = THROTTLED % (len(SLOW_DOWN), SLOW_DOWN)
        relay.cut()
        relay.mend()
        send()
        place.until(lambda: "the storage asks for fewer requests" in error())
        relay.answer = b""
        place.until(is_there)
        relay.cut()
        send()
        place.until(lambda: "the storage does not answer; it goes on when it does" in error())
        place.interrupt("demo.n", spec, addresses)
        put()
        relay.mend()
        place.until(is_there)
        relay.slowness_s = 0.1
        send()
        place.until(is_there)
        relay.slowness_s = 0.0
        storage.stop()
        storage.start(secret="another secret of tests")
        send()
        place.until(lambda: "the storage refuses the credentials: put right ones" in error())
        storage.settings["secretAccessKey"] = "another secret of tests"
        storage.write_settings(credentials, endpoint=endpoint, prefix="story/lake")
        place.until(is_there)
        for _ in range(kills(0)):
            send()
            time.sleep(story_chance.uniform(0.0, 0.7))  # anywhere in the batches that follow
            storage.stop()
            if story_chance.random() < 0.7:
                kill()
            storage.start()
            place.until(is_there)
        assert sorted(row["n"] for row in table("every")) == list(range(sent))
        assert {row["k"]: row["seen"] for row in table("counts")} == Counter(n % 7 for n in range(sent))
        place.send(command="delete", name="demo.n", purge=True)
        while place.next_event("deleted")["pipeline"] != "demo.n":
            pass
    finally:
        relay.cut()
        settings.unlink()
    assert "a secret of tests" not in (place.folder / "runner.err").read_text() + "".join(place.log)
