"""Ten thousand devices over MQTT: an event each in ten seconds, and commands that some of them answer meanwhile."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.control import Installation, ask
from benchmarks.measurement import Line, Measurement, Setting
from enmasse.drivers.data_directory import Layout
from enmasse.errors import UnavailableError

__all__ = ["MEASUREMENTS"]

DEVICES = 10_000
PERIOD_S = 10.0
SECONDS = 20.0
COMMANDED = 100
"""A hundredth of them are commanded."""

ARRIVE_S = 120.0
MAX_ANSWER_MS = 500
TENANT = "default.plant"
PROJECTS = "/apis/iot.enmasse.io/v1alpha1/namespaces/default/iotprojects"
_SHOWN = re.compile(r"(\d+) connected .* (\d+) taken +(\d+) refused")


def fleet(setting: Setting) -> Iterator[Line]:
    """Measure acknowledgements and answers to commands while the whole fleet sends."""
    count = setting.count(DEVICES)
    with ExitStack() as stack:
        data = Path(stack.enter_context(TemporaryDirectory(prefix="run-", dir=setting.directory)))
        site = stack.enter_context(Installation(data))
        project = {
            "apiVersion": "iot.enmasse.io/v1alpha1",
            "kind": "IoTProject",
            "metadata": {"name": "plant", "namespace": "default"},
            "spec": {"downstreamStrategy": {"managedStrategy": {"addressSpace": {"name": "farm"}, "addresses": {}}}},
        }
        ask(site.api(), "POST", PROJECTS, project)
        setting.patience.wait()
        shown = stack.enter_context((data / "fleet.txt").open("w+"))
        command = [sys.executable, "-m", "enmasse", "iot", "simulate", TENANT, "--devices", str(count)]
        command += ["--period", str(PERIOD_S), "--event", "--data", str(data)]
        played = subprocess.Popen(command, stdout=shown, stderr=subprocess.STDOUT)
        stack.callback(played.wait)
        stack.callback(played.terminate)
        began = time.monotonic()
        while _last(data)[0] < count:
            if time.monotonic() - began > ARRIVE_S or played.poll() is not None:
                raise UnavailableError(f"{_last(data)[0]} of {count} devices came in")
            time.sleep(0.5)
        arrived = time.monotonic() - began
        answers = _command(site, data, count, max(1, count // COMMANDED))
        connected, taken, refused = _last(data)
        answers.sort()
        yield Line(f"{count} devices registered and connected within", arrived, "s")
        yield Line("connected at the end", connected, "devices", target=count, at_least=True)
        yield Line("events taken", taken, "messages")
        yield Line("events refused", refused, "messages")
        yield Line("commands answered", len(answers), "commands", target=max(1, count // COMMANDED), at_least=True)
        yield Line("a command and its answer, median", answers[len(answers) // 2] * 1000, "ms")
        yield Line("a command and its answer, p99", answers[int(len(answers) * 0.99)] * 1000, "ms", MAX_ANSWER_MS)


def _last(data: Path) -> tuple[int, int, int]:
    """What the fleet has shown last."""
    found = _SHOWN.findall((data / "fleet.txt").read_text())
    connected, taken, refused = found[-1] if found else (0, 0, 0)
    return int(connected), int(taken), int(refused)


def _command(site: Installation, data: Path, count: int, number: int) -> list[float]:
    headers = {"authorization": f"Bearer {Layout(data).operator_token.read_text()}"}
    chance = random.Random(1)  # which devices
    with httpx.Client(base_url=f"http://127.0.0.1:{site.api_port}", headers=headers, timeout=30) as client:

        def one(device: int) -> float:
            asked: dict[str, Any] = {"name": "blink", "mode": "direct"}
            began = time.monotonic()
            path = f"/registry/v1/commands/{TENANT}/sim-{device:05}?wait=10"
            answer = client.post(path, content=json.dumps(asked), headers={"content-type": "application/json"})
            answer.raise_for_status()
            return time.monotonic() - began

        found: list[float] = []
        with ThreadPoolExecutor(4) as threads:
            devices = [chance.randrange(count) for _ in range(number)]
            for at in range(0, number, 4):
                began = time.monotonic()
                found += threads.map(one, devices[at : at + 4])
                time.sleep(max(0.0, SECONDS * 4 / number - (time.monotonic() - began)))
    return found


MEASUREMENTS = (Measurement("A fleet of devices over MQTT", fleet),)
