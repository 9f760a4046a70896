"""Images of the journal as a crash of the machine may leave them: old state, new state, or refused by name.

Commits are made by the journal's own writer. The pages that each one changed are put together anew: in part,
with the meta page last as LMDB writes it; and, as on a disk that loses or reorders writes, with the meta page
there and some of the others missing. Every image is opened in another process.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from enmasse.messaging.log.frame import encode_frame
from enmasse.messaging.log.layout import log_key
from enmasse.messaging.log.merge import merge_operation, time_key
from enmasse.messaging.storage import Operation, Table
from enmasse.storage.batch import encode_batch, split_batches
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
from tests.support.chance import SEED, kills

pytestmark = [pytest.mark.slow, pytest.mark.chance]

PAGE = 4096
COMMITS = 60
IMAGES = kills(3)
"""Of each kind and commit."""

OPEN = """
import hashlib, json, os, sys
from enmasse.errors import EnmasseError
from enmasse.messaging.log.frame import FrameError, check_frame
from enmasse.storage.environment import ReadEnvironment, WriteEnvironment
import lmdb

def open_image(directory):
    try:
        environment = WriteEnvironment(directory)
    except (EnmasseError, lmdb.Error) as error:
        return {"refused": str(error)}
    state = {"last": [environment.epoch, environment.number]}
    environment.close()
    reader = ReadEnvironment(directory)
    frames, damaged, others = {}, [], {}
    for table in range(1, 10):
        for key, value in reader.scan_all(table):
            if table == 2:
                try:
                    check_frame(value, int.from_bytes(key[-8:], "big"))
                except FrameError:
                    damaged.append(key.hex())
                    continue
                frames[key.hex()] = hashlib.sha256(value).hexdigest()
            else:
                others[f"{table:02x}" + key.hex()] = hashlib.sha256(value).hexdigest()
    reader.close()
    return {**state, "frames": frames, "damaged": damaged, "others": others}

for line in sys.stdin:
    print(json.dumps(open_image(line.strip())), flush=True)
