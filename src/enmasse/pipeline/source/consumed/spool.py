"""Keeps the folder of one query: batches that Spark may still ask for, and messages that may still come again.

    lock                held by the query's planner as long as it runs
    spool.json          whose the folder is
    <first>-<end>-<crc>.arrow    a batch, as 00000000000000000120-00000000000000000180-1c291ca3.arrow
    <first>-<end>-<crc>.again    identities of committed messages whose acceptance was not confirmed

A batch holds the rows ``first`` to ``end`` - 1 as Arrow IPC with the columns ``timestamp`` (when the message was
received), ``identity`` (null where a message has none) and ``message`` (its AMQP sections); the CRC-32 (that of zlib)
is of the whole file.

A message id alone does not distinguish a message that comes again from a new one: some senders give every message
the same, and every device may count from one. So a message's identity is its id and all that its sender wrote.

Rules:
1. A file appears under its name whole and durable, or not at all.
2. What is not needed any more is deleted after what replaces it is durable. So a crash at any step leaves
   either the old state or the new one, or both, and both together mean the new one.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import time
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from enmasse.message.errors import DecodeError
from enmasse.message.sections import bare_message
from enmasse.pipeline.errors import (
    SpoolDamagedError,
    SpoolFullError,
    SpoolInUseError,
    SpoolMismatchError,
)
from enmasse.pipeline.sums import opened, sealed

IDENTITY_BYTES = 16

_PROPERTIES = b"\x00\x53\x73"
_LIST8, _LIST32, _NULL = 0xC0, 0xD0, 0x40


def identity_of(payload: bytes) -> bytes | None:
    """Return the identity of a message; ``None`` if it has no message id.

    Args:
        payload: its AMQP sections. Header and annotations, which change on the way, do not count.
    """
    try:
        bare = bare_message(payload)
        if not _has_id(bare):
            return None
    except (DecodeError, IndexError):
        return None
    return blake2b(bare, digest_size=IDENTITY_BYTES).digest()


def _has_id(bare: bytes) -> bool:
    """Return whether the first of the properties, which is the message id, is there [AMQP 3.2.4]."""
    if bare[:3] != _PROPERTIES:
        return False
    if bare[3] == _LIST8:
        return bare[5] > 0 and bare[6] != _NULL
    if bare[3] == _LIST32:
        return bare[8:12] != bytes(4) and bare[12] != _NULL
    return False


SCHEMA = pa.schema(
    [("timestamp", pa.timestamp("us", "UTC")), ("identity", pa.binary()), ("message", pa.binary())],
)
WHAT_NOW = (
    "Restore it; or begin anew with another checkpointLocation and spoolDir, and the address gives again what it "
    "still has: all messages that have a message id"
)
"""Advice for a file that is missing."""

_NAME = re.compile(r"(\d{20})-(\d{20})-([0-9a-f]{8})\.arrow")


class Row(NamedTuple):
    """One message."""

    timestamp_us: int
    """The time at which it was received, in microseconds since 1970 UTC."""
    identity: bytes | None
    """The identity of the message, if it has one."""
    message: bytes
    """Its AMQP sections."""


@dataclass(frozen=True)
class BatchFile:
    """The contents of a batch file, as its name gives them."""

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
        """Parse a file name; ``None`` if it is not that of a batch."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1]), int(match[2]), int(match[3], 16))


def encode_rows(first: int, rows: Sequence[Row]) -> tuple[BatchFile, bytes]:
    """Return the name and the bytes of the file that holds these rows."""
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
    """Return the rows of a batch.

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


class Disk:
    """The machine's own disk.

    Every method raises ``OSError``.
    """

    def write(self, path: Path, data: bytes) -> None:
        """Make a file of these bytes; what was there is replaced."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, path: Path, name: str) -> None:
        """Give a file its final name in the same folder."""
        path.rename(path.with_name(name))
        self.sync(path.parent)

    def unlink(self, path: Path) -> None:
        """Take a file away; whether that survives a loss of power does not matter."""
        path.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        """Have a file's bytes, or a folder's names, survive a loss of power."""
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


