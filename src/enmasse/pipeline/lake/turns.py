"""One change of a table after another, within this process.

A merge and a compaction that run at once would make one of them fail, and a query would start again for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakValueDictionary

__all__ = ["turn"]


class _Turn:
    """Whose turn it is at one table."""

    def __init__(self) -> None:
        self.lock = threading.RLock()


_turns: WeakValueDictionary[Path, _Turn] = WeakValueDictionary()
_guard = threading.Lock()


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """Wait until nobody else of this process changes the table, and hold it."""
    with _guard:
        of_table = _turns.setdefault(path.resolve(), _Turn())
    with of_table.lock:
        yield
