"""Missing devices are the gaps between messages, however messages are cut into batches."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

from enmasse.pipeline.builtin.heartbeat import SilenceKeeper

S = 1_000_000
BEGIN = 1_000_000 * S


def rows(heard: list[tuple[str, int]]) -> Any:
    return pd.DataFrame(heard, columns=["device", "heard_us"])


def told(frame: Any) -> list[tuple[str, str]]:
    return list(zip(frame["device"], frame["state"], strict=True))


def expected(heard: list[tuple[str, int]], after_us: int, until_us: int) -> set[str]:
    moments: dict[str, list[int]] = {}
    for device, moment in heard:
        moments.setdefault(device, []).append(moment)
    found = set()
    for device, known in moments.items():
        known.sort()
        for before, moment in pairwise(known):
            if moment - before >= after_us:
                found |= {f"heartbeat/{device}/{before}/missing", f"heartbeat/{device}/{before}/back"}
        if until_us - known[-1] >= after_us:
            found.add(f"heartbeat/{device}/{known[-1]}/missing")
    return found


@pytest.mark.parametrize("seed", range(5))
def test_every_gap_is_told_once(seed: int) -> None:
    chance = random.Random(seed)
    keeper = SilenceKeeper(after_us=10 * S, forget_us=10_000 * S)
    now, heard, ids = BEGIN, [], []
    kept = None
    for _ in range(60):
        step = chance.choice([1, 1, 2, 8, 40]) * S
        new = [(f"d{chance.randrange(4)}", now + chance.randrange(step)) for _ in range(chance.randrange(6))]
        now += step
        heard += new
        # The grace of half a second lies between a message and the moment of its batch.
        kept, frame = keeper(kept, rows(new), now + S // 2)
        ids += frame["id"].tolist()
    assert len(ids) == len(set(ids))
    assert set(ids) == expected(heard, 10 * S, now)


def test_a_device_is_missed_while_nothing_comes_and_is_back_with_its_next_message() -> None:
    keeper = SilenceKeeper(after_us=10 * S)
    kept, frame = keeper(None, rows([("a", BEGIN)]), BEGIN + S)
    assert frame.empty
    kept, frame = keeper(kept, rows([]), BEGIN + 10 * S)
    assert frame.empty
    kept, frame = keeper(kept, rows([]), BEGIN + 11 * S)
    assert told(frame) == [("a", "missing")]
    assert frame["text"].tolist() == ["a: not heard since 1970-01-12T13:46:40.000Z"]
    kept, frame = keeper(kept, rows([]), BEGIN + 100 * S)
    assert frame.empty
    kept, frame = keeper(kept, rows([("a", BEGIN + 105 * S), ("a", BEGIN + 106 * S)]), BEGIN + 107 * S)
    assert told(frame) == [("a", "back")]
    assert frame["text"].tolist() == ["a: back after 105.0 s"]


def test_a_row_that_another_partition_brings_late_makes_no_gap() -> None:
    keeper = SilenceKeeper(after_us=10 * S)
    kept, _ = keeper(None, rows([("a", BEGIN + 20 * S)]), BEGIN + 21 * S)
    kept, frame = keeper(kept, rows([("a", BEGIN + 5 * S), ("a", BEGIN + 25 * S)]), BEGIN + 26 * S)
    assert frame.empty


def test_who_is_silent_for_long_is_forgotten() -> None:
    keeper = SilenceKeeper(after_us=10 * S, forget_us=100 * S)
    kept, _ = keeper(None, rows([("a", BEGIN)]), BEGIN + S)
    kept, frame = keeper(kept, rows([]), BEGIN + 50 * S)
    assert told(frame) == [("a", "missing")]
    kept, frame = keeper(kept, rows([]), BEGIN + 101 * S)
    assert frame.empty
    kept, frame = keeper(kept, rows([("a", BEGIN + 200 * S)]), BEGIN + 201 * S)
    assert frame.empty


def test_the_end_need_not_be_told() -> None:
    keeper = SilenceKeeper(after_us=10 * S, cleared=False)
    _, frame = keeper(None, rows([("a", BEGIN), ("a", BEGIN + 20 * S)]), BEGIN + 21 * S)
    assert told(frame) == [("a", "missing")]
