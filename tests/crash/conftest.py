"""A node to kill, and foreign clients or a reason why they are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.foreign_tools import require
from tests.support.node_process import NodeProcess


@pytest.fixture
def process(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that a test may kill."""
    with NodeProcess(tmp_path) as process:
        yield process


@pytest.fixture
def foreign_clients() -> None:
    """python-qpid-proton and rhea are there."""
    require("python-qpid-proton", "rhea")
