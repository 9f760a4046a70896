"""Pages of LMDB read without LMDB: the same records, and damage as errors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import pytest

from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import encode_batch, split_batches
from enmasse.storage.checksums import without_checksum
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
from enmasse.storage.errors import JournalDamagedError, PageError
from enmasse.storage.pages import PageFile
from enmasse.storage.soundness import check_pages, check_trees
from tests.support.chance import SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = 4096


def churn(directory: Path, commits: int = 40) -> dict[bytes, bytes]:
    """A journal with branch pages, large values and free pages; returns what it must hold."""
    chance = random.Random(SEED)
    environment = WriteEnvironment(str(directory))
    records: dict[bytes, bytes] = {}
    for number in range(1, commits + 1):
        operations = []
        for _ in range(chance.randrange(1, 60)):
            key = chance.randrange(2000).to_bytes(16, "big")
            value = chance.randbytes(chance.choice((0, 10, 200, 1000, 1000, 2100, 5000)))
            if chance.random() < 0.4:
                operations.append(Operation(Table.SETTLED, key, None))
                records.pop(key, None)
            else:
                operations.append(Operation(Table.SETTLED, key, value))
                records[key] = value
        (batch,), _, _ = split_batches(memoryview(encode_batch(1, number, 0, operations)))
        environment.apply([batch])
    environment.close()
    return records


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[bytes, bytes]]:
    directory = tmp_path_factory.mktemp("pages")
    return directory, churn(directory)


@pytest.fixture
def file(journal: tuple[Path, dict[bytes, bytes]]) -> Iterator[PageFile]:
    opened = PageFile(str(journal[0] / "data.mdb"))
    yield opened
    opened.close()


def spoil(source: Path, target: Path, page: int, content: bytes, at: int = 0) -> Path:
    """A copy of the journal with other bytes on one page."""
    target.mkdir(exist_ok=True)
    data = bytearray((source / "data.mdb").read_bytes())
    data[page * PAGE + at : page * PAGE + at + len(content)] = content
    (target / "data.mdb").write_bytes(data)
    return target


def test_every_record_is_found_in_order(journal: tuple[Path, dict[bytes, bytes]], file: PageFile) -> None:
    nodes = [node for number, data in file.leaves(file.metas[0].main) for node in file.nodes(number, data)]
    found = {node.key[1:]: without_checksum(node.key, file.value(node)) for node in nodes if node.key[:1] == b"\3"}
    assert found == journal[1]
    assert [node.key for node in nodes] == sorted(node.key for node in nodes)
    assert len(nodes) == file.metas[0].main.entries


def test_every_page_is_either_used_or_free(file: PageFile) -> None:
    meta = file.metas[0]
    assert meta.main.depth > 1
    used = {0, 1}
    for tree in (meta.main, meta.free):
        used |= {number for number, _ in file.branches(tree)}
        for number, data in file.leaves(tree):
            used.add(number)
            for node in file.nodes(number, data):
                used.update(range(node.overflow, node.overflow + file.overflow_pages(node)))
    free = file.free_pages(meta)
    assert free
    assert used.isdisjoint(free)
    assert used | free == set(range(meta.last_page + 1))


def test_a_sound_file_passes(journal: tuple[Path, dict[bytes, bytes]], file: PageFile) -> None:
    check_trees(file, file.metas[0])
    check_pages(str(journal[0]))


@pytest.mark.parametrize("transactions", [40, 1_000])
def test_free_pages_of_many_transactions_pass(tmp_path: Path, transactions: int) -> None:
    """Their keys are numbers, of which 255 comes before 256, whatever their bytes look like."""
    with lmdb.open(str(tmp_path), map_size=1 << 30, sync=False) as environment:
        for number in range(240):
            with environment.begin(write=True) as writing:
                writing.put(b"key", number.to_bytes(2000, "big"))
        with environment.begin():
            # As long as somebody reads, what later transactions free is kept by transaction.
            for number in range(transactions):
                with environment.begin(write=True) as writing:
                    writing.put(b"key", number.to_bytes(2000, "big"))
    check_pages(str(tmp_path))


def test_nothing_there_yet_passes(tmp_path: Path) -> None:
    check_pages(str(tmp_path))
    (tmp_path / "data.mdb").touch()
    check_pages(str(tmp_path))


def tree_pages(file: PageFile) -> list[int]:
    meta = file.metas[0]
    pages = [number for tree in (meta.main, meta.free) for number, _ in file.branches(tree)]
    return pages + [number for tree in (meta.main, meta.free) for number, _ in file.leaves(tree)]


def test_each_page_of_the_trees_that_is_emptied_is_named(
    journal: tuple[Path, dict[bytes, bytes]], file: PageFile, tmp_path: Path
) -> None:
    pages = tree_pages(file)
    for page in {*pages[:3], *pages[-3:], *random.Random(SEED).sample(pages, 6)}:
        spoilt = spoil(journal[0], tmp_path, page, bytes(PAGE))
        with pytest.raises(JournalDamagedError, match=rf"page {page} .*enmasse journal check {tmp_path}"):
            check_pages(str(spoilt))


def test_a_page_with_the_content_of_another_is_noticed(
    journal: tuple[Path, dict[bytes, bytes]], file: PageFile, tmp_path: Path
) -> None:
    leaves = [number for number, _ in file.leaves(file.metas[0].main)]
    for page, other in list(zip(leaves, [*leaves[1:], leaves[0]], strict=True))[::8]:
        content = page.to_bytes(8, "little") + file.page(other, 2)[8:]
        with pytest.raises(JournalDamagedError):
            check_pages(str(spoil(journal[0], tmp_path, page, content)))


@pytest.mark.parametrize("number", [1 << 40, (1 << 51) - 1, 1 << 51, (1 << 64) - 2])
def test_a_page_that_no_file_can_have_is_beyond_its_end(file: PageFile, number: int) -> None:
    with pytest.raises(PageError, match=rf"page {number} .*beyond the end"):
        file.page(number, 2)


@pytest.mark.chance
def test_random_bytes_anywhere_never_do_more_than_raise_an_error(
    journal: tuple[Path, dict[bytes, bytes]], tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    size = (journal[0] / "data.mdb").stat().st_size
    sound = (journal[0] / "data.mdb").read_bytes()
    for _ in range(60):
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 40)):
            at = chance.choice((chance.randrange(size), chance.randrange(size) & ~(PAGE - 1) | chance.randrange(64)))
            data[at] = chance.randrange(256)
        (tmp_path / "data.mdb").write_bytes(data[: chance.choice((size, chance.randrange(size)))])
        try:
            file = PageFile(str(tmp_path / "data.mdb"))
        except PageError:
            continue
        problems: list[PageError] = []
        for number, page in file.leaves(file.metas[0].main, problems.append):
            try:
                for node in file.nodes(number, page):
                    file.value(node)
            except PageError as error:
                problems.append(error)
        try:
            check_trees(file, file.metas[0])
        except PageError as error:
            problems.append(error)
        file.close()


@pytest.mark.parametrize("content", [b"", b"x" * 100, bytes(2 * PAGE), b"\xff" * 2 * PAGE])
def test_what_is_no_data_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(PageError, match="page 0"):
        PageFile(str(tmp_path / "data.mdb"))


def test_a_journal_with_a_damaged_page_is_not_opened_and_not_changed(
    journal: tuple[Path, dict[bytes, bytes]], file: PageFile, tmp_path: Path
) -> None:
    spoilt = spoil(journal[0], tmp_path, file.metas[0].main.root, b"\0" * 64)
    before = (spoilt / "data.mdb").read_bytes()
    with pytest.raises(JournalDamagedError, match="Nothing was changed"):
        WriteEnvironment(str(spoilt))
    assert (spoilt / "data.mdb").read_bytes() == before


def test_a_sound_journal_is_opened_after_the_look(journal: tuple[Path, dict[bytes, bytes]], tmp_path: Path) -> None:
    copy = spoil(journal[0], tmp_path, 0, b"")
    WriteEnvironment(str(copy)).close()
    reader = ReadEnvironment(str(copy))
    assert dict(reader.scan_all(Table.SETTLED)) == journal[1]
    reader.close()
