"""The load generators: compiled when they are needed, run one at a time.

They are written in C so that they cost next to nothing beside the server that is measured; see
``load/README``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enmasse.errors import ConfigError, UnavailableError

__all__ = ["Load", "build", "run"]

SOURCES = Path(__file__).parent / "load"
BINARIES = SOURCES / "bin"

NO_COMPILER = (
    "the load generators are written in C and there is no C compiler; on Debian or Ubuntu: "
    "apt-get install gcc libc6-dev"
)

WITH_TLS = ("-DWITH_TLS", "-lssl", "-lcrypto")

LATE_S = 60.0


@dataclass(frozen=True)
class Load:
    """One generator and its arguments, without those that every run has."""

    tool: str
    arguments: tuple[str, ...]


def build(tool: str) -> Path:
    """Compile a generator, unless that is done, and return its path.

    Raises:
        ConfigError: there is no C compiler, or it refuses the source.
    """
    source, binary = SOURCES / f"{tool}.c", BINARIES / tool
    newest = max(path.stat().st_mtime for path in (source, SOURCES / "load_common.h"))
    if binary.exists() and binary.stat().st_mtime >= newest:
        return binary
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise ConfigError(NO_COMPILER)
    BINARIES.mkdir(exist_ok=True)
    command = [compiler, "-O2", "-Wall", "-o", str(binary), str(source), "-lpthread"]
    made = subprocess.run([*command, *WITH_TLS], capture_output=True, text=True, check=False)
    if made.returncode:
        # Without OpenSSL's headers it does everything but TLS.
        made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise ConfigError(f"{compiler} did not compile {source}:\n{made.stderr}")
    return binary


def run(
    load: Load, pids: Iterable[int], *, seconds: float, warmup: float = 0.0, late: float = LATE_S
) -> dict[str, Any]:
    """Run a generator once.

    Args:
        load: which, and against what.
        pids: the server's processes, whose CPU time it counts.
        seconds: how long to measure.
        warmup: how long to send before that.
        late: what it may take beyond that: to attach, to drain, to give up.

    Returns:
        What it measured, as ``load/README`` describes.

    Raises:
        UnavailableError: it could not reach the server, or did not come to an end.
    """
    command: Sequence[str] = [
        str(build(load.tool)),
        *load.arguments,
        *("--seconds", str(seconds), "--warmup", str(warmup)),
        *("--server-pid", ",".join(map(str, pids)), "--json"),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + warmup + late)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"no end after {seconds + warmup + late:.0f} s: {' '.join(command)}") from None
    if done.returncode or not done.stdout:
        raise UnavailableError(f"{done.stderr.strip() or f'exit code {done.returncode}'}: {' '.join(command)}")
    result: dict[str, Any] = json.loads(done.stdout)
    result["complaints"] = done.stderr.strip()
    return result
