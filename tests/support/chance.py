"""How often what goes by chance is tried, and the one seed that a whole run goes by.

Few by default; `make soak` tries the same stories at length. Who names a seed gets the same chances again.
"""

from __future__ import annotations

import os
import random

__all__ = ["FEW_EXAMPLES", "SEED", "examples", "is_long", "kills", "seeds"]

SEED = int(os.environ.setdefault("ENMASSE_TEST_SEED", str(random.SystemRandom().randrange(1 << 32))))
"""Of this run: in the environment, so that its workers and whatever they start have the same."""

FEW_EXAMPLES = 25
"""Which Hypothesis tries in `make test`."""


def kills(few: int) -> int:
    """How often a story kills, or how many of its long examples it tries: ``ENMASSE_TEST_KILLS``, or a few."""
    return int(os.environ.get("ENMASSE_TEST_KILLS", few))


def seeds(few: int) -> list[int]:
    """The worlds to play, ``ENMASSE_TEST_SEEDS`` or a few: half are the same in every run, half are new."""
    count = int(os.environ.get("ENMASSE_TEST_SEEDS", few))
    return [*range(count // 2), *range(SEED, SEED + count - count // 2)]


def is_long() -> bool:
    """Whether this run is one at length, in which what can be walked whole is walked further."""
    return "ENMASSE_TEST_SEEDS" in os.environ


def examples(few: int) -> int:
    """How many examples Hypothesis tries where its profile's number does not fit: so many, or as many times more."""
    from hypothesis import settings  # programs that tests start need it not, and its time

    assert settings.default is not None
    return few * settings.default.max_examples // FEW_EXAMPLES
