"""How the C library keeps the memory that Python gives back."""

from __future__ import annotations

import ctypes

__all__ = ["keep_heap"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 32 << 20
"""A turn's worth of large messages. By default a quarter of what it costs to pass messages of 64 KiB goes into
handing memory back to the kernel and having it zeroed again."""
_MAPPED_FROM_BYTES = 16 << 20


def keep_heap() -> None:
    """Have freed memory stay with the process up to a bound; without effect where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
