"""Plays seeds for as long as wanted.

python -m tests.simulation --seconds 600       new seeds, until the time is over or one fails
python -m tests.simulation --seed 4711         one seed again
"""

# ruff: noqa: T201  what it prints is what it is for
from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback

from tests.simulation.play import play
from tests.simulation.world import BrokenPromiseError

REPORT_S = 10.0


def main() -> int:
    """Play, and return the status to exit with."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long; 0 is until it is interrupted")
    parser.add_argument("--seed", type=int, help="play only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: show everything that happens")
    parser.add_argument("--first", type=int, help="the first seed; without it one that was never played")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    options = parser.parse_args()
    if options.seed is not None:
        play(options.seed, show=print if options.trace else None)
        print(f"seed {options.seed}: all is well")
        return 0
    first = secrets.randbits(40) if options.first is None else options.first
    began = said = time.monotonic()
    seed = first
    failed = 0
    try:
        while not options.seconds or time.monotonic() - began < options.seconds:
            try:
                play(seed)
            except BrokenPromiseError as error:
                failed += 1
                print(f"seed {seed} failed: {error}", flush=True)
                if error.__cause__ is not None:
                    traceback.print_exception(error.__cause__)
                if not options.keep_going:
                    return 1
            seed += 1
            now = time.monotonic()
            if now - said >= REPORT_S:
                said = now
                rate = (seed - first) / (now - began)
                print(f"{seed - first} seeds from {first} on, {rate:.0f}/s, {failed} failed", flush=True)
    except KeyboardInterrupt:
        pass
    print(f"{seed - first} seeds from {first} on, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
