"""Fuzzes every target for its share of the time, and says how many inputs were tried.

python -m fuzz --seconds 600                every target
python -m fuzz --seconds 60 types server    some of them
python -m fuzz --replay FILE server         one input again, without atheris

New inputs gather below ``build/fuzz``, and inputs that fail in ``build/fuzz/failed``. ``fuzz.minimise``
takes what is worth keeping into ``fuzz/corpus``.
"""

# ruff: noqa: T201  what it prints is what it is for
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from fuzz.registry import TARGETS, corpus_of, target_of
from fuzz.target import metered

BUILD = Path("build/fuzz")
FAILED = BUILD / "failed"
SLOWEST_S = 20
"""An input that takes longer hangs; none takes a hundredth of that."""

LARGEST_MB = 1024


def fuzz(name: str, seconds: int) -> int:
    """Fuzz one target in a process of its own; how many inputs were tried.

    Raises:
        subprocess.CalledProcessError: one of them failed.
    """
    found = BUILD / name
    found.mkdir(parents=True, exist_ok=True)
    for data in corpus_of(name):
        (found / sha256(data).hexdigest()[:16]).write_bytes(data)
    FAILED.mkdir(parents=True, exist_ok=True)
    log = BUILD / f"{name}.log"
    with log.open("wb") as out:
        done = subprocess.run(
            [
                sys.executable, "-m", "fuzz.one", name, str(found),
                f"-max_total_time={seconds}", f"-timeout={SLOWEST_S}", f"-rss_limit_mb={LARGEST_MB}",
                f"-artifact_prefix={FAILED}/{name}-",
            ],
            stdout=out, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    said = log.read_text(errors="replace")
    if done.returncode:
        print(said[-4000:], file=sys.stderr)
        done.check_returncode()
    runs = re.findall(r"Done (\d+) runs", said)
    return int(runs[-1]) if runs else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and return the status to exit with."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input again, and nothing else")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    options = parser.parse_args(arguments)
    names = options.targets or list(TARGETS)
    unknown = sorted({*names} - {*TARGETS})
    if unknown:
        parser.error(f"no target is named {unknown[0]}; there are {', '.join(TARGETS)}")
    if options.replay is not None:
        for name in names:
            print(f"{name}: {metered(target_of(name), options.replay.read_bytes())} calls")
        return 0
    if find_spec("atheris") is None:
        parser.error("atheris is missing: pip install -e '.[fuzz]' (it has wheels for Linux and Python 3.11 to 3.13)")
    total = 0
    for name in names:
        try:
            runs = fuzz(name, max(1, options.seconds // len(names)))
        except subprocess.CalledProcessError:
            print(f"{name}: an input failed; it is in {FAILED}. Run it again with --replay")
            return 1
        total += runs
        print(f"{name}: {runs} inputs", flush=True)
    print(f"{total} inputs, none failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
