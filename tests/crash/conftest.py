"""A node to kill, chance with a seed that is told, and foreign clients or a reason why they are missing."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from enmasse.testing.node_process import NodeProcess

ROOT = Path(__file__).parents[2]
# What the stories have in common is found from the root of the repository.
sys.path.insert(0, str(ROOT))

TOOLS = ROOT / "tests" / "tools"
IS_CI = os.environ.get("CI") == "true"
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
    for is_there, what, how in (
        (find_spec("proton") is not None, "python-qpid-proton", "install a C compiler, then run `make clean setup`"),
        (
            shutil.which("node") is not None and (TOOLS / "node_modules/rhea").is_dir(),
            "rhea",
            "run `make test-tools`",
        ),
    ):
        if not is_there:
            (pytest.fail if IS_CI else pytest.skip)(f"{what} is missing: {how}")
