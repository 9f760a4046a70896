"""The conductor of a measurement: it starts the processes, directs them, and adds up their results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from enmasse.bench.load import Window
from enmasse.bench.plan import BenchError, Job, Plan
from enmasse.bench.report import NEVER_ARRIVE, Report

ATTACH_S = 45.0
"""For connecting and attaching: the client itself gives a link 30 s."""

HEAD_START_S = 0.2
"""Between the decision to begin and the beginning, so that every process knows of it in time."""

SLACK_S = 20.0
"""For whatever a busy machine delays."""

QUIET_S = 2.0
"""So long without a message, and those that are missing are taken for lost."""

END_S = 5.0
MAX_LINE = 1 << 24
LAST_ERRORS = 5


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a measurement.

    Attributes:
        elapsed_s: since sending began, warming up included.
        sent: messages so far.
        received: messages so far, of whatever run.
    """

    elapsed_s: float
    sent: int
    received: int


class _Member:
    """One process of the generator, with what it has reported so far."""

    def __init__(self, job: Job, changed: asyncio.Event) -> None:
        self.job = job
        self.reported: dict[str, Any] = {}
        self.is_over = False
        self._changed = changed
        self._process: Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._last_errors: list[str] = []

    async def start(self) -> None:
        command = (sys.executable, "-m", "enmasse.bench.worker")
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_LINE
        )
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._read_errors())]
        self.send(asdict(self.job))

    def send(self, message: dict[str, Any]) -> None:
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.reported.update(json.loads(line))
            self._changed.set()
        self.is_over = True
        self._changed.set()

    async def _read_errors(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self._last_errors = [*self._last_errors, line.decode(errors="replace").rstrip()][-LAST_ERRORS:]

    def check(self) -> None:
        """Raise if it can go no further."""
        if "error" in self.reported:
            raise BenchError(str(self.reported["error"]))
        if self.is_over and "result" not in self.reported:
            raise BenchError("a process of the generator ended too early:\n" + "\n".join(self._last_errors))

    async def end(self) -> None:
        """Have it end, at once if it is not about to."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S if "result" in self.reported else 0.0):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(*self._tasks)


async def measure(plan: Plan, on_progress: Callable[[Progress], None] | None = None) -> Report:
    """Do what the plan says.

    Args:
        plan: the plan of the measurement.
        on_progress: called some times a second while it runs.

    Raises:
        BenchError: it cannot be done, or did not come to its end; the message is that of the first process
            that failed.
    """
    plan.check()
    run = random.getrandbits(32)
    changed = asyncio.Event()
    members = [_Member(job, changed) for job in plan.jobs(run)]
    try:
        return await _Measurement(plan, members, changed, on_progress).run()
    finally:
        await asyncio.gather(*(member.end() for member in members))


class _Measurement:
    def __init__(
        self,
        plan: Plan,
        members: list[_Member],
        changed: asyncio.Event,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._plan = plan
        self._members = members
        self._senders = [member for member in members if member.job.is_sending]
        self._receivers = [member for member in members if not member.job.is_sending]
        self._changed = changed
        self._on_progress = on_progress
        self._begin = 0

    async def run(self) -> Report:
        plan = self._plan
        for member in self._members:
            await member.start()
        await self._wait(self._are_ready, ATTACH_S, "connected and attached")
        begin = time.monotonic_ns() + int(HEAD_START_S * 1e9)
        start = begin + int(plan.warmup_s * 1e9)
        window = Window(begin, start, start + int(plan.duration_s * 1e9))
        self._begin = begin
        for member in (*self._receivers, *self._senders):
            member.send(asdict(window))
        planned_s = (window.end - time.monotonic_ns()) / 1e9
        if self._senders:
            await self._wait(self._have_sent, planned_s + plan.drain_s + SLACK_S, "sent everything")
            await self._await_missing()
        else:
            await self._sleep(planned_s)
        for member in self._members:
            member.send({})
        await self._wait(self._have_reported, SLACK_S, "reported their results")
        return Report(
            plan, [member.reported for member in self._senders], [member.reported for member in self._receivers]
        )

    def _are_ready(self) -> bool:
        return all("ready" in member.reported for member in self._members)

    def _have_sent(self) -> bool:
        return all("done" in member.reported for member in self._senders)

    def _have_reported(self) -> bool:
        return all("result" in member.reported for member in self._members)

    async def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await self._wait_for_change(left)

    async def _wait(self, is_so: Callable[[], bool], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            left = until - time.monotonic()
            if left <= 0:
                raise BenchError(f"the processes of the generator have not {what} within {seconds:.0f} s")
            await self._wait_for_change(left)

    async def _await_missing(self) -> None:
        """Give messages that are on their way the time to arrive."""
        until = time.monotonic() + self._plan.drain_s
        arrived = self._arrived()
        quiet_until = time.monotonic() + QUIET_S
        while self._receivers and self._received() < self._expected():
            now = time.monotonic()
            if self._arrived() != arrived:
                arrived, quiet_until = self._arrived(), now + QUIET_S
            left = min(until, quiet_until) - now
            if left <= 0:
                return
            await self._wait_for_change(left)

    def _expected(self) -> int:
        expected = 0
        for member in self._senders:
            summary = member.reported["summary"]
            expected += (
                int(summary["sent"])
                - int(summary["failed"])
                - sum(int(summary["outcomes"].get(name, 0)) for name in NEVER_ARRIVE)
            )
        return expected * self._plan.copies

    def _received(self) -> int:
        return sum(int(member.reported.get("received", 0)) for member in self._receivers)

    def _arrived(self) -> int:
        return self._received() + sum(int(member.reported.get("foreign", 0)) for member in self._receivers)

    async def _wait_for_change(self, seconds: float) -> None:
        """Wait until a process reports something, and raise if one can go no further."""
        self._changed.clear()
        for member in self._members:
            member.check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        for member in self._members:
            member.check()
        if self._on_progress is not None and self._begin:
            sent = sum(member.reported.get("sent", 0) for member in self._senders)
            elapsed_s = max(0.0, (time.monotonic_ns() - self._begin) / 1e9)
            self._on_progress(Progress(elapsed_s, sent, self._arrived()))
