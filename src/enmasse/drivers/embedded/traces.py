"""Driver of a node's traces: the frames of one connection of a space, as lines of text."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from enmasse.control.errors import NodeRefusedError
from enmasse.control.ports import TracedFrame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from enmasse.client import Receiver
    from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin

_FRAMES = {name: f"enmasse.wire.{name}.trace" for name in ("amqp", "http", "mqtt", "stomp")}
"""The modules that read the frames of each protocol."""


class AmqpTracer:
    """The traces of one node.

    Args:
        node: its management.
    """

    def __init__(self, node: AmqpNodeAdmin) -> None:
        self._node = node

    @asynccontextmanager
    async def trace(self, space: str, connection: str, payload: int) -> AsyncIterator[AsyncIterator[TracedFrame]]:
        """Yield the frames of a connection for the time of a block; see ``FrameTracer``."""
        if not await self._is_of(space, connection):
            raise NodeRefusedError(404, f"space {space} has no connection {connection:.40}")
        async with self._node.trace(connection, payload) as receiver:
            yield _frames(receiver, payload)

    async def _is_of(self, space: str, connection: str) -> bool:
        offset = 0
        while True:
            page, has_more = await self._node.connections_of(space, offset)
            if any(str(item["name"]) == connection for item in page):
                return True
            offset += len(page)
            if not has_more:
                return False


def hop_lines(number: str, about: Mapping[str, Any]) -> list[str]:
    """Return what a trace says of a connection that goes on behind a connector; nothing of another.

    Args:
        number: its number, with the connector's name behind.
        about: the facts of the connection, as the node tells them.
    """
    if not about.get("connector"):
        return []
    first = f"connection {number.partition('/')[0]} goes on as {number}: connector {about['connector']} to "
    lines = [f"{first}{about['host']}, container {about['container']!r}"]
    for link in about.get("links", ()):
        where = f"channel {link['channel']}, handle {link['handle']}"
        lines.append(f"{number} has the {link['role']} {link['name']!r} of {link['address']!r} there: {where}")
    return lines


async def _frames(receiver: Receiver, payload: int) -> AsyncIterator[TracedFrame]:
    protocol = "amqp"
    dropped = 0
    while (delivery := await receiver.receive()) is not None:
        body: Any = delivery.message.body
        for number, about in body.get("connections", {}).items():
            for line in (lines := hop_lines(str(number), about)):
                yield TracedFrame("", True, line, 0)
            if not lines:
                protocol = str(about.get("protocol") or protocol)
        for time_us, number, is_outgoing, frame, size in body.get("records", ()):
            moment = datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="microseconds")
            _, _, connector = str(number).partition("/")
            module = _FRAMES.get("amqp" if connector else protocol)
            frames = None if module is None else cast("Any", import_module(module))
            text = f"{size} bytes" if frames is None else frames.describe(frame, payload)
            if connector:
                text = f"{connector}: {text}"
            yield TracedFrame(moment.replace("+00:00", "Z"), bool(is_outgoing), text, int(size))
        if (lost := int(body.get("dropped", 0))) > dropped:
            yield TracedFrame("", True, f"{lost - dropped} frames came too fast and are not shown", 0)
            dropped = lost
        if body.get("ended"):
            return
