"""The how-tos of built-in pipelines do what they say, command by command, one after the other in one space."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenario.howto_place import Place, blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PAGES = {
    "alert-on-devices.md": ("hot", "boiler-1: temperature 41.5 is above 35"),
    "find-missing-devices.md": ("silent", "not heard since"),
    "close-the-loop.md": ("loop", "oven-1: temperature 99 is above 35"),
    "meter-usage.md": ("usage", "default.shop"),
    "train-and-apply-a-model.md": ("odd", "pumps"),
}


@pytest.fixture(scope="module")
def place(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    found = Place(tmp_path_factory.mktemp("howto"), ())
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("page", list(PAGES))
def test_the_howto_does_what_it_says(page: str, place: Place) -> None:
    step, wanted = PAGES[page]
    told = {name: place.run(commands) for name, (commands, _) in blocks(page).items()}
    assert wanted in told[step], told
