"""Fuzzes one target with atheris, until libFuzzer's own arguments say that it is enough.

python -m fuzz.one TARGET [CORPUS...] [-runs=N] [-max_total_time=SECONDS] ...

Every so many inputs are also measured: their calls, and what they leave behind in memory. An input that
fails is kept where ``-artifact_prefix`` says.
"""

# ruff: noqa: T201  what it prints is what it is for
from __future__ import annotations

import gc
import sys
from pathlib import Path
from random import Random

import atheris

INSTRUMENTED = ["enmasse.wire", "enmasse.node", "enmasse.messaging", "enmasse.identity"]

with atheris.instrument_imports(include=INSTRUMENTED):
    from fuzz.registry import target_of
    from fuzz.target import BrokenBoundError, metered

MEASURE_EVERY = 512
"""Inputs between two that are measured, which takes several times as long."""

WARM_RUNS = 20_000
"""Inputs after which a process has what it needs, so that whatever it grows by is a leak."""

GROWTH_BYTES = 64 << 20
"""What it may grow by all the same: libFuzzer keeps its corpus, and what it knows of it, in memory."""


def resident_bytes() -> int:
    """Memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def main() -> None:
    """Fuzz."""
    with atheris.instrument_imports(include=INSTRUMENTED):
        target = target_of(sys.argv.pop(1))
    runs = 0
    warm = 0

    def test_one_input(data: bytes) -> None:
        nonlocal runs, warm
        runs += 1
        if runs % MEASURE_EVERY:
            target.run(data)
            return
        metered(target, data)
        if runs == WARM_RUNS // MEASURE_EVERY * MEASURE_EVERY:
            gc.collect()
            warm = resident_bytes()
        elif warm and runs % (MEASURE_EVERY * 100) == 0:
            gc.collect()
            grown = resident_bytes() - warm
            if grown > GROWTH_BYTES:
                raise BrokenBoundError(f"{grown} bytes of memory more than {runs - WARM_RUNS} inputs before")
            print(f"memory: {grown / (1 << 20):+.1f} MiB since input {WARM_RUNS}, now {runs}", flush=True)

    def mutate(data: bytes, max_bytes: int, seed: int) -> bytes:
        chance = Random(seed)
        if target.mutate is None or chance.random() < 0.3:
            return bytes(atheris.Mutate(data, max_bytes))
        return target.mutate(data, max_bytes, chance)

    arguments = [sys.argv[0], f"-max_len={target.max_bytes}", *sys.argv[1:]]
    atheris.Setup(arguments, test_one_input, custom_mutator=mutate, internal_libfuzzer=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
