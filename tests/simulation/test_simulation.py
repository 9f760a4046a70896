"""Nothing is lost: seeded worlds in which clients, connections, disks, journals and nodes fail.

python -m tests.simulation --seed 4711     one seed again
make soak SECONDS=600                      new seeds for as long as wanted
"""

from __future__ import annotations

import pytest

from tests.simulation.play import play
from tests.support.chance import seeds

pytestmark = pytest.mark.chance

FEW = 20
CHUNK = 20
SEEDS = seeds(100)


def test_nothing_is_lost_in_a_few_worlds() -> None:
    for seed in SEEDS[-FEW:]:
        play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(SEEDS) - FEW, CHUNK))
def test_nothing_is_lost_in_many_worlds(first: int) -> None:
    for seed in SEEDS[:-FEW][first : first + CHUNK]:
        play(seed)
