"""Events that a node sends of devices by itself, as Hono's adapters do, for the tenants that wish them.

Rules:
1. A tenant's ``ext`` has ``connection-events``: a device is connected, or disconnected with the reason; and
   ``ttd-events``: it listens for commands until further notice, or does not any more.
2. Nobody waits for them: one for which the tenant's address has no room is dropped. They use up nothing of the
   tenant's data volume.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from enmasse.errors import RemoteError
from enmasse.messaging.delivery import NoPort
from enmasse.node.devices.messages import EMPTY, Downstream, Sent
from enmasse.node.devices.tenants import EVENT

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.node.devices.tenants import Device

CONNECTION_EVENT: Final = "application/vnd.eclipse-hono-dc-notification+json"

UNTIL_FURTHER_NOTICE: Final = -1


class Notifications:
    """Sends events of devices.

    Args:
        spaces: returns the spaces by name.
        now_ms: returns the time in milliseconds since 1970 UTC.
    """

    def __init__(self, spaces: Callable[[], Mapping[str, Space]], now_ms: Callable[[], int]) -> None:
        self._spaces = spaces
        self._now_ms = now_ms

    def connected(self, device: Device, adapter: str, client: str) -> None:
        """Tell that a device is connected."""
        self._tell_connection(device, adapter, client, "connected", None)

    def disconnected(self, device: Device, adapter: str, client: str, reason: str) -> None:
        """Tell that a device is not connected any more, and why, if that is known."""
        self._tell_connection(device, adapter, client, "disconnected", {"reason": reason} if reason else None)

    def _tell_connection(
        self, device: Device, adapter: str, client: str, cause: str, data: dict[str, Any] | None
    ) -> None:
        if not device.tenant.has_connection_events:
            return
        told = {"cause": cause, "remote-id": client, "source": adapter}
        body = json.dumps(told | ({} if data is None else {"data": data})).encode()
        self._send(Sent(EVENT, device, adapter, EVENT, content_type=CONNECTION_EVENT), body)

    def ready(self, device: Device, adapter: str) -> Callable[[], None]:
        """Tell that a device listens for commands until further notice; return what tells that it does not."""
        if not device.tenant.has_ttd_events:
            return _nothing
        self._tell_ttd(device, adapter, UNTIL_FURTHER_NOTICE)
        is_ready = True

        def end() -> None:
            nonlocal is_ready
            if is_ready:
                is_ready = False
                self._tell_ttd(device, adapter, 0)

        return end

    def _tell_ttd(self, device: Device, adapter: str, ttd_s: int) -> None:
        self._send(Sent(EVENT, device, adapter, EVENT, content_type=EMPTY, ttd_s=ttd_s), b"")

    def _send(self, sent: Sent, body: bytes) -> None:
        space = self._spaces().get(sent.device.tenant.space)
        if space is None:
            return
        try:
            address = space.find_target(sent.address)
            message = Downstream(sent, is_partitioned=address.is_read_by_offset).uncounted(body, self._now_ms())
            address.make_producer(NoPort(), sent.address).on_crossed(message, 0, True, 0)
        except RemoteError:
            space.unroutable += 1


def _nothing() -> None:
    pass
