"""Bounds how long and how often something is tried while a node is away."""

from __future__ import annotations

import time
from collections.abc import Callable

from enmasse.pipeline.errors import StreamUnavailableError

FIRST_PAUSE_S = 0.05
"""A supervised node is back within a second or two, so begin quickly."""
LAST_PAUSE_S = 2.0
"""Cheap, and still prompt when the node returns."""


class Backoff:
    """Growing pauses between attempts, until nothing has succeeded for too long.

    Args:
        timeout_s: the seconds that failures may go on.
        clock: seconds that only grow.
        sleep: waits for so many seconds.
    """

    def __init__(
        self,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._sleep = sleep
        self._failing_since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def succeeded(self) -> None:
        """Begin anew with the next failure."""
        self._failing_since = None
        self._pause_s = FIRST_PAUSE_S

    def wait(self, error: Exception) -> None:
        """Pause before the next attempt.

        Args:
            error: why the last attempt failed.

        Raises:
            StreamUnavailableError: attempts have failed for ``timeout_s``.
        """
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        failing_s = now - self._failing_since
        if failing_s >= self._timeout_s:
            raise StreamUnavailableError(f"gave up after {failing_s:.0f} s: {error}") from error
        self._sleep(min(self._pause_s, self._timeout_s - failing_s))
        self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
