"""What tests ask of a foreign client of MQTT, the same of each.

A client is asked by a name and options, and answers with a dictionary:

    connect name port version id clean [user password expiry receive_maximum will_topic will_payload will_qos
            will_retain will_delay]         {"present": is there a session} or {"refused": the code of CONNACK}
    subscribe name version filter qos [no_local as_published handling]     {"granted": the code of SUBACK}
    unsubscribe name filter                 {}
    publish name topic qos retain payloads [content_type response_topic correlation expiry format user_properties]
                                            {"reasons": the code of each acknowledgement, 0 in 3.1.1 and with QoS 0}
    receive name count                      {"messages": so many, which may have come before}
    arrived name                            {"count": of messages that have come and were not received yet}
    disconnect name                         {}
    forget name                             {}, where the connection has been cut

``name`` is that of a connection. Payloads are hexadecimal, several are separated by commas, as user properties are
(``key=value``); what is true is 1.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from tests.support.relay import Relay

__all__ = ["WAIT_S", "Device", "Foreign", "Program", "Received"]

WAIT_S = 60.0
"""Longer than any answer takes."""

_numbers = count(1)


class Foreign(Protocol):
    """A foreign client, with as many connections as tests need."""

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        """Do something; what came of it."""
        ...

    def close(self) -> None:
        """End it."""
        ...


class Program:
    """A foreign client that is a program of its own: requests go in line by line, and replies come out.

    Args:
        command: which starts it.
        log: where its standard error goes.
        environment: of the program.
        fixed: options of every request.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, **fixed: Any
    ) -> None:
        self._log = log
        self._fixed = fixed
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def with_options(self, **fixed: Any) -> Foreign:
        """Another client of the same program."""
        return _Part(self, fixed)

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(query(do, **self._fixed, **options) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._last_words()
        reply: dict[str, Any] = json.loads(line)
        assert "failed" not in reply, f"{do} {options}: {reply['failed']}\n{self._last_words()}"
        return reply

    def _last_words(self) -> str:
        return self._log.read_text()[-2000:]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Part:
    def __init__(self, program: Program, fixed: dict[str, Any]) -> None:
        self._program = program
        self._fixed = fixed

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        return self._program.ask(do, **self._fixed, **options)

    def close(self) -> None:
        """The program is closed by who started it."""


def query(do: str, **options: Any) -> str:
    """A request as it is written for programs; what is None is left out."""
    told = {name: int(value) if isinstance(value, bool) else value for name, value in options.items()}
    return urlencode({"do": do, **{name: value for name, value in told.items() if value is not None}})


class Received(NamedTuple):
    """A message that came to a client."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any]

    @classmethod
    def read(cls, told: dict[str, Any]) -> Received:
        told = dict(told)
        return cls(
            told.pop("topic"), bytes.fromhex(told.pop("payload")), told.pop("qos"), bool(told.pop("retain")), told
        )


class Device:
    """One connection of a foreign client, over a relay that can be cut.

    Args:
        client: which speaks.
        port: of the broker.
        version: 4 is MQTT 3.1.1, 5 is 5.0.
        client_id: one of its own without.
        is_clean: whether an earlier session is forgotten.
        user: the name to log in with.
        password: the password to log in with.
        has_cut: whether it can be cut off; its connection takes the way over a relay.
        options: further ones of ``connect``.

    Attributes:
        is_present: whether the broker had a session of the client.
        refused: the code of a CONNACK that refused it; None if it is connected.
    """

    def __init__(
        self,
        client: Foreign,
        port: int,
        version: int,
        *,
        client_id: str | None = None,
        is_clean: bool = True,
        user: str | None = None,
        password: str | None = None,
        has_cut: bool = False,
        **options: Any,
    ) -> None:
        self.client_id = client_id or f"device-{next(_numbers)}"
        self.name = f"{self.client_id}/{next(_numbers)}"
        self.version = version
        self._client = client
        self._relay = Relay(port) if has_cut else None
        reply = client.ask(
            "connect",
            name=self.name,
            port=self._relay.port if self._relay else port,
            version=version,
            id=self.client_id,
            clean=is_clean,
            user=user,
            password=password,
            **options,
        )
        self.refused: int | None = reply.get("refused")
        self.is_present: bool = reply.get("present", False)
        self.is_connected = self.refused is None

    def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> int:
        """Subscribe; the code that the broker answers."""
        reply = self._client.ask(
            "subscribe", name=self.name, version=self.version, filter=topic_filter, qos=qos, **options
        )
        granted: int = reply["granted"]
        return granted

    def unsubscribe(self, topic_filter: str) -> None:
        self._client.ask("unsubscribe", name=self.name, filter=topic_filter)

    def publish(self, topic: str, *payloads: bytes, qos: int = 0, retain: bool = False, **options: Any) -> list[int]:
        """Publish, and wait for all acknowledgements; their codes."""
        told = ",".join(payload.hex() for payload in payloads)
        reply = self._client.ask(
            "publish", name=self.name, topic=topic, qos=qos, retain=retain, payloads=told, **options
        )
        reasons: list[int] = reply["reasons"]
        return reasons

    def receive(self, number: int) -> list[Received]:
        """The next messages, so many."""
        return [Received.read(told) for told in self._client.ask("receive", name=self.name, count=number)["messages"]]

    def arrived(self) -> int:
        """The number of messages that have come, and that nobody has received yet."""
        number: int = self._client.ask("arrived", name=self.name)["count"]
        return number

    def receive_bodies(self, number: int) -> list[bytes]:
        return [message.payload for message in self.receive(number)]

    def disconnect(self) -> None:
        """Leave in order."""
        if self.is_connected:
            self.is_connected = False
            self._client.ask("disconnect", name=self.name)
            self._end()

    def cut(self) -> None:
        """End the connection without a word."""
        assert self._relay is not None
        self.is_connected = False
        self._relay.cut()
        self._client.ask("forget", name=self.name)
        self._end()

    def _end(self) -> None:
        if self._relay is not None:
            self._relay.cut()


Connect = Callable[..., Device]
