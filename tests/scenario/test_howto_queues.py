"""The how-tos of queues, subscriptions and STOMP do what they say, command by command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.howto_page import HOWTOS, play
from tests.support.installation import Installation

NAMES = [
    "http.md",
    *sorted(path.name for path in HOWTOS.glob("queues-*.md")),
    "request-reply.md",
    "retained-values.md",
    "stomp.md",
    "wills.md",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(installation: Installation) -> Installation:
    """An installation with the space that the how-tos expect."""
    installation.be_empty()
    installation.ok("create", "space", "shop", "--wait", "150")
    return installation


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_program_does_what_the_howto_says(name: str, shop: Installation, tmp_path: Path) -> None:
    play(name, shop, tmp_path)


def test_there_are_howtos_to_run() -> None:
    assert len(NAMES) >= 6
