"""What a fuzz target is, and how its work and memory are bounded.

Rules:
1. A target is given any bytes and returns. ``RemoteError`` is the only exception of what it calls that it
   may catch; everything else that is wrong raises.
2. A target makes everything anew for each input, so that an input that fails does so alone.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import FrameType, FunctionType, ModuleType
from typing import Any

__all__ = ["BrokenBoundError", "Mutation", "Target", "count_work", "held_bytes", "is_measured", "metered"]

Mutation = Callable[[bytes, int, Random], bytes]
"""Given (input, largest size, chance) makes another input."""

WORK_AT_ALL = 20_000
WORK_PER_BYTE = 400
"""Calls that an input may cost. A frame of a dozen bytes that attaches a link costs some thousand, as it is
read, answered and told to the application; whatever grows faster than its input is far above soon."""


class BrokenBoundError(AssertionError):
    """An input costs more time or memory than its size allows."""


@dataclass(frozen=True)
class Target:
    """Something that must withstand any bytes.

    Args:
        name: also of its corpus' folder.
        run: takes one input.
        seeds: inputs to start from where no corpus is at hand.
        max_bytes: the largest input that is tried.
        mutate: makes inputs that are closer to sense than changed bytes are.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    max_bytes: int = 4096
    mutate: Mutation | None = None


def count_work(call: Callable[[], Any]) -> int:
    """How many functions are called by ``call``, those of Python and those in C."""
    count = 0

    def hear(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        call()
    finally:
        sys.setprofile(before)
    return count


_measured = False


def is_measured() -> bool:
    """Whether this run is one of those in which to look at costs, which takes its time."""
    return _measured


def metered(target: Target, data: bytes) -> int:
    """Run one input and see that its cost is in proportion to its size; returns the cost in calls.

    Raises:
        BrokenBoundError: it is not.
    """
    global _measured  # noqa: PLW0603  targets look at it wherever they are
    _measured = True
    try:
        work = count_work(lambda: target.run(data))
    finally:
        _measured = False
    most = WORK_AT_ALL + WORK_PER_BYTE * len(data)
    if work > most:
        raise BrokenBoundError(f"{target.name}: {work} calls for {len(data)} bytes, at most {most} are due")
    return work


_SHARED = (type, ModuleType, FunctionType, FrameType)


def held_bytes(root: Any, *others: Any) -> int:
    """The memory of everything that is reached from ``root`` and not from the objects named after it."""
    seen = {id(other) for other in others}
    seen.add(id(seen))
    total = 0
    level = [root]
    while level:
        below: list[Any] = []
        for item in level:
            if id(item) in seen or isinstance(item, _SHARED):
                continue
            seen.add(id(item))
            total += sys.getsizeof(item)
            below.extend(gc.get_referents(item))
        level = below
    return total
