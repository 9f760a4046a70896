"""Built-in pipelines that tell: alerts, scores and commands are what plain Python makes of the same messages."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

from enmasse.model.kinds.pipelines.builtins import TrainParameters
from enmasse.pipeline.builtin import anomalies, commands, features, heartbeat, lake, score, train
from enmasse.pipeline.builtin.models import Models, roll_back
from enmasse.pipeline.errors import ModelMissingError, PlanError
from enmasse.pipeline.running.planning.plans import AddressFacts, JobPlan, Place, QueryPlan
from enmasse.pipeline.running.querying import versions_of_models
from tests.scenario.builtin_stage import Stage, body, send
from tests.support.foreign_tools import require
from tests.support.polling import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.stream_node import StreamNode

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

BAD = [
    b"",
    b"not json",
    b"[1]",
    b'{"device":"x","temperature":"NaN"}',
    b'{"device":"x","temperature":{}}',
    b"\xff\xfe",
]


@pytest.fixture
def stage(spark: SparkSession, stream_node: StreamNode, tmp_path: Path) -> Iterator[Stage]:
    stream_node.create("telemetry")
    yield Stage(spark, Place(stream_node.url, "", tmp_path / "default.demo"))
    for query in spark.streams.active:
        query.stop()


def told(node: StreamNode, address: str, count: int, seconds: float = 60.0) -> list[Any]:
    """So many messages of an address, and whatever else comes within a second."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    with node.connect() as connection, connection.receiver(address, filters={}) as receiver:
        while (delivery := receiver.receive(timeout=1.0)) is not None or (
            len(found) < count and time.monotonic() < deadline
        ):
            if delivery is not None:
                found.append(delivery.message)
                delivery.accept()
    return found