VERSION = 1

LOCK_S = 10.0
"""A planner whose driver was killed needs a moment to notice it."""

AGAIN_S = 24 * 3600.0
"""Seconds within which a message may come again: longer than any delay of redelivery that is in use."""

AGAIN_MOST = 200_000
"""Identities that are remembered: 3 MB, and the unsettled messages of many crashes."""

_OWNER = "spool.json"
_AGAIN = ".again"


@dataclass(frozen=True)
class Owner:
    """The query and the address that a spool belongs to; offsets mean nothing elsewhere."""

    address: str
    """The address that is read."""
    space: str
    """The space's host name, as the query named it."""
    checkpoint: str
    """The query's checkpoint."""


class Spool:
    """The files of one query.

    Args:
        folder: made if need be; nobody else's.
        owner: the owner of the query.
        disk: the disk that it is written to.

    Raises:
        SpoolInUseError: another query holds the folder.
        SpoolMismatchError: it belongs to another checkpoint or address.
        SpoolDamagedError: the contents cannot be understood.
        SpoolFullError: it cannot be written.
    """

    def __init__(self, folder: Path, owner: Owner, disk: Disk | None = None, *, lock_s: float = LOCK_S) -> None:
        self.folder = folder
        self._owner = owner
        self._disk = disk or Disk()
        self._again: dict[BatchFile, list[bytes]] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._locked(lock_s)
        except OSError as error:
            raise SpoolFullError(f"spoolDir {folder} cannot be used: {error.strerror}") from error
        try:
            self.id = self._identified()
            self.batches = sorted(self._found("arrow"), key=lambda batch: batch.first)
            self._load_again()
        except BaseException:
            self.close()
            raise

    # Whose it is

    def _locked(self, lock_s: float) -> int:
        number = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + lock_s
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < until:
                    time.sleep(0.1)
                    continue
                holder = os.pread(number, 100, 0).decode(errors="replace")
                os.close(number)
                raise SpoolInUseError(
                    f"spoolDir {self.folder} is in use by process {holder}: every query needs one of its own"
                ) from None
            os.truncate(number, 0)
            os.pwrite(number, str(os.getpid()).encode(), 0)
            return number

    def _identified(self) -> str:
        path = self.folder / _OWNER
        if not path.exists():
            if self._found("arrow"):
                raise SpoolMismatchError(f"spoolDir {self.folder} holds batches and no {_OWNER}: whose are they?")
            return self.adopt(uuid4().hex)
        try:
            content = opened(path.read_text())
            name, version = str(content.pop("id")), int(content.pop("version"))
            owner = Owner(**content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SpoolDamagedError(f"{path} cannot be read: {error}") from error
        if version != VERSION:
            raise SpoolMismatchError(f"{path} is of version {version}; this release knows {VERSION}")
        for field, mine in asdict(self._owner).items():
            theirs = getattr(owner, field)
            if theirs != mine:
                raise SpoolMismatchError(
                    f"spoolDir {self.folder} belongs to the {field} {theirs!r}, not to {mine!r}: "
                    f"give each query a spoolDir of its own"
                )
        return name

    def adopt(self, name: str) -> str:
        """Be the spool that a checkpoint knows by this name; only one that holds nothing may change.

        Raises:
            SpoolFullError: it cannot be written.
        """
        content = {"version": VERSION, "id": name, **asdict(self._owner)}
        self._put(_OWNER, sealed(content).encode())
        self.id = name
        return name

    @property
    def is_empty(self) -> bool:
        """True if it holds neither batches nor identities."""
        return not self.batches and not self._again

    # Batches

    def append(self, first: int, rows: Sequence[Row]) -> BatchFile:
        """Write a batch; it is durable when this returns.

        Raises:
            SpoolFullError: it could not be written, and is not there.
        """
        batch, data = encode_rows(first, rows)
        self._put(batch.name, data)
        self.batches.append(batch)
        return batch

    def rows(self, batch: BatchFile) -> list[Row]:
        """Return the rows of a batch.

        Raises:
            SpoolDamagedError: the file is missing or is not as it was written.
        """
        return read_rows(self.folder, batch)

    def covering(self, start: int, end: int) -> list[BatchFile]:
        """Return the batches of a range.

        Raises:
            SpoolDamagedError: they are not all there.
        """
        found = [batch for batch in self.batches if start <= batch.first and batch.end <= end]
        at = start
        for batch in found:
            if batch.first != at:
                break
            at = batch.end
        if at != end:
            raise SpoolDamagedError(
                f"rows {at} to {end - 1}, which the checkpoint still needs, are not in spoolDir {self.folder}. "
                f"{WHAT_NOW}"
            )
        return found

    def remove(self, batch: BatchFile, again: Sequence[bytes] = ()) -> None:
        """A batch is committed: keep nothing of it but the identities of messages that may come again.

        Raises:
            SpoolFullError: these could not be written, and the batch is still there.
        """
        if again:
            self._again[batch] = list(again)
            self._write_again(batch)
        self._delete(batch.name)
        self.batches.remove(batch)

    # Messages that may come again

    @property
    def again(self) -> Iterable[bytes]:
        """The identities of committed messages that may come again; one stands here as often as it may."""
        for identities in self._again.values():
            yield from identities

    def came_again(self, identities: Iterable[bytes]) -> None:
        """Committed messages came again and are accepted now."""
        for identity in identities:
            for batch, held in list(self._again.items()):
                if identity in held:
                    held.remove(identity)
                    if not held:
                        self._forget(batch)
                    break

    def _load_again(self) -> None:
        limit = time.time() - AGAIN_S
        for batch in sorted(self._found("again"), key=lambda batch: batch.first):
            path = self.folder / (batch.name.removesuffix(".arrow") + _AGAIN)
            data = path.read_bytes()
            if len(data) < 4 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "big"):
                raise SpoolDamagedError(f"{path} is damaged; without it, messages may be given twice. Delete it")
            if path.stat().st_mtime < limit:
                self._disk.unlink(path)
                continue
            held = data[4:]
            self._again[batch] = [held[at : at + IDENTITY_BYTES] for at in range(0, len(held), IDENTITY_BYTES)]
            for left in [left for left in self.batches if left == batch]:
                # Its successor was written, and then came the crash.
                self._delete(left.name)
                self.batches.remove(left)

    def _write_again(self, batch: BatchFile) -> None:
        held = b"".join(self._again[batch])
        data = zlib.crc32(held).to_bytes(4, "big") + held
        self._put(batch.name.removesuffix(".arrow") + _AGAIN, data)
        while sum(map(len, self._again.values())) > AGAIN_MOST and len(self._again) > 1:
            self._forget(min(self._again, key=lambda oldest: oldest.first))

    def _forget(self, batch: BatchFile) -> None:
        del self._again[batch]
        self._delete(batch.name.removesuffix(".arrow") + _AGAIN)

    # The folder

    def _found(self, ending: str) -> list[BatchFile]:
        found = []
        for path in self.folder.glob(f"*.{ending}"):
            batch = BatchFile.parse(path.stem + ".arrow")
            if batch is not None:
                found.append(batch)
        return found

    def _put(self, name: str, data: bytes) -> None:
        temporary = self.folder / f".{name}.tmp"
        try:
            self._disk.write(temporary, data)
            self._disk.rename(temporary, name)
        except OSError as error:
            self._delete(temporary.name)
            raise SpoolFullError(f"spoolDir {self.folder} cannot be written: {error.strerror or error}") from error

    def _delete(self, name: str) -> None:
        try:
            self._disk.unlink(self.folder / name)
        except OSError as error:
            raise SpoolFullError(f"{self.folder / name} cannot be deleted: {error.strerror or error}") from error

    def close(self) -> None:
        """Let others have the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
