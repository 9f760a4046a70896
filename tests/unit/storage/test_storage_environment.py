"""The LMDB environment: batch numbers in the commit, failures that leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import lmdb
import pytest

from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.merge import merge_operation, time_key
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import Batch, encode_batch, split_batches
from enmasse.storage.checksums import FORMAT_KEY, encode_format, with_checksum, without_checksum
from enmasse.storage.environment import FORMAT_VERSION, ReadEnvironment, WriteEnvironment
from enmasse.storage.errors import JournalDamagedError, JournalFormatError
from enmasse.storage.seal import SEAL_KEY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1 << 20


def batch(number: int, *operations: Operation, epoch: int = 1, acknowledged: int = 0) -> Batch:
    (made,), _, _ = split_batches(memoryview(encode_batch(epoch, number, acknowledged, operations)))
    return made


def put(key: bytes, value: bytes) -> Operation:
    return Operation(Table.FRAME, key, value)


def frames(directory: Path) -> dict[bytes, bytes]:
    reader = ReadEnvironment(str(directory))
    try:
        return dict(reader.scan_all(Table.FRAME))
    finally:
        reader.close()


def test_epoch_and_number_of_the_last_batch_are_there_after_opening_again(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    assert (env.epoch, env.number, env.failed) == (0, 0, [])
    env.apply([batch(1, put(b"a", b"1"), epoch=7), batch(2, put(b"b", b"2"), epoch=7)])
    env.close()
    env = WriteEnvironment(str(tmp_path))
    assert (env.epoch, env.number, env.failed) == (7, 2, [])
    env.close()
    assert frames(tmp_path) == {b"a": b"1", b"b": b"2"}


def test_a_group_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path), MIB)
    env.apply([batch(1, put(b"a", b"1"))])
    with pytest.raises(lmdb.MapFullError):
        env.apply([batch(2, put(b"b", b"2")), batch(3, put(b"c", b"x" * 2 * MIB))])
    assert (env.epoch, env.number) == (1, 1)
    env.apply([batch(2, put(b"b", b"2"))])
    env.close()
    assert frames(tmp_path) == {b"a": b"1", b"b": b"2"}


def test_failed_numbers_are_remembered_until_the_node_has_heard_of_them(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    env.apply([batch(3)], [1, 2])
    env.close()
    env = WriteEnvironment(str(tmp_path))
    assert env.failed == [1, 2]
    env.apply([batch(5, acknowledged=1)], [4])
    assert env.failed == [2, 4]
    env.apply([batch(6, acknowledged=4)])
    assert env.failed == []
    env.close()


def test_failed_numbers_of_an_earlier_epoch_are_forgotten(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    env.apply([batch(3)], [1, 2])
    env.apply([batch(1, epoch=2)])
    assert (env.epoch, env.number, env.failed) == (2, 1, [])
    env.close()


def test_another_format_version_is_refused(tmp_path: Path) -> None:
    WriteEnvironment(str(tmp_path)).close()
    raw = lmdb.open(str(tmp_path))
    with raw.begin(write=True) as txn:
        assert txn.replace(FORMAT_KEY, encode_format(99)) == encode_format(FORMAT_VERSION)
    raw.close()
    with pytest.raises(JournalFormatError, match=f"format 99, this version reads up to {FORMAT_VERSION}"):
        WriteEnvironment(str(tmp_path))


def test_an_older_format_is_upgraded_in_place(tmp_path: Path) -> None:
    frame = encode_frame(3, [7], [b""], [b"h"], [b"b"])
    marks = {number.to_bytes(2, "big"): bytes(number % 3000) for number in range(3000)}
    raw = lmdb.open(str(tmp_path), map_size=1 << 30)
    with raw.begin(write=True) as txn:
        txn.put(b"\0format", (1).to_bytes(4, "little"))
        txn.put(b"\0last", (1).to_bytes(8, "little") * 2)
        txn.put(b"\2" + log_key(1, 0, 3), frame)
        for key, value in marks.items():
            txn.put(b"\4" + key, value)
    raw.close()
    env = WriteEnvironment(str(tmp_path))
    assert (env.epoch, env.number) == (1, 1)
    env.apply([batch(2, put(log_key(1, 0, 4), encode_frame(4, [7], [b""], [b"h"], [b"b"])))])
    env.close()
    assert [*frames(tmp_path)] == [log_key(1, 0, 3), log_key(1, 0, 4)]
    assert frames(tmp_path)[log_key(1, 0, 3)] == frame
    reader = ReadEnvironment(str(tmp_path))
    assert dict(reader.scan_all(Table.MARK)) == marks
    reader.close()
    raw = lmdb.open(str(tmp_path), readonly=True)
    with raw.begin() as txn:
        assert txn.get(FORMAT_KEY) == encode_format(FORMAT_VERSION)
    raw.close()
    env = WriteEnvironment(str(tmp_path))
    assert env.mended == []
    env.close()


def test_a_last_commit_that_is_not_all_there_is_refused(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    env.apply([batch(1, put(b"a", b"1"), put(b"b", b"2"), put(b"c", b"3"))])
    env.apply([batch(2, put(b"a", b"11"), put(b"d", b"4"), Operation(Table.FRAME, b"b", None), put(b"c", b"3"))])
    env.close()

    def reopen_after(change: Callable[[lmdb.Transaction], object]) -> None:
        raw = lmdb.open(str(tmp_path))
        with raw.begin(write=True) as txn:
            seal = without_checksum(SEAL_KEY, txn.get(SEAL_KEY, b""))
            assert seal is not None
            assert int.from_bytes(seal[:8], "little") == txn.id() - 1
            change(txn)
            start = txn.id().to_bytes(8, "little")
            seal = start + zlib.crc32(seal[12:], zlib.crc32(start)).to_bytes(4, "little") + seal[12:]
            txn.put(SEAL_KEY, with_checksum(SEAL_KEY, seal))
        raw.close()
        WriteEnvironment(str(tmp_path)).close()

    reopen_after(lambda _txn: None)
    for change in (
        lambda txn: txn.put(b"\x02a", with_checksum(b"\x02a", b"1")),
        lambda txn: (txn.put(b"\x02a", with_checksum(b"\x02a", b"11")), txn.delete(b"\x02d")),
        lambda txn: (
            txn.put(b"\x02d", with_checksum(b"\x02d", b"4")),
            txn.put(b"\x02b", with_checksum(b"\x02b", b"2")),
        ),
    ):
        with pytest.raises(JournalDamagedError, match=r"not as the last commit left it.*enmasse journal check"):
            reopen_after(change)
    reopen_after(lambda txn: txn.delete(b"\x02b"))


def test_a_value_of_the_last_commit_that_is_an_old_one_is_refused(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    marks = [Operation(Table.MARK, b"a", b"1"), Operation(Table.MARK, b"a", b"2"), Operation(Table.MARK, b"b", b"3")]
    env.apply([batch(1, *marks), batch(2, Operation(Table.MARK, b"b", None), Operation(Table.MARK, b"c", b"4"))])
    env.close()

    def reopen_after(key: bytes, value: bytes) -> None:
        raw = lmdb.open(str(tmp_path))
        with raw.begin(write=True) as txn:
            seal = without_checksum(SEAL_KEY, txn.get(SEAL_KEY, b""))
            assert seal is not None
            start = txn.id().to_bytes(8, "little")
            seal = start + zlib.crc32(seal[12:], zlib.crc32(start)).to_bytes(4, "little") + seal[12:]
            txn.put(SEAL_KEY, with_checksum(SEAL_KEY, seal))
            txn.put(key, with_checksum(key, value))
        raw.close()
        WriteEnvironment(str(tmp_path)).close()

    last = (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    reopen_after(b"\4a", b"2")
    reopen_after(b"\0last", last)
    for key, value, right in ((b"\4a", b"1", b"2"), (b"\4c", b"5", b"4"), (b"\0last", last[:-1] + b"x", last)):
        with pytest.raises(JournalDamagedError, match="some records are not as the last commit left them"):
            reopen_after(key, value)
        reopen_after(key, right)


def test_a_commit_that_merges_frames_is_sealed_too(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    frames_and_times = [
        operation
        for offset in range(4)
        for operation in (
            put(log_key(1, 0, offset), encode_frame(offset, [7], [b""], [b"h"], [b"b"])),
            Operation(Table.TIME, time_key(log_key(1, 0, offset), 7), b"12345678"),
        )
    ]
    mark = Operation(Table.MARK, log_key(1, 0, 0), b"12345678")
    env.apply([batch(1, *frames_and_times, mark), batch(2, merge_operation(log_key(1, 0, 0), 4))])
    env.close()
    WriteEnvironment(str(tmp_path)).close()
    assert list(frames(tmp_path)) == [log_key(1, 0, 0)]


def test_a_commit_without_its_seal_is_refused(tmp_path: Path) -> None:
    WriteEnvironment(str(tmp_path)).close()
    raw = lmdb.open(str(tmp_path))
    with raw.begin(write=True) as txn:
        txn.put(b"\x02a", with_checksum(b"\x02a", b"1"))
    raw.close()
    with pytest.raises(JournalDamagedError, match="transaction 2, but its records are those of 1"):
        WriteEnvironment(str(tmp_path))


def test_a_group_too_large_to_be_named_is_sealed_by_its_transaction(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    env.apply([batch(1, *(put(b"%0100d" % i, b"1") for i in range(1000)))])
    env.close()
    raw = lmdb.open(str(tmp_path), readonly=True)
    with raw.begin() as txn:
        seal = without_checksum(SEAL_KEY, txn.get(SEAL_KEY, b""))
        assert seal is not None
        assert (seal[:8], len(seal)) == (txn.id().to_bytes(8, "little"), 16)
    raw.close()
    WriteEnvironment(str(tmp_path)).close()


def test_an_instruction_to_merge_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    env.apply([batch(1, put(b"a", b"1"), Operation(Table.MERGE, b"short", b""), Operation(Table.MERGE, b"", None))])
    env.close()
    assert frames(tmp_path) == {b"a": b"1"}


def test_a_file_that_is_no_journal_is_refused_with_its_directory(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"something else entirely" * 1000)
    with pytest.raises(JournalFormatError, match=str(tmp_path)):
        WriteEnvironment(str(tmp_path))


def test_the_map_is_sparse(tmp_path: Path) -> None:
    env = WriteEnvironment(str(tmp_path))
    env.apply([batch(1, put(b"a", b"x" * 100_000))])
    env.close()
    reader = ReadEnvironment(str(tmp_path))
    assert 100_000 < reader.file_bytes < MIB
    assert (tmp_path / "data.mdb").stat().st_size < MIB
    reader.close()


@pytest.mark.slow
def test_a_smaller_map_is_used_where_the_platform_refuses_a_large_one(tmp_path: Path) -> None:
    program = """
import resource, sys
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
env = WriteEnvironment(sys.argv[1])
print(env._env.info()["map_size"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(done.stdout) == 1 << 32
