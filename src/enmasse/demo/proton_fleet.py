"""Devices that speak through python-qpid-proton: ``python -m enmasse.demo.proton_fleet``."""

from __future__ import annotations

import json
import threading
import time

from proton import Message, ProtonException
from proton.utils import BlockingConnection

from enmasse.demo.devices import TENANT, SimulatedDevice
from enmasse.demo.foreign_devices import ANSWER_S, FIRST_PAUSE_S, LAST_PAUSE_S, report, run_devices


def run_device(url: str, password: str, device: SimulatedDevice, interval_s: float, stop: threading.Event) -> None:
    """Measure and send until ``stop``; what was not accepted is sent again."""
    accepted = retries = 0
    pause_s = FIRST_PAUSE_S
    message: Message | None = None
    while not stop.is_set():
        try:
            # Nobody else reads what does not leave this machine.
            connection = BlockingConnection(
                url,
                timeout=ANSWER_S,
                user=f"{device.name}@{TENANT}",
                password=password,
                allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            )
            try:
                sender = connection.create_sender(None)
                while not stop.is_set():
                    if message is None:
                        body = json.dumps(device.measure(time.time())).encode()
                        message = Message(address="telemetry", body=body, inferred=True)
                    sender.send(message)  # waits for the outcome and raises unless it was accepted
                    message = None
                    accepted += 1
                    pause_s = FIRST_PAUSE_S
                    report(device.name, accepted, retries)
                    stop.wait(interval_s)
            finally:
                connection.close()
        except (ProtonException, OSError):
            retries += 1
            report(device.name, accepted, retries)
            stop.wait(pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)


if __name__ == "__main__":
    run_devices(__doc__, run_device, seed=2)
