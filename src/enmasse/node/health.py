"""Liveness and readiness of a node: the answers of ``/healthz`` and ``/readyz``.

Rules:
1. *Live* means that the event loop turns. Any answer is proof of that; it says how late the loop was. Nothing else
   makes a node unhealthy, as a restart mends nothing else.
2. *Ready* means that clients can be served as usual: the journal is loaded, the ports are open, the journal process
   runs, and the node is not about to stop.
3. A journal that is lost, as its file was deleted, makes the node not ready: nothing is stored any more. A journal
   that cannot write (a full disk) is only a warning: receivers must still connect, as they make room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from enmasse.storage.durations import LAG_BOUNDS_S, Durations

CHECK_S = 0.25
"""Seconds between two checks of the loop: four timers a second cost nothing, and show a stall soon."""

Answer = Callable[[str], tuple[int, str] | None]
"""Returns status and text for the target of a request; None if it has nothing to do with health."""

RECENT_CHECKS = 40
"""The checks over which the greatest lag is reported: ten seconds."""


class LoopWatch:
    """Measures how late the event loop calls timers.

    Args:
        loop: the loop.
        checked: called with every check.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, checked: Callable[[], object] = lambda: None) -> None:
        self.lags = Durations(LAG_BOUNDS_S)
        self._loop = loop
        self._checked = checked
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._count = 0
        self._worst_s = 0.0
        self._worst_before_s = 0.0

    def start(self) -> None:
        """Start to check regularly."""
        self._due = self._loop.time() + CHECK_S
        self._handle = self._loop.call_at(self._due, self._check)

    def stop(self) -> None:
        """Stop checking."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _check(self) -> None:
        now = self._loop.time()
        lag = max(0.0, now - self._due)
        self.lags.add(lag)
        self._worst_s = max(self._worst_s, lag)
        self._count += 1
        if self._count >= RECENT_CHECKS:
            self._count = 0
            self._worst_before_s, self._worst_s = self._worst_s, 0.0
        self._due = now + CHECK_S
        self._handle = self._loop.call_at(self._due, self._check)
        self._checked()

    @property
    def recent_s(self) -> float:
        """The greatest lag of the last ten to twenty seconds."""
        return max(self._worst_s, self._worst_before_s)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check.

    Attributes:
        name: the name of what is checked.
        is_ok: true if it is as it should be.
        detail: the reason if it is not, or a remark.
        is_needed: true if the node is not ready without it.
    """

    name: str
    is_ok: bool
    detail: str = ""
    is_needed: bool = True


class Health:
    """Answers questions about the health of a node.

    Args:
        name: the node's name.
        watch: measures the loop.
        checks: returns the checks that decide on readiness.
    """

    def __init__(self, name: str, watch: LoopWatch, checks: Callable[[], list[Check]]) -> None:
        self._name = name
        self._watch = watch
        self._checks = checks

    @property
    def is_ready(self) -> bool:
        """True if clients can be served as usual."""
        return all(check.is_ok for check in self._checks() if check.is_needed)

    def answer(self, target: str) -> tuple[int, str] | None:
        """Answer an HTTP request.

        Args:
            target: the target of the request, such as ``/readyz?verbose``.

        Returns:
            Status and text, or None for any other target.
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
        """Return the same as an entity of management."""
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
