"""Built-in pipelines that make tables: their content is what plain Python makes of the same messages."""

from __future__ import annotations

import contextlib
import json
import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.client.blocking import Message
from enmasse.model.kinds.pipelines.builtins import LastValueParameters
from enmasse.pipeline.builtin import lake, last_value, metering, sparkplug, windows
from enmasse.pipeline.builtin.telemetry import readings_of
from enmasse.pipeline.errors import PlanError
from enmasse.pipeline.running.planning.plans import AddressFacts, JobPlan, Place
from tests.scenario.builtin_stage import Stage, body, send
from tests.support.draining import everything
from tests.support.sparkplug_payloads import SESSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


@pytest.fixture
def stage(spark: SparkSession, stream_node: StreamNode, tmp_path: Path) -> Iterator[Stage]:
    stream_node.create("telemetry")
    yield Stage(spark, Place(stream_node.url, "", tmp_path / "default.demo"))
    for query in spark.streams.active:
        query.stop()


BAD = [
    b"",
    b"not json",
    b"[1]",
    b"{",
    b'{"device": 7}',
    b'{"temperature": 1}',
    b"\xff\xfe",
    b'{"device":"x","t":"NaN"}',
]


def readings(count: int, seed: int, begin: float) -> list[tuple[str, float, float]]:
    """Device, moment and temperature, in an order that is not that of the moments."""
    random_ = random.Random(seed)
    made = [(f"d{random_.randrange(5)}", begin + n * 0.5, round(random_.gauss(20, 5), 2)) for n in range(count)]
    for index in range(0, count - 10, 10):
        part = made[index : index + 10]
        random_.shuffle(part)
        made[index : index + 10] = part
    return made


def test_lake_has_every_message_once_in_the_day_of_its_event(stage: Stage, stream_node: StreamNode) -> None:
    now = time.time()
    ages = [0, 3600, 86_400, 20 * 86_400, 40 * 86_400, -86_400]
    sent = [body(f"d{n % 3}", now - ages[n % len(ages)], n=n, temperature=20 + n) for n in range(60)] + BAD
    wanted = {"address": "telemetry", "readingsTable": "readings"}
    send(stream_node, "telemetry", sent[:40], key="k")
    stage.at_once = 10
    plans = lake.build(stage, wanted)
    stage.finish(plans)
    send(stream_node, "telemetry", sent[40:], key="k")
    stage.finish(plans)
    raw = stage.table("raw")
    assert sorted(bytes(value) for value in raw["value"]) == sorted(sent)
    assert not raw.duplicated(["partition", "offset"]).any()
    for row in raw.itertuples():
        accepted = row.timestamp.timestamp()
        moment = accepted
        with contextlib.suppress(ValueError, TypeError, KeyError):
            moment = min(json.loads(bytes(row.value))["ts"] / 1000, accepted)
        if accepted - moment > 30 * 86_400:
            moment = accepted
        assert row.day == datetime.fromtimestamp(moment, UTC).date(), row
    folders = {path.name for path in (stage.place.files / "raw").glob("day=*")}
    kept = [age for age in ages if 0 <= age < 30 * 86_400]
    assert folders == {f"day={datetime.fromtimestamp(now - age, UTC).date()}" for age in kept}
    found = stage.table("readings")
    expected = sorted(
        (f"d{n % 3}", metric, float(value))
        for n in range(60)
        for metric, value in (("n", n), ("temperature", 20 + n))
    )
    expected += [("7", "n", 1.0)] * 0 + [("k", "temperature", 1.0)]
    assert sorted(zip(found["device"], found["metric"], found["value"], strict=True)) == sorted(expected)
    before = len(list((stage.place.files / "raw").rglob("*.parquet")))
    jobs = [plan for plan in plans if isinstance(plan, JobPlan)]
    assert [job.name for job in jobs] == ["compact-raw", "compact-readings"]
    assert all(job.name.removeprefix("compact-") in job.run() for job in jobs)
    assert before
    assert len(stage.table("raw")) == len(sent)


