"""Progress of long work: nothing for short work, a line a second for long work."""

from __future__ import annotations

import pytest

from enmasse.storage import progress
from enmasse.storage.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


@pytest.mark.usefixtures("clock")
def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    work = Progress("copied")
    work.expect(1000)
    for _ in range(1000):
        work.add(10)
    assert capsys.readouterr().err == ""
    assert (work.records, work.bytes) == (1000, 10_000)


def test_long_work_says_how_far_it_is_each_second(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    work = Progress("copied")
    work.expect(100)
    for _ in range(50):
        clock.now += 0.1
        work.add(1 << 20)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) in {4, 5}
    assert lines[0] in {"copied 10 %, 10 records, 10 MiB", "copied 11 %, 11 records, 11 MiB"}
