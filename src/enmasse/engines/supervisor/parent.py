"""A child's side of dying with its supervisor.

End of standard input tells a child that reads it. The kernel's signal also
reaches one that is busy or has not come so far.
"""

from __future__ import annotations

import ctypes
import signal
import sys

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent() -> None:
    """Have SIGTERM sent to this process when the thread that started it ends; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
