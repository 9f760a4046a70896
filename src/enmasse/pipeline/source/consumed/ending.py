"""How a planner's process ends: in order, also when Spark is gone and cannot tell it to.

Spark ends a planner by a signal. If Spark itself is killed, the planner would notice only when it next answers, and
hold its folder and its messages until then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

__all__ = ["end_in_order"]

LOOK_S = 0.5

_watched = threading.Event()


def end_in_order() -> None:
    """Have this process leave by ``SystemExit`` when it is told to end, or when its parent is gone."""
    if _watched.is_set() or threading.current_thread() is not threading.main_thread():
        return
    _watched.set()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    threading.Thread(target=_watch, args=(os.getppid(),), name="enmasse-parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
