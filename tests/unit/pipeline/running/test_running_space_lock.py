from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from enmasse.pipeline.errors import SpaceTakenError
from enmasse.pipeline.running.space_lock import SpaceLock

SLEEPER = "import sys, time; print('up', flush=True); time.sleep(600)"


def test_a_second_one_is_refused_and_a_later_one_let_in(tmp_path: Path) -> None:
    with SpaceLock(tmp_path), pytest.raises(SpaceTakenError, match="another runner works in"), SpaceLock(tmp_path):
        pass
    with SpaceLock(tmp_path):
        pass


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
def test_what_a_killed_one_left_is_ended(tmp_path: Path) -> None:
    lock = SpaceLock(tmp_path).__enter__()
    environment = dict(os.environ)
    lock.mark(environment)
    left = subprocess.Popen([sys.executable, "-c", SLEEPER], env=environment, stdout=subprocess.PIPE)
    other = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE)
    try:
        for process in (left, other):
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
        os.close(lock._file)  # as when its process is killed
        with SpaceLock(tmp_path):
            assert left.wait(10) == -9
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
