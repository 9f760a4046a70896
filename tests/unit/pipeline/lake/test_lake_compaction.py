"""Which partitions a step of compaction takes."""

from __future__ import annotations

from enmasse.pipeline.lake.compaction import FEW_FILES, TARGET_BYTES, Compaction, plan_compaction


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
