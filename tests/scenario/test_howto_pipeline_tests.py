"""How pipelines are tested is as the how-tos say, and so is what comes of the payloads of devices."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.scenario.howto_place import Place, blocks
from tests.scenario.tryout_pairs import example_pairs, payload_pairs, write_pairs
from tests.support.chance import kills

# A pair takes seconds, and there are many; the machine may be busy with more than this.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.mark.chance
def test_pipelines_are_tested_as_the_howto_says(
    needs_spark: None, tmp_path: Path, story_chance: random.Random
) -> None:
    """So is one of each kind; and of the examples and of the payloads of devices one, or all."""
    place = Place(tmp_path, ())  # without an installation
    others = [*example_pairs(place.directory), *payload_pairs()]
    story_chance.shuffle(others)
    pairs = [*write_pairs(place.directory), *others[: kills(1)]]
    files = " ".join(f"{file} {rows}" for file, rows, _ in pairs)
    said = [line for file, rows, lines in pairs for line in (f"{file} {rows}", *lines.splitlines())]
    for commands, expected in blocks("test-a-pipeline.md").values():
        # One start of a platform is enough; what is said is the same in any zone.
        asked = commands.replace("enmasse pipeline test ", f"export TZ=Asia/Tokyo; enmasse pipeline test {files} ")
        told = [line.rstrip() for line in place.run(asked).splitlines()]
        more = said if asked != commands else []
        assert expected is None or told == [*more, *expected.splitlines()], "\n".join(told)
