"""Errors of the load command.

EnmasseError
└── BenchError   the load could not be made, or its end could not be reached
"""

from __future__ import annotations

from enmasse.errors import EnmasseError

__all__ = ["BenchError"]


class BenchError(EnmasseError):
    """The load could not be made as it was planned; the message says what stood in the way."""
