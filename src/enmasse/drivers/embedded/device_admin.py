"""The driver of the devices' side of a node: questions and answers over its private socket."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from enmasse.client import Message
from enmasse.control.errors import NodeUnavailableError
from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin
from enmasse.drivers.embedded.node_admin import _Errors as Errors

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    from enmasse.client import Sender

_ASKED, _TOLD = "$devices", "$registry"
_CREDIT = 200
"""Questions that may be on their way; the node keeps a bounded number of others."""


class AmqpDeviceAdmin(AmqpNodeAdmin):
    """Serves the devices' side of one node; ``connections`` keeps the connection up while it is iterated."""

    _sender: Sender | None = None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[asyncio.Event]:
        async with super()._connected() as lost:
            assert self._connection is not None
            async with self._connection.sender(_TOLD) as sender:
                self._sender = sender
                try:
                    yield lost
                finally:
                    self._sender = None

    async def told(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what the node asks and tells, until the connection ends."""
        if self._connection is None:
            raise NodeUnavailableError(f"node {self._name} is not connected")
        with Errors():
            async with self._connection.receiver(_ASKED, credit=_CREDIT, settled=True) as receiver:
                while (delivery := await receiver.receive()) is not None:
                    yield json.loads(delivery.message.body)

    async def tell(self, document: dict[str, Any]) -> None:
        """Tell the node something, or answer it."""
        sender = self._sender
        if sender is None:
            raise NodeUnavailableError(f"node {self._name} is not connected")
        with Errors():
            await sender.send(Message(json.dumps(document)))
