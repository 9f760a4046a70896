"""Chooses the few inputs that reach whatever a corpus reaches, without atheris.

python -m fuzz.minimise TARGET FOLDER...   from the folders into the target's committed corpus
"""

# ruff: noqa: T201  what it prints is what it is for
from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import enmasse
from fuzz.registry import corpus_of, keep_corpus, target_of
from fuzz.target import Target

__all__ = ["choose", "reached"]

PRODUCT = f"{Path(enmasse.__file__).parent}/"
"""By its whole path: the repository, with all libraries in its .venv, may itself lie in a directory of this name."""

TESTING = f"{PRODUCT}testing/"

LARGEST_BYTES = 2_000
"""Larger inputs reach little that small ones do not."""

Place = tuple[str, int, int]
"""A file, and two lines of it that were run one after the other."""


def reached(target: Target, data: bytes) -> set[Place]:
    """What of the product one input runs."""
    places: set[Place] = set()

    def trace(frame: FrameType, _event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(PRODUCT) or name.startswith(TESTING):
            return None
        last = frame.f_lineno

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            if event == "line":
                places.add((name, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        target.run(data)
    finally:
        sys.settrace(before)
    return places


def choose(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Those that reach something that no smaller one reaches."""
    known: set[Place] = set()
    chosen = []
    for data in sorted(set(inputs), key=lambda data: (len(data), data)):
        if len(data) > LARGEST_BYTES:
            break
        places = reached(target, data)
        if not places <= known:
            known |= places
            chosen.append(data)
    return chosen


def main() -> int:
    """Add to what is committed; nothing is lost that reaches something."""
    name, *folders = sys.argv[1:]
    target = target_of(name)
    files = [path for folder in map(Path, folders) for path in folder.iterdir() if path.is_file()]
    inputs = [*corpus_of(name), *(path.read_bytes() for path in files)]
    chosen = choose(target, [*inputs, *target.seeds()])
    keep_corpus(name, chosen)
    print(f"{name}: {len(chosen)} of {len(set(inputs))} inputs, {sum(map(len, chosen))} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
