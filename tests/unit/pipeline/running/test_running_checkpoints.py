from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest

from enmasse.model.kinds.pipelines.pipeline import Restart
from enmasse.pipeline.errors import CheckpointDamagedError, CheckpointMisfitError
from enmasse.pipeline.running.supervision.checkpoints import Checkpoints, check_whole


def restart(at: str, start_from: str | None = None) -> Restart:
    return Restart.model_validate({"at": at} | ({"from": start_from} if start_from else {}))


def write_checkpoint(path: Path, batches: int = 3, committed: int | None = None) -> None:
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    (path / "metadata").write_text(json.dumps({"id": "q"}))
    for batch in range(batches):
        (path / "offsets" / str(batch)).write_text('v1\n{"batchTimestampMs":1}\n{"0":5}')
    for batch in range(batches if committed is None else committed):
        (path / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_a_restart_is_another_generation_and_is_done_once(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert not checkpoints.restart(None)
    assert checkpoints.path_of("q") == tmp_path / "1" / "q"
    assert checkpoints.restart(restart("monday", "earliest"))
    assert not checkpoints.restart(restart("monday", "earliest"))
    assert not Checkpoints(tmp_path).restart(restart("monday", "latest"))
    again = Checkpoints(tmp_path)
    assert (again.generation, again.restarted_at, again.start_from) == (2, "monday", "earliest")
    assert again.path_of("q") == tmp_path / "2" / "q"


def test_a_restart_from_where_it_was_keeps_the_generation(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.restart(restart("monday"))
    assert (checkpoints.generation, checkpoints.restarted_at, checkpoints.start_from) == (1, "monday", None)


def test_what_was_begun_before_the_first_batch_is_begun_anew(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    offsets = checkpoints.path_of("q") / "offsets"
    offsets.mkdir(parents=True)
    (offsets.parent / "metadata").write_text('{"id": "q"}')
    (offsets / ".0.b1c2.tmp").write_text("half")
    checkpoints.fit("q", ["source a"])
    assert list(offsets.iterdir()) == []


def test_a_checkpoint_that_is_gone_after_batches_were_done_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "shop.hot"
    checkpoints = Checkpoints(folder)
    checkpoints.fit("to-alerts", ["source a"])
    checkpoints.fit("to-alerts", ["source a"])  # it has done no batch yet
    write_checkpoint(checkpoints.path_of("to-alerts"))
    checkpoints.note_begun("to-alerts")
    checkpoints.fit("to-alerts", ["source a"])
    shutil.rmtree(folder)
    with pytest.raises(CheckpointDamagedError, match=r"is gone, although the query has done batches.*restart"):
        Checkpoints(folder).fit("to-alerts", ["source a"])
    Checkpoints(folder).fit("other", ["source a"])
    Checkpoints(folder, "another of the same name").fit("to-alerts", ["source a"])
    again = Checkpoints(folder)
    again.restart(restart("now", "latest"))
    again.fit("to-alerts", ["source a"])
    again.purge()
    assert not list((tmp_path / "checkpoints" / "_begun").iterdir())


def test_a_bit_of_what_says_which_queries_have_begun_is_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints" / "p")
    checkpoints.fit("q", ["source a"])
    checkpoints.note_begun("q")
    (kept,) = (tmp_path / "checkpoints" / "_begun").iterdir()
    whole = kept.read_bytes()
    for at in range(0, 8 * len(whole), 5):
        kept.write_bytes(whole[: at // 8] + bytes((whole[at // 8] ^ 1 << at % 8,)) + whole[at // 8 + 1 :])
        # The checkpoint is gone: whatever the bit was, the query does not begin anew as if it had done nothing.
        with pytest.raises(CheckpointDamagedError, match=r"q is gone|_begun/p\.json cannot be read"):
            checkpoints.fit("q", ["source a"])
    kept.write_text(json.dumps(["/1/q"]))  # as an older version wrote it
    with pytest.raises(CheckpointDamagedError, match="q is gone"):
        checkpoints.fit("q", ["source a"])


def test_a_query_that_ran_is_held_to_its_fingerprint(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.fit("q", ["source a"])
    checkpoints.fit("q", ["source b"])  # it never ran, so nothing depends on it
    write_checkpoint(checkpoints.path_of("q"))
    checkpoints.fit("q", ["source b"])
    with pytest.raises(CheckpointMisfitError, match=r"made for 'source b' and is now to be 'source c'.*restart"):
        Checkpoints(tmp_path).fit("q", ["source c"])
    with pytest.raises(CheckpointMisfitError, match="'Aggregate by x' is new"):
        checkpoints.fit("q", ["source b", "Aggregate by x"])
    with pytest.raises(CheckpointMisfitError, match="which is gone"):
        checkpoints.fit("q", [])
    checkpoints.restart(restart("now", "earliest"))
    checkpoints.fit("q", ["source c"])


def test_the_order_of_sources_counts(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.fit("q", ["source a", "source b"])
    write_checkpoint(checkpoints.path_of("q"))
    with pytest.raises(CheckpointMisfitError, match="another order"):
        checkpoints.fit("q", ["source b", "source a"])


def test_a_batch_that_is_under_way_is_no_damage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "q", batches=3, committed=2)
    check_whole(tmp_path / "q")


@pytest.mark.parametrize("file", ["metadata", "offsets/2", "commits/2"])
def test_a_changed_bit_is_found_by_the_checksum_beside_a_file(tmp_path: Path, file: str) -> None:
    write_checkpoint(tmp_path)
    path = tmp_path / file
    data = path.read_bytes()
    parts = [data[at : at + 8] for at in range(0, len(data), 8)]
    sums = b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)
    path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (8).to_bytes(4, "big") + sums)
    check_whole(tmp_path)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(CheckpointDamagedError, match=f"{path} cannot be read.*restart"):
            check_whole(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("metadata", None),
        ("metadata", "{"),
        ("offsets/2", None),
        ("offsets/2", ""),
        ("offsets/2", "v1\n{half"),
        ("commits/2", "garbage"),
        ("commits/2", "v1"),
    ],
)
def test_damage_is_named_with_what_to_do(tmp_path: Path, file: str, content: str | None) -> None:
    write_checkpoint(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_text(content)
    with pytest.raises(CheckpointDamagedError, match="restart") as caught:
        check_whole(tmp_path)
    assert str(tmp_path / file) in str(caught.value)


def test_a_checkpoint_that_spark_was_killed_in_making_is_no_damage_unless_batches_were_done(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for folder in ("offsets", "commits"):
        (checkpoints.path_of("q") / folder).mkdir(parents=True)
    checkpoints.fit("q", ["source a"])
    checkpoints.note_begun("q")
    with pytest.raises(CheckpointDamagedError, match="metadata"):
        checkpoints.fit("q", ["source a"])


def test_a_missing_commit_in_between_is_damage(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, batches=4, committed=2)
    with pytest.raises(CheckpointDamagedError, match="commits/2"):
        check_whole(tmp_path)


def test_an_unreadable_standing_is_named(tmp_path: Path) -> None:
    (tmp_path / "standing.json").write_text("[]")
    with pytest.raises(CheckpointDamagedError, match=r"standing\.json"):
        Checkpoints(tmp_path)


def test_purging_forgets_all(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "p")
    checkpoints.restart(restart("now", "latest"))
    checkpoints.purge()
    assert not (tmp_path / "p").exists()
    assert Checkpoints(tmp_path / "p").generation == 1
