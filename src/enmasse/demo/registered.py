"""The devices of the demonstration in the device registry, and the commands that answer their alerts.

Commands are stored: they wait for their device, whatever protocol it speaks, and are worthless after a while.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from enmasse.demo.devices import COOL, TENANT
from enmasse.demo.figures import CommandFigures, Figures
from enmasse.demo.service import Service
from enmasse.drivers.data_directory import Layout
from enmasse.errors import UnavailableError
from enmasse.iot.simulator.fleet import registration
from enmasse.pipeline.host.api import api_client

INTERVAL_S: Final = 0.5
TTL_S: Final = 60
"""The time that a device may take to come and be cooled."""

_ENDED: Final = ("accepted", "rejected", "expired", "failed")


class Registered:
    """Registers devices, and sends commands to them.

    Args:
        service: the platform.
        figures: gets the commands.
    """

    def __init__(self, service: Service, figures: Figures) -> None:
        self._service = service
        self._figures = figures
        self._alerts: asyncio.Queue[str] = asyncio.Queue()

    async def register(self, names: Sequence[str]) -> dict[str, str]:
        """Register devices, and return their passwords, which are kept nowhere.

        Raises:
            UnavailableError: the registry refuses them.
        """
        passwords = {name: secrets.token_urlsafe(16) for name in names}
        lines = "\n".join(json.dumps(registration(name, password)) for name, password in passwords.items())
        async with self._client() as client:
            answer = await client.post(
                f"/registry/v1/import/{TENANT}",
                params={"existing": "replace"},
                content=lines,
                headers={"content-type": "application/x-ndjson"},
            )
        if answer.status_code != 200 or answer.json()["failed"]:
            raise UnavailableError(f"the devices cannot be registered: {answer.text:.300}")
        return passwords

    def take(self, alert: Mapping[str, Any]) -> None:
        """Answer an alert: a device that is too hot is to cool."""
        if alert.get("state") == "raised" and alert.get("metric") == "temperature" and "device" in alert:
            self._alerts.put_nowait(str(alert["device"]))

    async def command(self) -> None:
        """Send the commands, and follow each to its end, until cancelled."""
        followed: set[asyncio.Task[None]] = set()
        async with self._client() as client:
            try:
                while True:
                    device = await self._alerts.get()
                    task = asyncio.create_task(self._follow(client, device))
                    followed.add(task)
                    task.add_done_callback(followed.discard)
            finally:
                for task in followed:
                    task.cancel()

    async def _follow(self, client: httpx.AsyncClient, device: str) -> None:
        command = CommandFigures(device, COOL, time.time())
        asked = {"name": COOL, "ttl": TTL_S, "supersede-key": COOL, "response-required": True}
        path = f"/registry/v1/commands/{TENANT}"
        identity = ""
        while command.state not in _ENDED:
            try:
                if not identity:
                    answer = await client.post(f"{path}/{device}", json=asked)
                    if answer.status_code == 404:  # it is none of the registered ones
                        return
                    identity = str(answer.raise_for_status().json()["id"])
                    self._figures.commands.append(command)
                else:
                    answer = await client.get(f"{path}/{identity}")
                    command.state = str(answer.raise_for_status().json()["state"])
            except (httpx.HTTPError, ValueError, KeyError):
                pass  # the platform does not answer now
            await asyncio.sleep(INTERVAL_S)

    def _client(self) -> httpx.AsyncClient:
        return api_client(str(self._service.url("api")), Layout(self._service.data).operator_token)
