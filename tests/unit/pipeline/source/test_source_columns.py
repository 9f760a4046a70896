from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from enmasse.messaging.log.frame import Frame, FrameError, encode_frame
from enmasse.model.sql.message_columns import COLUMNS, RESERVED, carried_columns, raw_columns
from enmasse.pipeline.source.columns import FULL_SCHEMA, JOIN_ROWS, SCHEMA, frame_to_batch, join_batches

FAR = 1 << 62
PAGE = Path(__file__).parents[4] / "docs" / "reference" / "spark-source.md"


def frame(first: int, rows: int, *, whole: tuple[int, ...] = (), body: int = 5) -> Frame:
    return Frame(
        encode_frame(
            first,
            [1_700_000_000_000_000 + n for n in range(rows)],
            [b"k%d" % n for n in range(rows)],
            [b"head%d" % n for n in range(rows)],
            [b"" if n in whole else b"%d" % n * body for n in range(rows)],
            whole=whole,
        )
    )


@pytest.mark.parametrize(("schema", "with_properties"), [(SCHEMA, False), (FULL_SCHEMA, True)])
def test_spark_sees_in_arrow_the_columns_that_are_declared(schema: pa.Schema, with_properties: bool) -> None:
    found = [(field.name, field.dataType.simpleString()) for field in from_arrow_schema(schema)]
    declared = raw_columns(with_properties=with_properties)
    assert found == [(column.name, str(column.type).lower().replace(", ", ",")) for column in declared]


def test_a_decoded_row_carries_all_but_the_value_under_names_that_are_reserved() -> None:
    carried = [
        column.name for column in carried_columns(with_properties=True, with_headers=True, with_topic_name=True)
    ]
    assert [*carried, "_problem", "_value", "_tombstone", "_present"] == list(RESERVED)
    assert carried == [f"_{row.name}" for row in COLUMNS if row.name != "value"]


def test_the_reference_has_each_column_as_it_is_declared() -> None:
    written = []
    for row in COLUMNS:
        when = f"with `{row.option}`: " if row.option else ""
        written.append(f"| `{row.name}` | {row.column.type.name.lower()} | {when}{row.meaning} |")
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    begin = lines.index("| column | type | content |") + 2
    assert lines[begin : lines.index("", begin)] == written


def test_a_frame_becomes_columns() -> None:
    batch = frame_to_batch(frame(100, 3), 7, 0, FAR, bytes.upper)
    assert batch.schema.equals(SCHEMA)
    assert batch.column("partition").to_pylist() == [7, 7, 7]
    assert batch.column("offset").to_pylist() == [100, 101, 102]
    assert batch.column("key").to_pylist() == [b"k0", b"k1", b"k2"]
    assert batch.column("value").to_pylist() == [b"00000", b"11111", b"22222"]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_000_000 + n for n in range(3)]


def test_bodies_are_not_copied() -> None:
    source = frame(0, 1000, body=50)
    batch = frame_to_batch(source, 0, 10, 990, bytes.upper)
    begin = pa.py_buffer(source.data).address
    assert begin <= batch.column("value").buffers()[2].address < begin + len(source.data)


def test_only_the_rows_that_are_asked_for_are_given() -> None:
    cut = frame_to_batch(frame(100, 10), 0, 103, 106, bytes.upper)
    assert cut.column("offset").to_pylist() == [103, 104, 105]
    assert cut.column("value").to_pylist() == [b"33333", b"44444", b"55555"]
    assert frame_to_batch(frame(100, 10), 0, 0, 100, bytes.upper).num_rows == 0
    assert frame_to_batch(frame(100, 10), 0, 105, FAR, bytes.upper).num_rows == 5


def test_only_messages_that_lie_whole_in_their_head_are_decoded() -> None:
    decoded: list[bytes] = []

    def decode(message: bytes) -> bytes:
        decoded.append(message)
        return b"<" + message + b">"

    batch = frame_to_batch(frame(0, 12, whole=(0, 9)), 0, 0, FAR, decode)
    assert decoded == [b"head0", b"head9"]
    values = batch.column("value").to_pylist()
    assert (values[0], values[1], values[9], values[10]) == (b"<head0>", b"11111", b"<head9>", b"10" * 5)


def test_a_frame_whose_rows_overlap_is_refused() -> None:
    data = bytearray(frame(0, 3).data)
    good = Frame(bytes(data))
    struct.pack_into("<i", data, good.bodies.offsets_at + 4, 11)
    struct.pack_into("<i", data, good.bodies.offsets_at + 8, 2)
    struct.pack_into("<I", data, 24, zlib.crc32(data[28:], zlib.crc32(data[:24])))
    with pytest.raises(FrameError, match="offset 0"):
        frame_to_batch(Frame(bytes(data)), 0, 0, FAR, bytes.upper)


def batches(*sizes: int) -> Iterator[pa.RecordBatch]:
    first = 0
    for rows in sizes:
        yield frame_to_batch(frame(first, rows), 0, 0, FAR, bytes.upper)
        first += rows


def test_small_batches_are_joined_in_order() -> None:
    joined = list(join_batches(batches(*[10] * 2500)))
    assert [batch.num_rows for batch in joined] == [JOIN_ROWS, JOIN_ROWS, 5000]
    assert [n for batch in joined for n in batch.column("offset").to_pylist()] == list(range(25_000))


def test_batches_that_are_large_enough_pass_as_they_are() -> None:
    assert [batch.num_rows for batch in join_batches(batches(12_000, 3, 11_000))] == [12_000, 3, 11_000]
    assert list(join_batches([])) == []


def test_large_bodies_bound_a_batch() -> None:
    large = [frame_to_batch(frame(n, 1, body=3 << 20), 0, 0, FAR, bytes.upper) for n in range(3)]
    assert [batch.num_rows for batch in join_batches(large)] == [1, 1, 1]
