"""The LMDB environment of a journal: one database, key = table byte + key.

Rules:
1. The journal process has the directory's lock before it makes a ``WriteEnvironment`` and until
   after its last commit. Everybody else makes a ``ReadEnvironment``.
2. Number and epoch of the last batch are a record of the same commit.
3. Read transactions are short: an old one keeps freed pages from being used again.
4. Never ``WRITEMAP``: a full disk would be a signal. Never ``NOSYNC``.
5. A process opens a directory at most once and never forks afterwards (LMDB's own rules).
"""

from __future__ import annotations

import os
import struct
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING

import lmdb

from enmasse.storage.batch import MERGE_TABLE, TABLE_PREFIX
from enmasse.storage.checksums import (
    FORMAT_KEY,
    decode_format,
    encode_format,
    has_checksums,
    with_checksum,
    without_checksum,
)
from enmasse.storage.errors import JournalDamagedError, JournalFormatError
from enmasse.storage.seal import (
    LAST_KEY,
    SEAL_KEY,
    SealedValues,
    encode_seal,
    explain_broken_seal,
    gather_values,
    names_records,
)
from enmasse.storage.soundness import advise, check_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from enmasse.storage.batch import Batch

# ruff: noqa: PTH100, PTH103, PTH105, PTH107, PTH106, PTH110, PTH118, PTH120, PTH202 - see lock.py

DEFAULT_MAP_BYTES = 1 << 40
"""1 TiB of addresses; the map is sparse, so it costs nothing and never has to grow."""

_LEAST_MAP_BYTES = 1 << 30
"""The least map: where even this is refused (an address-space limit), the journal cannot work."""

FORMAT_VERSION = 5
"""1 had neither volatile frames, nor the tables TIME, ATTEMPTS and OFFSET, nor "EMF2" frames; 2 did not say which
rows receivers have, nor that the node ended in order; 3 had no table HOLDER, so every subscription of a topic had
every message of it; 4 had no checksums of records."""

_READABLE = range(1, FORMAT_VERSION + 1)
"""An older format is made the present one when it is opened: its records but frames get their checksums."""

_META = TABLE_PREFIX[0]
_FRAME = TABLE_PREFIX[2]
_AFTER_FRAMES = TABLE_PREFIX[3]
_SETTLED = TABLE_PREFIX[3]
_ATTEMPTS = TABLE_PREFIX[8]
_HOLDER = TABLE_PREFIX[10]
_LAST = struct.Struct("<QQ")

_SCAN_CHUNK_BYTES = 1 << 20
_HEADS_CHUNK = 4096
_LOCK_FILE_BYTES = 8192
"""The size that LMDB makes of it for 126 readers."""

_HEAD_BYTES = 64


def _open(directory: str, map_bytes: int, *, readonly: bool) -> lmdb.Environment:
    """Open with the largest map that the platform grants."""
    while True:
        try:
            return lmdb.open(directory, map_size=map_bytes, readonly=readonly, max_dbs=0, create=not readonly)
        except lmdb.MemoryError:
            if map_bytes <= _LEAST_MAP_BYTES:
                raise
            map_bytes >>= 2


