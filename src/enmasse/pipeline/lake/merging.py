"""Merges rows into a Delta table by keys: the newest wins, some delete, and old ones may be kept as history."""

from __future__ import annotations

from collections.abc import Sequence
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
from enmasse.pipeline.lake.partial_updates import ANEW, ANEW_AT, at_of, is_beside, together
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
        layout: how rows are put into it.
        partitions: the columns that lay it out.
    """

    def __init__(self, path: LakePath, layout: Layout, partitions: Partitions) -> None:
        self._path = path
        self.staging: Path | None = path / STAGING if isinstance(path, Path) else None
        """Where rows wait to be merged; None: not known yet."""
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
                rows = together(self._partitions.on(frame), layout.keys, layout.order_by)
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
        changed = columns
        if self._layout.is_partial:
            changed = {quote_identifier(name): self._changed(name, names) for name in names if not is_beside(name)}
        newer = None
        if self._layout.order_by:
            by = quote_identifier(self._layout.order_by)
            newer = f"(t.{by} IS NULL OR s.{by} >= t.{by})"
        merge = self._merge_by(table, reader, self._layout.keys, commit)
        if is_deleting:
            flag = f"s.{quote_identifier(DELETED)}"
            both = f" AND {newer}" if newer else ""
            merge = merge.when_matched_delete(f"{flag}{both}").when_matched_update(changed, f"NOT {flag}{both}")
            merge = merge.when_not_matched_insert(columns, f"NOT {flag}")
        else:
            merge = merge.when_matched_update(changed, newer).when_not_matched_insert(columns)
        merge.execute()

    def _changed(self, name: str, names: Sequence[str]) -> str:
        """Return what a column becomes: its value in the table stays where rows that count have none."""
        column = quote_identifier(name)
        value, there = f"s.{column}", f"t.{column}"
        by = None if self._layout.order_by is None else f"t.{quote_identifier(self._layout.order_by)}"
        if ANEW in names:
            newer = "" if by is None else f" AND ({by} IS NULL OR s.{quote_identifier(ANEW_AT)} >= {by})"
            there = f"CASE WHEN s.{quote_identifier(ANEW)}{newer} THEN NULL ELSE {there} END"
        if by is not None and at_of(name) in names:
            value = f"CASE WHEN {by} IS NULL OR s.{quote_identifier(at_of(name))} >= {by} THEN {value} END"
        return f"coalesce({value}, {there})"

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


def last_of_each(frame: DataFrame, by: Sequence[str], order_by: str | None) -> DataFrame:
    """Return one row for each value of some columns: the greatest by ``order_by``, else the last of the batch."""
    numbered = frame.withColumn(_ROW, F.monotonically_increasing_id())
    order = F.struct(*[F.col(quote_identifier(name)) for name in filter(None, [order_by, _ROW])])
    rest = F.struct(*[F.col(quote_identifier(name)) for name in frame.columns])
    last = numbered.groupBy(*[F.col(quote_identifier(name)) for name in by]).agg(F.max_by(rest, order).alias(_LAST))
    return last.select(*[F.col(f"{_LAST}.{quote_identifier(name)}") for name in frame.columns])
