"""When to send, and which part of it counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Window"]


@dataclass(frozen=True, slots=True)
class Window:
    """Moments of the monotonic clock, in nanoseconds.

    Attributes:
        begin: sending begins, for warming up.
        start: what is due from here on counts.
        end: nothing is due any more.
    """

    begin: int
    start: int
    end: int
