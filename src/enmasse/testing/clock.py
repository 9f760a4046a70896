"""A clock that stands still until a test moves it."""

from __future__ import annotations

__all__ = ["ManualClock"]


class ManualClock:
    """Seconds that pass only when ``advance`` is called.

    Args:
        start_s: the first reading.
    """

    __slots__ = ("now",)

    def __init__(self, start_s: float = 0.0) -> None:
        self.now = start_s

    def advance(self, seconds: float) -> float:
        """Move the clock forward and return the new reading."""
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self.now += seconds
        return self.now
