"""Processes of the machine, by their numbers."""

from __future__ import annotations

from pathlib import Path

__all__ = ["is_alive"]


def is_alive(pid: int) -> bool:
    """True unless a process has ended, be it that nobody has asked yet how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
