"""What pipelines leave on a disk is copied as of one moment, and comes back elsewhere."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from enmasse.model.kinds.pipelines.pipeline import Pipeline
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.backup.locks import BATCHES, LOCKS, deletion, lock, make_locks
from enmasse.pipeline.backup.outside import RestoredMarks, outside_of
from enmasse.pipeline.backup.relocation import PLACE, relocate
from enmasse.pipeline.backup.snapshot import PipelinesCopy, restore
from enmasse.pipeline.errors import BackupBusyError
from enmasse.pipeline.host.verdict import restored_rule
from enmasse.pipeline.lake.compaction import vacuum
from enmasse.pipeline.running.planning.plans import QueryPlan, TableTarget
from enmasse.pipeline.running.planning.targets import _of_batch
from enmasse.pipeline.sink.writers import EnmasseStreamWriter
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.planner import ConsumedPlanner
from enmasse.pipeline.source.consumed.spool import Owner, Spool
from enmasse.pipeline.sums import keep_sum

as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")


def nothing(_: str) -> None:
    pass


class Stage:
    """A folder of pipelines with one space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.space = folder / "default.shop"
        self.query = self.space / "checkpoints" / "shop.keep" / "1" / "table-rows"
        for path in (self.space / "lake", self.query / "offsets", self.query / "commits"):
            path.mkdir(parents=True)
        (folder / "spaces.json").write_text("{}")
        (self.query / "metadata").write_text("{}")
        self.batch(0)

    def batch(self, number: int) -> None:
        (self.query / "offsets" / str(number)).write_text("v1\n{}\n-")
        (self.query / "commits" / str(number)).write_text("v1\n{}")

    def write(self, *numbers: int) -> None:
        write_deltalake(str(self.space / "lake" / "rows"), pa.table({"n": list(numbers)}), mode="append")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    found = Stage(tmp_path / "pipelines")
    monkeypatch.setenv("ENMASSE_CREDENTIALS", str(found.space / "credentials"))
    return found


def copied(stage: Stage, target: Path, meanwhile: Callable[[], Any] = bool) -> tuple[PipelinesCopy, bool]:
    with PipelinesCopy(stage.folder, target, nothing) as copy:
        copy.approach()
        with copy.at_rest():
            copy.note()
            assert copy.moved() == []
        meanwhile()
        return copy, copy.copy_tables()


def numbers(table: Path) -> list[int]:
    return sorted(DeltaTable(table).to_pyarrow_table()["n"].to_pylist())


def test_what_comes_after_the_moment_is_not_copied(stage: Stage, tmp_path: Path) -> None:
    stage.write(1, 2)
    (stage.folder / "try-0" / "lake").mkdir(parents=True)  # by which the host finds out how it keeps spaces apart

    def meanwhile() -> None:
        stage.write(3)
        stage.batch(1)

    _, is_sound = copied(stage, tmp_path / "copy", meanwhile)
    assert is_sound
    there = tmp_path / "copy" / "default.shop"
    assert numbers(there / "lake" / "rows") == [1, 2]
    assert len(list((there / "lake" / "rows").glob("*.parquet"))) == 1
    assert [path.name for path in there.rglob("offsets/*")] == ["0"]
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"default.shop", "spaces.json", PLACE}


@pytest.mark.parametrize("what", ["offset", "commit", "message taken", "space"])
def test_what_moves_while_it_is_noted_is_noted_again(what: str, stage: Stage, tmp_path: Path) -> None:
    spool = stage.space / "spool" / "shop.keep" / "1" / "rows"
    with PipelinesCopy(stage.folder, tmp_path / "copy", nothing) as copy, copy.at_rest():
        copy.note()
        if what == "offset":
            (stage.query / "offsets" / "1").write_text("v1\n{}\n-")
        elif what == "commit":
            (stage.query / "commits" / "1").write_text("v1\n{}")
        elif what == "message taken":
            spool.mkdir(parents=True)
            (spool / "0-1-00.arrow").touch()
        else:
            later = stage.folder / "default.later"
            (later / "lake").mkdir(parents=True)
            (later / "checkpoints" / "later.p" / "1" / "q" / "offsets").mkdir(parents=True)
            (later / "checkpoints" / "later.p" / "1" / "q" / "offsets" / "0").touch()
        assert copy.moved() == ["default.later" if what == "space" else "default.shop"]
        copy.note()
        assert copy.moved() == []
    assert sum(1 for path in (tmp_path / "copy").rglob("*") if path.is_file()) == 6


