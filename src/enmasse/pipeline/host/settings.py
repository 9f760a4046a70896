"""Settings of the host."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class HostSettings:
    """Settings with which the host is started.

    Attributes:
        data: the data directory.
        folder: the folder of the pipelines: their tables, checkpoints and logs.
        api: URL of the API, on this machine.
        amqp: URL of the node.
        domain: below which spaces have their hosts there.
        is_api_open: whether everyone who reaches the API may run Python, because it asks for no proof of identity.
        supervised: whether a supervisor holds the other end of standard input.
        quick: whether Spark starts sooner and runs slower.
        log_format: ``text`` or ``json``, for each line on standard error.
        program: the program that is a runner, without its arguments.
        idle_s: seconds that a runner without work lives on: Spark takes ten to start again.
    """

    data: Path
    api: str
    amqp: str
    folder: Path
    domain: str = "enmasse.local"
    is_api_open: bool = True
    supervised: bool = False
    quick: bool = False
    log_format: str = "text"
    program: tuple[str, ...] = (sys.executable, "-m", "enmasse.pipeline", "run")
    idle_s: float = 30.0