def test_the_last_value_is_that_of_the_newest_moment(stage: Stage, stream_node: StreamNode) -> None:
    now = time.time() - 1000
    made = readings(200, 3, now)
    # One that is older than all comes last, and two of the same moment count in the order of the stream.
    made += [("d0", now - 100, 99.0), ("d1", now + 500, 1.0), ("d1", now + 500, 2.0)]
    bodies = [body(device, moment, temperature=value, load=1) for device, moment, value in made]
    stage.at_once = 50
    plans = last_value.build(stage, {"address": "telemetry", "metrics": ["temperature"]})
    for part in (bodies[:100] + BAD, bodies[100:]):
        # One key, so one partition: its order is the order of sending.
        send(stream_node, "telemetry", part, key="k")
        stage.finish(plans)
    expected: dict[tuple[str, str], tuple[float, float]] = {("k", "temperature"): (math.inf, 1.0)}
    for device, moment, value in made:
        at = round(moment * 1000)
        if at >= expected.get((device, "temperature"), (0, 0))[0]:
            expected[device, "temperature"] = (at, value)
    found = stage.table("last_value")
    assert {(r.device, r.metric): r.value for r in found.itertuples()} == {k: v for k, (_, v) in expected.items()}
    moments = {r.device: round(r.time.timestamp() * 1000) for r in found.itertuples() if r.device != "k"}
    assert moments == {device: at for (device, _), (at, _) in expected.items() if device != "k"}


DEEP: list[Any] = [
    {
        "src": "s1",
        "params": {"ts": 1_795_856_400.5, "switch:0": {"apower": 45.5, "a.b": 2}},
        "object": {"t": 1, "T": 2, "n": {"x": 9}, "s": "7.5", "z": "no"},
        "flat.t": 100,
        "flat": {"t": 3},
        "t": 3,
        "T": 4,
    },
    {"src": "", "params": 7, "object": {"t": 5}},
    {"src": {"a": "x"}, "params": {"ts": "2026-11-28T09:00:00Z"}, "object": {"t": 1e400}},
    {"params": {"ts": 1e300}, "object": {"t": 6}},
    {"object": [1]},
    {"object": None, "t": None},
    [],
]


@pytest.mark.parametrize(
    ("metrics", "found"),
    [
        (["params.switch:0.apower"], {("s1", "params.switch:0.apower", 45.5)}),
        (["params.switch:0.`a.b`"], {("s1", "params.switch:0.`a.b`", 2.0)}),
        (["object.t"], {("s1", "object.t", 1.0), ("k", "object.t", 5.0), ("k", "object.t", 6.0)}),
        (
            ["object.T", "object.t"],
            {("s1", "object.T", 2.0), ("s1", "object.t", 1.0), ("k", "object.t", 5.0), ("k", "object.t", 6.0)},
        ),
        (["flat.t"], {("s1", "flat.t", 100.0)}),
        (["`flat.t`"], {("s1", "flat.t", 100.0)}),
        (
            ["object.*", "object.n.x", "t"],
            {("s1", f"object.{name}", value) for name, value in (("t", 1.0), ("T", 2.0), ("s", 7.5), ("n.x", 9.0))}
            | {("s1", "t", 3.0), ("k", "object.t", 5.0), ("k", "object.t", 6.0)},
        ),
        ([], {("s1", "flat.t", 100.0), ("s1", "t", 3.0), ("s1", "T", 4.0), ("k", "params", 7.0)}),
    ],
)
def test_metrics_and_devices_may_lie_deep_and_be_called_otherwise(
    spark: SparkSession, metrics: list[str], found: set[tuple[str, str, float]]
) -> None:
    accepted = datetime(2030, 1, 1, tzinfo=UTC)
    rows = [(0, n, accepted, bytearray(b"k"), bytearray(json.dumps(one).encode())) for n, one in enumerate(DEEP)]
    stream = spark.createDataFrame(
        rows, "partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
    )
    wanted = {"address": "a", "deviceField": "src", "timeField": "params.ts", "metrics": metrics}
    parameters = LastValueParameters.model_validate(wanted)
    made = readings_of(stream, parameters, parameters.metrics).selectExpr("*", "unix_millis(time) AS ms").collect()
    assert {(row["device"], row["metric"], row["value"]) for row in made} == found
    moments = {0: 1_795_856_400_500}
    assert all(row["ms"] == moments.get(row["offset"], accepted.timestamp() * 1000) for row in made)