"""


class Opener:
    """Opens images in a process that damage may end; then another one goes on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def open(self, directory: Path) -> dict[str, Any] | None:
        """What is found there; ``None`` if it ended the process."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{directory}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self.close()
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None


@dataclass
class Commit:
    """The file before and after, and the pages that differ."""

    before: bytes
    after: bytes
    pages: list[int]

    @property
    def meta(self) -> list[int]:
        return [page for page in self.pages if page < 2]

    @property
    def data(self) -> list[int]:
        return [page for page in self.pages if page >= 2]

    def image(self, landed: list[int]) -> bytes:
        """The file as it was, with these pages as they became."""
        image = bytearray(self.before)
        if len(self.after) > len(image):
            image += bytes(len(self.after) - len(image))
        for page in landed:
            image[page * PAGE : (page + 1) * PAGE] = self.after[page * PAGE : (page + 1) * PAGE]
        return bytes(image)


def operations(chance: random.Random, number: int) -> list[Operation]:
    """What queues and streams do: new frames, old ones gone, ranges settled, marks moved, small ones merged."""
    made: list[Operation] = []
    for _ in range(chance.randrange(1, 5)):
        log = chance.randrange(1, 4)
        offset = number * 100 + chance.randrange(100)
        size = chance.choice((10, 10, 100, 900, 3_000, 20_000))
        key = log_key(log, 0, offset)
        made.append(
            Operation(Table.FRAME, key, encode_frame(offset, [number], [b"k"], [b"h"], [chance.randbytes(size)]))
        )
        made.append(Operation(Table.TIME, time_key(key, number), b""))
    log = chance.randrange(1, 4)
    for back in range(20, 25):
        gone = max(number - back, 0) * 100
        made += [Operation(Table.FRAME, log_key(log, 0, gone + at), None) for at in range(0, 100, 3)]
    made.append(Operation(Table.SETTLED, log_key(log, 0, number * 100), chance.randbytes(16)))
    made.append(Operation(Table.MARK, log_key(log, 0, 0), number.to_bytes(8, "big") * 3))
    if chance.random() < 0.3:
        start = number * 1000
        for offset in range(start, start + 10):
            data = encode_frame(offset, [number], [b""], [b"h"], [b"small"])
            made.append(Operation(Table.FRAME, log_key(9, 0, offset), data))
        made.append(merge_operation(log_key(9, 0, start), start + 10))
    return made


def make_commits(directory: Path, chance: random.Random) -> list[Commit]:
    environment = WriteEnvironment(str(directory))
    path = directory / "data.mdb"
    commits = []
    for number in range(1, COMMITS + 1):
        before = path.read_bytes()
        group = b"".join(
            encode_batch(1, number * 3 + part, number * 3 - 1, operations(chance, number * 3 + part))
            for part in range(chance.randrange(1, 3))
        )
        batches, _, _ = split_batches(memoryview(group))
        environment.apply(batches)
        after = path.read_bytes()
        padded = before.ljust(len(after), b"\0")
        changed = [
            page
            for page in range(len(after) // PAGE)
            if padded[page * PAGE : (page + 1) * PAGE] != after[page * PAGE : (page + 1) * PAGE]
            or page * PAGE >= len(before)
        ]
        commits.append(Commit(before, after, changed))
    environment.close()
    return commits


@pytest.fixture(scope="module")
def commits(tmp_path_factory: pytest.TempPathFactory) -> list[Commit]:
    return make_commits(tmp_path_factory.mktemp("original"), random.Random(SEED))


@pytest.fixture(scope="module")
def opener() -> Iterator[Opener]:
    made = Opener()
    yield made
    made.close()


def open_as(opener: Opener, directory: Path, image: bytes) -> dict[str, Any] | None:
    directory.mkdir(exist_ok=True)
    (directory / "lock.mdb").unlink(missing_ok=True)
    (directory / "data.mdb").write_bytes(image)
    return opener.open(directory)


def without_damaged(state: dict[str, Any], damaged: list[str]) -> dict[str, str]:
    return {key: value for key, value in state["frames"].items() if key not in damaged}


def test_each_commit_writes_one_meta_page_and_some_others(commits: list[Commit]) -> None:
    assert len(commits) == COMMITS
    for commit in commits:
        assert len(commit.meta) == 1
        assert commit.data


def test_data_pages_in_part_before_the_meta_page_leave_the_old_state(
    commits: list[Commit], opener: Opener, tmp_path: Path
) -> None:
    chance = random.Random(f"{SEED} in part")
    for index, commit in enumerate(commits[1:], 1):
        old = open_as(opener, tmp_path / "image", commit.before)
        new = open_as(opener, tmp_path / "image", commit.after)
        assert old is not None
        assert new is not None
        assert "refused" not in old
        assert old != new
        for _ in range(IMAGES // 3):
            landed = chance.sample(commit.data, chance.randrange(len(commit.data) + 1))
            found = open_as(opener, tmp_path / "image", commit.image(landed))
            assert found == old, f"commit {index}, pages {sorted(landed)}"
        found = open_as(opener, tmp_path / "image", commit.image(commit.pages))
        assert found == new, f"commit {index}, all pages"


def test_a_meta_page_without_its_data_pages_is_noticed(commits: list[Commit], opener: Opener, tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} reordered")
    outcomes = {"old": 0, "new": 0, "refused": 0, "isolated": 0}
    for index, commit in enumerate(commits[1:], 1):
        old = open_as(opener, tmp_path / "image", commit.before)
        new = open_as(opener, tmp_path / "image", commit.after)
        assert old is not None
        assert new is not None
        for _ in range(IMAGES):
            missing = chance.sample(commit.data, min(chance.choice((1, 1, 1, 2, 5)), len(commit.data)))
            landed = [page for page in commit.pages if page not in missing]
            where = f"commit {index}, without pages {sorted(missing)}"
            found = open_as(opener, tmp_path / "image", commit.image(landed))
            assert found is not None, f"the process was ended: {where}"
            if "refused" in found:
                assert str(tmp_path / "image") in found["refused"], where
                outcomes["refused"] += 1
            elif found == new:
                outcomes["new"] += 1
            elif found == old:
                outcomes["old"] += 1
            else:
                # A frame on pages of its own may be damaged: it is left out by name, all else is as it was.
                assert found["damaged"], f"a third state: {where}"
                assert found["frames"] == without_damaged(new, found["damaged"]), f"a third state: {where}"
                outcomes["isolated"] += 1
    assert outcomes["refused"]
    assert outcomes["isolated"]


def test_a_torn_meta_page_is_the_old_state_or_the_new_one(
    commits: list[Commit], opener: Opener, tmp_path: Path
) -> None:
    for index, commit in enumerate(commits[1:], 1):
        old = open_as(opener, tmp_path / "image", commit.before)
        new = open_as(opener, tmp_path / "image", commit.after)
        whole = commit.image(commit.pages)
        (meta,) = commit.meta
        for sectors in (1, 3, 7):
            image = bytearray(commit.image(commit.data))
            at = meta * PAGE
            image[at : at + 512 * sectors] = whole[at : at + 512 * sectors]
            found = open_as(opener, tmp_path / "image", bytes(image))
            assert found in (old, new), f"commit {index}, {sectors} sectors"


def test_an_image_of_every_kind_can_be_written_on(commits: list[Commit], tmp_path: Path) -> None:
    chance = random.Random(f"{SEED} on")
    directory = tmp_path / "image"
    directory.mkdir()
    for commit in commits[1::6]:
        landed = chance.sample(commit.data, len(commit.data) // 2)
        (directory / "data.mdb").write_bytes(commit.image(landed))
        environment = WriteEnvironment(str(directory))
        for number in range(1, 4):
            made = operations(chance, 1000 + number)
            (batch,), _, _ = split_batches(memoryview(encode_batch(2, number, 0, made)))
            environment.apply([batch])
        environment.close()
        reader = ReadEnvironment(str(directory))
        assert reader.get(Table.MARK, log_key(99, 0, 0)) is None
        reader.close()
        WriteEnvironment(str(directory)).close()
