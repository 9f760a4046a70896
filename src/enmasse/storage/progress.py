"""Progress of long work, on standard error."""

from __future__ import annotations

import sys
import time

_FIRST_S = 1.0
_EVERY_S = 1.0
_LOOK = 256
"""Records between two readings of the clock."""


class Progress:
    """Counts records and writes a line each second, from the second second on.

    Args:
        verb: the verb of the work, in the past: ``copied``.
    """

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._total = 0
        self._next = time.monotonic() + _FIRST_S
        self.records = 0
        self.bytes = 0

    def expect(self, records: int) -> None:
        """Say how many records there are."""
        self._total = records

    def add(self, size: int) -> None:
        """One more record is done."""
        self.records += 1
        self.bytes += size
        if self.records % _LOOK == 0 or size > 1 << 16:
            self._say()

    def _say(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY_S
        part = f"{100 * self.records // self._total} %, " if self._total else ""
        sys.stderr.write(f"{self._verb} {part}{self.records:,} records, {self.bytes / (1 << 20):,.0f} MiB\n")
        sys.stderr.flush()
