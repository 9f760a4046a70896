"""A node to kill, chance with a seed that is told, and foreign clients or a reason why they are missing."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enmasse.testing.node_process import NodeProcess
from tests.foreign_tools import require

ROOT = Path(__file__).parents[2]
# What the stories have in common is found from the root of the repository.
sys.path.insert(0, str(ROOT))

SEED = int(os.environ.get("ENMASSE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


@pytest.fixture
def story_chance(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> random.Random:
    """What a story does by chance: another one for each test, the same for the same seed."""
    with capsys.disabled():
        print(f"[ENMASSE_TEST_SEED={SEED}]", end=" ", flush=True)  # noqa: T201
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that a test may kill."""
    with NodeProcess(tmp_path) as process:
        yield process


@pytest.fixture
def foreign_clients() -> None:
    """python-qpid-proton and rhea are there."""
    require("python-qpid-proton", "rhea")