@pytest.mark.parametrize(("size", "slide"), [(10, 10), (20, 5)])
def test_windows_hold_what_python_counts(stage: Stage, stream_node: StreamNode, size: int, slide: int) -> None:
    begin = 1_700_000_000.0
    made = readings(300, 5, begin)
    bodies = [body(device, moment, temperature=value) for device, moment, value in made]
    late = [body("d0", begin, temperature=1000.0)]
    end = [body("end", begin + 1000, temperature=0.0)]
    stage.at_once = 100
    parameters: dict[str, Any] = {"address": "telemetry", "size": f"{size}s", "lateness": "10s"}
    if slide != size:
        parameters["slide"] = f"{slide}s"
    plans = windows.build(stage, parameters)
    for part in (bodies + BAD[:5], late, end, [body("end", begin + 2000, temperature=0.0)]):
        send(stream_node, "telemetry", part, key="k")
        stage.finish(plans)
    groups: dict[tuple[float, str], list[float]] = defaultdict(list)
    for device, moment, value in made:
        start = moment // slide * slide
        while start + size > moment:
            groups[start, device].append(value)
            start -= slide
    found = stage.table("windows")
    found = found[~found["device"].isin(["end", "k"])]
    assert not found.duplicated(["window_start", "device", "metric"]).any()
    assert {(row.window_start.timestamp(), row.device) for row in found.itertuples()} == set(groups)
    for row in found.itertuples():
        values = groups[row.window_start.timestamp(), row.device]
        assert (row.count, row.min, row.max) == (len(values), min(values), max(values)) or row[5] == len(values)
        assert row.mean == pytest.approx(statistics.fmean(values))
        if len(values) > 1:
            assert row.stddev == pytest.approx(statistics.stdev(values))
        else:
            assert row.stddev is None or math.isnan(row.stddev)
        assert (row.window_end - row.window_start).total_seconds() == size


def test_windows_may_be_told_while_they_grow(stage: Stage, stream_node: StreamNode) -> None:
    begin = 1_700_000_000.0
    stream_node.create("statistics", "queue")
    plans = windows.build(stage, {"address": "telemetry", "emit": "changes", "size": "10s", "to": "statistics"})
    for value in (1.0, 3.0):
        send(stream_node, "telemetry", [body("a", begin + value, t=value)])
        stage.finish(plans)
        row = stage.table("windows").iloc[0]
        assert (len(stage.table("windows")), row["max"]) == (1, value)
    assert row["count"] == 2
    with stream_node.connect() as connection, connection.receiver("statistics", credit=0) as receiver:
        told = [json.loads(delivery.message.body) for delivery in everything(receiver)]
    assert [(one["device"], one["count"], one["max"]) for one in told] == [("a", 1, 1.0), ("a", 2, 3.0)]