def test_what_a_query_has_removed_since_is_not_in_the_copy(stage: Stage, tmp_path: Path) -> None:
    batch = stage.space / "spool" / "shop.keep" / "1" / "rows" / "0-1-00.arrow"
    batch.parent.mkdir(parents=True)
    batch.touch()
    with PipelinesCopy(stage.folder, tmp_path / "copy", nothing) as copy:
        copy.approach()
        assert list((tmp_path / "copy").rglob("*.arrow"))
        batch.unlink()
        with copy.at_rest():
            copy.note()
    assert not list((tmp_path / "copy").rglob("*.arrow"))


def test_no_link_leads_out_of_a_space(stage: Stage, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_text("of another")
    (stage.space / "lake" / "rows").mkdir()
    (stage.space / "lake" / "rows" / "part.parquet").symlink_to(secret)
    (stage.space / "models").symlink_to(tmp_path / "folder")
    (stage.query / "state").symlink_to(tmp_path / "folder")
    os.mkfifo(stage.query / "pipe")
    copy, _ = copied(stage, tmp_path / "copy")
    texts = [path.read_text() for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert "of another" not in texts
    named = " ".join(copy.left_out())
    assert "part.parquet, which is a link" in named
    assert "pipe, which is a link" in named


@as_root
def test_a_file_of_somebody_else_that_is_linked_in_is_left_out_by_name(stage: Stage, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of another")
    os.chown(secret, 1, 1)
    os.link(secret, stage.query / "linked")
    copy, _ = copied(stage, tmp_path / "copy")
    assert not list((tmp_path / "copy").rglob("linked"))
    assert "linked, which is a link, or a file of others" in " ".join(copy.left_out())


def test_a_file_that_a_table_lacks_is_named(stage: Stage, tmp_path: Path) -> None:
    stage.write(1)
    next((stage.space / "lake" / "rows").glob("*.parquet")).unlink()
    _, is_sound = copied(stage, tmp_path / "copy")
    assert not is_sound


@pytest.mark.parametrize("kind", ["rows", "log", "checkpoint"])
def test_what_a_disk_has_changed_is_named(kind: str, stage: Stage, tmp_path: Path) -> None:
    stage.write(1)
    table = stage.space / "lake" / "rows"
    file = {
        "rows": next(table.glob("*.parquet")),
        "log": table / "_delta_log" / f"{0:020d}.json",
        "checkpoint": stage.query / "offsets" / "0",
    }[kind]
    keep_sum(file)
    assert copied(stage, tmp_path / "sound")[1]
    data = file.read_bytes()
    file.write_bytes(data[:4] + bytes((data[4] ^ 1,)) + data[5:])
    said: list[str] = []
    with PipelinesCopy(stage.folder, tmp_path / "copy", said.append) as copy:
        copy.approach()
        copy.note()
        assert not copy.copy_tables()
    assert any(f"{file.name} is not as it was written" in sentence for sentence in said)


def test_files_that_joined_tables_need_are_there_once(stage: Stage, tmp_path: Path) -> None:
    stage.write(1)
    data = next((stage.space / "lake" / "rows").glob("*.parquet"))
    pinned = stage.space / "lake" / "_pinned" / "shop.keep_q" / "rows" / "0" / data.name
    pinned.parent.mkdir(parents=True)
    os.link(data, pinned)
    copied(stage, tmp_path / "copy")
    found = list((tmp_path / "copy").rglob("*.parquet"))
    assert len(found) == 2
    assert found[0].samefile(found[1])


def test_nothing_is_deleted_and_no_batch_begins_while_a_backup_says_so(stage: Stage, tmp_path: Path) -> None:
    stage.write(1)
    table = stage.space / "lake" / "rows"
    DeltaTable(table).delete()
    old = next(table.glob("*.parquet"))
    with PipelinesCopy(stage.folder, tmp_path / "copy", nothing) as copy:
        assert vacuum(table, keep_h=0) == 0
        assert old.exists()
        number = os.open(stage.space / BATCHES, os.O_RDONLY)
        assert lock(number, fcntl.LOCK_SH)
        os.close(number)
        with copy.at_rest():
            number = os.open(stage.space / BATCHES, os.O_RDONLY)
            assert not lock(number, fcntl.LOCK_SH)
            os.close(number)
    assert vacuum(table, keep_h=0) == 1
    assert not old.exists()


def _commit(_: Path) -> None:
    EnmasseStreamWriter.commit(object.__new__(EnmasseStreamWriter), [], 1)


def _add(_: Path) -> None:
    plan = QueryPlan("table-t", cast("Any", None), TableTarget("t"))
    _of_batch(plan, lambda rows, batch: None)(cast("Any", None), 1)


def _take(folder: Path) -> None:
    checkpoint = folder / "checkpoint"
    where = {"url": "amqp://127.0.0.1", "address": "jobs", "spoolDir": str(folder / "spool"), "pollTimeout": "0"}
    options = ConsumedOptions.parse(where | {"checkpointLocation": str(checkpoint)}, "queue")
    spool = Spool(options.spool, Owner("jobs", "", options.checkpoint))
    planner = ConsumedPlanner(options, spool, Link, Backoff(1))
    planner.latest(0, None)
    planner.stop()


class Link:
    """A connection on which nothing comes."""

    is_usable, stored = True, 0

    def receive(self, *_: Any) -> list[Any]:
        return []

    drain = receive

    def accept(self, _: Any) -> None:
        raise AssertionError("nothing came")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("begin", [_commit, _add, _take])
def test_whatever_a_batch_begins_or_ends_with_waits_for_a_backup(
    begin: Callable[[Path], None], stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()

    class Clock:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            waits.set()
            time.sleep(seconds)

    monkeypatch.setattr("enmasse.pipeline.backup.locks.time", Clock)
    monkeypatch.setattr("enmasse.pipeline.sink.writers.settle", lambda: None)
    begin(tmp_path)
    assert not waits.is_set()
    thread = threading.Thread(target=begin, args=(tmp_path,))
    with PipelinesCopy(stage.folder, tmp_path / "copy", nothing) as copy, copy.at_rest():
        thread.start()
        assert waits.wait(30)
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()


def test_locks_end_with_a_backup_that_is_killed(stage: Stage) -> None:
    make_locks(stage.space)
    program = (
        "import sys, pathlib\nfrom enmasse.pipeline.backup.snapshot import PipelinesCopy\n"
        "with PipelinesCopy(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), print) as copy, copy.at_rest():\n"
        "    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    held = subprocess.Popen(
        [sys.executable, "-c", program, str(stage.folder), str(stage.folder / "copy")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert held.stdout is not None
    assert held.stdout.readline() == b"held\n"
    with deletion() as is_free:
        assert not is_free
    held.kill()
    held.communicate()
    with deletion() as is_free:
        assert is_free
    assert {path.name for path in stage.space.glob("*.lock")} == set(LOCKS)


def test_one_backup_at_a_time(stage: Stage, tmp_path: Path) -> None:
    with (
        PipelinesCopy(stage.folder, tmp_path / "one", nothing),
        pytest.raises(BackupBusyError, match="another backup"),
        PipelinesCopy(stage.folder, tmp_path / "two", nothing),
    ):
        pass


def test_who_does_not_let_go_of_a_lock_holds_up_nobody(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.pipeline.backup.snapshot._WAIT_S", 0.0)
    told: list[str] = []
    make_locks(stage.space)
    with deletion(), PipelinesCopy(stage.folder, tmp_path / "copy", told.append) as copy:
        copy.note()
        assert copy.copy_tables()
    assert "default.shop are copied as they run" in " ".join(told)


def remembering(stage: Stage) -> dict[Path, tuple[str, str]]:
    """Files of a space that remember absolute paths: what is before the path of the folder in each, and behind it."""
    place = Path("default.shop")
    files = {
        "spool/shop.keep/1/rows/spool.json": ('{"checkpoint": "', '/default.shop/checkpoints/shop.keep/1/q"}'),
        "checkpoints/shop.keep/1/q/sources/0/1": ('v1\n{"path":"file://', '/default.shop/lake/files/a.csv"}'),
        "checkpoints/shop.keep/1/q/state/0/_metadata/v2": ('v2\n{"paths":["file:', '/default.shop/checkpoints/s"]}'),
        "checkpoints/shop.keep/1/q/tables/t/3": ('{"folder": "', '/default.shop/lake/_pinned/q/t/0"}'),
    }
    was = str(stage.folder.resolve())
    for name, (before, behind) in files.items():
        path = stage.space / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + (quote(was) if "file:" in before else json.dumps(was)[1:-1]) + behind)
        path.with_name(f".{path.name}.crc").write_bytes(b"of the former")
    return {place / name: texts for name, texts in files.items()}


def by_restore(stage: Stage, now: Path) -> None:
    copied(stage, now.with_name("copy"))
    now.mkdir()
    restore(now.with_name("copy"), now, {}, nothing)


def by_hand(stage: Stage, now: Path) -> None:
    stage.folder.rename(now)


def by_hand_in_two_steps(stage: Stage, now: Path) -> None:
    """As if the machine had failed when the last file was done."""
    stage.folder.rename(now)
    relocate(now)
    (now / PLACE).write_text(str(stage.folder))


@pytest.mark.parametrize("name", ["elsewhere with \u00fc", "pipelines/pipelines", "of another/pipelines"])
@pytest.mark.parametrize("move", [by_restore, by_hand, by_hand_in_two_steps])
def test_what_remembers_its_place_remembers_the_new_one(
    move: Callable[[Stage, Path], None], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path / "pipelines")
    assert not relocate(stage.folder)
    files = remembering(stage)
    state = Path("default.shop/checkpoints/shop.keep/1/table-rows/state/0/1.zip")
    (stage.folder / state).parent.mkdir(parents=True)
    (stage.folder / state).write_bytes(f'"{stage.folder}/default.shop/'.encode())
    contents = (stage.folder / state).read_bytes()
    now = tmp_path / "disk" / name
    now.parent.mkdir(parents=True)
    move(stage, now)
    relocate(now)
    for path, (before, behind) in files.items():
        shown = quote(str(now)) if "file:" in before else json.dumps(str(now))[1:-1]
        assert (now / path).read_text() == before + shown + behind
        assert not (now / path).with_name(f".{path.name}.crc").exists()
    assert (now / state).read_bytes() == contents
    assert not relocate(now)


@as_root
def test_who_is_moved_keeps_files_and_leads_nobody_elsewhere(stage: Stage, tmp_path: Path) -> None:
    relocate(stage.folder)
    remembering(stage)
    text = f'{{"checkpoint": "{stage.space}/checkpoints/q"}}'
    for name in ("by a link", "by name"):
        (tmp_path / name).write_text(text)
    own = stage.query / "own"
    own.write_text(text)
    own.chmod(0o640)
    for path in (stage.query, own):
        os.chown(path, 52_001, 52_001)
    (stage.query / "linked").symlink_to(tmp_path / "by a link")
    os.link(tmp_path / "by name", stage.query / "named")
    os.mkfifo(stage.query / "pipe")
    now = tmp_path / "now"
    stage.folder.rename(now)
    assert relocate(now)
    moved = now / own.relative_to(stage.folder)
    assert json.loads(moved.read_text())["checkpoint"] == f"{now}/default.shop/checkpoints/q"
    facts = moved.stat()
    assert (facts.st_uid, facts.st_gid, facts.st_mode & 0o777) == (52_001, 52_001, 0o640)
    assert {(tmp_path / name).read_text() for name in ("by a link", "by name")} == {text}
    assert moved.with_name("linked").is_symlink()


def test_a_restore_takes_the_place_of_what_was_there(stage: Stage, tmp_path: Path) -> None:
    copied(stage, tmp_path / "copy")
    stage.batch(1)
    (stage.folder / "default.later" / "lake").mkdir(parents=True)
    restore(tmp_path / "copy", stage.folder, {}, nothing)
    assert [path.name for path in stage.query.glob("offsets/*")] == ["0"]
    assert not (stage.folder / "default.later").exists()


def _declared(kind: str, name: str, spec: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    return kind, "default", {"metadata": {"name": name, "uid": f"uid of {name}"}, "spec": spec}


S3 = _declared("AddressSpace", "shop", {"lake": {"s3": {"bucket": "lakes", "prefix": "shop/"}}})
HOOK = _declared("Webhook", "shop.hook", {"address": "alerts"})
SUBSCRIPTION = _declared("Address", "shop.alerts", {"address": "alerts", "type": "subscription", "topic": "news"})
DATABASE = {"database": {"host": "db.example.com", "table": "public.rows"}}


@pytest.mark.parametrize(
    ("spec", "others", "sinks"),
    [
        ({"sinks": [{"table": "rows"}, {"address": "alerts"}]}, [], []),
        ({"sinks": [DATABASE]}, [], ["table public.rows of PostgreSQL at db.example.com"]),
        ({"sinks": [{"table": "rows"}]}, [S3], ["table rows in s3://lakes/shop"]),
        ({"sinks": [{"address": "out"}]}, [S3, HOOK], []),
        ({"sinks": [{"address": "alerts"}]}, [HOOK], ["address alerts, which a webhook posts to a URL"]),
        ({"sinks": [{"address": "*"}]}, [HOOK], ["address alerts, which a webhook posts to a URL"]),
        ({"sinks": [{"badRecords": "alerts"}]}, [HOOK], ["address alerts, which a webhook posts to a URL"]),
        ({"sinks": [{"address": "news"}]}, [SUBSCRIPTION, HOOK], ["address news, which a webhook posts to a URL"]),
        ({"sinks": [{"address": "command"}]}, [], ["address command, which brings commands to devices"]),
        ({"sinks": [{"address": "command/t"}]}, [], ["address command/t, which brings commands to devices"]),
        ({"builtin": {"name": "lake", "parameters": {"address": "in"}}}, [S3], ["table raw in s3://lakes/shop"]),
        (
            {"builtin": {"name": "last-value", "parameters": {"address": "in", "to": "alerts"}}},
            [HOOK],
            ["address alerts, which a webhook posts to a URL"],
        ),
    ],
)  # fmt: skip
def test_sinks_that_no_backup_has_are_found(spec: dict[str, Any], others: list[Any], sinks: list[str]) -> None:
    found = outside_of([*others, _declared("Pipeline", "shop.keep", spec)])
    expected = {"default.shop": {"shop.keep": {"uid": "uid of shop.keep", "restartedAt": None, "sinks": sinks}}}
    assert found == (expected if sinks else {})


def _pipeline(uid: str = "uid of shop.keep", **spec: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "apiVersion": "enmasse.io/v1beta1",
            "kind": "Pipeline",
            "metadata": {"name": "shop.keep", "namespace": "default", "uid": uid},
            "spec": {"sources": [{"name": "rows", "address": "in"}], "sinks": [{"table": "t"}], **spec},
        }
    )


def test_a_pipeline_whose_sink_may_be_ahead_waits_until_it_is_told_where_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    outside = outside_of([_declared("Pipeline", "shop.keep", {"sinks": [DATABASE], "restart": {"at": "1"}})])
    restore(tmp_path / "none", tmp_path / "pipelines", outside, nothing)
    marks = RestoredMarks(tmp_path / "pipelines")

    def rule(pipeline: Pipeline) -> str | None:
        found = restored_rule(pipeline, marks)
        return None if found is None else f"{found.reason}: {found.message}"

    refused = rule(_pipeline())
    assert refused is not None
    assert refused.startswith("RestoredBehindSink: ")
    assert "table public.rows of PostgreSQL at db.example.com" in refused
    assert "enmasse pipeline restart shop.keep --namespace default --from WHERE" in refused
    assert rule(_pipeline(restart={"at": "1", "from": "earliest"})) is not None
    assert rule(_pipeline(restart={"at": "2"})) is not None
    assert rule(_pipeline(uid="another")) is None
    assert rule(_pipeline(restart={"at": "2", "from": "latest"})) is None
    # Once it was done, it is over, whatever is declared later.
    marks.forget("default.shop", "shop.keep", "1")
    assert rule(_pipeline()) is not None
    marks.forget("default.shop", "shop.keep", "2")
    assert rule(_pipeline()) is None
    assert restored_rule(_pipeline(), RestoredMarks(tmp_path / "pipelines")) is None
