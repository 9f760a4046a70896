"""Anomalies are what a plain loop over one device's readings finds, however they are cut into batches."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

from enmasse.pipeline.builtin.anomalies import AnomalyKeeper

OPEN = (-math.inf, math.inf)
Reading = tuple[str, str, float, int, int]
"""Device, metric, value, moment in microseconds, offset."""


def batch(readings: list[Reading]) -> Any:
    rows = [(d, m, v, t, t, 0, o) for d, m, v, t, o in readings]
    return pd.DataFrame(rows, columns=["device", "metric", "value", "time_us", "heard_us", "partition", "offset"])


def run(keeper: AnomalyKeeper, readings: list[Reading], sizes: list[int]) -> list[dict[str, Any]]:
    kept, told, begin = None, [], 0
    for size in [*sizes, len(readings)]:
        kept, frame = keeper(kept, batch(readings[begin : begin + size]), 0)
        told += frame.to_dict("records")
        begin += size
    return told


def expected(keeper: AnomalyKeeper, readings: list[Reading]) -> list[tuple[str, str, str]]:
    """Mean and variance from the definition: weights of (1-a)^k, and 1/n while there are few."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    raised: dict[tuple[str, str], set[str]] = defaultdict(set)
    since: dict[tuple[str, str], float] = {}
    found = []
    for device, metric, value, moment, offset in readings:
        key = (device, metric)
        before = values[key]
        band = keeper.device_bands.get(key, keeper.bands.get(metric, OPEN))
        ends = keeper.device_clear_bands.get(key)
        if ends is None:
            ends = OPEN if key in keeper.device_bands else keeper.clear_bands.get(metric, OPEN)
        distance = 0.0
        if keeper.deviations is not None and len(before) >= keeper.warm_up:
            distance = distance_of(keeper, value, before)
        limits = dict.fromkeys(("band", "deviation"), (band, keeper.deviations))
        for rule in raised[key]:
            limits[rule] = (
                (max(band[0], ends[0]), min(band[1], ends[1])),
                keeper.clear_deviations or keeper.deviations,
            )
        outside = {
            "band": not limits["band"][0][0] <= value <= limits["band"][0][1],
            "deviation": distance > (limits["deviation"][1] or math.inf),
        }
        rules = {rule for rule, is_outside in outside.items() if is_outside}
        if rules and not raised[key]:
            since.setdefault(key, moment)
            if moment - since[key] >= keeper.min_s * 1e6:
                found.append((f"{metric}/{device}/0-{offset}/raised", "raised", min(rules)))
                raised[key] = rules
        elif rules:
            raised[key] = rules
        else:
            if raised[key] and keeper.cleared:
                found.append((f"{metric}/{device}/0-{offset}/cleared", "cleared", ""))
            raised[key] = set()
            since.pop(key, None)
        before.append(value)
    return found


def distance_of(keeper: AnomalyKeeper, value: float, before: list[float]) -> float:
    mean = before[0]
    for count, x in enumerate(before[1:], 2):
        a = max(keeper.alpha, 1 / count)
        mean = (1 - a) * mean + a * x
    weights = [1.0]
    for count in range(2, len(before) + 1):
        a = max(keeper.alpha, 1 / count)
        weights = [w * (1 - a) for w in weights] + [a]
    variance = sum(w * (x - mean) ** 2 for w, x in zip(weights, before, strict=True))
    return abs(value - mean) / max(math.sqrt(variance), keeper.min_deviation)


def made(count: int, seed: int) -> list[Reading]:
    chance = random.Random(seed)
    readings = []
    for offset in range(count):
        device, metric = f"d{chance.randrange(4)}", chance.choice(["t", "p"])
        value = chance.gauss(20, 3) + (30 if chance.random() < 0.03 else 0)
        readings.append((device, metric, value, 1_000_000 * (offset - chance.randrange(20)), offset))
    return readings


