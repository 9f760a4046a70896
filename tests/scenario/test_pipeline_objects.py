"""Tables of the lake in S3-compatible storage, as streaming queries write and read them."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable
from pyarrow.fs import FileSelector
from pyspark.errors import StreamingQueryException

from enmasse.drivers.data_directory import Layout
from enmasse.drivers.supervisor.endpoints import Endpoint, Endpoints, write_endpoints
from enmasse.errors import ConfigError
from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.pipeline import notebook
from enmasse.pipeline.errors import DataLossError, LakeAwayError, TableDamagedError, TableSchemaError
from enmasse.pipeline.lake.changes import stream_of
from enmasse.pipeline.lake.compaction import FEW_FILES, compact, order_rows
from enmasse.pipeline.lake.conditional_writes import require_conditional_writes
from enmasse.pipeline.lake.delta_reading import LOG, partitions_of, read_files
from enmasse.pipeline.lake.mending import last_done
from enmasse.pipeline.lake.objects import ObjectPath
from enmasse.pipeline.lake.reference import UNLINKED_S, Pins, followed, joined_tables, present_version
from enmasse.pipeline.lake.relation import facts, history, relation, restore, statistics, tables
from enmasse.pipeline.lake.replacing import Replaced, Replacement, choose
from enmasse.pipeline.lake.tables import open_table
from enmasse.pipeline.source.options import URL_VARIABLE
from tests.scenario.lake_stage import COLUMNS, ODD, Lake, Rows
from tests.support.object_storage import BUCKET, ObjectStorage
from tests.support.polling import until
from tests.support.relay import Relay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]


NOT_IMPLEMENTED = b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n"
SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
THROTTLED = (
    b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStorage]:
    with ObjectStorage(tmp_path_factory.mktemp("storage")) as found:
        yield found


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path, storage: ObjectStorage, credentials_folder: Path) -> Iterator[Lake]:
    file = storage.write_settings(credentials_folder)
    yield Lake(spark, tmp_path, ObjectPath(f"s3://{BUCKET}/{tmp_path.name}/lake"))
    file.unlink()


def test_partitions_are_replaced_beside_what_is_added_meanwhile(lake: Lake) -> None:
    path = lake.folder / "replaced"
    table = open_table(path, partition_by=["k"])
    rows: Rows = [{"k": k, "v": n} for n, k in enumerate(ODD)]
    lake.write(table, rows)
    chosen = choose(["k"], {"k": ODD[0] or ""}, None, None)
    replacement = Replacement(path, chosen, "again")
    assert replacement.begin(lambda found: last_done(found, path, lake.checkpoint("replaced"))) == 0
    lake.write(table, [{"k": ODD[0], "v": 100}])
    frame = lake.spark.createDataFrame([(ODD[0], 7), (ODD[1], 8)], "k STRING, v BIGINT")
    assert replacement.finish(chosen.rows(frame), lambda: False) == Replaced(rows=1, rows_before=1, partitions=1)
    assert replacement.done() is not None
    found = relation(lake.spark, path).collect()
    rest = [(k, n) for n, k in enumerate(ODD) if n]
    assert Counter((row["k"], row["v"]) for row in found) == Counter([(ODD[0], 7), (ODD[0], 100), *rest])


def test_rows_are_written_once_whatever_their_partition_and_kept_in_order(lake: Lake, storage: ObjectStorage) -> None:
    path = lake.folder / "t"
    table = open_table(path, partition_by=["k"])
    # Those that have to be escaped, and NULL: files of other names would only be more.
    batch = [{"k": k, "v": n} for n, k in enumerate(ODD[1:8])]
    lake.write(table, *[batch] * FEW_FILES)
    commits = lake.checkpoint("t") / "commits"
    # As if the driver had been killed after it wrote the table.
    (commits / "5").unlink()
    more = {"k": ODD[1], "v": 100}
    lake.write(table, [more])
    expected = sorted(((row["k"], row["v"]) for row in [*batch * FEW_FILES, more]), key=repr)
    assert lake.rows("t", "k", "v") == expected
    found = facts(path)
    assert (found.rows, found.partition_by, found.version) == (len(expected), ("k",), 8)
    before = found.version
    done = compact(path, keep_h=0)
    assert (done.merged, done.made, done.left) == (FEW_FILES * len(batch) + 1, len(batch), 0)
    assert lake.rows("t", "k", "v") == expected
    assert tables(lake.folder) == ["t"]
    whole = pl.scan_delta(str(path), storage_options=storage.options()).select("k", "v").collect().rows()
    assert sorted(whole, key=repr) == expected
    with pytest.raises(TableSchemaError, match="files of version 8 of the table t were deleted"):
        relation(lake.spark, path, before)
    newest = history(lake.spark, path).collect()[0]["version"]
    lake.write(table, [{"k": "new", "v": 1}])
    assert restore(path, newest).startswith(f"is as version {newest} was")
    assert lake.rows("t", "k", "v") == expected
    lake.write(table, [{"k": "new", "v": 2}])
    assert ("new", 2) in lake.rows("t", "k", "v")
    assert order_rows(path, ["v"]) == 0
    assert {row["column"] for row in statistics(lake.spark, path).collect()} == {"k", "v", "ts"}


def test_a_notebook_shows_the_tables_of_its_space_alone(
    lake: Lake, storage: ObjectStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(open_table(lake.folder / "t"), [{"k": "a", "v": 1}])
    folder = tmp_path / "data/pipelines/default.plant"
    for name in ("lake", "credentials"):
        (folder / name).mkdir(parents=True)
    storage.write_settings(folder / "credentials", prefix=f"{tmp_path.name}/lake")
    amqp = Endpoint("amqp", "amqp://127.0.0.1:1")
    write_endpoints(Layout(tmp_path / "data").endpoints, Endpoints((amqp,)))
    with pytest.raises(ConfigError, match=r"before it knew of amqp://127\.0\.0\.1:1, .* restart the kernel"):
        notebook.start(None, "default", tmp_path / "data", None, {})
    monkeypatch.setenv(URL_VARIABLE, amqp.url)
    # A process has one session; this one's is that of all tests.
    monkeypatch.setattr(notebook, "start_session", lambda *_, **__: lake.spark)
    found = notebook.start(None, "default", tmp_path / "data", None, {})
    assert found.sql("SELECT k, v FROM t").collect() == [("a", 1)]
    with pytest.raises(ConfigError, match=r"before it knew of other\.default\.enmasse\.local"):
        notebook.start("other", "default", tmp_path / "data", None, {})
    lake.spark.catalog.dropTempView("t")


def test_rows_are_merged_deleted_and_kept_as_history(lake: Lake) -> None:
    columns = f"k STRING, v INT, at INT, {DELETED} BOOLEAN"

    def row(k: str | None, v: int | None, at: int, gone: bool = False) -> dict[str, Any]:
        return {"k": k, "v": v, "at": at, DELETED: gone}

    table = open_table(lake.folder / "cdc", mode="update", keys=["k"], order_by="at")
    lake.write(
        table, [row("a", 1, 1), row("b", 1, 1), row(None, 1, 1)], [row("a", 2, 5), row("a", 9, 4)], columns=columns
    )
    lake.write(table, [row("a", None, 6, gone=True), row("d", None, 9, gone=True)], columns=columns)
    lake.write(table, [row("d", 1, 8), row("c", 1, 1), row("a", 4, 6)], columns=columns)
    assert lake.rows("cdc", "k", "v", "at") == [("a", 4, 6), ("b", 1, 1), ("c", 1, 1), (None, 1, 1)]
    assert tables(lake.folder) == ["cdc"]
    table = open_table(lake.folder / "versions", mode="update", keys=["k"], order_by="at", keeps_history=True)
    lake.write(table, [row("a", 2, 20), row("a", None, 30, gone=True)], [row("a", 1, 10)], columns=columns)
    lake.write(table, [row("a", 3, 40)], columns=columns)
    expected = [(1, 10, 20, False), (2, 20, 30, False), (3, 40, None, True)]
    assert lake.rows("versions", "v", "valid_from", "valid_to", "is_current") == expected


def test_a_table_is_followed_by_queries_that_join_it_and_that_read_it_as_a_stream(
    lake: Lake, storage: ObjectStorage
) -> None:
    names = open_table(lake.folder / "names", mode="update", keys=["k"])
    lake.write(names, [{"k": "a", "v": 1}], [{"k": "b", "v": 2}])
    joined: list[list[tuple[Any, ...]]] = []
    checkpoint = lake.inputs / "joining"

    def join() -> None:
        stream = stream_of(lake.spark, lake.folder / "events", "earliest", skips_changes=False)
        reference = followed(lake.spark, lake.folder / "names", checkpoint, "q", 0.0)
        rows = stream.join(reference.withColumnRenamed("v", "known"), "k", "left").select("k", "v", "known")

        def keep(frame: Any, _batch: int) -> None:
            joined.append(sorted(map(tuple, frame.collect()), key=repr))

        query = rows.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(keep)
        query.trigger(availableNow=True).start().awaitTermination()

    events = open_table(lake.folder / "events")
    lake.write(events, [{"k": "a", "v": 10}, {"k": "c", "v": 10}])
    join()
    lake.write(names, [{"k": "a", "v": 5}])
    lake.write(events, [{"k": "a", "v": 11}])
    join()
    assert joined == [[("a", 10, 1), ("c", 10, None)], [("a", 11, 5)]]
    # A batch that comes again joins the version that it joined.
    (checkpoint / "commits" / "1").unlink()
    lake.write(names, [{"k": "a", "v": 6}])
    join()
    assert joined[-1] == [("a", 11, 5)]
    ((name, former),) = joined_tables(checkpoint)
    assert name == "names"
    path = lake.folder / "names"
    newest = present_version(path).name

    def joined_after(seconds: float) -> str:
        """The version that one more batch joins so long after one was looked for, with a day until the next look."""
        at = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
        last = max(int(entry.name) for entry in (checkpoint / "offsets").glob("[0-9]*"))
        (checkpoint / "tables" / "names" / str(last)).write_text(json.dumps(asdict(former) | {"at": at}))
        (checkpoint / "offsets" / str(last + 1)).touch()
        return Pins(path, checkpoint, "q").of_present_batch(86_400.0, []).name

    # No link keeps the files of a version: who joins it has to take another in time.
    assert joined_after(UNLINKED_S - 60) == former.name != newest
    assert joined_after(UNLINKED_S + 1) == newest
    part = partitions_of(str(path), former.files)[0]
    storage.files().delete_file((path / part.files[0].path).key)
    schema = relation(lake.spark, path).schema
    with pytest.raises(DataLossError, match=r"is there no more: .*restart the pipeline"):
        list(read_files(part, schema))


def test_a_commit_whose_answer_is_lost_is_in_the_table_with_its_rows(
    lake: Lake, storage: ObjectStorage, credentials_folder: Path
) -> None:
    relay = Relay(storage.port)

    def lose(name: str) -> None:
        # Some of Delta's calls let no other thread run, the relay's neither: those are done by now.
        storage.write_settings(credentials_folder, endpoint=f"http://127.0.0.1:{relay.port}")
        relay.lost = f"PUT /{(lake.folder / name).key}/_delta_log/".encode()

    table = open_table(lake.folder / "t", partition_by=["k"])
    lake.write(table, [{"k": "a", "v": 1}])
    lose("t")
    lake.write(table, [{"k": "a", "v": 2}], [{"k": "b", "v": 3}])
    assert not relay.lost
    assert lake.rows("t", "k", "v") == [("a", 1), ("a", 2), ("b", 3)]
    chosen = choose(["k"], {"k": "a"}, None, None)
    replacement = Replacement(lake.folder / "t", chosen, "again")
    replacement.begin(lambda _: 0)
    lose("t")
    done = replacement.finish(lake.spark.createDataFrame([("a", 7, None)], COLUMNS), lambda: False)
    assert done is not None
    assert (done.rows, done.rows_before) == (1, 2)
    assert lake.rows("t", "k", "v") == [("a", 7), ("b", 3)]
    storage.write_settings(credentials_folder)
    table = open_table(lake.folder / "last", mode="update", keys=["k"])
    lake.write(table, [{"k": "a", "v": 1}])
    lose("last")
    lake.write(table, [{"k": "a", "v": 2}], [{"k": "b", "v": 3}])
    assert not relay.lost
    assert lake.rows("last", "k", "v") == [("a", 2), ("b", 3)]
    relay.cut()


def test_another_table_in_the_place_of_one_and_new_keys_are_noticed(
    lake: Lake, storage: ObjectStorage, credentials_folder: Path
) -> None:
    path, files = lake.folder / "t", storage.files()
    table = open_table(path)
    lake.write(table, [{"k": "a", "v": 1}], [{"k": "a", "v": 2}])
    another = open_table(lake.folder / "other")
    lake.write(another, *[[{"k": "x", "v": n}] for n in range(4)])
    # Storage says to the second when an object was made, and by that another one in its place is told.
    made = max(entry.made_at_ns() or 0 for entry in (path / LOG).iterdir())
    until(lambda: time.time_ns() - made > 2_000_000_000, "the clock stands still")
    for info in files.get_file_info(FileSelector((lake.folder / "other").key, recursive=True)):
        if info.is_file:
            files.copy_file(info.path, info.path.replace("/other/", "/t/"))
    with pytest.raises(StreamingQueryException, match="written under another checkpoint"):
        lake.go_on(table, lake.stream("t", [{"k": "a", "v": 3}]), "t")
    table = open_table(lake.folder / "keys")
    lake.write(table, [{"k": "a", "v": 1}])
    former = dict(storage.settings)
    try:
        storage.stop()
        storage.start(secret="the next one")
        storage.settings["secretAccessKey"] = "the next one"
        storage.write_settings(credentials_folder)
        lake.go_on(table, lake.stream("keys", [{"k": "a", "v": 2}]), "keys")
        assert lake.rows("keys", "k", "v") == [("a", 1), ("a", 2)]
    finally:
        storage.settings.update(former)
        storage.stop()
        storage.start()


def test_storage_that_lets_writers_replace_each_others_objects_is_refused(
    lake: Lake, storage: ObjectStorage, credentials_folder: Path
) -> None:
    relay = Relay(storage.port)
    endpoint = f"http://127.0.0.1:{relay.port}"
    asked: list[str] = []

    def ignore(data: bytes) -> None:
        # The gateway cannot be told to ignore a header, and it is signed: so what has the name goes first.
        if data.startswith(b"PUT ") and b"\r\nif-none-match: *\r\n" in data.lower():
            asked.append(data.split()[1].decode())
            storage.forget(asked[-1])

    storage.write_settings(credentials_folder, endpoint=endpoint)
    relay.on_data = ignore
    table = open_table(lake.folder / "t")
    schema = lake.stream("t").schema
    with pytest.raises(
        TableSchemaError, match=f"the storage at {endpoint} has no conditional writes: .* replaced one"
    ):
        table.prepare(schema, owner="o", checkpoint=lake.checkpoint("t"))
    assert len(asked) == 2
    for answer, error, why in (
        (NOT_IMPLEMENTED, TableSchemaError, "has no conditional writes: .* said that it cannot"),
        (THROTTLED % (len(SLOW_DOWN), SLOW_DOWN), LakeAwayError, "the storage asks for fewer requests"),
    ):
        relay.answer = answer
        with pytest.raises(error, match=why):
            require_conditional_writes(lake.folder)
    relay.cut()
    with pytest.raises(LakeAwayError, match=f"at {endpoint}: the storage does not answer"):
        require_conditional_writes(lake.folder)
    storage.write_settings(credentials_folder, secretAccessKey="another")
    with pytest.raises(LakeAwayError, match="the storage refuses the credentials"):
        require_conditional_writes(lake.folder)
    storage.write_settings(credentials_folder)
    table.prepare(schema, owner="o", checkpoint=lake.checkpoint("t"))
    # Nothing is left of what was tried, and it is not tried again.
    left = storage.files().get_file_info(FileSelector(lake.folder.key))
    assert [info.base_name for info in left] == ["t"]
    storage.write_settings(credentials_folder, endpoint=endpoint)
    require_conditional_writes(lake.folder)


def test_what_the_storage_refuses_or_lacks_is_said(
    lake: Lake, storage: ObjectStorage, credentials_folder: Path
) -> None:
    table = open_table(lake.folder / "t")
    lake.write(table, [{"k": "a", "v": 1}])
    with pytest.raises(TableSchemaError, match="a table of plain Parquet needs a folder"):
        open_table(lake.folder / "p", format="parquet")
    storage.write_settings(credentials_folder, secretAccessKey="another")
    with pytest.raises(LakeAwayError, match="the storage refuses the credentials: put right ones into the Secret"):
        tables(lake.folder)
    storage.write_settings(credentials_folder, bucket="nowhere")
    storage.write_settings(credentials_folder)
    assert tables(lake.folder) == ["t"]
    # An entry of the log goes: nothing is written beside it.
    DeltaTable(str(table.path), storage_options=storage.options())
    storage.files().delete_file(f"{(lake.folder / 't').key}/_delta_log/{2:020d}.json")
    with pytest.raises(TableDamagedError, match="is missing"):
        lake.write(table, [{"k": "b", "v": 1}])
    shutil.rmtree(lake.inputs)
