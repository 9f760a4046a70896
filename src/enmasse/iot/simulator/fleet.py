"""A fleet of simulated devices: what they send, how often, which come and go, and what is counted of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import secrets
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from enmasse.errors import EnmasseError
from enmasse.iot.simulator.devices import Make, SimulatedDevice

AT_ONCE: Final = 50
"""Devices that connect at the same time."""

RETRY_S: Final = 2.0
MAX_LATENCIES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a fleet.

    Attributes:
        period_s: the time between two messages of a device.
        kind: ``telemetry`` or ``event``.
        churn: the share of devices that disconnect in a minute, and come back.
        faults: the share of messages that are wrong: a value out of bounds, none, or no JSON.
        seed: the seed of chance.
    """

    period_s: float = 10.0
    kind: str = "telemetry"
    churn: float = 0.0
    faults: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Member:
    """A device of a fleet.

    Attributes:
        name: its id.
        user: the auth-id with the tenant.
        password: the password of the device.
        make: makes it, in its protocol.
    """

    name: str
    user: str
    password: str
    make: Make


class Fleet:
    """Simulated devices; ``run`` goes on until it is cancelled.

    Args:
        members: the devices.
        plan: the plan of what they do.

    Attributes:
        counts: connected, sent, taken, refused, commands, failures and reconnections.
        latencies_s: the times that acknowledgements took.
        problems: the failures, and how often they came.
    """

    def __init__(self, members: Sequence[Member], plan: Plan) -> None:
        self._members = members
        self._plan = plan
        self._room = asyncio.Semaphore(AT_ONCE)
        self.counts: Counter[str] = Counter()
        self.latencies_s: list[float] = []
        self.problems: Counter[str] = Counter()
        self.settings: dict[str, float] = {}
        """The setpoint of each device, as commands have set it."""
        self.ready = asyncio.Event()
        """Set when every device has connected once."""

    async def run(self) -> None:
        """Have all devices connect and send, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number, member in enumerate(self._members):
                tasks.create_task(self._live(member, random.Random(f"{self._plan.seed} {number}")))  # noqa: S311

    async def _live(self, member: Member, chance: random.Random) -> None:
        has_been = False
        while True:
            device = member.make(member.user, member.password, self._commanded(member.name))
            try:
                async with self._room:
                    await device.start()
            except (EnmasseError, TimeoutError) as error:
                self._note(error)
                await asyncio.sleep(RETRY_S * chance.uniform(0.5, 1.5))
                continue
            self.counts["connected"] += 1
            self.counts["reconnections"] += has_been
            if not has_been:
                has_been = True
                self.counts["arrived"] += 1
                if self.counts["arrived"] == len(self._members):
                    self.ready.set()
            try:
                await self._send_on(device, member, chance)
            except (EnmasseError, TimeoutError) as error:
                self._note(error)
            finally:
                self.counts["connected"] -= 1
                await device.stop()

    async def _send_on(self, device: SimulatedDevice, member: Member, chance: random.Random) -> None:
        """Send until the device leaves."""
        plan = self._plan
        phase = chance.uniform(0, 2 * math.pi)
        leaves = plan.churn * plan.period_s / 60
        await asyncio.sleep(chance.uniform(0, plan.period_s))
        while True:
            began = time.monotonic()
            payload = reading(member.name, phase, self.settings.get(member.name, 20.0), chance, plan.faults)
            self.counts["sent"] += 1
            if await device.send(plan.kind, payload):
                self.counts["taken"] += 1
                if len(self.latencies_s) < MAX_LATENCIES:
                    self.latencies_s.append(time.monotonic() - began)
            else:
                self.counts["refused"] += 1
            if chance.random() < leaves:
                return
            await asyncio.sleep(max(0.0, plan.period_s - (time.monotonic() - began)))

    def _commanded(self, name: str) -> Callable[[str, bytes], tuple[int, bytes]]:
        def obey(command: str, payload: bytes) -> tuple[int, bytes]:
            self.counts["commands"] += 1
            if command == "set":
                try:
                    self.settings[name] = float(payload)
                except ValueError:
                    return 400, b"the payload of set is a number"
            return 200, json.dumps({"device": name, "command": command}).encode()

        return obey

    def _note(self, error: Exception) -> None:
        self.counts["failures"] += 1
        if len(self.problems) < 100:
            self.problems[str(error)[:200]] += 1


def registration(name: str, password: str) -> dict[str, object]:
    """Return a device with a password of many random bits, as the registry imports it."""
    salt = secrets.token_bytes(8)
    digest = hashlib.sha256(salt + password.encode()).digest()
    # A password of so many random bits needs no slow hash.
    secret = {
        "hash-function": "sha-256",
        "pwd-hash": b64encode(digest).decode(),
        "salt": b64encode(salt).decode(),
    }
    return {
        "id": name,
        "ext": {"simulated": True},
        "credentials": [{"type": "hashed-password", "auth-id": name, "secrets": [secret]}],
    }


def reading(name: str, phase: float, level: float, chance: random.Random, faults: float) -> bytes:
    """Return what a device measures now: a wave around a level, in JSON, now and then wrong."""
    now = time.time()
    value = level + 5 * math.sin(now / 60 + phase) + chance.gauss(0, 0.3)
    fault = chance.random() < faults and chance.choice(("outlier", "empty", "garbage"))
    if fault == "garbage":
        return b"\x00 no JSON"
    if fault == "outlier":
        value *= 20
    document = {"device": name, "temperature": None if fault == "empty" else round(value, 2), "ts": round(now, 3)}
    return json.dumps(document).encode()
