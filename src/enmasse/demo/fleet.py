"""Devices that speak through our own client, and a listener for what comes of it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from enmasse.client import Connection, Message, Outcome, connect
from enmasse.demo.devices import SPACE_HOST
from enmasse.demo.figures import DeviceFigures
from enmasse.errors import EnmasseError

__all__ = ["Device", "listen", "run_device"]

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 2.0


class Device(Protocol):
    """Something that measures."""

    name: str

    def measure(self, now: float) -> dict[str, Any]:
        """The message of this moment (seconds since 1970)."""


async def run_device(
    url: str, address: str, device: Device, figures: DeviceFigures, interval_s: float, stop: asyncio.Event
) -> None:
    """Measure and send until ``stop``, through any number of lost connections.

    A measurement is sent again until the address accepted it, so each one is stored at least once.
    """
    pause_s = FIRST_PAUSE_S
    message: Message | None = None
    while not stop.is_set():
        try:
            async with connect(url, hostname=SPACE_HOST, container_id=device.name, reconnect=False) as connection:
                sender = await connection.sender(address)
                while not stop.is_set():
                    if message is None:
                        body = json.dumps(device.measure(time.time())).encode()
                        message = Message(
                            body=body, subject=device.name, content_type="application/json", durable=True
                        )
                    if await sender.send(message) is Outcome.ACCEPTED:
                        figures.accepted += 1
                        message = None
                    else:
                        figures.retries += 1
                    pause_s = FIRST_PAUSE_S
                    await _pause(stop, interval_s)
        except (EnmasseError, OSError):
            figures.retries += 1
            await _pause(stop, pause_s * random.uniform(0.5, 1.0))  # noqa: S311  # spreads reconnects
            pause_s = min(pause_s * 2, LAST_PAUSE_S)


async def listen(url: str, address: str, take: Callable[[Mapping[str, Any]], None]) -> None:
    """Hear what an address is sent until cancelled; one that is sent again, with the id of one heard, is left out."""
    heard: set[object] = set()
    while True:
        try:
            async with connect(
                url, hostname=SPACE_HOST, container_id=f"demo-{address}", reconnect=False
            ) as connection:
                await _receive(connection, address, heard, take)
        except (EnmasseError, OSError):
            await asyncio.sleep(FIRST_PAUSE_S)


async def _receive(
    connection: Connection,
    address: str,
    heard: set[object],
    take: Callable[[Mapping[str, Any]], None],
) -> None:
    receiver = await connection.receiver(address)
    async for delivery in receiver:
        message = delivery.message
        await delivery.accept()
        if message.message_id in heard:
            continue
        heard.add(message.message_id)
        try:
            alert = json.loads(message.body)
        except (TypeError, ValueError):
            alert = {"text": repr(message.body)}
        take(alert if isinstance(alert, dict) else {"text": str(alert)})


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
