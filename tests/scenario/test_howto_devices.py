"""The how-tos of devices do what they say, command by command, and no secret is in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from enmasse.drivers.supervisor.endpoints import read_endpoints
from tests.scenario.howto_page import play
from tests.scenario.howto_place import Place, blocks
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path, ())
    try:
        yield found
    finally:
        found.stop()


def test_the_howto_of_devices_does_what_it_says(place: Place) -> None:
    require("curl")
    place.start()
    endpoints = read_endpoints(place.data / "endpoints.json")
    assert endpoints is not None
    assert endpoints.url("registry") == f"http://127.0.0.1:{place.ports['8080']}/registry/v1"
    steps, out = blocks("register-devices.md"), {}
    for name, (commands, told) in steps.items():
        out[name] = place.run(commands)
        if told is not None:
            assert out[name].split()[-len(told.split()) :] == told.split(), name
    assert list(steps) == ["tenant", "device", "rotate", "keys", "gateway", "many", "find", "curl", "delete"]
    assert '{"id":"lamp-1"}{"total":1,"result":[{"id":"lamp-1"' in out["curl"]
    assert '{"error":"the resource has changed' in out["curl"]
    logs = "".join(path.read_text() for path in place.data.rglob("*.log"))
    assert '"path":"/registry/v1/credentials/default.plant/sensor-1"' in logs
    for secret in ("the first secret", "the second secret", "dGhlIHNoYXJlZCBrZXk"):
        assert secret not in logs


def test_the_howtos_of_connecting_and_commanding_do_what_they_say(own: Installation, tmp_path: Path) -> None:
    require("curl")
    for name in ("connect-devices.md", "command-devices.md", "connect-lorawan.md"):
        play(name, own, tmp_path)
