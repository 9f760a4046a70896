"""A journal that was there is missed when it is gone: at a start, and under the process that writes it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import AnswerKind
from enmasse.storage.environment import WriteEnvironment
from enmasse.storage.errors import JournalFormatError, JournalMissingError, JournalUnavailableError
from enmasse.storage.link import JournalLink
from enmasse.storage.presence import explain_loss, file_id, marker_path, require_journal, write_marker
from enmasse.storage.tools import CANNOT, SOUND
from enmasse.testing.memory_storage import RecordingListener
from tests.support.polling import until_async
from tests.unit.storage.test_storage_journal import RawJournal, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    directory = tmp_path / "nodes" / "node-0" / "journal"
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def marker(tmp_path: Path) -> str:
    return marker_path(tmp_path, "node-0")


@pytest.fixture
def start(journal: Path) -> Iterator[Callable[..., RawJournal]]:
    started: list[RawJournal] = []

    def start(marker: str | None = None) -> RawJournal:
        started.append(RawJournal(journal, *(["--marker", marker] if marker else [])))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def deleted(journal: Path) -> None:
    (journal / "data.mdb").unlink()


def emptied(journal: Path) -> None:
    (journal / "data.mdb").write_bytes(b"")


def with_its_directory(journal: Path) -> None:
    journal.rename(journal.with_name("elsewhere"))


def with_the_nodes_directory(journal: Path) -> None:
    nodes = journal.parent.parent
    nodes.rename(nodes.with_name("elsewhere"))
    (nodes / "node-0").mkdir(parents=True)


GONE = [deleted, emptied, with_its_directory, with_the_nodes_directory]


@pytest.mark.parametrize("lose", GONE)
def test_a_journal_that_is_gone_is_refused_with_its_path_and_what_to_do(
    journal: Path, marker: str, lose: Callable[[Path], None]
) -> None:
    WriteEnvironment(str(journal)).close()
    write_marker(str(journal), marker)
    require_journal(str(journal), marker)
    lose(journal)
    with pytest.raises(JournalMissingError) as error:
        require_journal(str(journal), marker)
    for part in (str(journal / "data.mdb"), marker, "not mounted", "journal restore", f"journal init {journal}"):
        assert part in str(error.value)


def test_where_no_journal_was_none_is_missed(journal: Path, marker: str) -> None:
    require_journal(str(journal), marker)
    emptied(journal)
    require_journal(str(journal), marker)


def test_a_marker_that_is_there_is_left_as_it_is(journal: Path, marker: str) -> None:
    write_marker(str(journal), marker)
    before = Path(marker).stat()
    write_marker(str(journal), marker)
    assert Path(marker).stat() == before
    assert str(journal) in Path(marker).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("lose", GONE)
def test_the_journal_process_begins_none_in_the_place_of_one_that_is_gone(
    start: Callable[..., RawJournal], journal: Path, marker: str, lose: Callable[[Path], None]
) -> None:
    first = start(marker)
    assert first.answer().kind == AnswerKind.HELLO
    first.end()
    lose(journal)
    found = sorted(journal.parent.parent.rglob("*"))
    again = start(marker)
    answer = again.answer()
    assert (answer.kind, again.end()[0]) == (AnswerKind.REFUSED, 2)
    assert f"the journal in {journal} is gone" in answer.text
    assert sorted(journal.parent.parent.rglob("*")) == found


@pytest.mark.slow
@pytest.mark.parametrize("is_empty", [False, True], ids=["whole", "of no bytes"])
def test_a_crash_before_the_marker_leaves_a_journal_that_starts_and_gets_it(
    start: Callable[..., RawJournal], journal: Path, marker: str, is_empty: bool
) -> None:
    first = start()
    first.answer()
    first.send(1, put(b"kept"))
    first.answer()
    first.kill()
    if is_empty:
        emptied(journal)
    assert not Path(marker).exists()
    answer = start(marker).answer()
    assert (answer.kind, answer.number) == (AnswerKind.HELLO, 0 if is_empty else 1)
    assert Path(marker).exists()


@pytest.mark.slow
def test_a_marker_that_cannot_be_made_is_told_and_keeps_no_journal_from_starting(
    start: Callable[..., RawJournal], tmp_path: Path
) -> None:
    (tmp_path / "journals").write_text("a file")
    process = start(marker_path(tmp_path, "node-0"))
    assert process.answer().kind == AnswerKind.HELLO
    assert "a later loss of the journal would go unnoticed" in process.end()[1]


def replaced(journal: Path) -> None:
    other = journal.parent / "other"
    other.mkdir()
    WriteEnvironment(str(other)).close()
    (other / "data.mdb").rename(journal / "data.mdb")


@pytest.mark.parametrize("lose", [deleted, with_its_directory, replaced])
def test_a_file_that_is_used_and_not_in_its_place_is_explained(journal: Path, lose: Callable[[Path], None]) -> None:
    WriteEnvironment(str(journal)).close()
    used = file_id(str(journal))
    with (journal / "data.mdb").open("rb"):  # keeps the inode from being given to the next file
        assert explain_loss(str(journal), used) == ""
        lose(journal)
        assert str(journal / "data.mdb") in explain_loss(str(journal), used)


@pytest.mark.slow
@pytest.mark.parametrize("lose", [deleted, with_its_directory, replaced])
def test_a_loss_under_the_running_process_is_told_unasked_and_fails_what_comes(
    start: Callable[..., RawJournal], journal: Path, lose: Callable[[Path], None]
) -> None:
    process = start()
    process.answer()
    process.send(1, put(b"before"))
    assert process.answer().kind == AnswerKind.COMMITTED
    lose(journal)
    told = process.answer()
    assert told.kind == AnswerKind.LOST
    assert str(journal / "data.mdb") in told.text
    for number in (2, 3):
        process.send(number, put(b"after"))
        answer = process.answer()
        assert (answer.kind, answer.number, answer.text) == (AnswerKind.FAILED, number, told.text)


@pytest.mark.slow
def test_a_journal_that_is_moved_back_goes_on(start: Callable[..., RawJournal], journal: Path) -> None:
    process = start()
    process.answer()
    elsewhere = journal.with_name("elsewhere")
    journal.rename(elsewhere)
    assert process.answer().kind == AnswerKind.LOST
    process.send(1, put(b"lost"))
    assert process.answer().kind == AnswerKind.FAILED
    elsewhere.rename(journal)
    assert process.answer() == (AnswerKind.LOST, 0, 0, b"")
    process.send(2, put(b"kept"))
    assert process.answer() == (AnswerKind.COMMITTED, 1, 2, b"")


@pytest.mark.slow
def test_a_loss_is_noticed_though_commits_never_pause(start: Callable[..., RawJournal], journal: Path) -> None:
    process = start()
    process.answer()
    deleted(journal)
    number = 0
    kinds = {AnswerKind.COMMITTED}
    while kinds == {AnswerKind.COMMITTED}:
        number += 1
        process.send(number, put(b"%d" % number))
        kinds = {process.answer().kind}
        assert number < 1_000_000, "commits are confirmed on and on"
    assert kinds == {AnswerKind.LOST}
    assert process.answer() == (AnswerKind.FAILED, 1, number, process_loss(journal))


def process_loss(journal: Path) -> bytes:
    return explain_loss(str(journal), (0, 0)).encode()


@pytest.mark.slow
def test_no_other_file_takes_the_place_of_the_one_that_was_loaded(journal: Path, tmp_path: Path) -> None:
    async def story() -> None:
        told: list[bool] = []
        listener = RecordingListener()
        link = JournalLink(journal, marker=marker_path(tmp_path, "node-0"), loss_changed=told.append)
        await link.start(listener)
        link.submit([Operation(Table.MARK, b"a" * 16, b"1")])
        await until_async(lambda: listener.committed == 1, "the first commit")
        kept = journal / "kept.mdb"
        (journal / "data.mdb").rename(kept)
        replaced(journal)
        await until_async(lambda: bool(link.loss), "the loss")
        assert link.journal_pid is not None
        os.kill(link.journal_pid, signal.SIGKILL)
        await until_async(lambda: not link.is_running, "the end of the journal process")
        waiting = link.submit([Operation(Table.MARK, b"b" * 16, b"2")])
        await until_async(lambda: link._retry is not None and link._retry_s > 0.05, "the refusal of a second process")
        assert "another file has taken the place" in link.loss
        assert listener.answers == [(1, None)]
        kept.rename(journal / "data.mdb")
        await until_async(lambda: listener.committed == waiting, "the second commit")
        assert (link.loss, told) == ("", [True, False])
        await link.stop()

    asyncio.run(story())


@pytest.mark.slow
def test_who_stops_without_a_journal_does_not_wait_for_one(journal: Path, tmp_path: Path) -> None:
    async def story() -> None:
        link = JournalLink(journal, marker=marker_path(tmp_path, "node-0"))
        await link.start(RecordingListener())
        deleted(journal)
        assert link.journal_pid is not None
        os.kill(link.journal_pid, signal.SIGKILL)
        await until_async(lambda: bool(link.loss), "the loss")
        link.submit([Operation(Table.MARK, b"a" * 16, b"1")])
        with pytest.raises(JournalUnavailableError, match=r"1 batches for .* were not on disk: .* was deleted"):
            await link.stop()

    asyncio.run(story())


@pytest.mark.slow
def test_a_journal_is_begun_anew_where_none_is_and_nowhere_else(journal: Path, marker: str) -> None:
    def tool(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "enmasse.storage.tools", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    async def start() -> None:
        link = JournalLink(journal, marker=marker)
        await link.start(RecordingListener())
        await link.stop()

    asyncio.run(start())
    refused = tool("init", str(journal))
    assert refused.returncode == CANNOT
    assert "holds a journal already" in refused.stderr
    for lose in (deleted, emptied):
        lose(journal)
        with pytest.raises(JournalFormatError, match="is gone"):
            asyncio.run(start())
        assert tool("init", str(journal)).returncode == SOUND
        asyncio.run(start())


@pytest.mark.slow
def test_a_backup_takes_the_place_of_an_empty_file_unforced(journal: Path, marker: str, tmp_path: Path) -> None:
    WriteEnvironment(str(journal)).close()
    write_marker(str(journal), marker)
    command = [sys.executable, "-m", "enmasse.storage.tools"]
    subprocess.run([*command, "backup", str(journal), str(tmp_path / "copy")], capture_output=True, check=True)
    emptied(journal)
    subprocess.run([*command, "restore", str(journal), str(tmp_path / "copy")], capture_output=True, check=True)
    require_journal(str(journal), marker)
