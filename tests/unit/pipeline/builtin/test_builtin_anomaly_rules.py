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
    outside: dict[tuple[str, str], bool] = defaultdict(bool)
    found = []
    for device, metric, value, _, offset in readings:
        before = values[device, metric]
        low, high = keeper.device_bands.get((device, metric), keeper.bands.get(metric, (-math.inf, math.inf)))
        reason = "" if low <= value <= high else "band"
        if not reason and keeper.deviations is not None and len(before) >= keeper.warm_up:
            mean = before[0]
            for count, x in enumerate(before[1:], 2):
                a = max(keeper.alpha, 1 / count)
                mean = (1 - a) * mean + a * x
            weights = [1.0]
            for count in range(2, len(before) + 1):
                a = max(keeper.alpha, 1 / count)
                weights = [w * (1 - a) for w in weights] + [a]
            variance = sum(w * (x - mean) ** 2 for w, x in zip(weights, before, strict=True))
            deviation = max(math.sqrt(variance), keeper.min_deviation)
            reason = "deviation" if abs(value - mean) > keeper.deviations * deviation else ""
        if reason and not outside[device, metric]:
            found.append((f"{metric}/{device}/0-{offset}/raised", "raised", reason))
        elif not reason and outside[device, metric] and keeper.cleared:
            found.append((f"{metric}/{device}/0-{offset}/cleared", "cleared", ""))
        outside[device, metric] = bool(reason)
        before.append(value)
    return found


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


def alerts(keeper: AnomalyKeeper, values: list[float], step_s: int = 10) -> list[tuple[int, str]]:
    readings = [("d", "t", value, n * step_s * 1_000_000, n) for n, value in enumerate(values)]
    return [(int(a["id"].split("-")[1].split("/")[0]), a["state"]) for a in run(keeper, readings, [1, 2])]


def test_an_alert_is_told_once_again_and_over() -> None:
    keeper = AnomalyKeeper(bands={"t": (0.0, 1.0)}, repeat_s=30.0)
    assert alerts(keeper, [0, 2, 2, 2, 2, 2, 1, 1]) == [(1, "raised"), (4, "repeated"), (6, "cleared")]
    quiet = AnomalyKeeper(bands={"t": (0.0, 1.0)}, cleared=False)
    assert alerts(quiet, [2, 2, 1, -1]) == [(0, "raised"), (3, "raised")]


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
