"""``mosquitto_sub`` and ``mosquitto_pub`` as tests ask for them; see ``mqtt_devices``.

A connection is a ``mosquitto_sub`` for each subscription, and a ``mosquitto_pub`` for whatever is published at once,
line by line. The first ``mosquitto_sub`` has the client's own id, its session and its will.
"""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import threading
from typing import Any

from tests.support.mqtt_devices import WAIT_S

__all__ = ["MosquittoCommands"]

FORMAT = "message|%t|%q|%r|%x|%C|%R|%D|%E|%F|%P"
"""Of what has come: topic, QoS, RETAIN, payload in hexadecimal, then the properties of MQTT 5."""

_VERSIONS = {4: "mqttv311", 5: "mqttv5"}


class _Subscriber:
    """A ``mosquitto_sub`` at work."""

    def __init__(self, command: list[str], inbox: queue.Queue[dict[str, Any]]) -> None:
        self._inbox = inbox
        self.granted: queue.Queue[int] = queue.Queue()
        self.log: list[str] = []
        self._is_over = False
        # Where its output is no terminal it would keep what it says about its subscription.
        self._process = subprocess.Popen(
            ["stdbuf", "-oL", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            if line.startswith("message|"):
                # An interrupt while it writes makes it write the same once more.
                if self._is_over:
                    continue
                self._inbox.put(_message(line.rstrip("\n")))
            elif found := re.match(r"Subscribed \(mid: \d+\): (\d+)", line):
                self.granted.put(int(found[1]))
            elif "refused" in line.lower():
                self.granted.put(0x80)

    def end(self, number: signal.Signals) -> None:
        self._is_over = True
        self._process.send_signal(number)
        self._process.wait(WAIT_S)
        self._thread.join(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _message(line: str) -> dict[str, Any]:
    _, topic, qos, retain, payload, *properties = line.split("|")
    told: dict[str, Any] = {"topic": topic, "qos": int(qos), "retain": retain == "1", "payload": payload}
    content_type, response_topic, correlation, expiry, form, pairs = properties
    told |= {"content_type": content_type} if content_type else {}
    told |= {"response_topic": response_topic} if response_topic else {}
    told |= {"correlation": correlation.encode().hex()} if correlation else {}
    told |= {"expiry": int(expiry)} if expiry else {}
    told |= {"format": 1} if form == "1" else {}
    told |= {"user_properties": [pair.split(":") for pair in pairs.split(" ")]} if pairs else {}
    return told


class _Connection:
    """What stands for a connection: how it was asked for, and its subscribers by their filters."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.inbox: queue.Queue[dict[str, Any]] = queue.Queue()
        self.subscribers: dict[str, _Subscriber] = {}
        self.number = 0


class MosquittoCommands:
    """What ``mosquitto_sub`` and ``mosquitto_pub`` do together."""

    def __init__(self) -> None:
        self._connections: dict[str, _Connection] = {}

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        told = {name: value for name, value in options.items() if value is not None}
        reply: dict[str, Any] = getattr(self, f"_{do}")(told)
        return reply

    def close(self) -> None:
        assert not self._connections

    def _connect(self, options: dict[str, Any]) -> dict[str, Any]:
        self._connections[options["name"]] = _Connection(options)
        return {"present": None}

    @staticmethod
    def _command(program: str, asked: dict[str, Any], client_id: str) -> list[str]:
        user = [
            *(["-u", asked["user"]] if "user" in asked else []),
            *(["-P", asked["password"]] if "password" in asked else []),
        ]
        return [
            program, "-d", "-h", "127.0.0.1", "-p", str(asked["port"]), "-V", _VERSIONS[asked["version"]],
            "-i", client_id, *user,
        ]  # fmt: skip

    def _subscribe(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        asked = connection.asked
        connection.number += 1
        is_first = connection.number == 1
        command = [
            *self._command("mosquitto_sub", asked, asked["id"] if is_first else f"{asked['id']}-{connection.number}"),
            "-F", FORMAT, "-t", options["filter"], "-q", str(options["qos"]),
            *([] if asked["clean"] else ["-c"]),
            *(["-x", str(asked["expiry"])] if "expiry" in asked else []),
            *(["--retain-as-published"] if options.get("as_published") else []),
        ]  # fmt: skip
        if is_first and "will_topic" in asked:
            command += [
                "--will-topic", asked["will_topic"], "--will-payload", bytes.fromhex(asked["will_payload"]).decode(),
                "--will-qos", str(asked["will_qos"]), *(["--will-retain"] if asked["will_retain"] else []),
            ]  # fmt: skip
        subscriber = connection.subscribers[options["filter"]] = _Subscriber(command, connection.inbox)
        try:
            return {"granted": subscriber.granted.get(timeout=WAIT_S)}
        except queue.Empty:
            raise AssertionError(f"no SUBACK: {command}\n{''.join(subscriber.log)}") from None

    def _unsubscribe(self, options: dict[str, Any]) -> dict[str, Any]:
        self._connections[options["name"]].subscribers.pop(options["filter"]).end(signal.SIGINT)
        return {}

    def _publish(self, options: dict[str, Any]) -> dict[str, Any]:
        asked = self._connections[options["name"]].asked
        lines = [bytes.fromhex(payload) for payload in options["payloads"].split(",")]
        command = [
            *self._command("mosquitto_pub", asked, f"{asked['id']}-pub"), "-t", options["topic"],
            "-q", str(options["qos"]), *(["-r"] if options["retain"] else []), *_properties(options),
            "-n" if lines == [b""] else "-l",
        ]  # fmt: skip
        done = subprocess.run(
            command, input=b"\n".join(lines) + b"\n", capture_output=True, timeout=WAIT_S, check=False
        )
        told = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0, f"{command}: {told}"
        if not options["qos"]:
            return {"reasons": [0] * len(lines)}
        # A PUBREC or PUBACK with its code; it says "RC:0" without one.
        codes = re.findall(
            rf"received {'PUBACK' if options['qos'] == 1 else 'PUBREC'} \(Mid: \d+(?:, RC:(\d+))?", told
        )
        assert len(codes) == len(lines), told
        return {"reasons": [int(code or 0) for code in codes]}

    def _receive(self, options: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections[options["name"]]
        found: list[dict[str, Any]] = []
        for _ in range(options["count"]):
            try:
                found.append(connection.inbox.get(timeout=WAIT_S))
            except queue.Empty:
                told = [subscriber.log for subscriber in connection.subscribers.values()]
                raise AssertionError(f"{len(found)} of {options['count']} messages came: {found}\n{told}") from None
        return {"messages": found}

    def _arrived(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"count": self._connections[options["name"]].inbox.qsize()}

    def _disconnect(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._end(options, signal.SIGINT)

    def _forget(self, options: dict[str, Any]) -> dict[str, Any]:
        return self._end(options, signal.SIGKILL)

    def _end(self, options: dict[str, Any], number: signal.Signals) -> dict[str, Any]:
        for subscriber in self._connections.pop(options["name"]).subscribers.values():
            subscriber.end(number)
        return {}


def _properties(options: dict[str, Any]) -> list[str]:
    named = {
        "content_type": "content-type", "response_topic": "response-topic", "expiry": "message-expiry-interval",
        "format": "payload-format-indicator",
    }  # fmt: skip
    found = [
        word
        for ours, theirs in named.items()
        if ours in options
        for word in ("-D", "publish", theirs, str(options[ours]))
    ]
    if "correlation" in options:
        found += ["-D", "publish", "correlation-data", bytes.fromhex(options["correlation"]).decode()]
    for pair in options["user_properties"].split(",") if "user_properties" in options else []:
        found += ["-D", "publish", "user-property", *pair.split("=")]
    return found
