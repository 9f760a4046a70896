"""One node for all stories that leave it alive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.outcomes.outcome_site import Ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A node with an open space and one for users."""
    ground = Ground(tmp_path_factory.mktemp("outcomes"))
    with ground.node:
        asyncio.run(ground.prepare())
        yield ground
