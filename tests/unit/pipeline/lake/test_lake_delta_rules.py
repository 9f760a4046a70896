"""Delta tables without Spark: one change after another, and what does not go together."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from enmasse.pipeline.errors import TableSchemaError
from enmasse.pipeline.lake.batches import checkpoint_query, table_lock
from enmasse.pipeline.lake.compaction import Compaction, compact
from enmasse.pipeline.lake.relation import facts, tables
from enmasse.pipeline.lake.tables import open_table


def test_keys_and_update_belong_together(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [{"mode": "update"}, {"keys": ["a"]}, {"mode": "complete", "keys": ["a"]}]
    for more in wrong:
        with pytest.raises(TableSchemaError, match="mode update needs keys"):
            open_table(tmp_path / "t", **more)
    with pytest.raises(TableSchemaError, match="only mode append"):
        open_table(tmp_path / "t", format="parquet", mode="update", keys=["a"])


def test_nothing_is_made_by_looking(tmp_path: Path) -> None:
    open_table(tmp_path / "t")
    assert compact(tmp_path / "t") == Compaction(0, 0, 0, 0)
    with pytest.raises(TableSchemaError, match="no table 't'"):
        facts(tmp_path / "t")
    assert tables(tmp_path) == []
    assert tables(tmp_path / "no") == []
    assert list(tmp_path.iterdir()) == []


def test_the_query_of_a_checkpoint_is_known_once_it_started(tmp_path: Path) -> None:
    assert checkpoint_query(tmp_path) is None
    (tmp_path / "metadata").write_text('{"id": "q1"}')
    assert checkpoint_query(tmp_path) == "q1"


def test_changes_of_one_table_take_turns_and_others_do_not_wait(tmp_path: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def other() -> None:
        inside.set()
        with table_lock(tmp_path / "a"):
            order.append("second")

    with table_lock(tmp_path / "a"):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
        with table_lock(tmp_path / "b"):
            order.append("first")
    thread.join()
    assert order == ["first", "second"]
