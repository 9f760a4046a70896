"""An installation on a full disk, and on one that it may not write: nothing ends that runs, and each is told of."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from enmasse.client.blocking import connect
from tests.crash.test_journal_bad_disk import fill_up, mount
from tests.scenario.conftest import Installation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs the right to mount a small file system: run as root")
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place))
    yield place
    subprocess.run(["umount", str(place)], check=True)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_whatever_dies_on_a_full_disk_the_others_go_on_and_it_comes_back(disk: Path) -> None:
    own = Installation(disk)  # what it says is written beside it, on another disk
    try:
        own.start()
        own.ok("create", "space", "shop")
        own.ok("create", "address", "orders", "--type", "queue")
        own.ok("status", "--wait", "30")
        own.ok("send", "orders", "--durable", "stored before")
        before = own.endpoints()
        until(lambda: "pipelines" in {item["kind"] for item in own.endpoints()["processes"]}, "the host of pipelines")
        pids = {item["kind"]: int(item["pid"]) for item in own.endpoints()["processes"]}
        url = own.url("amqp")
        ballast = fill_up(disk)
        with connect(url) as connection:
            for kind in ("pipelines", "control"):
                os.kill(pids[kind], signal.SIGKILL)
            until(lambda: "endpoints.json cannot be written" in own.log.read_text(), "the supervisor's word")
            # This connection is of the same node as before.
            with connection.receiver("orders") as receiver:
                delivery = receiver.receive(timeout=20)
                assert delivery is not None
                assert delivery.message.body == "stored before"
                delivery.release()
            assert is_alive(pids["node"])
            assert is_alive(pids["journal"])
        for kind in ("journal", "node"):
            os.kill(pids[kind], signal.SIGKILL)
        # The one that takes its place serves what is stored, on the disk that is full.
        with connect(url, patience=30) as connection, connection.receiver("orders") as receiver:
            delivery = receiver.receive(timeout=20)
            assert delivery is not None
            delivery.release()
        until(lambda: "control ended with exit code 1 (" in own.log.read_text(), "the end of a second control")
        assert own.supervisor is not None
        assert own.supervisor.poll() is None
        ballast.unlink()
        own.ok("status", "--wait", "60")
        until(lambda: pids.items() & now(own).items() == {("supervisor", pids["supervisor"])}, "endpoints.json")
        assert own.endpoints()["endpoints"] == before["endpoints"]
        assert all(is_alive(pid) for pid in now(own).values())
        assert own.ok("receive", "orders", "--count", "1") == "stored before\n"
        assert own.stop() == 0
        assert "Traceback" not in own.log.read_text()
    finally:
        if own.supervisor is not None and own.supervisor.poll() is None:
            own.stop()


def now(own: Installation) -> dict[str, int]:
    return {item["kind"]: int(item["pid"]) for item in own.endpoints()["processes"]}