@pytest.mark.parametrize("alpha", [0.05, 0.5, 0.0])
@pytest.mark.parametrize("sizes", [[], [1] * 50, [7, 100, 3, 0, 200]])
def test_it_finds_what_a_plain_loop_finds(alpha: float, sizes: list[int]) -> None:
    keeper = AnomalyKeeper(
        bands={"t": (10.0, 30.0)}, device_bands={("d1", "t"): (0.0, 60.0)}, deviations=3.0, alpha=alpha, warm_up=10
    )
    readings = made(600, 11)
    told = run(keeper, readings, sizes)
    assert {(a["id"], a["state"], a["reason"] or "") for a in told} == set(expected(keeper, readings))
    assert len(told) == len(expected(keeper, readings)) > 20


@pytest.mark.parametrize("min_s", [0.0, 4.0])
@pytest.mark.parametrize("sizes", [[], [1] * 50, [7, 100, 3, 0, 200]])
def test_narrower_limits_and_durations_are_those_of_a_plain_loop(min_s: float, sizes: list[int]) -> None:
    keeper = AnomalyKeeper(
        bands={"t": (18.0, 22.0), "p": (-math.inf, 24.0)},
        device_bands={("d1", "t"): (0.0, 22.0), ("d2", "t"): (17.0, 23.0)},
        clear_bands={"t": (19.0, math.inf)},
        device_clear_bands={("d2", "t"): (-math.inf, 21.0), ("d3", "p"): (-math.inf, 20.0)},
        deviations=1.5,
        clear_deviations=0.5,
        warm_up=10,
        min_s=min_s,
    )
    readings = made(800, 12)
    told = run(keeper, readings, sizes)
    assert [(a["id"], a["state"], a["reason"] or "") for a in told] == expected(keeper, readings)
    assert {a["reason"] for a in told} == {"band", "deviation", None}
    assert len(told) > 40


def alerts(keeper: AnomalyKeeper, values: list[float], step_s: int = 10) -> list[tuple[int, str]]:
    readings = [("d", "t", value, n * step_s * 1_000_000, n) for n, value in enumerate(values)]
    return [(int(a["id"].split("-")[1].split("/")[0]), a["state"]) for a in run(keeper, readings, [1, 2])]


def test_an_alert_is_told_once_again_and_over() -> None:
    keeper = AnomalyKeeper(bands={"t": (0.0, 1.0)}, repeat_s=30.0)
    assert alerts(keeper, [0, 2, 2, 2, 2, 2, 1, 1]) == [(1, "raised"), (4, "repeated"), (6, "cleared")]
    quiet = AnomalyKeeper(bands={"t": (0.0, 1.0)}, cleared=False)
    assert alerts(quiet, [2, 2, 1, -1]) == [(0, "raised"), (3, "raised")]


def test_an_alert_ends_at_a_value_of_its_own() -> None:
    keeper = AnomalyKeeper(bands={"t": (-math.inf, 80.0)}, clear_bands={"t": (-math.inf, 75.0)}, repeat_s=20.0)
    # What is between both raises none, and ends none.
    assert alerts(keeper, [77, 81, 79, 78, 76, 75, 79, 80, 81]) == [
        (1, "raised"),
        (3, "repeated"),
        (5, "cleared"),
        (8, "raised"),
    ]
    readings = [("d", "t", value, n * 30_000_000, n) for n, value in enumerate([85.0, 77.0, 90.0, 70.0])]
    told = run(keeper, readings, [1])
    assert [alert["text"] for alert in told] == [
        "d: t 85 is above 80",
        "d: t 77 is above 75",
        "d: t 90 is above 80",
        "d: t 70 is as it should be",
    ]
    assert {(alert["low"], alert["high"]) for alert in told} == {(None, 80.0)}


def test_what_a_deviation_raised_does_not_wait_for_the_band() -> None:
    keeper = AnomalyKeeper(
        bands={"t": (0.0, 80.0)}, clear_bands={"t": (0.0, 75.0)}, deviations=3.0, alpha=0.0, min_deviation=1.0
    )
    assert alerts(keeper, [*[77.0] * 20, 60, 77]) == [(20, "raised"), (21, "cleared")]
    assert alerts(keeper, [*[77.0] * 20, 81, 77, 75]) == [(20, "raised"), (22, "cleared")]


