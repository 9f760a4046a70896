"""Child processes: heard, started again, stopped in order, and dead with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from enmasse.drivers.supervisor.child import Child
from enmasse.errors import ConfigError, UnavailableError
from tests.support.polling import until_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

LISTENS = """
import json, os, sys
print("log line", file=sys.stderr, flush=True)
print(json.dumps({"event": "listening", "pid": os.getpid()}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "heard", "line": line.strip()}), flush=True)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"event": "listening"}', flush=True)
time.sleep(1000)
"""
FAILS = "import sys; print('no such disk', file=sys.stderr); sys.exit(3)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c",
    "from enmasse.drivers.supervisor.child import die_with_parent\\n"
    "import time\\ndie_with_parent()\\nprint('ready', flush=True)\\ntime.sleep(1000)"],
    stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(1000)
"""


class Watcher:
    """Collects what a child does."""

    def __init__(
        self, tmp_path: Path, script: str, *, is_needed: bool = True, check: Callable[[], None] | None = None
    ) -> None:
        self.pids: list[int] = []
        self.events: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.log = tmp_path / "child.log"
        self.child = Child(
            "child",
            [sys.executable, "-c", script],
            log=self.log,
            on_start=self.pids.append,
            on_event=self.events.append,
            report=self.told.append,
            check=check,
            is_needed=lambda: is_needed,
        )


def test_a_child_is_heard_spoken_to_and_stopped(tmp_path: Path) -> None:
    async def body() -> None:
        watcher = Watcher(tmp_path, LISTENS)
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: len(watcher.events) == 1)
        assert watcher.events[0]["pid"] == watcher.pids[0]
        watcher.child.send("open")
        await until_async(lambda: {"event": "heard", "line": "open"} in watcher.events)
        await watcher.child.stop(10)
        await running
        assert "log line" in watcher.log.read_text()
        assert watcher.told == []

    asyncio.run(body())


def test_a_child_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async def body() -> None:
        watcher = Watcher(tmp_path, LISTENS)
        running = asyncio.create_task(watcher.child.run())
        for count in (1, 2):
            await until_async(lambda count=count: len(watcher.events) == count)  # type: ignore[misc]
            os.kill(watcher.pids[-1], signal.SIGKILL)
        await until_async(lambda: len(watcher.events) == 3)
        assert len(set(watcher.pids)) == 3
        assert watcher.told[0].startswith("child was ended by SIGKILL; starting it again in 0.1 s")
        await watcher.child.stop(10)
        await running

    asyncio.run(body())


def test_a_child_that_never_worked_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    watcher = Watcher(tmp_path, FAILS)
    with pytest.raises(UnavailableError, match=r"child ended with exit code 3 while starting;(.|\n)*no such disk"):
        asyncio.run(watcher.child.run())


def test_a_child_that_is_not_needed_is_started_again_even_if_it_never_worked(tmp_path: Path) -> None:
    async def body() -> None:
        watcher = Watcher(tmp_path, FAILS, is_needed=False)
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: len(watcher.told) == 2)
        assert watcher.told[0] == "child ended with exit code 3 (no such disk); starting it again in 0.1 s"
        await watcher.child.stop(10)
        running.cancel()

    asyncio.run(body())


def test_a_child_that_may_not_be_started_waits_until_it_may_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.drivers.supervisor.child._CHECK_AGAIN_S", 0.01)
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise ConfigError("the disk is not there")

    async def body() -> None:
        watcher = Watcher(tmp_path, LISTENS, check=check)
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: len(watcher.events) == 1)
        assert (asked, watcher.told) == (
            4,
            ["child is not started: the disk is not there. It is, once that is mended"],
        )
        await watcher.child.stop(10)
        await running

    asyncio.run(body())


def test_a_child_whose_log_cannot_be_opened_works_without_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def body() -> None:
        watcher = Watcher(tmp_path, LISTENS)
        watcher.log.mkdir()
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: len(watcher.events) == 1)
        assert watcher.told == [f"{watcher.log} cannot be written (Is a directory): child starts without it"]
        await watcher.child.stop(10)
        await running

    asyncio.run(body())
    assert "log line" in capfd.readouterr().err


def test_a_child_that_cannot_be_started_is_tried_again_until_it_can(tmp_path: Path) -> None:
    async def body() -> None:
        program = tmp_path / "program"
        program.symlink_to(sys.executable)
        watcher = Watcher(tmp_path, LISTENS)
        watcher.child._command = [str(program), "-c", LISTENS]
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: len(watcher.events) == 1)
        program.unlink()
        os.kill(watcher.pids[-1], signal.SIGKILL)
        await until_async(lambda: len(watcher.told) == 2)
        assert watcher.told[1] == "child cannot be started (No such file or directory); starting it again in 0.2 s"
        program.symlink_to(sys.executable)
        await until_async(lambda: len(watcher.events) == 2)
        await watcher.child.stop(10)
        await running

    asyncio.run(body())


def test_a_child_that_does_not_stop_is_ended_by_force(tmp_path: Path) -> None:
    async def body() -> None:
        watcher = Watcher(tmp_path, STUBBORN)
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: bool(watcher.events))
        await watcher.child.stop(0.2)
        await running
        assert "ending it by force" in watcher.told[0]

    asyncio.run(body())


def test_what_is_no_json_is_passed_over(tmp_path: Path) -> None:
    async def body() -> None:
        watcher = Watcher(tmp_path, "print('hello'); print('[1]')" + LISTENS)
        running = asyncio.create_task(watcher.child.run())
        await until_async(lambda: bool(watcher.events))
        assert watcher.events[0]["event"] == "listening"
        await watcher.child.stop(10)
        await running

    asyncio.run(body())


def test_a_child_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 20
    while _is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
