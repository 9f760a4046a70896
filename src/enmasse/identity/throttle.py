"""Whoever guesses passwords is slowed down, and costs nothing while slowed down."""

from __future__ import annotations

__all__ = ["Throttle"]


class Throttle:
    """Counts failures by key; a key with too many is to wait.

    Args:
        most: so many failures may come at once.
        forget_s: one of them is forgotten after this many seconds.
        keys: how many keys are remembered; beyond that, those that failed longest ago are forgotten.
    """

    __slots__ = ("_failures", "_forget_s", "_keys", "_most")

    def __init__(self, most: int, forget_s: float, keys: int = 4_096) -> None:
        self._most = most
        self._forget_s = forget_s
        self._keys = keys
        self._failures: dict[str, tuple[float, float]] = {}
        """Key to the failures that counted at a moment, and that moment."""

    def must_wait(self, key: str, now: float) -> bool:
        """Whether a key has failed too often of late."""
        return self._count(key, now) > self._most - 1

    def failed(self, key: str, now: float) -> None:
        """One more failure."""
        count = self._count(key, now) + 1
        self._failures.pop(key, None)
        if len(self._failures) >= self._keys:
            del self._failures[next(iter(self._failures))]
        self._failures[key] = (count, now)

    def _count(self, key: str, now: float) -> float:
        count, then = self._failures.get(key, (0.0, now))
        return max(0.0, count - (now - then) / self._forget_s)
