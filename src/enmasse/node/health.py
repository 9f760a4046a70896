"""Whether a node lives and is ready: what it answers on ``/healthz`` and ``/readyz``.

Rules:
1. *Live* means that the event loop turns; who gets an answer at all has the proof, and how late the loop
   was is told with it. Nothing else makes a node unhealthy, as nothing else is mended by a restart.
2. *Ready* means that clients can be served as usual: what was stored is loaded, the ports are open, the
   journal process runs, and the node is not about to stop.
3. A journal that is lost, as its file was deleted under it, makes the node not ready: nothing is stored any more.
   A journal that cannot write (a full disk) is a warning and no more: receivers must still come in, for it is
   they who make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from enmasse.storage.durations import LAG_BOUNDS_S, Durations

__all__ = ["Check", "Health", "LoopWatch"]

LOOK_S = 0.25
"""How often the loop is looked at: four timers a second cost nothing, and a stall is seen soon."""

RECENT_LOOKS = 40
"""Looks whose greatest lag is told: ten seconds."""


class LoopWatch:
    """Measures how late the event loop comes to what is due.

    Args:
        loop: the loop.
        looked: called with every look.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, looked: Callable[[], object] = lambda: None) -> None:
        self.lags = Durations(LAG_BOUNDS_S)
        self._loop = loop
        self._looked = looked
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._looks = 0
        self._worst_s = 0.0
        self._worst_before_s = 0.0

    def start(self) -> None:
        """Look regularly from now on."""
        self._due = self._loop.time() + LOOK_S
        self._handle = self._loop.call_at(self._due, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        now = self._loop.time()
        lag = max(0.0, now - self._due)
        self.lags.add(lag)
        self._worst_s = max(self._worst_s, lag)
        self._looks += 1
        if self._looks >= RECENT_LOOKS:
            self._looks = 0
            self._worst_before_s, self._worst_s = self._worst_s, 0.0
        self._due = now + LOOK_S
        self._handle = self._loop.call_at(self._due, self._look)
        self._looked()

    @property
    def recent_s(self) -> float:
        """The greatest lag of the last ten to twenty seconds."""
        return max(self._worst_s, self._worst_before_s)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked at.

    Attributes:
        name: what it is.
        is_ok: whether it is as it should be.
        detail: why not, or what is to be known all the same.
        is_needed: whether the node is not ready without it.
    """

    name: str
    is_ok: bool
    detail: str = ""
    is_needed: bool = True


class Health:
    """Answers for one node.

    Args:
        name: the node's.
        watch: the loop's.
        checks: gives what makes the node ready.
    """

    def __init__(self, name: str, watch: LoopWatch, checks: Callable[[], list[Check]]) -> None:
        self._name = name
        self._watch = watch
        self._checks = checks

    @property
    def is_ready(self) -> bool:
        """Whether clients can be served as usual."""
        return all(check.is_ok for check in self._checks() if check.is_needed)

    def answer(self, target: str) -> tuple[int, str] | None:
        """What a request over HTTP gets.

        Args:
            target: of the request, such as ``/readyz?verbose``.

        Returns:
            Status and text; ``None`` if the target is another.
        """
        path, _, query = target.partition("?")
        if path == "/healthz":
            checks = [Check("event loop", is_ok=True, detail=f"up to {self._watch.recent_s * 1000:.0f} ms late")]
        elif path == "/readyz":
            checks = self._checks()
        else:
            return None
        is_ok = all(check.is_ok for check in checks if check.is_needed)
        status = 200 if is_ok else 503
        if is_ok and "verbose" not in query.split("&"):
            return status, "ok\n"
        lines = [_line(check) for check in checks]
        return status, "\n".join([*lines, f"{self._name}: {path[1:]} {'passed' if is_ok else 'failed'}", ""])

    def read(self) -> list[dict[str, Any]]:
        """The same as an entity of management."""
        checks = self._checks()
        return [
            {
                "type": "io.enmasse.health",
                "identity": self._name,
                "name": self._name,
                "live": True,
                "ready": all(check.is_ok for check in checks if check.is_needed),
                "recentLag": self._watch.recent_s,
                "problems": [f"{check.name}: {check.detail}" for check in checks if not check.is_ok],
            }
        ]


def _line(check: Check) -> str:
    sign = "+" if check.is_ok else "-" if check.is_needed else "!"
    return f"[{sign}] {check.name}" + (f": {check.detail}" if check.detail else "")