class WriteEnvironment:
    """The journal's one writer.

    Args:
        directory: an existing directory whose lock is held.
        map_bytes: upper bound of the data file.

    Attributes:
        epoch: the epoch of the last committed batch; 0 if there was none.
        mended: the damage that was mended, in words.
        number: the number of the last committed batch.
        failed: numbers below it, of the same epoch, that were not written and whose result the node
            is not known to have learned.

    Raises:
        OSError: the directory cannot be written.
        JournalFormatError: the directory holds another format.
        JournalDamagedError: pages or the last commit are not whole.
    """

    __slots__ = ("_env", "epoch", "failed", "mended", "number")

    def __init__(self, directory: str, map_bytes: int = DEFAULT_MAP_BYTES) -> None:
        path = os.path.join(directory, "data.mdb")
        if not os.path.exists(path) or not os.path.getsize(path):
            _begin(directory)
        self.mended = check_pages(directory)
        _reserve_lock_file(directory)
        try:
            self._env = _open(directory, map_bytes, readonly=False)
        except (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError) as error:
            raise JournalFormatError(f"{directory} is no journal, or is damaged: {error}") from error
        self._env.reader_check()
        try:
            last = self._prepare(directory)
        except (lmdb.CorruptedError, lmdb.PageNotFoundError) as error:
            self._env.close()
            raise JournalDamagedError(advise(directory, str(error))) from error
        except BaseException:
            self._env.close()
            raise
        self.epoch, self.number = _LAST.unpack_from(last)
        numbers = array("Q")
        numbers.frombytes(last[_LAST.size :])
        self.failed = numbers.tolist()

    def _prepare(self, directory: str) -> bytes:
        """Check that the journal can be written on, make it one of this format, return its last numbers."""
        with self._env.begin(write=True) as txn:
            found = txn.get(FORMAT_KEY)
            version = None if found is None else decode_format(found)
            if found is not None and version is None:
                raise JournalDamagedError(advise(directory, "the record that tells its format has a wrong checksum"))
            if version is not None and version not in _READABLE:
                raise JournalFormatError(
                    f"the journal in {directory} has format {version}, "
                    f"this version reads up to {FORMAT_VERSION}: use the version that wrote it"
                )
            is_checked = found is None or has_checksums(found)

            def get(key: bytes) -> bytes | None:
                stored: bytes | None = txn.get(key)
                return stored if stored is None or not is_checked else without_checksum(key, stored)

            seal = get(SEAL_KEY)
            if seal is not None:
                problem = explain_broken_seal(seal, txn.id() - 1, get)
                if problem is not None:
                    raise JournalDamagedError(advise(directory, problem))
            last = get(LAST_KEY)
            if version != FORMAT_VERSION:
                if not is_checked:
                    _add_checksums(txn)
                txn.put(FORMAT_KEY, encode_format(FORMAT_VERSION))
                _put(txn, SEAL_KEY, encode_seal(txn.id(), {LAST_KEY: last}))
        return last or _LAST.pack(0, 0)

    def apply(self, batches: Sequence[Batch], failed: Sequence[int] = ()) -> None:
        """Commit batches in one transaction, with one sync; on return they are on disk.

        Args:
            batches: at least one, in the order of their numbers.
            failed: numbers not yet remembered as failed, below the last batch's.

        Raises:
            lmdb.Error: nothing was written.
            lmdb.PanicError: the environment is of no more use; open it anew to learn what was written.
        """
        last = batches[-1]
        before = self.failed if last.epoch == self.epoch else []
        remembered = [number for number in (*before, *failed) if number > last.acknowledged]
        numbers = _LAST.pack(last.epoch, last.number) + array("Q", remembered).tobytes()
        sealed = batches if names_records(batches) else ()
        values: SealedValues = {LAST_KEY: numbers}
        with self._env.begin(write=True) as txn:
            put, delete = txn.put, txn.delete
            for batch in batches:
                operations = batch.operations()
                has_merges = batch.has_merges
                for key, value in operations:
                    if has_merges and key[0] == MERGE_TABLE:
                        _merge(txn, key[1:], value)
                    elif value is None:
                        delete(key)
                    else:
                        put(key, with_checksum(key, value))
                if sealed:
                    gather_values(values, operations)
            _put(txn, LAST_KEY, numbers)
            _put(txn, SEAL_KEY, encode_seal(txn.id(), values, sealed))
        self.epoch, self.number, self.failed = last.epoch, last.number, remembered

    def explain(self, error: lmdb.Error) -> str:
        """Return the reason of a failed write, with what LMDB does not say: a full disk shows as a short write."""
        disk = os.statvfs(self._env.path())
        return f"{error}; its disk has {disk.f_bavail * disk.f_frsize:,} bytes left"

    def close(self) -> None:
        """Close the environment; what was applied is on disk already."""
        self._env.close()