def test_usage_is_counted_by_window_and_address(stage: Stage, stream_node: StreamNode) -> None:
    stream_node.create("plant/a")
    stage.addresses = {
        "telemetry": AddressFacts("stream"),
        "plant/a": AddressFacts("stream"),
        "orders": AddressFacts("queue"),
    }
    plans = metering.build(stage, {"addresses": ["telemetry", "plant/*"], "window": "1h"})
    for _ in range(2):
        send(stream_node, "telemetry", [b"x" * 10] * 5, key="abc")
        send(stream_node, "plant/a", [b"y" * 100, b""])
        stage.finish(plans)
    found = stage.table("usage")
    totals = found.groupby(["space", "address"])[["messages", "bytes"]].sum()
    assert totals.loc[("default.demo", "telemetry")].tolist() == [10, 130]
    assert totals.loc[("default.demo", "plant/a")].tolist() == [4, 200]
    with pytest.raises(PlanError, match="orders is a queue"):
        metering.build(stage, {"addresses": ["orders"]})
    with pytest.raises(PlanError, match="no stream that fits"):
        metering.build(stage, {"addresses": ["x/#"]})


def test_metrics_of_sparkplug_are_rows_once_also_where_a_batch_comes_again(
    stage: Stage, stream_node: StreamNode
) -> None:
    stream_node.create("odd", "queue")
    stream_node.create("measured")
    data = "spBv1.0/plant/NDATA/line-1"
    elsewhere = data.replace("line-1", "line-2")
    session = list(SESSION.items())
    # The one of which no birth was seen, then two sessions of one edge node, the second cut short.
    messages = [(elsewhere, SESSION[data]), *session, *session[:1], *session[2:3], (data, b"odd"), ("else", b"")]
    wanted = {"address": "telemetry", "to": "measured", "badRecords": "odd"}
    stage.at_once = 3
    plans = sparkplug.build(stage, wanted)
    for begin, end in ((0, 5), (5, len(messages))):
        with stream_node.connect() as connection:
            sender = connection.sender("telemetry")
            for name, content in messages[begin:end]:
                assert str(sender.send(Message(content, to=name, subject="one"))) == "accepted"
        stage.finish(plans)
        # As if it had been killed before the last batch was noted.
        commits = stage.place.folder / "checkpoints" / "rows" / "commits"
        newest = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        stage.finish(plans)
    table = stage.table("sparkplug").sort_values(["partition", "offset", "place"])
    expected = [name.split("/")[2] for name, _ in session for _ in range(ROWS_OF[name.split("/")[2]])]
    assert table["message"].tolist() == [*expected, *["NBIRTH"] * 5, *["NDATA"] * 3]
    speeds = table[table["metric"] == "Speed"]
    assert speeds["value"].tolist() == [-1500.0, -1450.0, -1400.0]
    assert speeds["time"].max() == datetime(2026, 1, 31, 12, 0, 3, tzinfo=UTC).replace(tzinfo=None)
    assert not table.duplicated(["partition", "offset", "place"]).any()
    told = [json.loads(message.body) for message in all_of(stream_node, "measured")]
    assert [(one["message"], one.get("metric")) for one in told] == [
        (row.message, row.metric) for row in table.itertuples()
    ]
    letters = all_of(stream_node, "odd")
    assert [letter.properties["address"] for letter in letters] == [elsewhere, data, "else"]
    assert letters[0].properties["reason"] == "metric alias 1: no birth of plant/line-2 that says its name was seen"
    assert [bytes(letter.body) for letter in letters] == [SESSION[data], b"odd", b""]


ROWS_OF = {"NBIRTH": 5, "NCMD": 1, "NDATA": 3, "DBIRTH": 3, "DDATA": 3, "DDEATH": 1, "NDEATH": 1}


def all_of(node: StreamNode, address: str) -> list[Message]:
    filters = {"enmasse:start": "first"} if address == "measured" else {}
    with node.connect() as connection, connection.receiver(address, credit=0, filters=filters) as receiver:
        return [delivery.message for delivery in everything(receiver)]


def test_a_wrong_parameter_is_named(stage: Stage) -> None:
    with pytest.raises(PlanError, match=r"spec.builtin.parameters.size: expected a duration"):
        windows.build(stage, {"address": "telemetry", "size": "soon"})
    with pytest.raises(PlanError, match=r"spec.builtin.parameters.table: required"):
        windows.build(stage, {"address": "telemetry", "table": None})
