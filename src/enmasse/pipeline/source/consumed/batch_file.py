"""One batch of messages as one file: Arrow IPC, its range and its checksum in its name.

    00000000000000000120-00000000000000000180-1c291ca3.arrow

Rows 120 to 179; the CRC-32 (that of zlib) is of the whole file. The columns are ``timestamp`` (when the message
was received), ``identity`` (null where a message has none) and ``message`` (its AMQP sections).
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from enmasse.pipeline.source.consumed.errors import SpoolDamagedError

__all__ = ["WHAT_NOW", "BatchFile", "Row", "encode_rows", "read_rows"]

SCHEMA = pa.schema(
    [("timestamp", pa.timestamp("us", "UTC")), ("identity", pa.binary()), ("message", pa.binary())],
)
WHAT_NOW = (
    "Restore it; or begin anew with another checkpointLocation and spoolDir, and the address gives again what it "
    "still has: all messages that have a message id"
)
"""What can be done about a file that is gone."""

_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.arrow")


class Row(NamedTuple):
    """One message."""

    timestamp_us: int
    """When it was received, in microseconds since 1970 UTC."""
    identity: bytes | None
    """What tells it from every other message, if anything does."""
    message: bytes
    """Its AMQP sections."""


@dataclass(frozen=True)
class BatchFile:
    """What the name of a file says."""

    first: int
    """The offset of its first row."""
    end: int
    """One above that of its last row."""
    crc: int
    """The checksum of the file."""

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.first:020d}-{self.end:020d}-{self.crc:08x}.arrow"

    @classmethod
    def parse(cls, name: str) -> BatchFile | None:
        """What a name says; ``None`` if it is not that of a batch."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]), int(match[3], 16))


def encode_rows(first: int, rows: Sequence[Row]) -> tuple[BatchFile, bytes]:
    """The name and the bytes of the file that holds these rows."""
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA
    )
    out = io.BytesIO()
    with pa.ipc.new_file(out, SCHEMA) as writer:
        writer.write_batch(batch)
    data = out.getvalue()
    return BatchFile(first, first + len(rows), zlib.crc32(data)), data


def read_rows(folder: Path, file: BatchFile) -> list[Row]:
    """The rows of a batch.

    Raises:
        SpoolDamagedError: the file is missing or is not as it was written.
    """
    path = folder / file.name
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SpoolDamagedError(
            f"{path} is missing: the spool must be there for every executor, as it was when the batch was planned"
        ) from None
    except OSError as error:
        raise SpoolDamagedError(f"{path} cannot be read: {error.strerror}") from error
    if zlib.crc32(data) != file.crc:
        raise SpoolDamagedError(
            f"{path} is damaged: its checksum is {zlib.crc32(data):08x} and should be {file.crc:08x}. {WHAT_NOW}"
        )
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        table = reader.read_all()
    times = table["timestamp"].cast(pa.int64()).to_pylist()
    columns = times, table["identity"].to_pylist(), table["message"].to_pylist()
    return [Row(*values) for values in zip(*columns, strict=True)]
