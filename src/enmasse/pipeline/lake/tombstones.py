"""Remembers what was deleted from a table, so that an older row that comes late does not bring it back.

Rules:
1. A tombstone is the keys of a deleted row and the value by which rows are ordered. A later row with the same keys
   that has a smaller value is left out.
2. They lie in one file beside the tables, which is replaced whole before the deletion is in the table. A batch that
   is repeated adds nothing to it.
3. The ``MOST`` with the greatest values are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from enmasse.model.kinds.pipelines.sinks import DELETED
from enmasse.pipeline.errors import TableDamagedError
from enmasse.pipeline.lake.file_writing import sync
from enmasse.pipeline.lake.objects import LakePath, ObjectPath
from enmasse.pipeline.lake.partial_updates import ANEW, ANEW_AT, at_of, set_of

if TYPE_CHECKING:
    import pyarrow.dataset as ds

MOST: Final = 100_000

_FOLDER: Final = "_tombstones"
_AT: Final = "__enmasse_at"
_GONE: Final = "__enmasse_gone"
_SUM: Final = b"SUM1"
"""The end of the file, after a CRC-32 of Parquet; those of older versions have the pages' checksums alone."""
_TAIL_BYTES: Final = 8


class Tombstones:
    """The tombstones of a table.

    Args:
        table: the table's folder.
        keys: the columns that name a row.
        order_by: the column whose greater value wins.
    """

    def __init__(self, table: LakePath, keys: Sequence[str], order_by: str) -> None:
        self.file = table.parent / _FOLDER / f"{table.name}.parquet"
        self._keys = list(keys)
        self._order_by = order_by

    def exists(self) -> bool:
        """Return whether anything was deleted."""
        return self.file.exists()

    def read(self) -> pa.Table:
        """Return the keys of what was deleted, and the values by which rows are ordered.

        Raises:
            TableDamagedError: the file is not as it was written.
        """
        data = self.file.read_bytes()
        parquet = data[:-_TAIL_BYTES] if data.endswith(_SUM) else data
        is_sound = data == parquet or crc32(parquet).to_bytes(4, "big") + _SUM == data[-_TAIL_BYTES:]
        try:
            if is_sound:
                return pq.read_table(pa.BufferReader(parquet), page_checksum_verification=True)
        except (OSError, pa.ArrowInvalid):
            pass
        raise TableDamagedError(f"{self.file} is not as it was written; {TableDamagedError.REMEDY}")

    def apply(self, rows: ds.Dataset) -> pa.RecordBatchReader:
        """Remember what rows delete, and return them without those that are older than a deletion.

        Args:
            rows: one for each key, more of them than fit into memory; ``DELETED``, if they have it, says which ones
                delete, or ``ANEW`` and ``ANEW_AT`` which deletions are among what they are made of.
        """
        before = known = self.read() if self.exists() else None
        names = rows.schema.names
        flag, at = (ANEW, ANEW_AT) if ANEW in names else (DELETED, self._order_by)
        if flag in names:
            for part in rows.to_batches(columns=[*self._keys, at], filter=pc.field(flag)):
                if part.num_rows:
                    gone = pa.Table.from_batches([part]).rename_columns([*self._keys, self._order_by])
                    known = self._newest(known, gone)
        if known is not before:
            self._write(known)

        def kept() -> Iterator[pa.RecordBatch]:
            for part in rows.to_batches():
                yield part if known is None else self._newer(part, known)

        return pa.RecordBatchReader.from_batches(rows.schema, kept())

    def _newer(self, rows: pa.RecordBatch, known: pa.Table) -> pa.RecordBatch:
        """Return the rows for which there is no newer tombstone, without their values for which there is one."""
        named = pa.Table.from_batches([rows.select(self._keys)]).append_column(_AT, pa.array(range(rows.num_rows)))
        tombstones = known.rename_columns([*self._keys, _GONE])
        # Grouped rather than joined: to a join a NULL is equal to nothing.
        both = pa.concat_tables([named, tombstones], promote_options="default").group_by(self._keys)
        found = both.aggregate([(_AT, "max"), (_GONE, "max")]).filter(pc.field(f"{_AT}_max").is_valid())
        gone = found.sort_by(f"{_AT}_max")[f"{_GONE}_max"].combine_chunks()

        def is_newer(value: pa.Array) -> pa.Array:
            return pc.or_kleene(pc.is_null(gone), pc.fill_null(pc.greater_equal(value, gone), False))

        is_kept = is_newer(rows[self._order_by])
        names = rows.schema.names
        for name in (name for name in names if at_of(name) in names):
            counts = is_newer(rows[at_of(name)])
            for one in (name, at_of(name), set_of(name)):
                nothing = pa.scalar(False if one == set_of(name) else None, rows[one].type)
                values = pc.if_else(counts, rows[one], nothing)
                rows = rows.set_column(names.index(one), rows.schema.field(one), values)
        return rows.filter(is_kept)

    def _newest(self, known: pa.Table | None, gone: pa.Table) -> pa.Table:
        """Return the tombstones that are known with more of them, as many as are kept."""
        every = gone if known is None else pa.concat_tables([known, gone], promote_options="default")
        newest = every.group_by(self._keys).aggregate([(self._order_by, "max")])
        newest = newest.rename_columns({f"{self._order_by}_max": self._order_by}).select(every.schema.names)
        if newest.num_rows > MOST:
            newest = newest.sort_by([(self._order_by, "descending")]).slice(0, MOST)
        return newest

    def _write(self, table: Any) -> None:
        made = pa.BufferOutputStream()
        pq.write_table(table, made, compression="zstd")
        parquet = made.getvalue().to_pybytes()
        data = parquet + crc32(parquet).to_bytes(4, "big") + _SUM
        if isinstance(self.file, ObjectPath):
            self.file.write_bytes(data)
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_bytes(data)
        sync(new)
        new.replace(self.file)
        sync(self.file.parent)
