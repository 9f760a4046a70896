"""A query over an address whose connection, disk and process fail at any step, as Spark would run it.

The address, Spark and the moments of failure are simulated; spool, ledger, commit log and planner are the real ones.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from enmasse.errors import UnavailableError
from enmasse.message.sections import Properties, encode_message
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import SpoolFullError, SpoolMismatchError
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.planner import ConsumedPlanner
from enmasse.pipeline.source.consumed.spool import Disk, Owner, Spool


class CrashError(BaseException):
    """The process is gone."""


def message(number: int, *, is_numbered: bool = True) -> bytes:
    return encode_message(b"%d" % number, properties=Properties(message_id=number) if is_numbered else None)


@dataclass(eq=False)
class Delivery:
    payload: bytes


class Address:
    """A queue: what one link has is given to no other, and comes back first when that link is gone."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.waiting: list[bytes] = []
        self.accepted: list[bytes] = []
        self.chance = chance
        self.links: list[Link] = []
        self.is_away = False

    def fails(self, probability: float) -> bool:
        return self.chance is not None and self.chance.random() < probability

    def link(self) -> Link:
        if self.is_away or self.fails(0.1):
            raise UnavailableError("the node is away")
        for other in self.links:
            other.lose()
        self.links = [Link(self)]
        return self.links[0]


class Link:
    def __init__(self, address: Address) -> None:
        self.address = address
        self.stored = len(address.waiting)
        self.held: dict[Delivery, bytes] = {}
        self.is_usable = True

    def lose(self) -> None:
        self.is_usable = False
        self.address.waiting[:0] = self.held.values()
        self.held.clear()

    def receive(self, max_rows: int, max_bytes: int, timeout_s: float) -> list[Delivery]:
        address = self.address
        if not self.is_usable or address.fails(0.05):
            self.lose()
            raise UnavailableError("the connection is lost")
        found: list[Delivery] = []
        while address.waiting and len(found) < max_rows and sum(len(d.payload) for d in found) < max_bytes:
            delivery = Delivery(address.waiting.pop(0))
            self.held[delivery] = delivery.payload
            found.append(delivery)
        if address.fails(0.05):
            self.lose()
        return found

    def drain(self, max_rows: int, max_bytes: int) -> list[Delivery]:
        return self.receive(max_rows, max_bytes, 0)

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        if not self.is_usable or self.address.fails(0.05):
            self.lose()
            raise UnavailableError("the transaction is rolled back")
        for delivery in deliveries:
            self.address.accepted.append(self.held.pop(delivery))
        if self.address.fails(0.05):
            self.lose()
            raise UnavailableError("the answer is lost")

    def close(self) -> None:
        self.lose()