def test_an_alert_begins_when_readings_were_outside_for_long_enough() -> None:
    keeper = AnomalyKeeper(bands={"t": (0.0, 1.0)}, min_s=20.0, repeat_s=20.0)
    assert alerts(keeper, [2, 2, 0, 2, 2, 2, 2, 2, 0]) == [(5, "raised"), (7, "repeated"), (8, "cleared")]
    # Only what there is counts: two readings far apart are as good as many.
    assert alerts(keeper, [0, 2, 2, 0], step_s=3600) == [(2, "raised"), (3, "cleared")]
    # Before it is raised what ends an alert does not keep it.
    kept = AnomalyKeeper(bands={"t": (0.0, 8.0)}, clear_bands={"t": (0.0, 5.0)}, min_s=20.0)
    assert alerts(kept, [9, 7, 9, 9, 9, 7, 5]) == [(4, "raised"), (6, "cleared")]
    told = run(keeper, [("d", "t", 2.0, n * 10_000_000, n) for n in range(3)], [2])
    assert [alert["text"] for alert in told] == ["d: t 2 is above 1 for 20 s"]
    # One that is late is no second witness, and nothing is told of an alert that never began.
    late = [(2.0, 30), (2.0, 5), (2.0, 49), (0.0, 51)]
    assert run(keeper, [("d", "t", v, s * 1_000_000, n) for n, (v, s) in enumerate(late)], []) == []


def test_state_of_before_there_were_durations_is_taken_over() -> None:
    before = AnomalyKeeper(bands={"t": (0.0, 8.0)})
    kept, _ = before(None, batch([("d", "t", 9.0, 0, 0)]), 0)
    after = AnomalyKeeper(bands={"t": (0.0, 8.0)}, clear_bands={"t": (0.0, 5.0)}, min_s=60.0)
    _, told = after(kept, batch([("d", "t", 9.0, 1, 1), ("d", "t", 7.0, 2, 2), ("d", "t", 5.0, 3, 3)]), 0)
    assert told["id"].tolist() == ["t/d/0-3/cleared"]


def test_what_always_was_the_same_may_not_change_at_all_unless_noise_is_known() -> None:
    steady = [5.0] * 30 + [5.01]
    assert alerts(AnomalyKeeper(deviations=3.0), steady) == [(30, "raised")]
    assert alerts(AnomalyKeeper(deviations=3.0, min_deviation=0.1), steady) == []


def test_texts_tell_what_is_wrong() -> None:
    keeper = AnomalyKeeper(bands={"t": (10.0, 30.0)}, deviations=3.0, warm_up=2)
    readings = [("d", "t", v, n, n) for n, v in enumerate([31.0, 20.0, 20.5, 5.0, 20.0])]
    readings += [("d", "p", v, n, 10 + n) for n, v in enumerate([1.0, 2.0, 1.0, 2.0, 90.0])]
    texts = [alert["text"] for alert in run(keeper, readings, [])]
    assert texts[:4] == [
        "d: t 31 is above 30",
        "d: t 20 is as it should be",
        "d: t 5 is below 10",
        "d: t 20 is as it should be",
    ]
    assert texts[4].startswith("d: p 90 is far from 1.5, with a standard deviation of 0.5")


def test_who_is_not_heard_is_forgotten_and_there_is_a_most() -> None:
    keeper = AnomalyKeeper(bands={"t": (0.0, 1.0)}, forget_s=60.0)
    kept, _ = keeper(None, batch([("old", "t", 5.0, 0, 0), ("new", "t", 5.0, 50_000_000, 1)]), 0)
    kept, told = keeper(kept, batch([("new", "t", 5.0, 61_000_000, 2), ("x", "t", 0.0, 61_000_000, 3)]), 0)
    assert told.empty
    _, told = keeper(kept, batch([("old", "t", 5.0, 62_000_000, 4), ("new", "t", 5.0, 62_000_000, 5)]), 0)
    assert told["id"].tolist() == ["t/old/0-4/raised"]
    few = AnomalyKeeper(bands={"t": (0.0, 1.0)}, most=10)
    sizes = []
    rest: bytes | None = None
    for number in range(100):
        rest, _ = few(rest, batch([(f"d{number}", "t", 0.0, number, number)]), 0)
        sizes.append(len(rest))
    assert max(sizes) < 900
