"""What the host needs to know."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HostSettings"]


@dataclass(frozen=True, slots=True)
class HostSettings:
    """How the host is started.

    Attributes:
        data: the data directory.
        api: URL of the API, on this machine.
        amqp: URL of the node.
        is_api_open: whether whoever reaches the API may do everything.
        supervised: whether a supervisor holds the other end of standard input.
        quick: whether Spark starts sooner and runs slower.
        log_format: ``text`` or ``json``, for each line on standard error.
        program: that is a runner, without its arguments.
        idle_s: seconds that a runner without work lives on: Spark takes ten to start again.
    """

    data: Path
    api: str
    amqp: str
    is_api_open: bool = True
    supervised: bool = False
    quick: bool = False
    log_format: str = "text"
    program: tuple[str, ...] = (sys.executable, "-m", "enmasse.pipeline", "run")
    idle_s: float = 30.0
