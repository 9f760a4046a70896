"""How a planner's process ends: in order, also when Spark is gone and cannot tell it to.

Spark ends a planner by signals. If Spark itself is killed, the planner would notice only when it next answers, and
hold its folder and its messages until then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType

__all__ = ["end_in_order"]

LOOK_S = 0.5

MOST_S = 5.0
"""For giving back what is held. What was not given back by then is given back by the node, which sees us go."""

_watched = threading.Event()
_told = False


def end_in_order() -> None:
    """Have this process leave by ``SystemExit`` when it is told to end, or when its parent is gone."""
    if _watched.is_set() or threading.current_thread() is not threading.main_thread():
        return
    _watched.set()
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_watch, args=(os.getppid(),), name="enmasse-parent", daemon=True).start()


def _end(_number: int, _frame: FrameType | None) -> None:
    global _told  # noqa: PLW0603  # of the process, as the signal is
    _told = True
    # Spark sends two. Another exit in the middle of the first could leave a lock taken that nobody gives back.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent and not _told:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(MOST_S)
    os._exit(1)
