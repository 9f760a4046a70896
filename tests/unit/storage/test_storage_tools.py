"""The journal's tools as a person runs them: real processes, sound and damaged journals."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import lmdb
import pytest

from enmasse.messaging.log.frame import Frame, encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.numbers import LOG_RANGES
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import encode_batch, split_batches
from enmasse.storage.checksums import FORMAT_KEY, encode_format, with_checksum
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
from enmasse.storage.link import JournalLink
from enmasse.storage.lock import DirectoryLock
from enmasse.storage.pages import PageFile
from enmasse.storage.tools import CANNOT, DAMAGED, IN_USE, main
from enmasse.testing.memory_storage import RecordingListener

pytestmark = pytest.mark.slow

PAGE = 4096
FRAMES = 600
MESSAGE = b"\0\x53\x75\xa0\x05hello"


def run(*arguments: object, code: int = 0) -> str:
    """Run ``enmasse journal`` and return what it printed, both streams."""
    done = subprocess.run(
        [sys.executable, "-m", "enmasse", "journal", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def tool(*arguments: object, code: int = 0) -> str:
    """The same without the process around it, which takes a second to start: what the tool printed."""
    told = io.StringIO()
    with redirect_stdout(told), redirect_stderr(told):
        assert main([str(argument) for argument in arguments]) == code, told.getvalue()
    return told.getvalue()


def frame(offset: int) -> bytes:
    """Small frames lie on leaf pages, each tenth one on pages of its own."""
    body = b"%d " % offset * (2000 if offset % 10 == 0 else 10)
    head = MESSAGE[:3] + b"\xb0" + len(body).to_bytes(4, "big")
    return encode_frame(offset, [1_000_000 + offset], [b"key"], [head], [body])


def make(directory: Path) -> Path:
    """One log of ``FRAMES`` frames with gaps, so that there are free pages, and records of other tables."""
    environment = WriteEnvironment(str(directory))
    entity = json.dumps({"name": "default/orders", "log": 1}).encode()
    steps: list[list[Operation]] = [
        [Operation(Table.FRAME, log_key(1, 0, offset), frame(offset)) for offset in range(start, start + 100)]
        for start in range(0, FRAMES, 100)
    ]
    steps.append([Operation(Table.FRAME, log_key(1, 0, offset), None) for offset in range(100, 200)])
    steps.append(
        [
            Operation(Table.ENTITY, b"adefault/orders", entity),
            Operation(Table.ENTITY, b"\0log", (2).to_bytes(8, "big")),
            Operation(Table.MARK, log_key(1, 0, 0), bytes(24)),
        ]
    )
    for number, operations in enumerate(steps, 1):
        (batch,), _, _ = split_batches(memoryview(encode_batch(1, number, 0, operations)))
        environment.apply([batch])
    environment.close()
    return directory


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    directory = tmp_path / "journal"
    directory.mkdir()
    return make(directory)


def records(directory: Path) -> dict[int, dict[bytes, bytes]]:
    reader = ReadEnvironment(str(directory))
    try:
        return {table: dict(reader.scan_all(table)) for table in range(1, 10)}
    finally:
        reader.close()


@contextmanager
def pages_of(directory: Path) -> Iterator[PageFile]:
    file = PageFile(str(directory / "data.mdb"))
    yield file
    file.close()


def overwrite(directory: Path, at: int, content: bytes) -> None:
    with (directory / "data.mdb").open("r+b") as file:
        file.seek(at)
        file.write(content)


def page_of_frame(directory: Path, offset: int) -> tuple[int, int]:
    """Leaf page of a frame, and the first page of its value (0: inline)."""
    with pages_of(directory) as file:
        for number, data in file.leaves(file.metas[0].main):
            for node in file.nodes(number, data):
                if node.key == b"\2" + log_key(1, 0, offset):
                    return number, node.overflow
    raise AssertionError(offset)


def test_check_counts_what_there_is(journal: Path) -> None:
    told = run("check", journal)
    assert "no damage; format 5" in told
    assert "default/orders  FRAME" in told
    assert f" {FRAMES - 100} " in told


def test_check_finds_the_journal_of_a_node_by_data_and_name(tmp_path: Path) -> None:
    directory = tmp_path / "nodes" / "node-7" / "journal"
    directory.mkdir(parents=True)
    make(directory)
    assert str(directory) in run("check", "--data", tmp_path, "--name", "node-7")


@pytest.mark.parametrize("command", ["check", "dump", "compact"])
def test_a_directory_without_a_journal_is_refused(tmp_path: Path, command: str) -> None:
    assert f"{tmp_path} holds no journal" in tool(command, tmp_path, code=CANNOT)


def test_check_names_a_damaged_frame(journal: Path) -> None:
    _, page = page_of_frame(journal, 310)
    overwrite(journal, page * PAGE + 500, b"?")
    told = tool("check", journal, code=DAMAGED)
    assert "FRAME record of log 1, partition 0, offset 310 is damaged" in told
    assert "1 problems" in told
    assert f"enmasse journal salvage {journal} TARGET" in told


def test_check_names_a_damaged_page(journal: Path) -> None:
    page, _ = page_of_frame(journal, 311)
    overwrite(journal, page * PAGE, bytes(PAGE))
    assert f"damaged: page {page} " in tool("check", journal, code=DAMAGED)


def test_check_of_a_file_that_was_cut_names_the_page(journal: Path) -> None:
    os.truncate(journal / "data.mdb", (journal / "data.mdb").stat().st_size // 2)
    assert "lies beyond the end of the file" in tool("check", journal, code=DAMAGED)


def test_check_refuses_a_newer_format_and_bad_keys(journal: Path) -> None:
    raw = lmdb.open(str(journal))
    with raw.begin(write=True) as transaction:
        transaction.put(FORMAT_KEY, encode_format(99))
        transaction.put(b"\2short", with_checksum(b"\2short", b""))
        transaction.put(b"\x63key", with_checksum(b"\x63key", b""))
    raw.close()
    told = tool("check", journal, code=DAMAGED)
    assert "the journal has format 99, this version reads up to 5" in told
    assert "has a key of 5 bytes" in told
    assert "is of no table that this version knows" in told


def test_dump_has_a_line_for_each_record_and_message(journal: Path) -> None:
    plain = [json.loads(line) for line in tool("dump", journal).splitlines()]
    frames = [line for line in plain if line["table"] == "FRAME"]
    assert [line["offset"] for line in frames] == [*range(100), *range(200, FRAMES)]
    assert frames[0] == {
        "table": "FRAME", "log": 1, "partition": 0, "offset": 0, "rows": 1, "bytes": len(frame(0)), "volatile": False,
    }  # fmt: skip
    lines = [json.loads(line) for line in tool("dump", journal, "--messages").splitlines()]
    messages = [line for line in lines if "body" in line]
    assert len(messages) == len(frames)
    assert messages[1] == {
        "offset": 1, "time": 1_000_001, "key": "key", "durable": False, "body": "1 " * 10,
    }  # fmt: skip


def test_a_retained_value_is_shown_checked_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "journal"
    place.mkdir()
    environment = WriteEnvironment(str(place))
    key, value = (7).to_bytes(4, "big") + bytes(16), bytes(8) + b"\0\0\0\x06news/a" + MESSAGE
    sound = Operation(Table.RETAINED, key, value)
    (batch,), _, _ = split_batches(memoryview(encode_batch(1, 1, 0, [sound])))
    environment.apply([batch])
    assert "no damage" in tool("check", place)
    lines = [json.loads(line) for line in tool("dump", place, "--messages").splitlines()]
    shown = {
        "table": "RETAINED",
        "log": 7,
        "digest": "00" * 16,
        "name": "news/a",
        "time": 0,
        "bytes": len(value) - 18,
    }
    at = lines.index(shown)
    assert lines[at + 1] == {"durable": False, "body": "hello"}
    tool("salvage", place, tmp_path / "new")
    bad = [Operation(Table.RETAINED, key, value[:13]), Operation(Table.RETAINED, key[:9], value)]
    (batch,), _, _ = split_batches(memoryview(encode_batch(1, 2, 0, bad)))
    environment.apply([batch])
    environment.close()
    found = tool("check", place, code=DAMAGED)
    assert "RETAINED record of log 7, digest 00000000000000000000000000000000 is damaged: a retained value" in found
    assert "has a key of 9 bytes" in found


def test_dump_shows_damage_in_its_place(journal: Path) -> None:
    _, page = page_of_frame(journal, 310)
    overwrite(journal, page * PAGE + 500, b"?")
    lines = [json.loads(line) for line in tool("dump", journal, code=DAMAGED).splitlines()]
    (damaged,) = [line for line in lines if "damaged" in line]
    assert (damaged["log"], damaged["offset"]) == (1, 310)


def test_salvage_of_a_sound_journal_keeps_everything(journal: Path, tmp_path: Path) -> None:
    assert "0 losses" in tool("salvage", journal, tmp_path / "new")
    assert records(tmp_path / "new") == records(journal)
    WriteEnvironment(str(tmp_path / "new")).close()


def test_salvage_leaves_out_a_damaged_frame_and_names_it(journal: Path, tmp_path: Path) -> None:
    expected = records(journal)
    del expected[2][log_key(1, 0, 310)]
    _, page = page_of_frame(journal, 310)
    overwrite(journal, page * PAGE + 500, b"?")
    before = (journal / "data.mdb").read_bytes()
    told = tool("salvage", journal, tmp_path / "new", code=DAMAGED)
    assert "lost: FRAME record of log 1, partition 0, offset 310" in told
    assert records(tmp_path / "new") == expected
    assert (journal / "data.mdb").read_bytes() == before
    assert "no damage" in tool("check", tmp_path / "new")


def test_salvage_loses_only_what_lay_on_a_damaged_page(journal: Path, tmp_path: Path) -> None:
    page, _ = page_of_frame(journal, 311)
    with pages_of(journal) as file:
        lost = {node.key[1:] for node in file.nodes(page, file.page(page, 2)) if node.key[:1] == b"\2"}
    assert log_key(1, 0, 311) in lost
    expected = {key: value for key, value in records(journal)[2].items() if key not in lost}
    overwrite(journal, page * PAGE, bytes(PAGE))
    told = tool("salvage", journal, tmp_path / "new", code=DAMAGED)
    assert f"lost: page {page}" in told
    assert records(tmp_path / "new")[2] == expected
    assert "no damage" in tool("check", tmp_path / "new")


def test_salvage_finds_what_a_lost_root_led_to(journal: Path, tmp_path: Path) -> None:
    expected = records(journal)
    with pages_of(journal) as file:
        assert file.metas[0].main.depth > 1
        root = file.metas[0].main.root
    overwrite(journal, root * PAGE, bytes(PAGE))
    told = tool("salvage", journal, tmp_path / "new", code=DAMAGED)
    assert f"lost: page {root}" in told
    assert "missing" not in told
    assert records(tmp_path / "new") == expected


def test_salvage_goes_by_the_other_meta_page_where_one_is_damaged(journal: Path, tmp_path: Path) -> None:
    expected = records(journal)
    with pages_of(journal) as file:
        older = 1 - file.metas[0].transaction % 2
    overwrite(journal, older * PAGE, bytes(64))
    told = tool("salvage", journal, tmp_path / "new", code=DAMAGED)
    assert f"page {older}" in told
    assert records(tmp_path / "new") == expected


def test_salvage_of_what_is_no_journal_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"something else entirely" * 1000)
    assert "nothing can be read of the journal" in tool("salvage", tmp_path, tmp_path / "new", code=CANNOT)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["salvage", "backup"])
def test_a_target_that_holds_something_is_refused(journal: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("precious")
    assert "is not an empty directory" in tool(command, journal, tmp_path / "new", code=CANNOT)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine"]


def test_compact_keeps_everything_in_a_smaller_file(journal: Path) -> None:
    expected = records(journal)
    size = (journal / "data.mdb").stat().st_size
    told = tool("compact", journal)
    assert f"{size:,} bytes before" in told
    assert (journal / "data.mdb").stat().st_size < size
    assert records(journal) == expected
    environment = WriteEnvironment(str(journal))
    assert (environment.epoch, environment.number) == (1, FRAMES // 100 + 2)
    environment.close()
    assert sorted(path.name for path in journal.iterdir()) == ["data.mdb", "lock.mdb", "writer.lock"]


def test_compact_of_a_damaged_journal_changes_nothing(journal: Path) -> None:
    page, _ = page_of_frame(journal, 311)
    overwrite(journal, page * PAGE, bytes(PAGE))
    before = (journal / "data.mdb").read_bytes()
    assert f"page {page}" in tool("compact", journal, code=CANNOT)
    assert (journal / "data.mdb").read_bytes() == before
    assert not (journal / "partial").exists()


def test_what_a_node_uses_is_not_replaced(journal: Path, tmp_path: Path) -> None:
    tool("backup", journal, tmp_path / "backup")
    lock = DirectoryLock(str(journal))
    assert lock.acquire()
    for arguments in (("compact", journal), ("restore", journal, tmp_path / "backup", "--force")):
        told = tool(*arguments, code=IN_USE)
        assert f"process {os.getpid()} writes the journal in {journal}: stop the node first" in told
    assert "stop the node first" in run("compact", journal, code=4)
    lock.release()


def test_backup_and_restore_give_the_same_records(journal: Path, tmp_path: Path) -> None:
    run("backup", tmp_path / "backup", "--directory", journal)
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == ["data.mdb"]
    run("restore", tmp_path / "backup", "--data", tmp_path / "elsewhere")
    restored = tmp_path / "elsewhere" / "nodes" / "node-0" / "journal"
    assert records(restored) == records(journal)
    assert "holds a journal already" in tool("restore", restored, tmp_path / "backup", code=CANNOT)
    environment = WriteEnvironment(str(restored))
    (batch,), _, _ = split_batches(memoryview(encode_batch(2, 1, 0, [Operation(Table.MARK, log_key(9, 0, 0), b"")])))
    environment.apply([batch])
    environment.close()
    assert records(restored) != records(journal)
    tool("restore", restored, tmp_path / "backup", "--force")
    assert records(restored) == records(journal)


def test_a_journal_that_is_restored_has_none_of_its_leased_log_numbers(journal: Path, tmp_path: Path) -> None:
    record = json.dumps({"given": 900, "ranges": [[7, 99]]}).encode()
    environment = WriteEnvironment(str(journal))
    (batch,), _, _ = split_batches(memoryview(encode_batch(2, 1, 0, [Operation(Table.ENTITY, LOG_RANGES, record)])))
    environment.apply([batch])
    environment.close()
    tool("backup", journal, tmp_path / "backup")
    assert records(tmp_path / "backup") == records(journal)
    tool("restore", journal, tmp_path / "backup", "--force")
    reader = ReadEnvironment(str(journal))
    assert json.loads(reader.get(Table.ENTITY, LOG_RANGES) or b"") == {"given": 900, "ranges": []}
    reader.close()
    tool("check", journal)


def test_a_damaged_frame_is_backed_up_as_it_is_and_named(journal: Path, tmp_path: Path) -> None:
    _, page = page_of_frame(journal, 310)
    overwrite(journal, page * PAGE + 500, b"?")
    told = tool("backup", journal, tmp_path / "backup", code=DAMAGED)
    assert "damaged, copied as it is: FRAME record of log 1, partition 0, offset 310" in told
    assert records(tmp_path / "backup") == records(journal)


def test_checks_and_backups_under_load_see_one_commit(tmp_path: Path) -> None:
    async def load() -> str:
        listener = RecordingListener()
        link_directory = tmp_path / "journal"
        link = JournalLink(link_directory)
        await link.start(listener)
        process = None
        for number in range(1, 20_000):
            value = number.to_bytes(8, "big") * 100
            link.submit(
                [Operation(Table.MARK, log_key(1, part, 0), value) for part in range(20)]
                + [Operation(Table.FRAME, log_key(1, 0, number), encode_frame(number, [0], [b""], [b""], [value]))]
                + [Operation(Table.FRAME, log_key(1, 0, max(number - 50, 0)), None)]
            )
            while link.unconfirmed_bytes > 100_000:
                await asyncio.sleep(0)
            if number == 200:
                tools = f"{sys.executable} -m enmasse.storage.tools"
                process = await asyncio.create_subprocess_exec(
                    "bash", "-euc",
                    f"{tools} check {link_directory}; {tools} check {link_directory}; "
                    f"{tools} backup {link_directory} {tmp_path / 'backup'}",
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
            if process is not None and process.returncode is not None:
                break
        assert process is not None
        told, _ = await process.communicate()
        await link.stop()
        assert process.returncode == 0, told.decode()
        return told.decode()

    asyncio.run(load())
    found = records(tmp_path / "backup")
    (mark,) = set(found[Table.MARK].values())
    number = int.from_bytes(mark[:8], "big")
    offsets = sorted(Frame(value).first_offset for value in found[Table.FRAME].values())
    assert offsets == list(range(number - 49, number + 1))
    assert "no damage" in run("check", tmp_path / "backup")


def test_a_tool_that_dies_says_what_that_means(
    journal: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "if 'enmasse.storage.tools' in sys.orig_argv:\n"
        "    os.kill(os.getpid(), signal.SIGBUS)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = run("check", journal, code=1)
    assert f"the tool that read {journal} was ended by SIGBUS" in told


def test_a_node_with_a_damaged_page_says_what_to_run(journal: Path) -> None:
    page, _ = page_of_frame(journal, 311)
    overwrite(journal, page * PAGE, bytes(PAGE))

    async def start() -> str:
        link = JournalLink(journal)
        try:
            await link.start(RecordingListener())
        except Exception as error:  # noqa: BLE001 - its kind is looked at elsewhere
            return str(error)
        await link.stop()
        return "it started"

    told = asyncio.run(start())
    assert f"page {page}" in told
    assert f"`enmasse journal check {journal}`" in told
    assert "enmasse journal salvage" in told
