"""Merges rows into a Delta table by keys: the newest wins, some delete, and old ones may be kept as history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.dataset as ds
from pyspark.sql import functions as F

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.lake import history
from enmasse.pipeline.lake.delta_reading import check_files, files_of, rows_of
from enmasse.pipeline.lake.file_writing import staging_folder, written
from enmasse.pipeline.lake.objects import LakePath
from enmasse.pipeline.lake.partial_updates import SET_AT, at_of, is_beside, set_of, together
from enmasse.pipeline.lake.tombstones import Tombstones

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from enmasse.pipeline.lake.batches import Layout
    from enmasse.pipeline.lake.partitions import Partitions

STAGING: Final = "_staging"
"""Readers, and whatever cleans up, leave out what begins with an underscore."""

_ROW: Final = "__enmasse_row"
_LAST: Final = "__enmasse_last"


class Merging:
    """Merges batches into one table.

    Args:
        path: the table's folder.
        layout: the layout of its rows.
        partitions: the columns that lay it out.
    """

    def __init__(self, path: LakePath, layout: Layout, partitions: Partitions) -> None:
        self._path = path
        self.staging: Path | None = path / STAGING if isinstance(path, Path) else None
        """The folder where rows wait to be merged; None: not known yet."""
        self._layout = layout
        self._partitions = partitions
        order_by = layout.order_by
        self._tombstones = Tombstones(path, layout.keys, order_by) if order_by is not None else None

    def merge(self, table: DeltaTable, frame: DataFrame, commit: CommitProperties) -> bool:
        """Merge rows; whether that made an entry in the log."""
        layout, before = self._layout, table.version()
        assert self.staging is not None
        with staging_folder(self.staging) as staging:
            by = [*layout.keys, *filter(None, [layout.order_by if layout.keeps_history else None])]
            if layout.is_partial:
                made = self._partitions.made_of(frame.schema)
                rows = together(self._partitions.on(frame), layout.keys, layout.order_by, made)
            else:
                rows = self._partitions.on(last_of_each(frame, by, layout.order_by))
            files = written(rows, staging)
            if not files:
                return False
            staged = [str(staging / file["path"]) for file in files]
            # A merge reads the whole table.
            check_files(self._path, (file.path for file in files_of(table)))
            if layout.keeps_history:
                self._keep_versions(table, frame.sparkSession, staged, staging / "versions", commit)
            else:
                self._replace(table, ds.dataset(staged, format="parquet"), commit)
        # Rows that are all older than those in the table change nothing.
        return bool(table.version() != before)

    def _replace(self, table: DeltaTable, staged: ds.Dataset, commit: CommitProperties) -> None:
        """Put rows in the place of older ones with the same keys."""
        names = staged.schema.names
        reader: Any = staged.scanner().to_reader()
        is_deleting = DELETED in names
        if self._tombstones is not None and (is_deleting or self._tombstones.exists()):
            reader = self._tombstones.apply(staged)
        columns = {quote_identifier(name): f"s.{quote_identifier(name)}" for name in names if not is_beside(name)}
        newer = None
        if self._layout.order_by:
            by = quote_identifier(self._layout.order_by)
            newer = f"(t.{by} IS NULL OR s.{by} >= t.{by})"
        merge = self._merge_by(table, reader, self._layout.keys, commit)
        flag = f"s.{quote_identifier(DELETED)}" if is_deleting else "false"
        if is_deleting:
            merge = merge.when_matched_delete(f"{flag} AND {newer}" if newer else flag)
        if self._layout.is_partial:
            columns, changed, is_changed = self._in_part(json.loads(table.schema().to_json())["fields"], names)
            merge = merge.when_matched_update(changed, is_changed)
        else:
            merge = merge.when_matched_update(columns, f"NOT {flag} AND {newer}" if newer else f"NOT {flag}")
        merge.when_not_matched_insert(columns, f"NOT {flag}").execute()

    def _in_part(
        self, fields: Sequence[Mapping[str, Any]], given: Sequence[str]
    ) -> tuple[dict[str, str], dict[str, str], str]:
        """Return what a new row has in its columns, what one that is there becomes, and whether it changes.

        Args:
            fields: the columns of the table.
            given: those of the rows, and what is beside them.
        """
        keys, order_by = self._layout.keys, self._layout.order_by
        by = None if order_by is None else quote_identifier(order_by)
        newer = "true" if by is None else f"(t.{by} IS NULL OR s.{by} >= t.{by})"
        set_at = next((field for field in fields if field["name"] == SET_AT and by is not None), None)
        ages = [] if set_at is None else [field["name"] for field in set_at["type"]["fields"]]
        new, changed, wins = {}, {}, [newer]
        new_at, changed_at = {}, {}
        for name in (field["name"] for field in fields):
            column, at = quote_identifier(name), f"s.{quote_identifier(at_of(name))}"
            if (set_at is not None and name == SET_AT) or (name not in given and by is None):
                continue
            if name in keys or name == order_by:
                new[column] = f"s.{column}"
                changed[column] = f"CASE WHEN {newer} THEN s.{column} ELSE t.{column} END"
                continue
            known = "NULL" if by is None else f"CASE WHEN t.{column} IS NOT NULL THEN t.{by} END"
            if name in ages:
                age = f"t.{quote_identifier(SET_AT)}"
                known = f"CASE WHEN {age} IS NULL THEN {known} ELSE {age}[{_text(name)}] END"
            if name in given:
                is_set = f"s.{quote_identifier(set_of(name))}"
                if by is not None:
                    # Of a value and nothing the greater one is the value.
                    known = f"greatest({at}, {known})"
                    is_set = f"({is_set} AND {at} IS NOT DISTINCT FROM {known})"
                    wins.append(is_set)
                new[column] = f"s.{column}"
                changed[column] = f"CASE WHEN {is_set} THEN s.{column} ELSE t.{column} END"
                new_at[name] = at
            changed_at[name] = known
        for columns, moments in ((new, new_at), (changed, changed_at)):
            if ages:
                each = (f"{_text(name)}, {moments.get(name, 'NULL')}" for name in ages)
                columns[quote_identifier(SET_AT)] = f"named_struct({', '.join(each)})"
        return new, changed, " OR ".join(wins)

    def _keep_versions(
        self, table: DeltaTable, spark: SparkSession, staged: list[str], folder: Path, commit: CommitProperties
    ) -> None:
        """Add versions of rows, and end those before them."""
        assert self._layout.order_by is not None
        assert self._tombstones is not None
        rows = spark.read.parquet(*staged)
        if DELETED in rows.columns:
            self._tombstones.apply(ds.dataset(staged, format="parquet"))
        gone = spark.createDataFrame(self._tombstones.read()) if self._tombstones.exists() else None
        there = rows_of(spark, table, self._path)
        changes = history.changes(rows, there, gone, self._layout.keys, self._layout.order_by)
        folder.mkdir()
        files = written(self._partitions.on(changes), folder)
        if not files:
            return
        versions = ds.dataset([str(folder / file["path"]) for file in files], format="parquet")
        columns = {
            quote_identifier(name): f"s.{quote_identifier(name)}" for name in versions.schema.names if name != DELETED
        }
        flag = f"s.{quote_identifier(DELETED)}"
        merge = self._merge_by(table, versions.scanner().to_reader(), [*self._layout.keys, history.FROM], commit)
        merge = merge.when_matched_delete(flag).when_matched_update(columns, f"NOT {flag}")
        merge.when_not_matched_insert(columns, f"NOT {flag}").execute()

    def _merge_by(self, table: DeltaTable, source: Any, keys: Sequence[str], commit: CommitProperties) -> Any:
        # DataFusion binds AND more tightly than IS NOT DISTINCT FROM.
        same = " AND ".join(
            f"(t.{quote_identifier(key)} IS NOT DISTINCT FROM s.{quote_identifier(key)})" for key in keys
        )
        return table.merge(source, same, source_alias="s", target_alias="t", commit_properties=commit)


def _text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def last_of_each(frame: DataFrame, by: Sequence[str], order_by: str | None) -> DataFrame:
    """Return one row for each value of some columns: the greatest by ``order_by``, else the last of the batch."""
    numbered = frame.withColumn(_ROW, F.monotonically_increasing_id())
    order = F.struct(*[F.col(quote_identifier(name)) for name in filter(None, [order_by, _ROW])])
    rest = F.struct(*[F.col(quote_identifier(name)) for name in frame.columns])
    last = numbered.groupBy(*[F.col(quote_identifier(name)) for name in by]).agg(F.max_by(rest, order).alias(_LAST))
    return last.select(*[F.col(f"{_LAST}.{quote_identifier(name)}") for name in frame.columns])
