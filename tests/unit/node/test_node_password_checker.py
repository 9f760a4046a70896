"""The process that checks passwords: started on need, replaced when it dies, each check answered once."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self

import pytest
import uvloop

from enmasse.identity.password_checks import ScramCheck, encode_secret, scram_check
from enmasse.identity.passwords import Checked, Postponed
from enmasse.identity.throttle import USER_FAILURES, LoginReport, LoginStep
from enmasse.identity.users import make_keys
from enmasse.net.loop import Turn
from enmasse.node.users import password_checker
from enmasse.node.users.gate import Gate
from enmasse.node.users.password_checker import ASKED_PER_THREAD, PROCESS, ProcessChecker, SharedPlace
from enmasse.node.users.password_process import MAX_THREADS, thread_count
from enmasse.pending import Pending
from tests.support.polling import until_async

pytestmark = pytest.mark.slow

FEW = 4_096
KEYS = make_keys("SCRAM-SHA-256", "secret", b"salt", FEW)
SLOW = 1_000_000
"""Iterations that last a moment on any machine."""


def check_of(password: str, iterations: int = FEW) -> ScramCheck:
    return scram_check("sha256", password, KEYS.salt, iterations, KEYS.stored)


class Desk:
    """A checker, and the answers in their order, each with the name of what was asked."""

    def __init__(self, **options: Any) -> None:
        self.checker = ProcessChecker(Turn(asyncio.get_running_loop()), **options)
        self.answers: list[tuple[str, Checked]] = []

    def ask(
        self,
        name: str,
        check: ScramCheck,
        *,
        host: str = "host",
        space: str = "ns/shop",
        known: Callable[[], Checked | None] = lambda: None,
    ) -> None:
        found = self.checker.check(check, space, host, known)
        if isinstance(found, Pending):
            found.then(lambda answer: self.answers.append((name, answer)))
        else:
            self.answers.append((name, found))

    async def all_answered(self) -> None:
        await until_async(lambda: not self.checker.waiting, lambda: f"{self.checker.waiting} wait")

    async def answered(self, count: int) -> None:
        """Wait until so many were answered, and others are under way."""
        await until_async(lambda: len(self.answers) >= count and self.checker._asked, "answers")

    @property
    def pid(self) -> int:
        assert self.checker.pid is not None
        return self.checker.pid


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def main() -> None:
            await test(*args, **kwargs)

        uvloop.run(main())

    return run


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@on_uvloop
async def test_it_starts_with_the_first_check_and_ends_with_the_node() -> None:
    desk = Desk()
    assert desk.checker.pid is None
    desk.ask("right", check_of("secret"))
    desk.ask("wrong", check_of("guess"))
    pid = desk.pid
    await desk.all_answered()
    assert dict(desk.answers) == {"right": True, "wrong": False}
    assert desk.pid == pid
    await desk.checker.stop()
    assert is_gone(pid)
    desk.ask("late", check_of("secret"))
    assert desk.answers[-1] == ("late", Postponed.BUSY)


@on_uvloop
async def test_it_ends_at_once_whatever_it_is_busy_with() -> None:
    desk = Desk()
    ends: list[int | None] = []
    on_ended = desk.checker._on_ended

    def ended(status: int | None) -> None:
        ends.append(status)
        on_ended(status)

    desk.checker._on_ended = ended  # type: ignore[method-assign]
    desk.ask("long", check_of("secret", 1_000 * SLOW))
    await until_async(lambda: desk.checker._asked, "the check is under way")
    pid = desk.pid
    await desk.checker.stop()
    assert is_gone(pid)
    assert ends == [0], "it was not killed"


@on_uvloop
async def test_every_check_has_its_own_answer() -> None:
    desk = Desk()
    for number in range(200):
        desk.ask(str(number), check_of("secret" if number % 3 else "guess"), host=f"host {number % 7}")
    await desk.all_answered()
    assert sorted(desk.answers) == sorted((str(number), bool(number % 3)) for number in range(200))
    assert desk.checker.checked == 200
    await desk.checker.stop()


@on_uvloop
async def test_what_was_under_way_is_asked_again_when_it_dies(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    killed: set[int] = set()
    for number in range(150):
        desk.ask(str(number), check_of("secret" if number % 2 else "guess"))
    for answers in (10, 80):
        await desk.answered(answers)
        killed.add(desk.pid)
        os.kill(desk.pid, signal.SIGKILL)
        await until_async(lambda: desk.checker.pid not in {None, *killed}, "another process")
    await desk.all_answered()
    assert sorted(desk.answers) == sorted((str(number), number % 2 == 1) for number in range(150))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    await desk.checker.stop()


@on_uvloop
async def test_a_check_that_it_dies_of_three_times_is_given_up() -> None:
    desk = Desk()
    desk.ask("poison", check_of("secret", 1_000 * SLOW))
    for _ in range(3):
        await until_async(lambda: desk.checker._asked, "the check is under way")
        os.kill(desk.pid, signal.SIGKILL)
        await until_async(lambda: not desk.checker._asked, "it is gone")
    await desk.all_answered()
    assert desk.answers == [("poison", Postponed.FAILED)]
    desk.ask("right", check_of("secret"))
    await desk.all_answered()
    assert desk.answers[-1] == ("right", True)
    await desk.checker.stop()


@on_uvloop
async def test_a_flood_from_one_host_leaves_others_their_share() -> None:
    desk = Desk()
    for number in range(300):
        desk.ask(f"flood {number}", check_of("guess"), host="flood")
    desk.ask("neighbour", check_of("secret"), host="neighbour")
    desk.ask("elsewhere", check_of("secret"), space="ns/factory")
    await desk.all_answered()
    order = [name for name, _ in desk.answers]
    most_before = 2 * MAX_THREADS * ASKED_PER_THREAD
    assert order.index("elsewhere") < most_before
    assert order.index("neighbour") < most_before
    await desk.checker.stop()


@on_uvloop
async def test_too_many_are_put_off_and_others_find_a_place() -> None:
    desk = Desk(most=90)
    for number in range(40):
        desk.ask(f"flood {number}", check_of("guess"), host="flood")
    desk.ask("elsewhere", check_of("secret"), space="ns/factory")
    assert [answer for _, answer in desk.answers] == [Postponed.BUSY] * 10
    await desk.all_answered()
    assert ("elsewhere", True) in desk.answers
    await desk.checker.stop()


@on_uvloop
async def test_what_is_known_by_then_is_not_checked() -> None:
    desk = Desk()
    desk.ask("first", check_of("secret"))
    for number in range(100):
        desk.ask(str(number), check_of("secret"), known=lambda: Postponed.GONE if desk.answers else True)
    await desk.all_answered()
    assert len(desk.answers) == 101
    assert desk.checker.checked == 1
    await desk.checker.stop()


@on_uvloop
async def test_a_failing_login_harms_no_other() -> None:
    desk = Desk()

    def fail(_answer: Checked) -> None:
        raise ValueError("a defect")

    found = desk.checker.check(check_of("secret"), "ns/shop", "host", lambda: None)
    assert isinstance(found, Pending)
    found.then(fail)
    desk.ask("next", check_of("secret"))
    await desk.all_answered()
    assert desk.answers == [("next", True)]
    await desk.checker.stop()


@pytest.mark.parametrize("problem", ["no program", "it ends at once"])
@on_uvloop
async def test_without_a_process_the_node_checks_and_says_so(
    problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(password_checker, "RETRY_S", 0.2)
    if problem == "no program":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    desk = Desk(module=PROCESS if problem == "no program" else "enmasse.version")
    desk.ask("right", check_of("secret"))
    desk.ask("wrong", check_of("guess"))
    desk.ask("known", check_of("guess"), known=lambda: True)
    await desk.all_answered()
    assert desk.answers == [("right", True), ("wrong", False), ("known", True)]
    assert any("the node checks them itself" in record.message for record in caplog.records)
    monkeypatch.undo()
    desk.checker._module = PROCESS
    await until_async(lambda: desk.checker._room, "a process")
    desk.ask("again", check_of("secret"))
    await desk.all_answered()
    assert desk.answers[-1] == ("again", True)
    assert caplog.records[-1].levelno == logging.WARNING
    await desk.checker.stop()


@on_uvloop
async def test_keys_that_cannot_be_used_are_no_end() -> None:
    desk = Desk()
    desk.ask("no such hash", check_of("secret")._replace(name="none"))
    desk.ask("no iterations", check_of("secret")._replace(iterations=0))
    await desk.all_answered()
    assert [answer for _, answer in desk.answers] == [Postponed.FAILED] * 2
    await desk.checker.stop()


@on_uvloop
async def test_it_leaves_no_core_dump_and_ignores_what_is_for_the_node() -> None:
    desk = Desk()
    desk.ask("right", check_of("secret"))
    await desk.all_answered()
    (core,) = [line for line in Path(f"/proc/{desk.pid}/limits").read_text().splitlines() if "core file" in line]
    assert core.split()[4:6] == ["0", "0"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(desk.pid, number)
    pid = desk.pid
    desk.ask("after", check_of("secret"))
    await desk.all_answered()
    assert desk.pid == pid
    await desk.checker.stop()


def test_a_processor_is_left_to_the_node() -> None:
    assert thread_count() == min(MAX_THREADS, max(1, len(os.sched_getaffinity(0)) - 1))


class SharedDesks:
    """A process that several nodes share, and their checkers."""

    def __init__(self, folder: Path, count: int) -> None:
        self.place = SharedPlace(folder / "passwords.sock", "the secret of this start")
        self.start()
        self.desks = [Desk() for _ in range(count)]
        self.reports: list[list[LoginReport]] = [[] for _ in range(count)]
        for desk, reports in zip(self.desks, self.reports, strict=True):
            desk.checker.reported = reports.append
            desk.checker.share(self.place)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", PROCESS, "--listen", str(self.place.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(self.place.secret.encode() + b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b'{"event": "listening"}\n'

    async def are_ready(self) -> None:
        await until_async(lambda: all(desk.checker._room for desk in self.desks), "rooms")

    async def __aenter__(self) -> Self:
        await self.are_ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        for desk in self.desks:
            await desk.checker.stop()
        with self.process:
            self.process.kill()


def report_of(number: int) -> LoginReport:
    return LoginReport(LoginStep.FAILED, "203.0.113.7", "ns/shop", f"user-{number}")


@on_uvloop
async def test_nodes_share_a_process_and_count_logins_together(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 3) as shared:
        for desk in shared.desks:
            desk.ask("right", check_of("secret"))
            desk.ask("wrong", check_of("guess"))
            await desk.all_answered()
            assert dict(desk.answers) == {"right": True, "wrong": False}
            assert desk.pid == shared.process.pid
        shared.desks[0].checker.report(report_of(1))
        shared.desks[2].checker.report(report_of(2))
        await until_async(lambda: len(shared.reports[1]) == 2, "reports")
        await until_async(lambda: all(map(len, shared.reports)), "reports")
        assert shared.reports[0] == [report_of(2)]
        assert sorted(shared.reports[1]) == [report_of(1), report_of(2)]
        assert shared.reports[2] == [report_of(1)]
        assert stat.S_IMODE(shared.place.path.stat().st_mode) == 0o600


@on_uvloop
async def test_a_password_that_was_right_at_one_node_is_not_checked_for_another(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 2) as shared:
        first, second = shared.desks
        keys = make_keys("SCRAM-SHA-256", "secret", b"salt", SLOW)
        check = scram_check("sha256", "secret", keys.salt, SLOW, keys.stored)
        first.ask("slow", check)
        await first.all_answered()
        # What is slow for its own host is answered before it.
        second.ask("wrong", check._replace(key=b"guess"), host="a")
        second.ask("known", check, host="b")
        await second.all_answered()
        assert dict(second.answers) == {"wrong": False, "known": True}
        if thread_count() > 1:
            assert [name for name, _ in second.answers] == ["known", "wrong"]


@on_uvloop
async def test_a_stranger_at_the_shared_process_is_told_nothing(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 1) as shared:
        stranger = Desk()
        stranger.checker.share(shared.place._replace(secret="guess"))
        stranger.ask("right", check_of("secret"))
        await until_async(lambda: stranger.checker._failed_starts >= 2, "two refusals")
        stranger.checker.report(report_of(1))
        assert stranger.answers == []
        shared.desks[0].ask("right", check_of("secret"))
        await shared.desks[0].all_answered()
        assert shared.reports == [[]]
        await stranger.checker.stop()


@on_uvloop
async def test_a_node_that_reads_nothing_holds_up_no_other(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 2) as shared:
        with socket.socket(socket.AF_UNIX) as stuck:
            stuck.connect(str(shared.place.path))
            stuck.sendall(encode_secret(shared.place.secret.encode()))
            assert stuck.recv(1) != b""
            first, second = shared.desks
            while len(shared.reports[1]) < 10_000:
                for number in range(500):
                    first.checker.report(report_of(number))
                await asyncio.sleep(0)
            second.ask("right", check_of("secret"))
            await second.all_answered()
            assert second.answers == [("right", True)]


@on_uvloop
async def test_nodes_find_the_shared_process_again_when_it_was_killed(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 2) as shared:
        for number, desk in enumerate(shared.desks):
            desk.ask(f"under way {number}", check_of("secret", SLOW))
        with shared.process:
            shared.process.kill()
        await until_async(lambda: not any(desk.checker._room for desk in shared.desks), "the loss")
        shared.start()
        for desk in shared.desks:
            desk.ask("later", check_of("secret"))
            await desk.all_answered()
            assert ("later", True) in desk.answers
        await shared.are_ready()


@on_uvloop
async def test_the_shared_process_ends_with_whoever_started_it(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 1) as shared:
        assert shared.process.stdin is not None
        shared.process.stdin.close()
        assert shared.process.wait(20) == 0


@on_uvloop
async def test_an_attacker_has_as_many_guesses_at_several_nodes_as_at_one(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 3) as shared:
        now = 1000.0
        gates = [Gate(None, lambda: now, checker=desk.checker) for desk in shared.desks]
        heard = [0] * len(gates)
        for at, (gate, desk) in enumerate(zip(gates, shared.desks, strict=True)):

            def reported(report: LoginReport, at: int = at, gate: Gate = gate) -> None:
                gate.reported(report)
                heard[at] += 1

            desk.checker.reported, gate.report = reported, desk.checker.report
        guesser = "203.0.113.7", "ns/shop", "jo"
        guesses = 0
        for number in range(60):
            gate = gates[number % len(gates)]
            if not gate.must_wait(*guesser):
                guesses += 1
                gate.begun(*guesser, number)()
                gate.failed(*guesser)
                # Each guess has three steps, of which the two other nodes hear.
                steps = guesses * 3 * 2
                await until_async(lambda: sum(heard) == steps, "reports")  # noqa: B023  it is over before the next
        assert guesses == USER_FAILURES


@on_uvloop
async def test_an_attacker_gains_no_guess_at_a_node_that_was_started_again(tmp_path: Path) -> None:
    async with SharedDesks(tmp_path, 1) as shared:
        failed = [LoginReport(LoginStep.FAILED, "203.0.113.7", "ns/shop", "jo")] * USER_FAILURES
        for report in (*failed, LoginReport(LoginStep.STARTED, "203.0.113.7", "ns/shop", "bo")):
            shared.desks[0].checker.report(report)
        for number in range(500):
            shared.desks[0].checker.report(report_of(number)._replace(user="x" * 250, network=f"net-{number}"))
        for report in failed:
            shared.desks[0].checker.report(report)
        shared.desks[0].ask("behind these", check_of("secret"))
        await shared.desks[0].all_answered()
        again = Desk()
        gate = Gate(None, lambda: 1000.0, checker=again.checker)
        told: list[LoginReport] = []

        def reported(report: LoginReport) -> None:
            gate.reported(report)
            told.append(report)

        again.checker.reported = reported
        again.checker.share(shared.place)
        shared.desks.append(again)
        await until_async(lambda: told[-USER_FAILURES:] == failed, "reports")
        assert gate.must_wait("203.0.113.7", "ns/shop", "jo")
        assert not gate.must_wait("203.0.113.7", "ns/shop", "bo")
        assert len(told) < 500
