"""What Spark's checkpoint says of a spool."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.pipeline.source.consumed.ledger import CommitLog, local_path

OURS = '{"spool": "abc", "next": %d}'


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir()

    def plan(self, batch: int, *offsets: str) -> None:
        (self.folder / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *offsets]))

    def commit(self, batch: int) -> None:
        (self.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def test_what_is_planned_is_not_committed(checkpoint: Checkpoint) -> None:
    log = CommitLog(checkpoint.folder, "abc")
    assert log.position() is None
    checkpoint.plan(0, OURS % 10)
    assert log.position() is None
    checkpoint.commit(0)
    assert log.position() == 10
    checkpoint.plan(1, OURS % 20)
    assert log.position() == 10
    checkpoint.commit(1)
    assert log.position() == 20


def test_batches_are_numbers_not_names(checkpoint: Checkpoint) -> None:
    for batch in (9, 10):
        checkpoint.plan(batch, OURS % batch)
        checkpoint.commit(batch)
    (checkpoint.folder / "commits" / ".11.crc").write_text("")
    assert CommitLog(checkpoint.folder, "abc").position() == 10


def test_our_offset_is_found_among_those_of_other_sources(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, '{"stream": "x", "0": 5}', "-", OURS % 7, "not JSON with abc in it")
    checkpoint.commit(0)
    assert CommitLog(checkpoint.folder, "abc").position() == 7
    assert CommitLog(checkpoint.folder, "other").position() is None


def test_our_offset_is_found_within_what_a_later_spark_writes_around_it(checkpoint: Checkpoint) -> None:
    checkpoint.plan(0, r'{"sources": [{"name": "orders", "offset": "{\"spool\": \"abc\", \"next\": 12}"}]}')
    checkpoint.commit(0)
    assert CommitLog(checkpoint.folder, "abc").position() == 12


def test_a_checkpoint_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert CommitLog(tmp_path / "nothing", "abc").position() is None


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b/", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file:/a/b", "/a/b"),
        ("/a/../b", "/b"),
        ("hdfs://name/a", None),
        ("s3a://bucket/a", None),
        ("file://host/a", None),
    ],
)
def test_only_what_is_on_this_machine_is_looked_at(location: str, path: str | None) -> None:
    assert local_path(location) == (None if path is None else Path(path))


def test_a_relative_location_is_below_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_path("a") == tmp_path / "a"
