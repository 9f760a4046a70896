"""Fixtures of pytest, which loads them by the package's entry point: an installation for a run, a space for a test.

Nothing else is imported before a test takes one of them: every run of pytest in the environment loads this.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from enmasse.testing.installation import Installation, Space


@pytest.fixture(scope="session")
def enmasse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation of EnMasse: ``enmasse up`` on free ports, for the whole run."""
    from enmasse.testing.installation import Installation  # noqa: PLC0415  # most runs of pytest need none

    with Installation(tmp_path_factory.mktemp("enmasse")) as installation:
        yield installation


@pytest.fixture
def space(enmasse: Installation) -> Iterator[Space]:
    """A space of its own for a test; addresses are declared by calls such as ``space.queue("orders")``."""
    with enmasse.space() as space:
        yield space
