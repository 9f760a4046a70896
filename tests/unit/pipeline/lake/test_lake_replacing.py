"""Which partitions of a table a time and values choose, and what is done to their files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from enmasse.model.kinds.pipelines.partitions import Partition
from enmasse.pipeline.errors import PlanError, TableBusyError
from enmasse.pipeline.lake import replacing
from enmasse.pipeline.lake.replacing import Replaced, Replacement, choose


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("by", "first", "last", "start", "end"),
    [
        ("hour(ts)", "2026-01-31-10", "2026-01-31-23", "2026-01-31T10:00", "2026-02-01T00:00"),
        ("day(ts)", "2026-01-31", "2026-01-31", "2026-01-31T00:00", "2026-02-01T00:00"),
        ("day", "2026-01-31", "2026-01-31", "2026-01-31T00:00", "2026-02-01T00:00"),
        ("month(ts)", "2026-01", "2026-01", "2026-01-01T00:00", "2026-02-01T00:00"),
        ("year(ts)", "2026", "2026", "2026-01-01T00:00", "2027-01-01T00:00"),
    ],
)
def test_a_time_chooses_all_partitions_that_it_touches_as_a_whole(
    by: str, first: str, last: str, start: str, end: str
) -> None:
    chosen = choose(["site", by], {}, moment("2026-01-31T10:30"), moment("2026-02-01T00:00"))
    assert (chosen.first, chosen.last) == (first, last)
    assert (chosen.start, chosen.end) == (moment(start), moment(end))
    assert chosen.time is not None
    assert chosen.has({"site": "a", chosen.time.name: first})
    assert not chosen.has({"site": "a", chosen.time.name: "2027-02"})
    assert not chosen.has({"site": "a", chosen.time.name: None})


@pytest.mark.parametrize("by", ["day(ts)", "day"])
def test_of_a_day_that_rows_bring_themselves_only_they_know_which_moments_lie_in_it(by: str) -> None:
    columns = ["ts", "ts_day" if by == "day(ts)" else "day"]
    chosen = choose([by], {}, moment("2026-01-31"), moment("2026-02-01"), columns)
    assert chosen.time == Partition(columns[1])  # so no moment is asked for beside it
    assert (chosen.first, chosen.last) == ("2026-01-31", "2026-01-31")
    assert (chosen.start, chosen.end) == (moment("2026-01-30"), moment("2026-02-02"))


def test_values_choose_among_the_partitions_of_a_time() -> None:
    chosen = choose(["site", "day(ts)"], {"site": "north"}, moment("2026-01-31"), moment("2026-02-01"))
    assert chosen.has({"site": "north", "ts_day": "2026-01-31"})
    assert not chosen.has({"site": "south", "ts_day": "2026-01-31"})
    assert choose(["site"], {"site": "north"}, None, None).has({"site": "north"})


def test_a_table_that_is_laid_out_otherwise_is_refused() -> None:
    with pytest.raises(PlanError, match="the table is laid out by site, and by no time"):
        choose(["site"], {}, moment("2026-01-31"), moment("2026-02-01"))
    with pytest.raises(PlanError, match=r"expected columns that lay out the table \(ts_day\), got 'site'"):
        choose(["day(ts)"], {"site": "north"}, None, None)


FIELDS: list[dict[str, Any]] = [
    {"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("text", "site")
]


class Table:
    """A table of texts by site, to which others add."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        schema = Schema.from_json(json.dumps({"type": "struct", "fields": FIELDS}))
        DeltaTable.create(path, schema, partition_by=["site"])
        self.next: list[dict[str, Any]] = []
        self.site = "north"
        # Spark's tasks write files; here they are written already.
        monkeypatch.setattr(replacing, "written", lambda *_: self.next)

    def file(self, site: str, *texts: str) -> dict[str, Any]:
        path = self.path / f"site={site}" / f"{'-'.join(texts)}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"text": list(texts)}), path)
        stats = json.dumps({"numRecords": len(texts)})
        partition = json.dumps({"site": site})
        relative = str(path.relative_to(self.path))
        return {"path": relative, "bytes": 1, "rows": len(texts), "partition": partition, "stats": stats}

    def sized(self, site: str, *texts: str) -> dict[str, Any]:
        file = self.file(site, *texts)
        return file | {"bytes": path_size(self.path / file["path"])}

    def add(self, site: str, *texts: str) -> None:
        file, table = self.file(site, *texts), DeltaTable(self.path)
        action = AddAction(file["path"], path_size(self.path / file["path"]), {"site": site}, 1, True, file["stats"])
        table.create_write_transaction([action], "append", table.schema(), ["site"])

    def rows(self) -> list[tuple[str, str]]:
        rows = DeltaTable(self.path).to_pyarrow_table().to_pylist()
        return sorted((row["site"], row["text"]) for row in rows)

    def replacement(self, name: str = "one") -> Replacement:
        return Replacement(self.path, choose(["site"], {"site": self.site}, None, None), name)