class SomeDisk(Disk):
    """Without waiting for a real one; may fail before, in the middle of, or after a step."""

    def __init__(self, fail: Callable[[], None] = lambda: None) -> None:
        self.fail = fail

    def write(self, path: Path, data: bytes) -> None:
        try:
            self.fail()
        except BaseException:
            path.write_bytes(data[: len(data) // 2])
            raise
        path.write_bytes(data)

    def rename(self, path: Path, name: str) -> None:
        self.fail()
        path.rename(path.with_name(name))
        self.fail()

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        """It need not survive more than the test."""


@dataclass
class Spark:
    """The order in which Spark asks and writes: offsets, rows, commit; all is in files, and what is not is lost."""

    folder: Path
    address: Address
    disk: Disk
    max_rows: int = 5
    table: dict[int, list[bytes]] = field(default_factory=dict)
    maybe_crash: Callable[[], None] = lambda: None
    planner: ConsumedPlanner | None = None
    waits: int = 0

    def __post_init__(self) -> None:
        for name in ("offsets", "commits"):
            (self.folder / "checkpoint" / name).mkdir(parents=True)

    def options(self) -> ConsumedOptions:
        given = {
            "url": "amqp://127.0.0.1",
            "address": "q",
            "spoolDir": str(self.folder / "spool"),
            "checkpointLocation": str(self.folder / "checkpoint"),
            "maxOffsetsPerTrigger": str(self.max_rows),
            "pollTimeout": "0s",
        }
        return ConsumedOptions.parse(given, "queue")

    def wait(self, _seconds: float) -> None:
        self.waits += 1

    def start(self) -> ConsumedPlanner:
        options = self.options()
        spool = Spool(options.spool, Owner("q", "", options.checkpoint), self.disk, lock_s=0)
        try:
            backoff = Backoff(1.0, clock=lambda: 0.0, sleep=self.wait)
            self.planner = ConsumedPlanner(options, spool, self.address.link, backoff)
        except BaseException:
            spool.close()
            raise
        return self.planner

    def crash(self) -> None:
        """The process is gone, and the connection with it."""
        planner, self.planner = self.planner, None
        for link in self.address.links:
            link.lose()
        if planner is not None:
            planner._stopped.set()
            if planner._watcher is not None:
                planner._watcher.join()
            planner._spool.close()

    def _offset(self, batch: int) -> dict[str, int | str] | None:
        path = self.folder / "checkpoint" / "offsets" / str(batch)
        return json.loads(path.read_text().splitlines()[-1]) if path.exists() else None

    @property
    def committed(self) -> int:
        return len(list((self.folder / "checkpoint" / "commits").iterdir())) - 1

    def batch(self) -> bool:
        """One micro-batch; whether there was anything."""
        planner = self.planner or self.start()
        before = self._offset(self.committed)
        number = self.committed + 1
        start = planner.initial() if before is None else int(before["next"])
        if before is not None:
            planner.belongs(str(before["spool"]))
        planned = self._offset(number)
        if planned is None:
            end = planner.latest(start, self.max_rows)
            if end == start:
                return False
            self.maybe_crash()
            text = json.dumps({"spool": planner.spool_id, "next": end})
            (self.folder / "checkpoint" / "offsets" / str(number)).write_text(f"v1\n{{}}\n{text}")
        else:
            end = int(planned["next"])
        self.maybe_crash()
        files = planner.files(start, end)
        rows = [row.message for file in files for row in planner._spool.rows(file)]
        assert self.table.setdefault(number, rows) == rows, "a batch that was read again differs"
        self.maybe_crash()
        (self.folder / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")
        self.maybe_crash()
        return True

    def rows(self) -> list[bytes]:
        return [row for number in sorted(self.table) for row in self.table[number]]


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "sync", lambda _self, _path: None)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Spark]:
    made = Spark(tmp_path, Address(), SomeDisk())
    yield made
    made.crash()


def test_what_is_there_becomes_batches_and_is_accepted_when_they_are_committed(spark: Spark) -> None:
    address = spark.address
    address.waiting = [message(n) for n in range(12)]
    assert spark.batch()
    assert address.accepted == []
    while spark.batch():
        pass
    assert spark.rows() == [message(n) for n in range(12)]
    assert [len(rows) for rows in spark.table.values()] == [5, 5, 2]
    assert Counter(address.accepted) == Counter(spark.rows())


def test_the_commit_log_alone_is_enough(spark: Spark) -> None:
    spark.address.waiting = [message(1)]
    spark.batch()
    planner = spark.planner
    assert planner is not None
    planner._settle_proved()
    assert spark.address.accepted == [message(1)]


def test_stopping_accepts_what_is_committed_and_gives_back_the_rest(spark: Spark) -> None:
    spark.address.waiting = [message(n) for n in range(10)]
    spark.batch()
    planner = spark.planner
    assert planner is not None
    planner.latest(5, 5)
    planner.stop()
    assert spark.address.accepted == [message(n) for n in range(5)]
    assert spark.address.waiting == [message(n) for n in range(5, 10)]
    spark.planner = None
    while spark.batch():
        pass
    assert spark.rows() == [message(n) for n in range(10)]


def test_what_has_no_id_is_accepted_once_it_is_in_the_spool(spark: Spark) -> None:
    address = spark.address
    address.waiting = [message(1, is_numbered=False), message(2), message(3, is_numbered=False)]
    planner = spark.start()
    planner.latest(0, 5)
    assert address.accepted == [message(1, is_numbered=False), message(3, is_numbered=False)]
    spark.crash()
    while spark.batch():
        pass
    assert spark.rows() == [message(1, is_numbered=False), message(2), message(3, is_numbered=False)]
    assert len(address.accepted) == 3


def test_a_query_that_ends_takes_what_was_there(spark: Spark) -> None:
    spark.address.waiting = [message(n) for n in range(7)]
    spark.start().fix_target()
    spark.address.waiting += [message(n) for n in range(7, 20)]
    while spark.batch():
        pass
    assert spark.rows() == [message(n) for n in range(7)]


def test_large_messages_make_short_batches(spark: Spark) -> None:
    spark.address.waiting = [encode_message(b"x" * (20 << 20), properties=Properties(message_id=n)) for n in range(4)]
    while spark.batch():
        pass
    assert [len(rows) for rows in spark.table.values()] == [2, 2]


def test_a_full_disk_is_waited_for_and_nothing_is_accepted_meanwhile(spark: Spark) -> None:
    is_full = threading.Event()

    def fail() -> None:
        if is_full.is_set():
            raise OSError(28, "No space left on device")

    spark.disk = SomeDisk(fail)
    spark.address.waiting = [message(1, is_numbered=False), message(2)]
    planner = spark.start()
    is_full.set()
    planner._backoff = Backoff(0.0)
    with pytest.raises(SpoolFullError, match="No space left"):
        planner.latest(0, 5)
    assert spark.address.accepted == []
    planner._backoff = Backoff(1.0, clock=lambda: 0.0, sleep=lambda _seconds: is_full.clear())
    assert planner.latest(0, 5) == 2


def test_a_spool_that_is_lost_is_made_anew_where_nothing_was_in_it(spark: Spark) -> None:
    spark.address.waiting = [message(1)]
    spark.batch()
    spark.batch()
    spark.crash()
    for path in (spark.folder / "spool").iterdir():
        path.unlink()
    spark.address.waiting = [message(2)]
    assert spark.batch()
    assert spark.rows() == [message(1), message(2)]


def test_a_checkpoint_of_another_spool_is_refused(spark: Spark) -> None:
    spark.address.waiting = [message(1)]
    planner = spark.start()
    planner.latest(0, 5)
    with pytest.raises(SpoolMismatchError, match="belongs to another spool"):
        planner.belongs("another")


def test_a_checkpoint_that_does_not_show_the_commit_is_refused(spark: Spark) -> None:
    spark.address.waiting = [message(1)]
    planner = spark.start()
    planner.latest(0, 5)
    with pytest.raises(SpoolMismatchError, match="commit log does not show"):
        planner.committed(1)
    assert spark.address.accepted == []


def test_a_query_begun_anew_is_given_what_the_last_one_left(spark: Spark) -> None:
    spark.address.waiting = [message(1, is_numbered=False)]
    spark.start().latest(0, 5)
    spark.crash()
    assert spark.start().initial() == 0
    spark.batch()
    assert spark.rows() == [message(1, is_numbered=False)]


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_or_doubled_whatever_fails_when(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    is_calm = False

    def maybe_crash() -> None:
        if not is_calm and chance.random() < 0.04:
            raise CrashError

    def fail() -> None:
        maybe_crash()
        if not is_calm and chance.random() < 0.03:
            raise OSError(28, "No space left on device")

    address = Address(chance)
    spark = Spark(tmp_path, address, SomeDisk(fail), maybe_crash=maybe_crash)
    sent = 0
    try:
        for _ in range(80):
            if chance.random() < 0.5:
                count = chance.randrange(1, 9)
                address.waiting += [message(n) for n in range(sent, sent + count)]
                sent += count
            try:
                spark.batch()
                if spark.planner is not None and chance.random() < 0.2:
                    spark.planner._settle_proved()
                if spark.planner is not None and chance.random() < 0.05:
                    spark.planner.stop()
                    spark.planner = None
            except (CrashError, SpoolFullError):
                spark.crash()
        is_calm, address.chance = True, None
        while spark.batch():
            pass
        with suppress(UnavailableError):
            spark.batch()
    finally:
        spark.crash()
    found = Counter(spark.rows())
    assert [n for n in range(sent) if not found[message(n)]] == [], "lost"
    assert [n for n in range(sent) if found[message(n)] > 1] == [], "doubled"
    assert Counter(address.accepted) == found, "the address keeps nothing"
