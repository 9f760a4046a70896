"""Parameters of built-in pipelines: what is right has defaults, what is wrong is named."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.model.kinds.pipelines.builtins import (
    BUILTINS,
    AnomaliesParameters,
    CommandsParameters,
    HeartbeatParameters,
    LakeParameters,
    MeteringParameters,
    band_limits,
    builtin_problems,
)

RIGHT: dict[str, dict[str, Any]] = {
    "lake": {"address": "telemetry"},
    "last-value": {"address": "telemetry"},
    "windows": {"address": "telemetry", "size": "1m", "slide": "10s"},
    "anomalies": {"address": "telemetry", "alerts": "alerts", "bands": {"temperature": "10:35"}},
    "heartbeat": {"address": "telemetry", "alerts": "alerts"},
    "train": {"model": "pumps", "features": ["load", "temperature"]},
    "score": {"address": "telemetry", "model": "pumps", "to": "scores"},
    "metering": {"addresses": ["telemetry", "plant/#"]},
    "commands": {"alerts": "alerts", "commands": "commands"},
    "sparkplug": {"address": "measured", "badRecords": "odd"},
}

ALERTING = {"address": "a", "alerts": "b"}
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("lake", {}, "address", "required"),
    ("lake", {"address": "a b"}, "address", "without white space"),
    ("lake", {"address": "a", "table": "Raw!"}, "table", "lower-case letters"),
    ("lake", {"address": "a", "readingsTable": "raw"}, "readingsTable", "another table"),
    ("lake", {"address": "a", "oldest": "long"}, "oldest", "a duration"),
    ("sparkplug", {"address": "a", "table": None}, "table", "required"),
    ("sparkplug", {"address": "a", "badRecords": "a"}, "badRecords", "another address"),
    ("sparkplug", {"address": "a", "to": "a"}, "to", "another address"),
    ("windows", {"address": "a", "slide": "1m"}, "slide", "at most size"),
    ("windows", {"address": "a", "table": None}, "table", "required"),
    ("anomalies", {"address": "a", "alerts": "b"}, "bands", "required"),
    ("anomalies", {"address": "a", "deviations": 4}, "alerts", "required"),
    ("anomalies", {"address": "a", "alerts": "b", "bands": {"t": "35:10"}}, "bands.t", "LOW:HIGH"),
    ("anomalies", ALERTING | {"bands": {"t": ":80"}, "clearBands": {"u": ":75"}}, "clearBands.u", "there is no band"),
    (
        "anomalies",
        ALERTING | {"bands": {"t": ":80"}, "clearBands": {"t": ":85"}},
        "clearBands.t",
        "within the band ':80'",
    ),
    ("anomalies", ALERTING | {"bands": {"t": ":80"}, "clearBands": {"t": "90:"}}, "clearBands.t", "got '90:'"),
    ("anomalies", ALERTING | {"bands": {"t": ":80"}, "clearBands": {"t": "75"}}, "clearBands.t", "LOW:HIGH"),
    (
        "anomalies",
        ALERTING | {"deviceBands": {"d": {"t": "5:8"}}, "deviceClearBands": {"d": {"t": "4:"}}},
        "deviceClearBands.d.t",
        "within the band '5:8'",
    ),
    (
        "anomalies",
        ALERTING | {"bands": {"t": ":80"}, "deviceClearBands": {"d": {"u": "4:"}}},
        "deviceClearBands.d.u",
        "there is no band",
    ),
    (
        "anomalies",
        ALERTING | {"bands": {"t": ":80"}, "clearDeviations": 3},
        "clearDeviations",
        "only with deviations",
    ),
    ("anomalies", ALERTING | {"deviations": 3, "clearDeviations": 4}, "clearDeviations", "at most 3, got 4"),
    ("anomalies", ALERTING | {"deviations": 3, "minDuration": "long"}, "minDuration", "a duration"),
    ("anomalies", {"address": "a", "alert": "b", "deviations": 4.0}, "alert", "did you mean 'alerts'"),
    ("heartbeat", {"address": "a", "alerts": "b", "forgetAfter": "1m"}, "forgetAfter", "more than after"),
    ("heartbeat", {"address": "a", "alerts": "b", "maxRowsPerBatch": 5}, "maxRowsPerBatch", "leave it out"),
    (
        "heartbeat",
        ALERTING | {"address": "telemetry/a.b", "registered": True, "deviceField": "d"},
        "deviceField",
        "registered devices are known by the keys",
    ),
    ("lake", {"address": "a", "deviceField": "d"}, "deviceField", "only a readingsTable has devices"),
    ("windows", {"address": "a", "metrics": ["*"]}, "metrics[0]", "expected a field, a path"),
    ("windows", {"address": "a", "metrics": ["t", "a.*.b"]}, "metrics[1]", "or object.*"),
    ("windows", {"address": "a", "metrics": ["a" + ".a" * 20]}, "metrics[0]", "at most 20 names"),
    ("score", {"address": "a", "to": "b", "model": "m", "deviceField": "info.*"}, "deviceField", "without '*'"),
    ("lake", {"address": "a", "timeField": ""}, "timeField", ""),
    ("heartbeat", ALERTING | {"timeField": "ts"}, "timeField", "unknown field"),
    ("heartbeat", ALERTING | {"registered": True}, "registered", "only with the address telemetry/TENANT"),
    ("heartbeat", ALERTING | {"address": "telemetry/plant", "registered": True}, "registered", "'telemetry/plant'"),
    ("train", {"model": "m", "features": []}, "features", "at least 1"),
    ("train", {"model": "m", "features": ["a", "a"]}, "features", "once"),
    ("train", {"model": "m", "features": ["a"], "kind": "regression"}, "target", "required"),
    ("train", {"model": "m", "features": ["a"], "target": "b"}, "target", "only a regression"),
    ("train", {"model": "m", "features": ["a"], "oneHot": ["b"]}, "oneHot", "some of the features, got 'b'"),
    ("train", {"model": "m", "features": ["a"], "oneHot": ["a"], "index": ["a"]}, "index", "is in oneHot"),
    ("train", {"model": "m", "features": ["a"], "kind": "regression", "target": "a"}, "target", "not one of"),
    ("score", {"address": "a", "model": "m"}, "table", "required"),
    ("metering", {"addresses": []}, "addresses", "at least 1"),
    ("commands", {"alerts": "a", "commands": "a"}, "commands", "another address"),
    ("nothing", {}, "name", "expected one of lake, last-value"),
]


@pytest.mark.parametrize("name", list(BUILTINS))
def test_an_address_or_two_are_enough(name: str) -> None:
    given = {key: value for key, value in RIGHT[name].items() if key != "table"}
    assert builtin_problems(name, given) == []


def test_the_devices_of_a_project_may_be_expected() -> None:
    given = {"address": "telemetry/default.plant", "alerts": "a"}
    assert builtin_problems("heartbeat", given | {"registered": True}) == []
    assert HeartbeatParameters.model_validate(given | {"registered": True}).tenant == "default.plant"
    assert HeartbeatParameters.model_validate(given).tenant is None


def test_alerts_may_end_at_values_of_their_own() -> None:
    ends: dict[str, Any] = {"clearBands": {"t": "20:"}, "deviceClearBands": {"d": {"t": ":30"}}}
    rules = {"bands": {"t": "10:35"}, "deviations": 4, "clearDeviations": 4, "minDuration": "5m"}
    assert builtin_problems("anomalies", ALERTING | rules | ends) == []


@pytest.mark.parametrize(("name", "parameters", "path", "message"), WRONG)
def test_what_is_wrong_is_named(name: str, parameters: dict[str, Any], path: str, message: str) -> None:
    found = {problem.path: problem.message for problem in builtin_problems(name, parameters)}
    assert path in found, found
    assert message in found[path]


def test_each_says_what_it_touches() -> None:
    lake = LakeParameters.model_validate({"address": "t", "readingsTable": "readings"})
    assert (lake.reads(), lake.writes(), lake.tables()) == (("t",), (), ("raw", "readings"))
    alerting = AnomaliesParameters.model_validate({"address": "t", "alerts": "a", "table": "alerts"})
    assert (alerting.reads(), alerting.writes(), alerting.tables()) == (("t",), ("a",), ("alerts",))
    metering = MeteringParameters.model_validate({"addresses": ["a", "b/*"]})
    assert (metering.reads(), metering.tables()) == (("a", "b/*"), ("usage",))
    commands = CommandsParameters.model_validate({"alerts": "a", "commands": "c"})
    assert (commands.reads(), commands.writes()) == (("a",), ("c",))


def test_a_band_may_be_open() -> None:
    assert band_limits("10:35.5") == (10.0, 35.5)
    assert band_limits(":-5") == (float("-inf"), -5.0)
    assert band_limits("0:") == (0.0, float("inf"))


@pytest.mark.parametrize("text", ["", "10", "a:b", "35:10", "nan:", ":nan", "1:2:3"])
def test_other_texts_are_no_bands(text: str) -> None:
    with pytest.raises(ValueError, match=r"band|float"):
        band_limits(text)
