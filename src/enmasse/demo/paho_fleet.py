"""Devices that speak MQTT through paho-mqtt: ``python -m enmasse.demo.paho_fleet``.

A process of its own, as that of python-qpid-proton is: it takes the same arguments, and writes the same lines.
"""

from __future__ import annotations

import json
import threading
import time
from urllib.parse import urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from enmasse.demo.devices import TENANT, SimulatedDevice
from enmasse.demo.foreign_devices import ANSWER_S, FIRST_PAUSE_S, LAST_PAUSE_S, report, run_devices

KEEP_ALIVE_S = 10


def run_device(url: str, password: str, device: SimulatedDevice, interval_s: float, stop: threading.Event) -> None:
    """Measure and publish with QoS 1 until ``stop``; what was not acknowledged is published again."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    accepted = retries = 0
    pause_s = FIRST_PAUSE_S
    body: bytes | None = None
    while not stop.is_set():
        client = Client(
            CallbackAPIVersion.VERSION2, device.name, protocol=MQTTProtocolVersion.MQTTv5, reconnect_on_failure=False
        )
        refused = threading.Event()
        client.on_publish = lambda _c, _d, _m, code, _p, refused=refused: code.is_failure and refused.set()
        client.username_pw_set(f"{device.name}@{TENANT}", password)
        try:
            client.connect(place.hostname, place.port, KEEP_ALIVE_S)
            client.loop_start()
            while not stop.is_set():
                if body is None:
                    body = json.dumps(device.measure(time.time())).encode()
                stored = client.publish("telemetry", body, qos=1)
                stored.wait_for_publish(ANSWER_S)
                if not stored.is_published() or refused.is_set():
                    break
                body = None
                accepted += 1
                pause_s = FIRST_PAUSE_S
                report(device.name, accepted, retries)
                stop.wait(interval_s)
        except (OSError, RuntimeError, ValueError):
            pass  # paho's errors of a connection that is not there, or no more
        finally:
            client.disconnect()
            client.loop_stop()
        if not stop.is_set():
            retries += 1
            report(device.name, accepted, retries)
            stop.wait(pause_s)
            pause_s = min(pause_s * 2, LAST_PAUSE_S)


if __name__ == "__main__":
    run_devices(__doc__, run_device, seed=3)