def _begin(directory: str) -> None:
    """Make a journal without anything in it, at once or not at all: LMDB does not sync what a file begins with.

    Raises:
        OSError: the directory cannot be written.
        lmdb.Error: likewise.
    """
    partial = os.path.join(directory, "partial")
    data = os.path.join(partial, "data.mdb")
    os.makedirs(partial, mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        os.remove(data)
    environment = lmdb.open(partial, map_size=_LEAST_MAP_BYTES, max_dbs=0, lock=False)
    try:
        with environment.begin(write=True) as txn:
            txn.put(FORMAT_KEY, encode_format(FORMAT_VERSION))
            _put(txn, SEAL_KEY, encode_seal(txn.id(), {LAST_KEY: None}))
    finally:
        environment.close()
    os.replace(data, os.path.join(directory, "data.mdb"))
    _sync_directory(directory)
    with suppress(OSError):
        os.rmdir(partial)


def _reserve_lock_file(directory: str) -> None:
    """Give LMDB's table of readers its place: it is mapped, so that a full disk would be a signal.

    Raises:
        OSError: the disk is full, or the directory cannot be written.
    """
    fd = os.open(os.path.join(directory, "lock.mdb"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, _LOCK_FILE_BYTES)
    finally:
        os.close(fd)


def _put(txn: lmdb.Transaction, key: bytes, value: bytes) -> None:
    txn.put(key, with_checksum(key, value))


def _add_checksums(txn: lmdb.Transaction) -> None:
    """Write the records of an older format anew with their checksums; frames go without as long as they last."""
    first = _META
    while first:
        records: list[tuple[bytes, bytes]] = []
        size = 0
        with txn.cursor() as cursor:
            there = cursor.set_range(first)
            while there and size < _SCAN_CHUNK_BYTES:
                key = bytes(cursor.key())
                if key[:1] == _FRAME:
                    there = cursor.set_range(_AFTER_FRAMES)
                    continue
                records.append((key, bytes(cursor.value())))
                size += len(key) + len(records[-1][1])
                there = cursor.next()
        for key, value in records:
            if key != FORMAT_KEY:
                _put(txn, key, value)
        first = records[-1][0] + b"\0" if there else b""


def _merge(txn: lmdb.Transaction, key: bytes, value: memoryview | None) -> None:
    """Carry out one instruction within the transaction of its batch."""
    from enmasse.messaging.log.merge import MERGE_BYTES, MERGE_FRAMES, merge_range, plan_merge  # noqa: PLC0415 - rare, and start is to be quick

    found = merge_range(key, value)
    if found is None:
        return
    first, end = _FRAME + found[0], _FRAME + found[1]
    records: list[tuple[bytes, bytes]] = []
    size = 0
    with txn.cursor() as cursor:
        there = cursor.set_range(first)
        while there and len(records) < MERGE_FRAMES and size <= MERGE_BYTES:
            at = bytes(cursor.key())
            if at >= end:
                break
            frame = without_checksum(at, bytes(cursor.value()))
            if frame is None:
                return  # with a wrong key, it is left for who reads it
            records.append((at[1:], frame))
            size += len(frame)
            there = cursor.next()

    def is_pointed_into(name: bytes) -> bool:
        return any(txn.get(table + name) is not None for table in (_SETTLED, _ATTEMPTS, _HOLDER))

    for table, changed, data in plan_merge(records, is_pointed_into):
        if data is None:
            txn.delete(TABLE_PREFIX[table] + changed)
        else:
            _put(txn, TABLE_PREFIX[table] + changed, data)


class ReadEnvironment:
    """A view of what is committed, read beside the writer. Records with a wrong checksum are left out.

    Args:
        directory: a journal that its writer has opened.
        map_bytes: as the writer's.
        report: called with the stored key of each record that is left out, each time.
    """

    __slots__ = ("_env", "_page_bytes", "_report")

    def __init__(
        self,
        directory: str,
        map_bytes: int = DEFAULT_MAP_BYTES,
        report: Callable[[bytes], None] = lambda _key: None,
    ) -> None:
        self._env = _open(directory, map_bytes, readonly=True)
        self._page_bytes: int = self._env.stat()["psize"]
        self._report = report

    @property
    def file_bytes(self) -> int:
        """Bytes of the data file that have ever been used."""
        used: int = (self._env.info()["last_pgno"] + 1) * self._page_bytes
        return used

    def get(self, table: int, key: bytes) -> bytes | None:
        """The committed value of one record."""
        name = TABLE_PREFIX[table] + key
        with self._env.begin() as txn:
            stored: bytes | None = txn.get(name)
        if stored is None:
            return None
        value = without_checksum(name, stored)
        if value is None:
            self._report(name)
        return value

    def scan(self, table: int, first: bytes, last: bytes, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        """Committed records with ``first <= key < last``, until their values reach ``limit_bytes``.

        Raises:
            lmdb.Error: the first one lies on a damaged page; before any later one it stops.
        """
        prefix = TABLE_PREFIX[table]
        return self._scan(prefix + first, prefix + last, limit_bytes)

    def _scan(self, first: bytes, end: bytes, limit_bytes: int) -> list[tuple[bytes, bytes]]:
        records: list[tuple[bytes, bytes]] = []
        size = 0
        try:
            with self._env.begin(buffers=True) as txn, txn.cursor() as cursor:
                found = cursor.set_range(first)
                while found:
                    stored_key, stored = cursor.item()
                    key = bytes(stored_key)
                    if key >= end:
                        break
                    value = without_checksum(key, memoryview(stored))
                    if value is None:
                        self._report(key)
                    else:
                        records.append((key[1:], bytes(value)))
                        size += len(value)
                        if size >= limit_bytes:
                            break
                    found = cursor.next()
        except (lmdb.CorruptedError, lmdb.PageNotFoundError):
            if not records:
                raise
        return records

    def floor(self, table: int, key: bytes, first: bytes) -> tuple[bytes, bytes] | None:
        """The committed record with the greatest key at most ``key`` and at least ``first``."""
        prefix = TABLE_PREFIX[table]
        wanted = prefix + key
        with self._env.begin() as txn, txn.cursor() as cursor:
            found = cursor.set_range(wanted)
            if not found:
                found = cursor.last()
            elif cursor.key() != wanted:
                found = cursor.prev()
            while found and cursor.key() >= prefix + first:
                at, stored = cursor.item()
                value = without_checksum(at, stored)
                if value is not None:
                    return at[1:], value
                self._report(at)
                found = cursor.prev()
        return None

    def scan_all(self, table: int) -> Iterator[tuple[bytes, bytes]]:
        """Every committed record of a table in key order, in transactions of about 1 MiB each."""
        prefix = TABLE_PREFIX[table]
        end = TABLE_PREFIX[table + 1]
        first = prefix
        while records := self._scan(first, end, _SCAN_CHUNK_BYTES):
            yield from records
            first = prefix + records[-1][0] + b"\0"

    def heads(self, table: int, first: bytes, last: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        """Key, first 64 bytes and length of frames, in transactions of some thousand each; copies no more."""
        prefix = TABLE_PREFIX[table]
        at, end = prefix + first, prefix + last
        while True:
            found: list[tuple[bytes, bytes, int]] = []
            read = 0
            name = b""
            with self._env.begin(buffers=True) as txn, txn.cursor() as cursor:
                there = cursor.set_range(at)
                while there and read < _HEADS_CHUNK:
                    key, stored = cursor.item()
                    name = bytes(key)
                    if name >= end:
                        break
                    read += 1
                    value = without_checksum(name, memoryview(stored))
                    if value is None:
                        self._report(name)
                    else:
                        found.append((name[1:], bytes(value[:_HEAD_BYTES]), len(value)))
                    there = cursor.next()
            yield from found
            if read < _HEADS_CHUNK:
                return
            at = name + b"\0"

    def views(self, table: int, first: bytes, last: bytes) -> Generator[tuple[bytes, memoryview | None], None, None]:
        """Records with views into the map, valid until the next one; one transaction until it is closed.

        Those with a wrong checksum come, too, with ``None``.
        """
        prefix = TABLE_PREFIX[table]
        end = prefix + last
        with self._env.begin(buffers=True) as txn, txn.cursor() as cursor:
            there = cursor.set_range(prefix + first)
            while there:
                key = bytes(cursor.key())
                if key >= end:
                    return
                yield key[1:], without_checksum(key, memoryview(cursor.value()))
                there = cursor.next()

    def forget_dead_readers(self) -> None:
        """Free the slots of dead processes: their old transactions keep freed pages from being used."""
        self._env.reader_check()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def _sync_directory(directory: str) -> None:
    """Make a new file's name as durable as its content; LMDB leaves that to its user."""
    for name in (directory, os.path.dirname(os.path.abspath(directory))):
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
