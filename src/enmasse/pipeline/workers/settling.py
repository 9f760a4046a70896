"""Keeps Spark's Python workers from walking through everything they ever imported, after each task.

A worker of Spark's collects garbage after each of its tasks. With pandas, Arrow and what is ours loaded,
one such walk takes 40 to 70 ms, which is more than a small micro-batch does otherwise, and the next task
of the worker waits for it.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

from enmasse.pipeline.workers.launcher import DAEMON

_DAEMONS: Final = frozenset({DAEMON, "pyspark.daemon"})
_TASKS: Final = 4
"""The first tasks, which load the modules that are loaded late."""

_settled = 0


def settle() -> None:
    """Leave what is loaded by now out of later collections; does something in a worker's first tasks only."""
    global _settled  # noqa: PLW0603  # of the process, as its garbage collector is
    if _settled < _TASKS and _is_worker():
        _settled += 1
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name in _DAEMONS