def path_size(path: Path) -> int:
    return path.stat().st_size


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    found = Table(tmp_path / "t", monkeypatch)
    found.add("north", "wrong", "worse")
    found.add("south", "there")
    return found


def test_what_a_query_adds_meanwhile_stays_and_the_rest_of_the_partition_is_replaced(table: Table) -> None:
    replacement = table.replacement()
    assert replacement.done() is None
    assert replacement.begin(lambda found: found.version()) == 2
    table.add("north", "later")
    table.next = [table.sized("north", "right")]
    assert replacement.finish(cast("Any", None), lambda: False) == Replaced(rows=1, rows_before=2, partitions=1)
    assert table.rows() == [("north", "later"), ("north", "right"), ("south", "there")]
    # Whoever looks later is told the same, also when the entry of the log is gone.
    opened = DeltaTable(table.path)
    opened.create_checkpoint()
    (table.path / "_delta_log" / f"{opened.version():020d}.json").unlink()
    assert table.replacement().done() == Replaced(rows=1, rows_before=2, partitions=1)
    assert table.replacement("two").done() is None


def test_files_that_were_rewritten_meanwhile_leave_the_table_as_it_is(table: Table) -> None:
    table.add("north", "more")
    replacement = table.replacement()
    replacement.begin(lambda _: 0)
    assert DeltaTable(table.path).optimize.compact()["numFilesRemoved"] == 2
    before = table.rows()
    table.next = [table.file("north", "right")]
    with pytest.raises(TableBusyError, match="were joined or put in order meanwhile, so nothing was changed"):
        replacement.finish(cast("Any", None), lambda: False)
    assert table.rows() == before
    assert not (table.path / table.next[0]["path"]).exists()
    assert replacement.done() is None


def test_what_was_given_up_while_its_rows_were_computed_changes_nothing(table: Table) -> None:
    replacement = table.replacement()
    replacement.begin(lambda _: 0)
    before = table.rows()
    table.next = [table.sized("north", "right")]
    assert replacement.finish(cast("Any", None), lambda: True) is None
    assert table.rows() == before
    assert not (table.path / table.next[0]["path"]).exists()
    assert replacement.done() is None


def test_two_of_one_name_put_their_rows_into_the_table_once(table: Table) -> None:
    table.site = "west"  # of which there are no files that one of them could miss
    first, second = table.replacement(), table.replacement()
    first.begin(lambda _: 0)
    second.begin(lambda _: 0)
    table.next = [table.sized("west", "right")]
    assert first.finish(cast("Any", None), lambda: False) == Replaced(rows=1, rows_before=0, partitions=1)
    table.next = [table.sized("west", "again")]
    assert second.finish(cast("Any", None), lambda: False) is None
    assert [row for row in table.rows() if row[0] == "west"] == [("west", "right")]
    assert not (table.path / table.next[0]["path"]).exists()
