"""Devices that speak through python-qpid-proton: ``python -m enmasse.demo.proton_fleet``.

A process of its own, for it knows nothing of our client and shares nothing with it. It writes one
line of JSON for each accepted message, ``{"device": "pump-1", "accepted": 7, "retries": 0}``, and ends
with its standard input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time

from proton import Message, ProtonException
from proton.utils import BlockingConnection

from enmasse.demo.devices import SPACE_HOST, SimulatedDevice, make_fleet

__all__ = ["main"]

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 2.0
ANSWER_S = 5


def _run(url: str, address: str, device: SimulatedDevice, interval_s: float, stop: threading.Event) -> None:
    accepted = retries = 0
    pause_s = FIRST_PAUSE_S
    message: Message | None = None
    while not stop.is_set():
        try:
            connection = BlockingConnection(url, timeout=ANSWER_S, virtual_host=SPACE_HOST)
            try:
                sender = connection.create_sender(address)
                while not stop.is_set():
                    if message is None:
                        body = json.dumps(device.measure(time.time())).encode()
                        message = Message(body=body, subject=device.name, durable=True)
                    sender.send(message)  # waits for the outcome and raises unless it was accepted
                    message = None
                    accepted += 1
                    pause_s = FIRST_PAUSE_S
                    _report(device.name, accepted, retries)
                    stop.wait(interval_s)
            finally:
                connection.close()
        except (ProtonException, OSError):
            retries += 1
            _report(device.name, accepted, retries)
            stop.wait(pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)


def _report(device: str, accepted: int, retries: int) -> None:
    sys.stdout.write(json.dumps({"device": device, "accepted": accepted, "retries": retries}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the devices named on the command line until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--devices", required=True, help="names, separated by commas")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between messages")
    options = parser.parse_args()
    stop = threading.Event()
    threads = [
        threading.Thread(target=_run, args=(options.url, options.address, device, options.interval, stop))
        for device in make_fleet(options.devices.split(","), seed=2)
    ]
    for thread in threads:
        thread.start()
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stop.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
