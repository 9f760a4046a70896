"""A spool on a disk that fails, at every step of everything that is done to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from enmasse.pipeline import sums
from enmasse.pipeline.errors import (
    SpoolDamagedError,
    SpoolFullError,
    SpoolInUseError,
    SpoolMismatchError,
)
from enmasse.pipeline.source.consumed.spool import (
    AGAIN_MOST,
    AGAIN_S,
    BatchFile,
    Disk,
    Owner,
    Row,
    Spool,
    encode_rows,
    read_rows,
)

OWNER = Owner("orders", "shop.default", "/checkpoints/orders")


class PowerLossError(BaseException):
    """Nothing after this happens."""


class FailingDisk(Disk):
    """Does so many steps, and then loses power in the middle of the next, or has no room for it."""

    def __init__(self, steps: int, failure: Callable[[], BaseException]) -> None:
        self.steps = steps
        self._failure = failure

    def _step(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def write(self, path: Path, data: bytes) -> None:
        if not self._step():
            path.write_bytes(data[: len(data) // 2])
            raise self._failure()
        super().write(path, data)

    def rename(self, path: Path, name: str) -> None:
        if not self._step():
            raise self._failure()
        super().rename(path, name)

    def unlink(self, path: Path) -> None:
        if not self._step() and isinstance(self._failure(), PowerLossError):
            raise self._failure()
        super().unlink(path)


def rows(*messages: bytes) -> list[Row]:
    return [Row(1_700_000_000_000_000 + n, b"%016d" % n, message) for n, message in enumerate(messages)]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Spool]]:
    made: list[Spool] = []

    def make(disk: Disk | None = None, owner: Owner = OWNER) -> Spool:
        for spool in made:
            spool.close()
        made.append(Spool(tmp_path / "spool", owner, disk, lock_s=0))
        return made[-1]

    yield make
    for spool in made:
        spool.close()


Opened = Callable[..., Spool]


def test_what_was_written_is_there_after_a_restart(opened: Opened) -> None:
    spool = opened()
    assert spool.is_empty
    first = spool.append(0, rows(b"a", b"b"))
    second = spool.append(2, [Row(5, None, b"c")])
    again = opened()
    assert again.id == spool.id
    assert again.batches == [first, second]
    assert again.rows(first) == rows(b"a", b"b")
    assert again.rows(second) == [Row(5, None, b"c")]
    assert again.covering(0, 3) == [first, second]
    assert again.covering(2, 3) == [second]
    assert again.covering(3, 3) == []


@pytest.mark.parametrize("steps", range(3))
def test_a_batch_is_there_whole_or_not_at_all_when_power_is_lost(opened: Opened, steps: int) -> None:
    opened().append(0, rows(b"a"))
    spool = opened(FailingDisk(steps, PowerLossError))
    try:
        spool.append(1, rows(b"b"))
    except PowerLossError:
        assert steps < 2
    found = opened()
    assert [file.first for file in found.batches] == [0, 1][: 1 + (steps == 2)]
    assert [found.rows(file)[0].message for file in found.batches] == [b"a", b"b"][: len(found.batches)]


@pytest.mark.parametrize("steps", range(5))
def test_a_committed_batch_leaves_its_identities_at_every_moment(opened: Opened, steps: int) -> None:
    spool = opened()
    file = spool.append(0, rows(b"a", b"b"))
    spool = opened(FailingDisk(steps, PowerLossError))
    try:
        spool.remove(file, [b"%016d" % 1])
    except PowerLossError:
        assert steps < 3
    found = opened()
    # Either the batch, which Spark says is committed, or what is to be known of it.
    if found.batches:
        assert found.rows(file) == rows(b"a", b"b")
        assert not list(found.again)
    else:
        assert list(found.again) == [b"%016d" % 1]


@pytest.mark.parametrize("steps", range(2))
def test_a_full_disk_is_said_and_leaves_nothing_half_done(opened: Opened, steps: int) -> None:
    opened().append(0, rows(b"a"))
    spool = opened(FailingDisk(steps, lambda: OSError(28, os.strerror(28))))
    with pytest.raises(SpoolFullError, match="No space left on device"):
        spool.append(1, rows(b"b"))
    assert len(spool.batches) == 1
    assert sorted(path.suffix for path in spool.folder.iterdir()) == ["", ".arrow", ".json"]
    spool._disk = Disk()
    assert spool.append(1, rows(b"b")) in spool.batches


def test_a_removed_batch_is_gone_for_good(opened: Opened) -> None:
    spool = opened()
    file = spool.append(0, rows(b"a"))
    spool.remove(file)
    assert not list(spool.folder.glob("*.arrow"))
    with pytest.raises(SpoolDamagedError, match="rows 0 to 0, which the checkpoint still needs"):
        opened().covering(0, 1)


def test_identities_go_when_all_their_messages_came_again(opened: Opened) -> None:
    spool = opened()
    file = spool.append(0, rows(b"a", b"b"))
    spool.remove(file, [row.identity or b"" for row in rows(b"a", b"b")])
    spool.came_again([b"%016d" % 1])
    assert list(opened().again)
    spool = opened()
    spool.came_again([b"%016d" % 0, b"%016d" % 1])
    assert spool.is_empty
    assert opened().is_empty


def test_identities_are_bounded_in_number_and_in_time(opened: Opened) -> None:
    spool = opened()
    for n in range(3):
        file = spool.append(n, rows(b"m"))
        spool.remove(file, [b"%016d" % n] * (AGAIN_MOST // 2))
    assert set(spool.again) == {b"%016d" % 1, b"%016d" % 2}
    for path in spool.folder.glob("*.again"):
        os.utime(path, (0, path.stat().st_mtime - AGAIN_S - 60))
        break
    assert len(set(opened().again)) == 1


def test_a_damaged_file_is_named_with_what_to_do(opened: Opened) -> None:
    spool = opened()
    file = spool.append(0, rows(b"a" * 100))
    path = spool.folder / file.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(SpoolDamagedError, match=rf"{file.name} is damaged.*Restore it; or begin anew"):
        spool.rows(file)
    path.unlink()
    with pytest.raises(SpoolDamagedError, match="is missing: the spool must be there for every executor"):
        read_rows(spool.folder, file)


def test_a_damaged_list_of_identities_is_named(opened: Opened) -> None:
    spool = opened()
    spool.remove(spool.append(0, rows(b"a")), [b"%016d" % 0])
    path = next(spool.folder.glob("*.again"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SpoolDamagedError, match=r"messages may be given twice\. Delete it"):
        opened()
    path.unlink()
    assert opened().is_empty


def test_a_folder_has_one_user_at_a_time(opened: Opened, tmp_path: Path) -> None:
    spool = opened()
    with pytest.raises(SpoolInUseError, match=f"in use by process {os.getpid()}"):
        Spool(tmp_path / "spool", OWNER, lock_s=0)
    spool.close()
    assert opened().id == spool.id


@pytest.mark.parametrize(
    ("owner", "complaint"),
    [
        (
            Owner("orders", "shop.default", "/other"),
            "belongs to the checkpoint '/checkpoints/orders', not to '/other'",
        ),
        (Owner("bills", "shop.default", "/checkpoints/orders"), "belongs to the address 'orders', not to 'bills'"),
        (
            Owner("orders", "x.default", "/checkpoints/orders"),
            "belongs to the space 'shop.default', not to 'x.default'",
        ),
    ],
)
def test_a_folder_belongs_to_one_query_for_ever(opened: Opened, owner: Owner, complaint: str) -> None:
    opened()
    with pytest.raises(SpoolMismatchError, match=complaint):
        opened(owner=owner)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 1, "id": "x", "address": "a", "more": 1}'])
def test_a_folder_whose_owner_cannot_be_read_is_refused(opened: Opened, content: bytes) -> None:
    path = opened().folder / "spool.json"
    path.write_bytes(content)
    with pytest.raises(SpoolDamagedError, match=r"spool.json cannot be read"):
        opened()


def test_a_folder_of_a_later_release_is_refused(opened: Opened) -> None:
    path = opened().folder / "spool.json"
    path.write_text(sums.sealed(sums.opened(path.read_text()) | {"version": 2}))
    with pytest.raises(SpoolMismatchError, match="version 2; this release knows 1"):
        opened()


def test_batches_without_an_owner_are_refused(opened: Opened) -> None:
    spool = opened()
    spool.append(0, rows(b"a"))
    (spool.folder / "spool.json").unlink()
    with pytest.raises(SpoolMismatchError, match="whose are they"):
        opened()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoolFullError, match=r"spoolDir .* cannot be used"):
        Spool(tmp_path / "file" / "spool", OWNER, lock_s=0)


def test_names_tell_what_is_in_a_file() -> None:
    file, data = encode_rows(7, rows(b"a", b"b"))
    assert (file.first, file.end) == (7, 9)
    assert BatchFile.parse(file.name) == file
    assert data.startswith(b"ARROW1")
    assert BatchFile.parse("7-9.arrow") is None
