"""Missing devices are the gaps between messages, however messages are cut into batches."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyspark")

from enmasse.pipeline.builtin.heartbeat import SilenceKeeper
from enmasse.pipeline.device_list import DeviceList

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


def register(path: Path, moment_us: int, *ids: str) -> None:
    """Have the list say that these are registered, from a second before a moment on."""
    content = DeviceList(path).changed_to(ids, moment_us - 2 * S)
    if content is not None:
        path.write_bytes(content)


def test_a_registered_device_that_was_never_heard_is_missed_and_is_back_with_its_first_message(
    tmp_path: Path,
) -> None:
    path = tmp_path / "default.plant.json"
    keeper = SilenceKeeper(after_us=10 * S, registered=path)
    register(path, BEGIN, "a", "b")
    kept, frame = keeper(None, rows([("a", BEGIN), ("stranger", BEGIN), ("stranger", BEGIN + 30 * S)]), BEGIN + S)
    assert frame.empty
    register(path, BEGIN + 5 * S, "a", "b", "late")
    kept, frame = keeper(kept, rows([("a", BEGIN + 8 * S)]), BEGIN + 8 * S)
    assert frame.empty
    kept, frame = keeper(kept, rows([]), BEGIN + 12 * S)
    assert told(frame) == [("b", "missing")]
    assert frame["text"].tolist() == ["b: expected since 1970-01-12T13:46:41.000Z, and not heard"]
    kept, frame = keeper(kept, rows([("b", BEGIN + 13 * S)]), BEGIN + 14 * S)
    assert told(frame) == [("b", "back")]
    kept, frame = keeper(kept, rows([]), BEGIN + 20 * S)
    assert told(frame) == [("a", "missing"), ("late", "missing")]
    assert frame["text"].tolist()[0] == "a: not heard since 1970-01-12T13:46:48.000Z"
    # However long it takes, it is told once.
    kept, frame = keeper(kept, rows([("b", BEGIN + 999_999 * S)]), BEGIN + 1_000_000 * S)
    assert told(frame) == [("b", "missing"), ("b", "back")]
    kept, frame = keeper(kept, rows([("late", BEGIN + 1_000_001 * S)]), BEGIN + 1_000_001 * S)
    assert told(frame) == [("late", "back")]


def test_devices_that_are_deleted_or_disabled_are_not_missed_and_their_alerts_are_over(tmp_path: Path) -> None:
    path = tmp_path / "default.plant.json"
    keeper = SilenceKeeper(after_us=10 * S, registered=path)
    register(path, BEGIN, "a", "b", "c")
    kept, _ = keeper(None, rows([("a", BEGIN + S)]), BEGIN + S)
    kept, frame = keeper(kept, rows([]), BEGIN + 12 * S)
    assert told(frame) == [("a", "missing"), ("b", "missing"), ("c", "missing")]
    kept, frame = keeper(kept, rows([("c", BEGIN + 13 * S)]), BEGIN + 14 * S)
    register(path, BEGIN + 20 * S, "d")
    kept, frame = keeper(kept, rows([("c", BEGIN + 19 * S)]), BEGIN + 20 * S)
    assert told(frame) == [("a", "cleared"), ("b", "cleared")]
    assert frame["text"].tolist()[0] == "a: not expected any more: it is deleted or disabled"
    # One that is enabled again is expected from then on.
    register(path, BEGIN + 100 * S, "a", "d")
    kept, frame = keeper(kept, rows([("d", BEGIN + 100 * S)]), BEGIN + 100 * S)
    assert told(frame) == [("d", "missing"), ("d", "back")]
    kept, frame = keeper(kept, rows([("d", BEGIN + 105 * S)]), BEGIN + 111 * S)
    assert told(frame) == [("a", "missing")]


def test_a_batch_that_is_repeated_knows_the_devices_that_it_knew(tmp_path: Path) -> None:
    path = tmp_path / "default.plant.json"
    register(path, BEGIN, "a", "b")
    kept, _ = SilenceKeeper(after_us=10 * S, registered=path)(None, rows([]), BEGIN + S)
    batch = kept, rows([("a", BEGIN + 15 * S)]), BEGIN + 16 * S
    first = SilenceKeeper(after_us=10 * S, registered=path)(*batch)
    register(path, BEGIN + 30 * S, "a", "c")
    again = SilenceKeeper(after_us=10 * S, registered=path)(*batch)
    assert first[0] == again[0]
    assert first[1].equals(again[1])
    assert told(again[1]) == [("a", "missing"), ("b", "missing"), ("a", "back")]


def test_of_too_many_registered_devices_the_same_are_missed_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "default.plant.json"
    register(path, BEGIN, *(f"d{number:03}" for number in range(100)))
    keeper = SilenceKeeper(after_us=10 * S, registered=path, most=10)
    kept, ids = None, []
    for second in range(0, 50, 5):
        kept, frame = keeper(kept, rows([("d050", BEGIN + second * S)]), BEGIN + second * S)
        assert len(kept) < 400
        ids += frame["device"].tolist()
    assert sorted(ids) == [f"d{number:03}" for number in range(10)]