def test_each_device_that_leaves_its_band_is_told_of_once(stage: Stage, stream_node: StreamNode) -> None:
    stream_node.create("alerts", "queue")
    chance = random.Random(2)
    sent: dict[str, list[bytes]] = {f"d{n}": [] for n in range(6)}
    expected: list[tuple[str, str, float]] = []
    since: dict[str, float] = {}
    raised = dict.fromkeys(sent, False)
    begun = int(time.time()) - 1000
    for number in range(300):
        device = chance.choice(list(sent))
        value = chance.choice([20.0, 25.0, 36.0, -5.0])
        moment = begun + 2 * number - chance.randrange(5)
        sent[device].append(body(device, moment, temperature=value, n=number))
        if 10 <= value <= (22 if raised[device] else 35):
            since.pop(device, None)
            if raised[device]:
                raised[device] = False
                expected.append((device, "cleared", value))
        elif not raised[device] and moment - since.setdefault(device, moment) >= 10:
            raised[device] = True
            expected.append((device, "raised", value))
    assert len(expected) > 20
    stage.at_once = 400
    rules = {"bands": {"temperature": "10:35"}, "clearBands": {"temperature": ":22"}, "minDuration": "10s"}
    plans = anomalies.build(stage, {"address": "telemetry", "alerts": "alerts", "table": "alerts"} | rules)
    for begin, end in ((0, 20), (20, 1000)):
        for device, bodies in sent.items():
            send(stream_node, "telemetry", [*bodies[begin:end], *BAD], key=device)
        stage.finish(plans, "alerts")
    stage.finish(plans, "table")
    table = stage.table("alerts")
    assert Counter(zip(table["device"], table["state"], table["value"], strict=True)) == Counter(expected)
    assert table["id"].is_unique
    messages = told(stream_node, "alerts", len(expected))
    found = [json.loads(message.body) for message in messages]
    assert Counter((one["device"], one["state"], one["value"]) for one in found) == Counter(expected)
    assert {one["id"] for one in found} == set(table["id"])
    assert all(message.subject == one["device"] for message, one in zip(messages, found, strict=True))
    assert all(message.message_id == one["id"] for message, one in zip(messages, found, strict=True))
    for device in sent:
        states = [one["state"] for one in found if one["device"] == device]
        assert states == ["raised", "cleared"] * (len(states) // 2) + ["raised"] * (len(states) % 2)


def test_a_silent_device_is_missed_and_welcomed_back(stage: Stage, stream_node: StreamNode) -> None:
    stream_node.create("alerts", "queue")
    parameters = {"address": "telemetry", "alerts": "alerts", "after": "2s", "checkEvery": "500ms"}
    plans = heartbeat.build(stage, parameters | {"startingOffsets": "earliest"})
    with stage.running(plans[0]):
        send(stream_node, "telemetry", [body("a"), body("b"), b"no json"])
        send(stream_node, "telemetry", [b"not json either"], key="c")
        first = [json.loads(message.body) for message in told(stream_node, "alerts", 3)]
        assert sorted((one["device"], one["state"]) for one in first) == [(name, "missing") for name in "abc"]
        send(stream_node, "telemetry", [body("b")])
        back = [json.loads(message.body) for message in told(stream_node, "alerts", 1)]
    assert (back[0]["device"], back[0]["state"]) == ("b", "back")


def test_a_model_is_trained_applied_and_swapped_while_the_query_runs(stage: Stage, stream_node: StreamNode) -> None:
    chance = random.Random(4)
    wanted: dict[str, Any] = {"model": "pumps", "features": ["load", "power"], "clusters": 2, "scale": "minMax"}
    wanted |= {"minRows": 50, "quantile": 0.9}
    (job,) = train.build(stage, wanted)
    assert isinstance(job, JobPlan)
    assert "waits for rows: there is no table 'raw'" in job.run()
    plans = score.build(stage, {"address": "telemetry", "model": "pumps", "table": "scores"})
    with pytest.raises(ModelMissingError, match="no model 'pumps' yet"):
        stage.finish(plans, "table")

    def sample() -> bytes:
        load = chance.uniform(0, 100)
        return body("p", load=load, power=3 * load + 7 + chance.gauss(0, 1))

    send(stream_node, "telemetry", [sample() for _ in range(20)], key="p")
    stored = lake.build(stage, {"address": "telemetry"})
    stage.finish(stored)
    assert "table raw has 20 with load, power, and 50 are needed" in job.run()
    send(stream_node, "telemetry", [*(sample() for _ in range(180)), b"no", b'{"load": 1}', *BAD], key="p")
    stage.finish(stored)
    said = r"model pumps: version 000001, trained with (\d+) rows; of (\d+) held back: anomalies 0\.?\d*, score"
    trained = re.match(said, job.run())
    assert trained is not None
    assert int(trained[1]) + int(trained[2]) == 200
    assert job.run() == "model pumps: version 000001 counts"
    models = Models(stage.place.models / "pumps")
    model = models.load("000001")
    assert 0.8 < sum(float(s) <= model.threshold for s in _scores(stage, plans, "000001")) / 200 < 0.97
    assert model.quality["rows"] == int(trained[2]) > 10
    _compare_with_spark(stage, model.version)
    plan = plans[0]
    assert isinstance(plan, QueryPlan)
    with stage.running(plan):
        assert train.train(stage, TrainParameters.model_validate(wanted)).startswith("model pumps: version 000002")
        odd = body("odd", load=50.0, power=900.0)
        send(stream_node, "telemetry", [odd, body("even", load=50.0, power=157.0), b"bad"])
        until(lambda: len(stage.table("scores")) == 202)
    last = {row.device: row for row in stage.table("scores").tail(400).itertuples() if row.device != "p"}
    assert {row.version for row in last.values()} == {"000002"}
    assert last["odd"].anomalous
    assert last["odd"].score > last["even"].score
    folder = stage.place.models / "pumps"
    told = versions_of_models(stage.spark, stage.place.models).collect()
    assert [(row["version"], row["counts"]) for row in told] == [("000002", True), ("000001", False)]
    assert told[0]["quality"] == Models(folder).load("000002").quality
    assert (roll_back(folder), models.current()) == ("000001", "000001")
    with pytest.raises(ModelMissingError, match="there is no version before 000001"):
        roll_back(folder)
    assert roll_back(folder, "2") == "000002"
    with pytest.raises(ModelMissingError, match="there is no version 7; there are 000001, 000002"):
        roll_back(folder, "7")


def test_features_of_any_type_are_taken_as_spark_takes_them(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import write_deltalake
    from pyspark.ml import PipelineModel

    chance = random.Random(5)
    loads = [chance.uniform(0, 10) if n % 10 else None for n in range(300)]
    sites = [chance.choice(["north", "north", "south", None]) for _ in loads]
    grades = [chance.choice("aab") for _ in loads]
    table = pd.DataFrame({"load": loads, "same": 7.0, "site": sites, "grade": grades})
    table["power"] = table["load"].fillna(5) * 3 + (table["site"] == "north") * 50 + (table["grade"] == "b") * 9
    write_deltalake(stage.place.files / "pumps", pa.Table.from_pandas(table))
    asked = {"model": "mixed", "table": "pumps", "features": ["load", "same", "site", "grade"], "impute": "median"}
    asked |= {"oneHot": ["site"], "index": ["grade"], "kind": "regression", "scale": "standard", "target": "power"}
    wanted = TrainParameters.model_validate(asked)
    assert re.search(r"of \d+ held back: anomalies \S+ rmse", train.train(stage, wanted))
    folder = stage.place.models / "mixed"
    model = Models(folder).load("000001")
    assert model.encoder.one_hot == {"site": ("north", "south")}
    assert model.encoder.index == {"grade": ("a", "b")}
    # Also what there was none of.
    rows = [(1.0, 7.0, "west", "c"), (None, 8.0, "north", "a"), (2.0, 7.0, None, "b"), (9.0, 7.0, "south", "a")]
    frame = stage.spark.createDataFrame(rows, "load DOUBLE, same DOUBLE, site STRING, grade STRING")
    fitted = PipelineModel.load((folder / "000001" / "pipeline").as_uri())
    told = fitted.transform(frame).collect()
    columns = [pa.array([row[number] for row in rows]) for number in range(4)]
    assert model.quality["r2"] > 0.97
    assert model.predictions(folder, columns).to_pylist() == pytest.approx([row["_prediction"] for row in told])
    monkeypatch.setattr(features, "MAX_VALUES", 1)
    with pytest.raises(PlanError, match="site has 2 values, and 1 are the most of a feature of text"):
        features.encoder_of(wanted, fitted.stages)


def _scores(stage: Stage, plans: Any, version: str) -> list[float]:
    stage.finish(plans, "table")
    found = stage.table("scores")
    assert set(found["version"]) == {version}
    return [float(value) for value in found["score"]]


def _compare_with_spark(stage: Stage, version: str) -> None:
    """What scoring says in numbers is what pyspark.ml's own model says."""
    from pyspark.ml import PipelineModel

    fitted = PipelineModel.load((stage.place.models / "pumps" / version / "pipeline").as_uri())
    raw = stage.read_table("raw").selectExpr(
        "partition", "offset", "from_json(string(value), 'load DOUBLE, power DOUBLE') AS m"
    )
    rows = raw.selectExpr("partition", "offset", "m.load", "m.power").where("load IS NOT NULL AND power IS NOT NULL")
    told = {(r["partition"], r["offset"]): r for r in fitted.transform(rows).collect()}
    scored = stage.table("scores")
    assert len(told) == len(scored)
    for row in scored.itertuples():
        one = told[row.partition, row.offset]
        assert row.cluster == one["_cluster"]


def test_an_alert_becomes_a_command_for_its_device(
    stage: Stage, stream_node: StreamNode, request: pytest.FixtureRequest
) -> None:
    require("python-qpid-proton")
    proton = import_module("proton.utils")
    stream_node.create("alerts")
    stream_node.create("commands", "queue")
    stage.addresses = {"commands": AddressFacts("queue")}
    parameters = {
        "alerts": "alerts",
        "commands": "commands",
        "ttl": "1h",
        "match": {"state": "raised"},
        "body": {"do": "cool", "because": "{metric} is {value}", "limit": "{high}"},
    }
    alerting = anomalies.build(stage, {"address": "telemetry", "alerts": "alerts", "bands": {"temperature": "10:35"}})
    commanding = commands.build(stage, parameters)
    link = proton.BlockingConnection(stream_node.url, timeout=90)
    request.addfinalizer(link.close)
    with stage.running(alerting[0]), stage.running(commanding[0]):
        receiver = link.create_receiver("commands", credit=10)
        send(stream_node, "telemetry", [body("boiler", temperature=t) for t in (20.0, 41.5, 42.0, 30.0)], key="k")
        command = receiver.receive(timeout=90)
        receiver.accept()
        assert command.subject == "boiler"
        assert json.loads(bytes(command.body)) == {"do": "cool", "because": "temperature is 41.5", "limit": 35.0}
        # What is left of it.
        assert 0 < command.ttl <= 3600
        assert command.properties["alert"].startswith("temperature/boiler/")
        # What comes again, by whatever way, is known.
        again = json.dumps({"id": command.properties["alert"], "device": "boiler", "state": "raised"}).encode()
        new = json.dumps({"id": "new", "device": "boiler", "state": "raised", "value": 1}).encode()
        send(stream_node, "alerts", [again, *BAD[:3], new])
        command = receiver.receive(timeout=90)
        receiver.accept()
        assert command.properties["alert"] == "new"
    stage.addresses = {"commands": AddressFacts("topic")}
    with pytest.raises(PlanError, match="expected a queue"):
        commands.build(stage, parameters)
