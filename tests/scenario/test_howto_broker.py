"""The how-to of the service broker does what it says: a platform orders, an application sends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.scenario.howto_place import Place, blocks
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path, ("--api-auth", "required"))
    try:
        yield found
    finally:
        found.stop()


def test_the_howto_of_the_service_broker_does_what_it_says(place: Place) -> None:
    require("curl")
    steps = blocks("service-broker.md")
    for name, (commands, told) in steps.items():
        out = place.run(commands)
        if told is not None:
            assert out.split() == told.split(), name
        if name == "account":
            place.start()
        if name == "bind":
            credentials = json.loads((place.directory / "binding.json").read_text())["credentials"]
    assert list(steps) == [
        "account",
        "grant",
        "plan",
        "catalog",
        "provision",
        "wait",
        "declare",
        "bind",
        "use",
        "back",
    ]
    assert len(credentials["password"]) == 32
    logs = "".join(path.read_text() for path in (place.directory / ".enmasse").rglob("*.log"))
    for word in ("the horse of", credentials["password"]):
        assert word not in logs
