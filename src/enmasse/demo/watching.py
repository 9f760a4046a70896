"""Looks at the platform from outside: its addresses through management, its processes by their ids."""

from __future__ import annotations

import asyncio
import time

from enmasse.client import connect
from enmasse.client.management import Management
from enmasse.demo.devices import SPACE
from enmasse.demo.figures import AddressFigures, Figures
from enmasse.demo.service import Service
from enmasse.errors import EnmasseError

__all__ = ["watch_platform"]

INTERVAL_S = 1.0
_ATTRIBUTES = (
    "space",
    "address",
    "addressType",
    "senders",
    "receivers",
    "messagesStored",
    "messagesIn",
    "messagesOut",
)


async def watch_platform(service: Service, figures: Figures) -> None:
    """Keep the figures of the addresses fresh until cancelled, through restarts of the node."""
    pid: int | None = None
    while True:
        nodes = service.processes("node")
        if nodes:
            new = int(nodes[0]["pid"])
            figures.node_restarts += pid is not None and new != pid
            pid = new
        try:
            await _watch_node(service, figures, pid)
        except (EnmasseError, OSError, TimeoutError):
            for address in figures.addresses.values():
                address.in_rate = address.out_rate = 0.0
        await asyncio.sleep(INTERVAL_S)


async def _watch_node(service: Service, figures: Figures, pid: int | None) -> None:
    url = service.admin_url()
    if url is None:
        return
    async with connect(url, container_id="demo", reconnect=False) as connection:
        management = Management(connection)
        looked = 0.0
        while True:
            async with asyncio.timeout(10.0):
                everything = await management.query("io.enmasse.address", list(_ATTRIBUTES))
            found = [attributes for attributes in everything if attributes["space"] == SPACE]
            now = time.monotonic()
            for attributes in found:
                _take(figures, attributes, now - looked if looked else 0.0)
            known = {str(attributes["address"]) for attributes in found}
            for gone in set(figures.addresses) - known:
                del figures.addresses[gone]
            looked = now
            nodes = service.processes("node")
            if nodes and nodes[0]["pid"] != pid:
                return
            await asyncio.sleep(INTERVAL_S)


def _take(figures: Figures, attributes: dict[str, object], seconds: float) -> None:
    def count(name: str) -> int:
        value = attributes.get(name)
        return value if isinstance(value, int) else 0

    name = str(attributes["address"])
    before = figures.addresses.get(name)
    now = AddressFigures(
        name,
        str(attributes.get("addressType", "")),
        count("senders"),
        count("receivers"),
        count("messagesStored"),
        count("messagesIn"),
        count("messagesOut"),
    )
    if before is not None and seconds > 0:
        # A restarted node counts from zero again.
        now.in_rate = max(0, now.messages_in - before.messages_in) / seconds
        now.out_rate = max(0, now.messages_out - before.messages_out) / seconds
    figures.addresses[name] = now
