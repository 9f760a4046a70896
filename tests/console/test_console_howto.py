"""The how-to of the console: its commands do what it says, and its pictures can be taken anew."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.console.pictures import IMAGES, PICTURES, declare, take, traffic
from tests.scenario.howto_page import HOWTOS, play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.support.installation import Installation

PAGE = "use-the-console.md"
MAX_BYTES = 150_000
"""Of a picture: whoever reads the page loads all of them."""

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("console")]


@pytest.fixture
def emptied(installation: Installation) -> Iterator[Installation]:
    """The installation, without the spaces that a test of this file has made."""
    yield installation
    installation.ok("delete", "iotproject", "plant", "--ignore-not-found")
    installation.ok("wait", "iotproject", "plant", "--for", "delete")
    for space in ("bakery", "till", "demo"):
        installation.ok("delete", "space", space, "--ignore-not-found")
        installation.ok("wait", "space", space, "--for", "delete")


def test_every_command_does_what_the_howto_says(emptied: Installation, tmp_path: Path) -> None:
    play(PAGE, emptied, tmp_path)
    emptied.ok("account", "remove", "ann")


def test_the_page_shows_pictures_that_are_there_and_small() -> None:
    shown = re.findall(r"!\[[^\]]+\]\(images/([\w-]+)\.png\)", (HOWTOS / PAGE).read_text())
    assert sorted(shown) == sorted(picture.name for picture in PICTURES)
    for name in shown:
        kept = (IMAGES / f"{name}.png").read_bytes()
        assert kept.startswith(b"\x89PNG")
        assert len(kept) < MAX_BYTES


def test_its_pictures_can_be_taken_anew(emptied: Installation, link: str, browser: Browser, tmp_path: Path) -> None:
    declare(emptied)
    with traffic(emptied.url("amqp")):
        made = take(browser, link, tmp_path / "images")
    assert [path.name for path in made] == [f"{picture.name}.png" for picture in PICTURES]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
