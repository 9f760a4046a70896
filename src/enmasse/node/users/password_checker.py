"""The node's side of the process that checks passwords: what waits for it, its start, its replacement, its end.

Rules:
1. It is started with the first password that is not known, and asked for a few at a time, so that the others wait
   here, where spaces and hosts have equal shares (``identity/fair_queue.py``). What finds no place is put off.
2. A login is asked about again before its password goes to the process: what is known or hopeless by then does not.
3. When the process dies, another is started and asked again. A check that was under way at ``_ATTEMPTS`` deaths is
   given up: it may be what they died of.
4. Where no process can be started, the node says so in its log and checks passwords itself, one in a turn of the
   loop; every ``RETRY_S`` it tries to start one again.
5. Several nodes of a machine share one process, which somebody else starts: a node reaches it by its socket, from its
   start on, as the nodes count failed logins together by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from enmasse.identity.fair_queue import FairQueue
from enmasse.identity.password_checks import (
    Answer,
    CheckResult,
    PasswordCheck,
    encode_check,
    encode_report,
    encode_secret,
    split_answers,
)
from enmasse.identity.passwords import Checked, Postponed
from enmasse.identity.throttle import LoginReport
from enmasse.pending import Pending
from enmasse.storage.process import PairedProcess, ProcessLink, SharedProcess

if TYPE_CHECKING:
    from enmasse.net.loop import Turn

_log = logging.getLogger(__name__)

PROCESS: Final = "enmasse.node.users.password_process"

PASSWORDS_SOCKET: Final = "passwords.sock"
"""The socket of a process that several nodes share, among those of the nodes."""

MAX_WAITING = 16_384
"""Logins that wait. One host has a third of the places at most: a fleet of five thousand behind one address."""

ASKED_PER_THREAD = 8
"""Checks under way: enough that no thread waits for a turn of the node, which may be 20 ms late, and few enough that
another host waits no longer than that."""

ANSWERS_PER_TURN = 16
"""Logins that are answered in a turn without a check: each is followed by work for its connection."""

RETRY_S = 30.0

_ATTEMPTS = 3
_STARTS = 3
"""Processes that may end in a row before one has answered."""

_MOST_UNSENT = 1_000
"""Pieces that may wait for a shared process to read; beyond that it is told no reports."""

_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 2.0
_STOP_S = 1.0


class _Waiting:
    """One password, and who wants to know."""

    __slots__ = ("attempts", "check", "known", "pending")

    def __init__(self, check: PasswordCheck, known: Callable[[], Checked | None]) -> None:
        self.check = check
        self.known = known
        self.pending: Pending[Checked] = Pending()
        self.attempts = 0


class SharedPlace(NamedTuple):
    """The place of a process that several nodes share.

    Attributes:
        path: its socket.
        secret: what a node shows there.
    """

    path: Path
    secret: str


class ProcessChecker:
    """Checks passwords in a process beside the node.

    Args:
        turn: the turn of the loop; answers are passed on in one.
        module: the module that the process runs.
        most: the most logins that wait.

    Attributes:
        reported: called with what another node reports of a login.
    """

    def __init__(self, turn: Turn, *, module: str = PROCESS, most: int = MAX_WAITING) -> None:
        self._turn = turn
        self._module = module
        self._shared: SharedPlace | None = None
        self.reported: Callable[[LoginReport], None] = lambda _report: None
        self._queue: FairQueue[_Waiting] = FairQueue(most)
        self._again: deque[_Waiting] = deque()
        """The checks that a process that died has not answered; they go before the others."""
        self._asked: dict[int, _Waiting] = {}
        self._number = 0
        self._process: ProcessLink[Answer] | None = None
        self._room = 0
        """The number of checks that may be under way; none before the process is ready."""
        self._failed_starts = 0
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = 0.0
        self._is_own_work = False
        """True while the node checks passwords itself."""
        self._own_turn: asyncio.Handle | None = None
        self._is_marked = self._is_put_off = False
        self._ended: asyncio.Future[None] | None = None
        self.checked = 0
        """The number of checks that were done."""

    @property
    def waiting(self) -> int:
        """The number of logins that wait for their answers."""
        return len(self._queue) + len(self._again) + len(self._asked)

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        return None if self._process is None else self._process.pid

    def check(
        self, check: PasswordCheck, space: str, host: str, known: Callable[[], Checked | None]
    ) -> Checked | Pending[Checked]:
        """Check a password later; see ``PasswordChecker``."""
        waiting = _Waiting(check, known)
        if self._ended is not None or not self._queue.put(space, host, waiting):
            return Postponed.BUSY
        if self._is_own_work:
            self._work()
        elif self._process is None:
            if self._retry is None:
                self._start()
        elif len(self._asked) < self._room and not self._is_marked:
            # All that come in this turn are handed out together.
            self._is_marked = True
            self._turn.mark(self)
        return waiting.pending

    def share(self, place: SharedPlace) -> None:
        """Use the process that other nodes use as well, from now on."""
        self._shared = place
        self._start()

    def report(self, report: LoginReport) -> None:
        """Tell the nodes that share the process of a login; nobody where it is this node's alone."""
        process = self._process
        if self._shared is not None and process is not None and self._room and process.unsent < _MOST_UNSENT:
            process.send(encode_report(report))

    async def stop(self) -> None:
        """End the process; logins that wait get no answer."""
        self._ended = self._turn.loop.create_future()
        for handle in (self._retry, self._own_turn):
            if handle is not None:
                handle.cancel()
        if self._process is not None:
            self._process.end()
            try:
                async with asyncio.timeout(_STOP_S):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                self._process.kill()
                await self._ended

    # The process

    def _start(self) -> None:
        self._retry = None
        loop, shared = self._turn.loop, self._shared
        try:
            if shared is None:
                self._process = PairedProcess(loop, self._module, [], split_answers, self._on_answers, self._on_ended)
            else:
                self._process = SharedProcess(
                    loop, shared.path, split_answers, self._on_answers, lambda: self._on_ended(None)
                )
                self._process.send(encode_secret(shared.secret.encode()))
        except OSError as error:
            # Whoever starts the one that is shared starts it again.
            self._failed_starts = _STARTS if shared is None else self._failed_starts + 1
            self._start_later(f"it cannot be {'started' if shared is None else 'reached'}: {error}")

    def _start_later(self, problem: str) -> None:
        if self._failed_starts < _STARTS:
            _log.error("the process that checks passwords: %s; trying again", problem)
            delay_s = self._retry_s
            self._retry_s = min(max(delay_s * 2, _FIRST_RETRY_S), _LAST_RETRY_S)
        else:
            delay_s = RETRY_S if self._shared is None else _LAST_RETRY_S
            if not self._is_own_work:
                self._is_own_work = True
                _log.error(
                    "the process that checks passwords: %s; until it can be, which is tried every %.0f s, the node "
                    "checks them itself, and all else waits for each",
                    problem,
                    delay_s,
                )
                self._work()
        self._retry = self._turn.loop.call_later(delay_s, self._start)

    def _on_ended(self, status: int | None) -> None:
        self._process = None
        self._failed_starts += not self._room
        self._room = 0
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
            return
        under_way, self._asked = list(self._asked.values()), {}
        self._turn.begin()
        for waiting in under_way:
            waiting.attempts += 1
            if waiting.attempts >= _ATTEMPTS:
                _settle(waiting, Postponed.FAILED)
            else:
                self._again.append(waiting)
        self._start_later("it has gone" if status is None else f"it ended with status {status}")

    def _on_answers(self, answers: list[Answer]) -> None:
        if self._ended is not None:
            return
        self._turn.begin()
        for answer in answers:
            if isinstance(answer, LoginReport):
                self.reported(answer)
                continue
            result, number = answer
            if result is CheckResult.READY:
                self._on_ready(number)
                continue
            self._retry_s = 0.0
            self.checked += 1
            waiting = self._asked.pop(number)
            _settle(waiting, Postponed.FAILED if result is CheckResult.FAILED else result is CheckResult.RIGHT)
        self._hand_out()

    def _on_ready(self, threads: int) -> None:
        self._room = threads * ASKED_PER_THREAD
        self._failed_starts = 0
        if self._is_own_work:
            self._is_own_work = False
            _log.warning("a process beside the node checks passwords again")

    # The work

    def flush(self) -> None:
        """Hand out checks; called at the end of a turn."""
        self._is_marked = False
        self._hand_out()

    def _go_on(self) -> None:
        self._is_put_off = False
        self._hand_out()

    def _hand_out(self) -> None:
        """Give the process as much as it may have under way, and answer what needs no check."""
        out: list[bytes] = []
        answers = 0
        while len(self._asked) < self._room and answers < ANSWERS_PER_TURN:
            waiting = self._next()
            if waiting is None:
                break
            found = waiting.known()
            if found is None:
                self._number += 1
                self._asked[self._number] = waiting
                out.append(encode_check(self._number, waiting.check))
            else:
                answers += 1
                _settle(waiting, found)
        if answers == ANSWERS_PER_TURN and not self._is_put_off:
            self._is_put_off = True
            self._turn.later(self._go_on)
        if out and self._process is not None:
            self._process.send(b"".join(out))

    def _work(self) -> None:
        """Check passwords here, one in each turn of the loop."""
        if self._own_turn is None:
            self._own_turn = self._turn.loop.call_soon(self._check_one)

    def _check_one(self) -> None:
        self._own_turn = None
        waiting = self._next() if self._is_own_work else None
        if waiting is None:
            return
        self._turn.begin()
        found = waiting.known()
        if found is None:
            self.checked += 1
            found = waiting.check.is_right()
        _settle(waiting, found)
        self._work()

    def _next(self) -> _Waiting | None:
        return self._again.popleft() if self._again else self._queue.take()


def _settle(waiting: _Waiting, found: Checked) -> None:
    try:
        waiting.pending.settle(found)
    except Exception:  # noqa: BLE001  whatever it is, only this login may suffer
        _log.exception("a login failed after its password was checked")
