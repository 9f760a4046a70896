"""An installation on a full disk, and on one that it may not write: nothing ends that runs, and each is told of."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from enmasse.client.blocking import connect
from tests.support.foreign_tools import as_nobody
from tests.support.installation import Installation
from tests.support.polling import until
from tests.support.small_disk import fill_up, mount, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "32m") as place:
        yield place


@pytest.fixture(params=["of a disk that is read only", "of another user"])
def forbidden(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, list[str]]]:
    """A data directory that cannot be written, and as whom."""
    if os.geteuid() != 0:
        place = tmp_path / "data"
        place.mkdir(mode=0o500)
        yield place, []
        return
    if request.param == "of another user":
        with tempfile.TemporaryDirectory() as folder:  # those of pytest are closed to others
            Path(folder).chmod(0o755)
            yield Path(folder), as_nobody()
        return
    place = request.getfixturevalue("disk")
    mount("-o", "remount,ro", str(place))
    yield place, []


def test_a_data_directory_that_cannot_be_written_is_one_sentence(forbidden: tuple[Path, list[str]]) -> None:
    data, user = forbidden
    environment = {**os.environ, "COLUMNS": "500", "MPLCONFIGDIR": tempfile.gettempdir()}
    started = [
        subprocess.Popen(
            [*user, sys.executable, "-m", "enmasse", *command.split(), "--data", str(data)],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in ("up --ports auto", "control --port 0", "node --listen 127.0.0.1:0", "demo")
    ]
    said_by = [process.communicate()[0] for process in started]
    for process, said in zip(started, said_by, strict=True):
        sentence = said.replace(f"Starting the platform on {data} ...\n", "")
        assert (process.returncode, sentence.count("\n")) == (1, 1), said
        why = r"(cannot be written \(.*\)|belongs to another user \(.*\)).*--data"
        assert re.match(f"(error: |enmasse node: )?{data}.* {why}", sentence)


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
        own.ok("status", "--wait", "150")
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
                delivery = receiver.receive(timeout=60)
                assert delivery is not None
                assert delivery.message.body == "stored before"
                delivery.release()
            assert is_alive(pids["node"])
            assert is_alive(pids["journal"])
        for kind in ("journal", "node"):
            os.kill(pids[kind], signal.SIGKILL)
        # The one that takes its place serves what is stored, on the disk that is full.
        with connect(url, patience=30) as connection, connection.receiver("orders") as receiver:
            delivery = receiver.receive(timeout=60)
            assert delivery is not None
            delivery.release()
        until(lambda: "control ended with exit code 1 (" in own.log.read_text(), "the end of a second control")
        assert own.supervisor is not None
        assert own.supervisor.poll() is None
        ballast.unlink()
        own.ok("status", "--wait", "150")
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
