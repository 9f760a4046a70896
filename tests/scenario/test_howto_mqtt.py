"""The how-tos of MQTT do what they say, command by command."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.scenario.howto_page import play
from tests.support.foreign_tools import require
from tests.support.installation import Installation

pytestmark = pytest.mark.slow


def test_moving_from_mosquitto_takes_what_its_howto_says(installation: Installation, tmp_path: Path) -> None:
    require("mosquitto")
    installation.be_empty()
    with socket.create_server(("127.0.0.1", 0)) as found:
        old = str(found.getsockname()[1])
    try:
        play("move-from-mosquitto.md", installation, tmp_path, {"1884": old})
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((tmp_path / "bridge.pid").read_text()), signal.SIGKILL)


def test_the_howto_of_home_automation_does_what_it_says(own: Installation, tmp_path: Path) -> None:
    play("connect-home-automation.md", own, tmp_path)


def test_the_howto_of_telegraf_does_what_it_says(own: Installation, tmp_path: Path) -> None:
    play("connect-telegraf.md", own, tmp_path)


@pytest.fixture(scope="module")
def shop(installation: Installation) -> Installation:
    """An installation with the space that the how-tos expect."""
    installation.be_empty()
    installation.ok("create", "space", "shop", "--wait", "150")
    return installation


@pytest.mark.parametrize("name", ["connect-a-device-with-mqtt.md", "mqtt-shared-subscriptions.md"])
def test_every_command_and_program_does_what_the_howto_says(name: str, shop: Installation, tmp_path: Path) -> None:
    play(name, shop, tmp_path)
