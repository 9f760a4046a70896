"""Which partitions a step of compaction takes, and that two of them leave each row once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.table import TableOptimizer

from enmasse.pipeline.lake.compaction import FEW_FILES, TARGET_BYTES, Compaction, compact, plan_compaction
from enmasse.pipeline.lake.delta import MODE


def test_partitions_with_the_most_small_files_come_first_and_bound_the_step() -> None:
    files = [(("a",), 10)] * FEW_FILES + [(("b",), 10)] * (FEW_FILES + 2) + [(("c",), 10)] * (FEW_FILES - 1)
    assert plan_compaction(files) == ([("b",), ("a",)], 0)
    assert plan_compaction(files, bytes_at_once=130) == ([("b",)], 1)
    assert plan_compaction(files, bytes_at_once=1) == ([("b",)], 1)


def test_large_files_are_left_alone() -> None:
    assert plan_compaction([((), TARGET_BYTES)] * 100) == ([], 0)


def test_a_step_says_what_it_did() -> None:
    assert (
        str(Compaction(9, 1, 3, 2))
        == "9 files became 1, 3 old ones were deleted; 2 partitions wait for the next step"
    )


def test_two_compactions_of_a_table_come_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    for number in range(FEW_FILES):
        write_deltalake(path, pa.table({"n": [number]}), mode="append")
    DeltaTable(path).alter.set_table_properties({MODE: "append"}, raise_if_not_exists=False)
    library = TableOptimizer.compact
    other = threading.Thread(target=compact, args=(path,))
    other_began, first_is_done = threading.Event(), threading.Event()

    def one_of_two(optimizer: TableOptimizer, *given: Any, **named: Any) -> Any:
        if threading.current_thread() is other:
            other_began.set()
            first_is_done.wait(10)
            return library(optimizer, *given, **named)
        other.start()
        other_began.wait(0.5)  # it does not begin before this one has ended
        try:
            return library(optimizer, *given, **named)
        finally:
            first_is_done.set()

    monkeypatch.setattr(TableOptimizer, "compact", one_of_two)
    monkeypatch.setattr("enmasse.pipeline.lake.compaction.SIZES", (TARGET_BYTES,))
    compact(path)
    other.join(10)
    assert sorted(DeltaTable(path).to_pyarrow_table()["n"].to_pylist()) == list(range(FEW_FILES))
