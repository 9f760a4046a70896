"""Processes that a zygote forks, as Spark starts them: by the launcher, with pipes, ended by signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from enmasse.pipeline.workers.launcher import Zygote, write_launcher

pytest.importorskip("pyspark", reason="pip install 'enmasse[spark]'")
pytestmark = pytest.mark.slow

TELL = """\
import json, os, sys
told = {
    "parent": os.getppid(), "arguments": sys.argv[1:], "colour": os.environ.get("COLOUR"), "here": os.getcwd(),
    "loaded": "pyspark.worker" in sys.modules, "path": os.environ.get("PATH"), "name": __name__,
}
print(json.dumps(told), flush=True)
print("complained", file=sys.stderr)
sys.exit(len(sys.stdin.read()))
"""
WAIT = """\
import os, time
print(os.getpid(), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with tempfile.TemporaryDirectory(prefix="zygote-") as folder:  # whose path is short
        started = Zygote(Path(folder, "socket"))
        yield started
        started.close()


@pytest.fixture
def launcher(zygote: Zygote, tmp_path: Path) -> Path:
    (tmp_path / "tell.py").write_text(TELL)
    (tmp_path / "wait.py").write_text(WAIT)
    return write_launcher(tmp_path, zygote.path)


def waiting(launcher: Path) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """What Spark has started, and the process that it stands for."""
    started = subprocess.Popen([launcher, "-m", "wait"], cwd=launcher.parent, stdout=subprocess.PIPE, env=SEED)
    assert started.stdout is not None
    child = psutil.Process(int(started.stdout.readline()))
    started.stdout.close()
    assert child.pid != started.pid
    return started, child


SEED = {"PYTHONHASHSEED": "0"}
"""As Spark starts processes."""


def test_a_process_has_the_files_arguments_and_environment_that_were_given(launcher: Path) -> None:
    done = subprocess.run(
        [launcher, "-m", "tell", "a b", "$c"],
        cwd=launcher.parent,
        env=SEED | {"COLOUR": "grün"},
        input=b"12345",
        capture_output=True,
        check=False,
    )
    told = json.loads(done.stdout)
    assert psutil.Process(told.pop("parent")).cmdline()[1:3] == ["-m", "enmasse.pipeline.workers.zygote"]
    assert told == {
        "arguments": ["a b", "$c"],
        "colour": "grün",
        "here": str(launcher.parent),
        "loaded": True,
        "path": None,
        "name": "__main__",
    }
    assert done.stderr == b"complained\n"
    assert done.returncode == 5


def test_a_signal_to_what_was_started_reaches_the_process(launcher: Path) -> None:
    started, child = waiting(launcher)
    started.terminate()
    assert started.wait() == 128 + signal.SIGTERM
    child.wait(60)


def test_a_process_ends_with_what_was_started(launcher: Path) -> None:
    started, child = waiting(launcher)
    started.kill()
    started.wait()
    child.wait(60)


def test_what_was_started_ends_with_the_process(launcher: Path) -> None:
    started, child = waiting(launcher)
    child.kill()
    assert started.wait() == 128 + signal.SIGKILL


def test_one_that_ends_while_it_is_signalled_leaves_the_others(zygote: Zygote, launcher: Path) -> None:
    started, child = waiting(launcher)
    other, remains = waiting(launcher)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(zygote.path))
        peer.sendall(b"\x00\x00\x00\x09")  # keeps it reading, so that it hears of the end and of the signal at once
        time.sleep(0.2)
        child.kill()
        time.sleep(0.2)
        started.terminate()
        time.sleep(0.2)
    assert started.wait() != 0
    again, _ = waiting(launcher)
    assert remains.is_running()
    for process in (other, again):
        process.kill()
        process.wait()


def test_the_end_of_one_leaves_the_others(launcher: Path) -> None:
    first, _ = waiting(launcher)
    second, child = waiting(launcher)
    first.kill()
    first.wait()
    assert child.is_running()
    assert second.poll() is None
    second.kill()
    second.wait()


@pytest.mark.parametrize("kill", [False, True], ids=["closed", "killed"])
def test_nothing_is_left_when_the_zygote_has_gone(tmp_path: Path, kill: bool) -> None:
    (tmp_path / "wait.py").write_text(WAIT)
    with tempfile.TemporaryDirectory(prefix="zygote-") as folder:
        zygote = Zygote(Path(folder, "socket"))
        launcher = write_launcher(tmp_path, zygote.path)
        started, child = waiting(launcher)
        parent = child.parent()
        assert parent is not None
        if kill:
            parent.kill()
        else:
            zygote.close()
        assert started.wait() == 1
        child.wait(60)
        alone = subprocess.run([launcher, "-m", "tell"], cwd=tmp_path, env=SEED, check=False, capture_output=True)
        assert b"No module named tell" in alone.stderr, "it is started as it is"
        zygote.close()


def test_what_was_not_started_with_the_same_hashes_is_not_forked(launcher: Path) -> None:
    told = subprocess.run(
        [launcher, "-m", "tell"], cwd=launcher.parent, env={"PYTHONHASHSEED": "7"}, capture_output=True, check=False
    ).stdout
    assert b'"loaded": false' in told


def test_nonsense_harms_nobody(zygote: Zygote, launcher: Path) -> None:
    for nonsense in (b"", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x04null", b"\xff\xff\xff\xff" + b"x" * 100):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(zygote.path))
            peer.sendall(nonsense)
            peer.shutdown(socket.SHUT_WR)
            assert peer.recv(4) == b""
    started, _ = waiting(launcher)
    started.kill()
    started.wait()


def test_only_its_user_can_ask(zygote: Zygote) -> None:
    assert stat.S_IMODE(zygote.path.stat().st_mode) == 0o600
    assert zygote.path.stat().st_uid == os.getuid()


def test_what_a_killed_one_left_is_replaced(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="zygote-") as folder:
        path = Path(folder, "socket")
        path.write_text("left")
        Zygote(path).close()
        assert not path.exists()
