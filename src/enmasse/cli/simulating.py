"""Plays simulated devices at an installation: registers them, and shows what they do."""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from enmasse.cli.errors import ApiError
from enmasse.cli.installation import find_endpoints
from enmasse.cli.output import Writer
from enmasse.iot.simulator.devices import AmqpDevice, Commanded, HttpDevice, MqttDevice, SimulatedDevice
from enmasse.iot.simulator.fleet import Fleet, Member, Plan, registration
from enmasse.net.loop import Turn

if TYPE_CHECKING:
    from enmasse.cli.api_client import ApiClient

_AT_ONCE: Final = 500
_REMOVED_AT_ONCE: Final = 8
_TIMEOUT_S: Final = 120.0
_SHOW_S: Final = 1.0
_MAX_CONNECTIONS: Final = 1_000


def register(api: ApiClient, tenant: str, names: Sequence[str]) -> dict[str, str]:
    """Register devices, each with a password of its own, and return the passwords, which are kept nowhere."""
    passwords = {name: secrets.token_urlsafe(16) for name in names}
    for at in range(0, len(names), _AT_ONCE):
        lines = [json.dumps(registration(name, passwords[name])) for name in names[at : at + _AT_ONCE]]
        api.exchange(
            "POST",
            f"/registry/v1/import/{tenant}",
            content="\n".join(lines),
            headers={"content-type": "application/x-ndjson"},
            params={"existing": "replace"},
            timeout=_TIMEOUT_S,
        )
    return passwords


def remove(api: ApiClient, tenant: str, names: Iterable[str]) -> int:
    """Delete devices with their credentials, and return how many there were; what is gone already does not count."""

    def delete(name: str) -> bool:
        try:
            api.exchange("DELETE", f"/registry/v1/devices/{tenant}/{name}", timeout=_TIMEOUT_S)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return True

    # Each waits for the disk, which several do together.
    with ThreadPoolExecutor(_REMOVED_AT_ONCE) as threads:
        return sum(threads.map(delete, names))


def play(
    data: Path, tenant: str, passwords: Mapping[str, str], plan: Plan, *, http: int, amqp: int, seconds: float
) -> Counter[str]:
    """Play devices until Ctrl-C, or for some seconds, and return what was counted."""
    endpoints = find_endpoints(data)
    urls = {name: endpoints.url(name) or "" for name in ("mqtt", "http", "amqp")}
    writer = Writer()

    async def show(fleet: Fleet) -> None:
        before: Counter[str] = Counter()
        while True:
            await asyncio.sleep(_SHOW_S)
            counts = fleet.counts
            rate = (counts["taken"] - before["taken"]) / _SHOW_S
            before = counts.copy()
            worst = sorted(fleet.latencies_s[-1_000:])
            p99 = f"{worst[int(len(worst) * 0.99)] * 1000:.0f} ms" if worst else "-"
            writer.say(
                f"{counts['connected']:>6} connected  {rate:>7.0f} messages/s  {counts['taken']:>8} taken  "
                f"{counts['refused']:>6} refused  {counts['commands']:>5} commands  p99 {p99}"
            )

    async def run() -> Fleet:
        turn = Turn(asyncio.get_running_loop())
        limits = httpx.Limits(max_connections=_MAX_CONNECTIONS)
        async with httpx.AsyncClient(limits=limits, verify=ssl.create_default_context()) as client:

            def over_http(user: str, password: str, commanded: Commanded) -> SimulatedDevice:
                return HttpDevice(client, urls["http"], user, password, commanded)

            def over_amqp(user: str, password: str, commanded: Commanded) -> SimulatedDevice:
                return AmqpDevice(urls["amqp"], user, password, commanded)

            def over_mqtt(user: str, password: str, commanded: Commanded) -> SimulatedDevice:
                return MqttDevice(turn, urls["mqtt"], user, password, commanded)

            makers = [over_http] * http + [over_amqp] * amqp + [over_mqtt] * (len(passwords) - http - amqp)
            members = [
                Member(name, f"{name}@{tenant}", password, make)
                for (name, password), make in zip(passwords.items(), makers, strict=True)
            ]
            fleet = Fleet(members, plan)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds or None), asyncio.TaskGroup() as tasks:
                    tasks.create_task(fleet.run())
                    tasks.create_task(show(fleet))
            return fleet

    fleet = asyncio.run(run())
    for problem, count in fleet.problems.most_common(3):
        writer.note(f"{count} times: {problem}")
    return fleet.counts
