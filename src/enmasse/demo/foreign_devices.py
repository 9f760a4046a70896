"""Runs the devices of a foreign client, each kind in a process of its own.

Such a process knows nothing of our client and shares nothing with it. Its first line of standard input has the
passwords of its devices, as JSON; it writes one line of JSON for each accepted message,
``{"device": "pump-1", "accepted": 7, "retries": 0}``, and ends with its standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Callable

from enmasse.demo.devices import SimulatedDevice, make_fleet

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 2.0
ANSWER_S = 5

RunDevice = Callable[[str, str, SimulatedDevice, float, threading.Event], None]
"""Given the URL, the password, the device, the seconds between messages, and what says that it is to stop."""


def report(device: str, accepted: int, retries: int) -> None:
    """Write what a device has counted."""
    sys.stdout.write(json.dumps({"device": device, "accepted": accepted, "retries": retries}) + "\n")
    sys.stdout.flush()


def run_devices(description: str | None, run_device: RunDevice, seed: int) -> None:
    """Run the devices named on the command line until standard input ends, each in a thread."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--url", required=True)
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between messages")
    options = parser.parse_args()
    # Without a buffer: what follows is waited for below.
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as given:
        passwords: dict[str, str] = json.loads(given.readline())
    stop = threading.Event()
    url, interval_s = options.url, options.interval
    threads = [
        threading.Thread(target=run_device, args=(url, passwords[device.name], device, interval_s, stop))
        for device in make_fleet(list(passwords), seed=seed)
    ]
    for thread in threads:
        thread.start()
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stop.set()
    for thread in threads:
        thread.join()
