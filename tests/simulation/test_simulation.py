"""Nothing is lost: seeded worlds in which clients, connections, disks, journals and nodes fail.

ENMASSE_TEST_SEED=4711 python -m pytest tests/simulation     one seed again
make soak SECONDS=600                                        new seeds for as long as wanted
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.play import play

SEEDS = 2_000
"""As many as a minute allows."""

FEW = 40
CHUNK = 100


def test_nothing_is_lost_in_a_few_worlds() -> None:
    chosen = os.environ.get("ENMASSE_TEST_SEED")
    for seed in range(FEW) if chosen is None else [int(chosen)]:
        play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, SEEDS, CHUNK))
def test_nothing_is_lost_in_many_worlds(first: int) -> None:
    for seed in range(first, min(first + CHUNK, SEEDS)):
        play(seed)
