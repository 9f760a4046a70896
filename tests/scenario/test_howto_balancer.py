"""The how-to of load balancers does what it says, with HAProxy as the distribution has it."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.scenario.howto_place import Place, blocks
from tests.support.foreign_tools import HAPROXY, require
from tests.support.polling import until
from tests.support.processes import is_alive

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_the_howto_of_load_balancers_does_what_it_says(tmp_path: Path) -> None:
    require("HAProxy", "curl", "openssl")
    place = Place(tmp_path, ("--proxy-from", "127.0.0.2", "--http-name", "messaging.example.org"))
    place.environment["PATH"] += f":{HAPROXY}"
    steps = blocks("behind-a-load-balancer.md")
    assert list(steps) == ["prepare", "configure", "use", "receive", "log", "open", "refused"]
    balancer = 0
    try:
        place.start()
        place.ports |= {customary: str(free_port()) for customary in ("5671", "5673", "5674", "8444")}
        for name, (commands, told) in steps.items():
            out = place.run(commands)
            if told is not None:
                assert out.split() == told.split(), name
            if name == "configure":
                balancer = int((tmp_path / "haproxy.pid").read_text())
        log = (place.data / "logs" / "node-0.log").read_text()
        # What checks health says so: the one that was refused did not.
        assert log.count("proxy-refused") == 1
    finally:
        if balancer:
            os.kill(balancer, signal.SIGTERM)
            until(lambda: not is_alive(balancer))
        place.stop()
