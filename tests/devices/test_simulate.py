"""A simulated fleet over all protocols, as the command line plays it."""

from __future__ import annotations

import re
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from tests.devices.stage import GREEN, eventually

if TYPE_CHECKING:
    from tests.devices.stage import Stage
    from tests.support.installation import Done

pytestmark = pytest.mark.slow


def test_a_fleet_sends_and_answers_commands_over_every_protocol(stage: Stage) -> None:
    ended: list[Done] = []
    arguments = ["iot", "simulate", GREEN, "-n", "4", "--http", "1", "--amqp", "1", "--period", "0.2", "--event"]
    thread = Thread(
        target=lambda: ended.append(stage.installation.run(*arguments, "--seconds", "10", "--faults", "0.3")),
        daemon=True,
    )
    thread.start()
    for number in range(4):
        path = f"/commands/{GREEN}/sim-{number:05}?wait=10"
        asked = {"name": "set", "payload": "30", "mode": "direct"}

        def answers(path: str = path, asked: dict[str, str] = asked) -> bool:
            answer = stage.registry.post(path, json=asked)
            return answer.status_code == 200 and answer.json()["status"] == 200

        eventually(answers)
    thread.join(60)
    assert ended[0].code == 0, ended[0].err
    connected, taken, refused, commands = map(
        int, re.findall(r"(\d+) connected .* (\d+) taken +(\d+) refused +(\d+) commands", ended[0].out)[-1]
    )
    assert (connected, refused) == (4, 0)
    assert taken > 20
    assert commands >= 4


def test_a_fleet_without_a_tenant_or_of_too_many_kinds_is_refused(stage: Stage) -> None:
    done = stage.installation.run("iot", "simulate", "default.nothing", "--seconds", "1")
    assert (done.code, "there is no tenant" in done.err) == (3, True)
    done = stage.installation.run("iot", "simulate", GREEN, "-n", "2", "--http", "3")
    assert (done.code, "are parts of --devices" in done.err) == (2, True)


def test_a_fleet_takes_its_devices_away_on_wish_and_what_was_left_goes_later(stage: Stage) -> None:
    place, real = stage.installation, stage.device()
    for arguments in (("--prefix", "kept"), ("--prefix", "gone", "--remove")):
        done = place.run(
            "iot", "simulate", GREEN, "-n", "3", "--period", "0.2", "--event", "--seconds", "0.5", *arguments
        )
    # Whether all of them came in meanwhile does not matter.
    assert "3 simulated devices deleted" in done.out
    left = place.ok("iot", "device", "list", GREEN, "--count", "1000")
    assert ("kept-00002" in left, "gone-0000" in left, real in left) == (True, False, True)
    # Others of the worker may have left some, too.
    assert int(place.ok("iot", "device", "delete", GREEN, "--simulated").split()[0]) >= 3
    left = place.ok("iot", "device", "list", GREEN, "--count", "1000")
    assert ("kept-0000" in left, real in left) == (False, True)
    assert place.run("iot", "device", "delete", GREEN, real, "--simulated").code == 2
