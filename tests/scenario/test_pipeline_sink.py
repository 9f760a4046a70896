"""The Spark sink against a real node: every test writes through PySpark itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message as ProtonMessage
from proton.utils import BlockingConnection
from pyspark.errors import PySparkException

from enmasse.client.blocking import Message
from enmasse.message.codec import encode
from tests.scenario.taking import take, take_stream
from tests.support.mqtt_devices import Device
from tests.unit.pipeline.test_pipeline_headers import EACH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


class Writing:
    """Writes frames to one node."""

    def __init__(self, spark: SparkSession, node: StreamNode, folder: Path) -> None:
        self.spark, self.node, self._folder = spark, node, folder

    def batch(self, frame: DataFrame, **options: Any) -> None:
        frame.write.format("enmasse").mode("append").options(url=self.node.url, **options).save()

    def numbers(self, count: int, *columns: str, tasks: int = 1) -> DataFrame:
        return self.spark.range(0, count, 1, tasks).selectExpr(*columns)

    def stream(self, frame: DataFrame, name: str = "q", **options: Any) -> None:
        """Write what is there, in micro-batches, and end."""
        query = (
            frame.writeStream.format("enmasse")
            .options(url=self.node.url, **options)
            .option("checkpointLocation", str(self._folder / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    def source(self, address: str, **options: Any) -> DataFrame:
        chosen = {"url": self.node.url, "address": address, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("enmasse").options(**chosen).load()


@pytest.fixture
def writing(spark: SparkSession, stream_node: StreamNode, tmp_path: Path) -> Writing:
    return Writing(spark, stream_node, tmp_path / "checkpoints")


ALL_COLUMNS = (
    "CAST(id AS STRING) AS value",
    "concat('device-', id % 7) AS key",
    "concat('s', id % 3) AS subject",
    "map('n', CAST(id AS STRING), 'kind', 'test') AS properties",
    "'text/plain' AS content_type",
    "concat('id-', id) AS message_id",
    "60000 AS ttl",
    "id % 2 = 0 AS durable",
)


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_every_column_reaches_the_message(writing: Writing, kind: str) -> None:
    node = writing.node
    node.create("a", kind)
    writing.batch(writing.numbers(20, *ALL_COLUMNS), address="a")
    found = take_stream(node, "a", 20) if kind == "stream" else take(node, "a", 20)
    for message in sorted(found, key=lambda message: int(message.body)):
        number = int(message.body)
        assert message.subject == f"s{number % 3}"
        assert message.annotations["x-opt-partition-key"] == f"device-{number % 7}"
        assert message.properties == {"n": str(number), "kind": "test"}
        assert message.content_type == "text/plain"
        assert message.message_id == f"id-{number}"
        assert message.durable is (number % 2 == 0)
        assert message.ttl is not None
        assert 0 < message.ttl <= 60


def test_keys_go_where_the_node_itself_sends_them(writing: Writing) -> None:
    node = writing.node
    node.create("a", partitions=5)
    node.create("b", partitions=5)
    writing.batch(writing.numbers(50, "CAST(id AS STRING) AS value", "concat('k', id) AS subject"), address="a")
    with node.connect() as connection:
        messages = [Message(str(n).encode(), subject=f"k{n}") for n in range(50)]
        connection.sender("b").send_all(messages, timeout=30)
    placed = []
    for address in ("a", "b"):
        rows = writing.spark.read.format("enmasse").options(url=node.url, address=address).load().collect()
        placed.append({bytes(row["value"]): row["partition"] for row in rows})
    assert placed[0] == placed[1]
    assert len(set(placed[0].values())) == 5


def test_order_is_kept_by_key_and_in_a_queue(writing: Writing) -> None:
    node = writing.node
    node.create("s", partitions=3)
    node.create("q", "queue")
    frame = writing.numbers(6_000, "CAST(id AS STRING) AS value", "CAST(id % 11 AS STRING) AS key")
    writing.batch(frame, address="s")
    writing.batch(frame, address="q")
    assert [int(message.body) for message in take(node, "q", 6_000)] == list(range(6_000))
    rows = writing.spark.read.format("enmasse").options(url=node.url, address="s").load().orderBy("offset").collect()
    assert len(rows) == 6_000
    for key in range(11):
        values = [int(bytes(row["value"])) for row in rows if bytes(row["key"]) == str(key).encode()]
        assert values == list(range(key, 6_000, 11))


def test_a_column_names_many_addresses_of_every_kind(writing: Writing) -> None:
    node = writing.node
    for name, kind in {"q": "queue", "r": "queue", "s": "stream", "t": "topic"}.items():
        node.create(name, kind)
    node.manage(
        lambda m: m.create(
            "io.enmasse.address",
            "default/demo.sub",
            {"space": "default/demo", "address": "t::sub", "addressType": "subscription", "topic": "t", "uid": "sub"},
        )
    )
    where = "element_at(array('q', 'r', 's', 't'), CAST(1 + id % 4 AS INT)) AS address"
    frame = writing.numbers(40, "CAST(id AS STRING) AS value", where)
    nowhere = writing.numbers(1, "'more' AS value", "CAST(null AS STRING) AS address")
    writing.batch(frame.unionByName(nowhere), address="r")
    assert [int(m.body) for m in take(node, "q", 10)] == list(range(0, 40, 4))
    assert sorted(m.body for m in take(node, "r", 11)) == sorted([b"%d" % n for n in range(1, 40, 4)] + [b"more"])
    assert [int(m.body) for m in take_stream(node, "s", 10)] == list(range(2, 40, 4))
    assert [int(m.body) for m in take(node, "t::sub", 10)] == list(range(3, 40, 4))


def test_a_consumer_of_another_kind_reads_what_was_written(writing: Writing) -> None:
    writing.node.create("q", "queue")
    writing.batch(
        writing.numbers(3, "CAST(CAST(id AS STRING) AS BINARY) AS value", "'boiler' AS subject"), address="q"
    )
    connection = BlockingConnection(writing.node.url, timeout=20)
    receiver = connection.create_receiver("q")
    found: list[ProtonMessage] = []
    for _ in range(3):
        found.append(receiver.receive(timeout=20))
        receiver.accept()
    connection.close()
    assert [bytes(cast("Any", message.body)) for message in found] == [b"0", b"1", b"2"]
    assert {message.subject for message in found} == {"boiler"}
    assert len({message.id for message in found}) == 3


def test_a_stream_flows_into_streams_and_queues(writing: Writing) -> None:
    node = writing.node
    node.create("in")
    node.create("out", partitions=3)
    node.create("q", "queue")
    with node.connect() as connection:
        messages = [Message(b"%d" % n, subject=f"d{n % 5}") for n in range(500)]
        connection.sender("in").send_all(messages, timeout=30)
    frame = writing.source("in", maxOffsetsPerTrigger="120").selectExpr("key", "value")
    writing.stream(frame, "to-stream", address="out")
    writing.stream(frame, "to-queue", address="q")
    assert sorted(int(m.body) for m in take_stream(node, "out", 500)) == list(range(500))
    assert sorted(int(m.body) for m in take(node, "q", 500)) == list(range(500))


def test_a_write_that_is_repeated_under_its_name_is_known(writing: Writing) -> None:
    node = writing.node
    node.create("s")
    node.create("q", "queue")
    frame = writing.numbers(100, "CAST(id AS STRING) AS value", tasks=2)
    for address in ("s", "q"):
        for sequence in (4, 4, 5, 4):
            writing.batch(frame, address=address, producer="nightly", sequence=sequence)
    assert len(take_stream(node, "s", 200)) == 200
    assert len(take(node, "q", 200)) == 200


def test_rows_in_another_order_are_known_where_they_are_ordered_by_content(writing: Writing) -> None:
    node = writing.node
    node.create("q", "queue")
    up = writing.numbers(50, "CAST(id AS STRING) AS value")
    down = writing.numbers(50, "CAST(49 - id AS STRING) AS value")
    for frame in (up, down):
        writing.batch(frame, address="q", producer="p", sequence=1, order="content")
    assert len(take(node, "q", 50)) == 50


@pytest.mark.parametrize(
    ("columns", "options", "complaint"),
    [
        (["id AS value"], {"address": "q"}, "column 'value' should be binary or string, not bigint"),
        (["'x' AS value", "id AS extra"], {"address": "q"}, "does not write the column 'extra'"),
        (["'x' AS subject"], {"address": "q"}, "no column 'value'"),
        (["'x' AS value"], {}, "nothing says where rows go"),
        (["'x' AS value", "map(1, 'x') AS properties"], {"address": "q"}, "column 'properties' should be a map"),
        (["'x' AS value"], {"address": "q", "adress": "q"}, "no option 'adress'"),
        (["'x' AS value"], {"address": "q", "onNoConsumer": "wait"}, "option onNoConsumer: expected fail or skip"),
        (["'x' AS value"], {"address": "nowhere"}, "option address: cannot write to 'nowhere'.*amqp:not-found"),
        (["'x' AS value"], {"address": "q", "producer": "p"}, "producer and sequence belong together"),
    ],
)
def test_what_cannot_be_is_told_in_words(
    writing: Writing, columns: list[str], options: dict[str, str], complaint: str
) -> None:
    writing.node.create("q", "queue")
    with pytest.raises(PySparkException, match=f"(?s){complaint}"):
        writing.batch(writing.numbers(1, *columns), **options)


def test_a_refused_row_fails_the_batch_by_its_name(writing: Writing) -> None:
    node = writing.node
    node.create("q", "queue")
    frame = writing.numbers(3, "CAST(id AS STRING) AS value", "if(id = 1, 'nowhere', 'q') AS address")
    with pytest.raises(
        PySparkException, match=r"(?s)address 'nowhere' does not take row 1 of task 0.*amqp:not-found"
    ):
        writing.batch(frame)
    frame = writing.numbers(1, "CAST(null AS STRING) AS value")
    with pytest.raises(PySparkException, match=r"(?s)does not take row 0 .*its value is null"):
        writing.batch(frame, address="q")


def test_refused_rows_are_at_the_address_for_bad_records(writing: Writing) -> None:
    node = writing.node
    for name, kind in {"q": "queue", "s": "stream", "bad": "queue"}.items():
        node.create(name, kind)
    frame = writing.numbers(
        9,
        "if(id = 4, repeat('x', 17000000), if(id = 5, null, CAST(id AS STRING))) AS value",
        "element_at(array('q', 'nowhere', 's'), CAST(1 + id % 3 AS INT)) AS address",
        "if(id = 6, -1, 600000) AS ttl",
        "map('n', id) AS properties",
    )
    frame = frame.where("address != 'nowhere' OR properties['n'] != 4")
    for _ in range(2):  # a batch that is repeated gives nothing twice, bad records included
        writing.batch(frame, badRecords="bad", producer="query", sequence="7")
    assert [int(m.body) for m in take(node, "q", 2)] == [0, 3]
    assert [int(m.body) for m in take_stream(node, "s", 2)] == [2, 8]
    bad = {m.properties["n"]: m for m in take(node, "bad", 4)}
    assert sorted(bad) == [1, 5, 6, 7]
    assert "amqp:not-found" in bad[1].properties["enmasse-reason"]
    assert bad[1].properties["enmasse-address"] == "nowhere"
    assert bad[1].body == b"1"
    assert bad[5].properties["enmasse-reason"] == "its value is null"
    assert "ttl of -1" in bad[6].properties["enmasse-reason"]
    assert bad[7].properties["enmasse-row"] == 6
    assert bad[7].properties["enmasse-task"] == 0
    assert bad[1].ttl is None


def test_too_large_rows_are_refused_with_their_size(writing: Writing) -> None:
    node = writing.node
    for name, kind in {"q": "queue", "s": "stream", "bad": "queue"}.items():
        node.create(name, kind)
    frame = writing.numbers(2, "repeat('x', 5000000) AS value", "if(id = 0, 's', 'q') AS address")
    writing.batch(frame, badRecords="bad")
    assert [len(m.body) for m in take(node, "q", 1)] == [5_000_000]
    (found,) = take(node, "bad", 1)
    assert found.properties["enmasse-reason"].startswith("too large: 5000")
    assert len(found.body) == 5_000_000


@contextmanager
def receiving(node: StreamNode, address: str) -> Iterator[list[bytes]]:
    """A receiver on a direct address, and what it has got."""
    found: list[bytes] = []
    with node.connect() as connection:
        receiver = connection.receiver(address, credit=50)

        def receive() -> None:
            while (delivery := receiver.receive(timeout=0.2)) is not None or not done.is_set():
                if delivery is not None:
                    found.append(delivery.message.body)
                    delivery.accept()

        done = threading.Event()
        thread = threading.Thread(target=receive)
        thread.start()
        try:
            yield found
        finally:
            done.set()
            thread.join()


@pytest.mark.parametrize("kind", ["anycast", "multicast"])
def test_a_direct_address_needs_a_consumer(writing: Writing, kind: str) -> None:
    writing.node.create("d", kind)
    frame = writing.numbers(300, "CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="nobody received from 'd'"):
        writing.batch(frame, address="d", sendTimeout="1s")
    writing.batch(frame, address="d", onNoConsumer="skip", noConsumerTimeout="200ms")
    with receiving(writing.node, "d") as found:
        writing.batch(frame, address="d")
    assert sorted(map(int, found)) == list(range(300))


def test_a_full_queue_holds_the_batch_up_until_there_is_room(writing: Writing) -> None:
    node = writing.node
    node.create("q", "queue")
    node.manage(lambda m: m.update("io.enmasse.address", "default/demo.q", {"maxBytes": 50_000}))
    frame = writing.numbers(2_000, "CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="'q' took nothing for 1 s"):
        writing.batch(frame, address="q", sendTimeout="1s", producer="p", sequence=0)
    found: list[Message] = []
    reader = threading.Thread(target=lambda: found.extend(take(node, "q", 2_000)))
    reader.start()
    writing.batch(frame, address="q", producer="p", sequence=0)
    reader.join()
    # What came as the room went is sent again behind what was taken meanwhile.
    assert sorted(int(message.body) for message in found) == list(range(2_000))


def test_a_row_as_json_goes_out_and_comes_back(writing: Writing) -> None:
    writing.node.create("s", partitions=1)
    writing.batch(writing.numbers(3, "id AS device", "id * 2 AS heat").selectExpr("to_json(struct(*)) AS value"),
                  address="s")  # fmt: skip
    found = [json.loads(message.body) for message in take_stream(writing.node, "s", 3)]
    assert found == [{"device": n, "heat": 2 * n} for n in range(3)]


def test_headers_keep_types_and_names_that_come_twice_on_their_way_through_spark(writing: Writing) -> None:
    require("paho-mqtt")
    from tests.support.paho_devices import PahoClient

    node, values = writing.node, [value for value, _, _ in EACH]
    sent = {f"p{n}": value for n, value in enumerate(values)}
    for address in ("a", "b"):
        node.create(address, partitions=1)
    node.create("shown", "topic")
    paho = PahoClient()
    display = Device(paho, node.port, 5, client_id="display")
    assert display.subscribe("shown", 1) == 1
    with node.connect() as connection:
        connection.sender("a").send(Message(b"typed", properties=sent))
    gauge = Device(paho, node.port, 5, client_id="gauge")
    assert gauge.publish("a", b"doubled", qos=1, user_properties="unit=C,tag=1,tag=2,unit=F") == [0]
    source = writing.spark.read.format("enmasse").options(url=node.url, address="a", includeHeaders="true").load()
    rows = source.select("value", "headers").cache()
    seen = rows.selectExpr(
        "value = 'typed' AS t",
        "CAST(get(filter(headers, h -> h.type = 'timestamp'), 0).value AS TIMESTAMP) = "
        "TIMESTAMP '2026-01-31 12:00:00.123Z' AS moment",
        "CAST(get(filter(headers, h -> h.type = 'double'), 0).value AS DOUBLE) AS number",
        "transform(filter(headers, h -> h.key = 'tag'), h -> h.value) AS tags",
    )
    assert [tuple(row) for row in seen.orderBy("t").collect()] == [
        (False, None, None, ["1", "2"]),
        (True, True, 0.1, []),
    ]
    writing.batch(rows, address="b")
    writing.batch(rows.where("value = 'doubled'"), address="shown")
    typed, doubled = sorted(take_stream(node, "b", 2), key=lambda message: message.body == b"doubled")
    assert {name: (type(value), encode(value)) for name, value in typed.properties.items()} == {
        name: (type(value), encode(value)) for name, value in sent.items()
    }
    assert doubled.properties == {"unit": "C", "tag": "1"}
    again = writing.spark.read.format("enmasse").options(url=node.url, address="b", includeHeaders="true").load()
    assert sorted(map(repr, again.select("value", "headers").collect())) == sorted(map(repr, rows.collect()))
    (shown,) = display.receive(1)
    told = [pair for pair in shown.properties["user_properties"] if pair[0] in ("unit", "tag")]
    assert told == [["unit", "C"], ["tag", "1"], ["tag", "2"], ["unit", "F"]]
    for device in (gauge, display):
        device.disconnect()
    paho.close()


def test_a_copy_of_a_stream_keeps_its_partitions_and_a_smaller_one_says_what_to_do(writing: Writing) -> None:
    node = writing.node
    for address, partitions in (("a", 3), ("b", 3), ("small", 2)):
        node.create(address, partitions=partitions)
    node.create("bad", "queue")
    # Keys alone would send them elsewhere.
    rows = writing.numbers(60, "CAST(id AS STRING) AS value", "concat('k', id % 5) AS key", "id % 3 AS partition")
    writing.batch(rows, address="a")
    writing.stream(writing.source("a").select("value", "key", "partition"), address="b")

    def layout(address: str) -> dict[int, list[int]]:
        read = writing.spark.read.format("enmasse").options(url=node.url, address=address).load()
        found: dict[int, list[int]] = {}
        for row in read.orderBy("partition", "offset").collect():
            found.setdefault(row["partition"], []).append(int(row["value"]))
        return found

    assert layout("a") == layout("b") == {n: list(range(n, 60, 3)) for n in range(3)}
    copy = writing.source("a").select("value", "key", "partition")
    with pytest.raises(PySparkException, match=r"there is no partition 2: 'small' has 0 to 1; leave out the column"):
        writing.stream(copy.where("partition = 2"), "refused", address="small")
    writing.stream(copy, "kept", address="small", badRecords="bad")
    assert layout("small") == {n: list(range(n, 60, 3)) for n in range(2)}
    assert sorted(int(message.body) for message in take(node, "bad", 20)) == list(range(2, 60, 3))


def test_intervals_are_texts_in_messages_of_a_registered_schema(spark: SparkSession) -> None:
    from enmasse.pipeline.registry_copy import RegisteredSchema  # needs PySpark
    from enmasse.pipeline.sink.encoding import Encoding

    schema = RegisteredSchema(1, "JSON", '{"type": "object", "properties": {"took": {"type": "string"}}}')
    months = "INTERVAL '1-2' YEAR TO MONTH"
    rows = spark.sql(
        f"SELECT INTERVAL 90 MINUTES AS took, array(named_struct('interval', {months})) AS terms, "
        "TIME '10:00:00' AS at, make_interval(1) AS since, CAST(NULL AS INTERVAL DAY) AS no, INTERVAL 1 SECOND AS ttl"
    )
    (message,) = Encoding("s", schema, with_id=False).encoded(rows, with_address=False).collect()
    assert message["ttl"] == timedelta(seconds=1)
    content = rows.drop("ttl").selectExpr("to_json(struct(*))").first()
    assert content is not None
    assert json.loads(message["value"]) == json.loads(content[0])
