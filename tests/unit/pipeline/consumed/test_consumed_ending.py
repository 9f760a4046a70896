"""Planners end in order, each in a process of its own, as signals are of a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.slow

BEGIN = """
import os, signal, time
from enmasse.pipeline.source.consumed import reader

reader.MAX_S = 0.5
reader.end_in_order()
try:
    print("up", flush=True)
    time.sleep(60)
finally:
"""


@contextmanager
def started(script: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        yield process


def test_what_is_held_is_given_back_though_spark_tells_it_twice() -> None:
    with started(BEGIN + "    os.kill(os.getpid(), signal.SIGTERM)\n    print('given back')\n") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "given back\n"
    assert process.returncode == 0


def test_one_that_cannot_give_back_ends_anyhow() -> None:
    with started(BEGIN + "    time.sleep(60)\n") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1


@pytest.mark.parametrize("is_stuck", [False, True])
def test_it_ends_with_its_parent(is_stuck: bool) -> None:
    script = BEGIN + ("    time.sleep(60)\n" if is_stuck else "    print('given back', flush=True)\n")
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {script!r}])\n"
    with started(parent) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        began = time.monotonic()
        process.kill()
        # The end of the output is the end of the last one that has it.
        assert process.stdout.read() == ("" if is_stuck else "given back\n")
        assert time.monotonic() - began < 30
