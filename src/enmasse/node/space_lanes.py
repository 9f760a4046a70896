"""Gives the connections of each space their share of the node's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from enmasse.net.lanes import Lanes, Load

if TYPE_CHECKING:
    from enmasse.messaging.space import Space
    from enmasse.net.loop import Turn
    from enmasse.node.binding import Binding
    from enmasse.node.connections import Connections
    from enmasse.storage.link import JournalLink

__all__ = ["SpaceLanes"]

FEW_BYTES: Final = 2 << 10
"""Larger batches are those of who sends all he can: longer turns have him wait for fewer of them."""


class SpaceLanes:
    """Hears of a node's connections and puts each into the lane of its space.

    Args:
        connections: of the node.
        admin: the space of the node's own connections, which never wait.
        turn: of its loop.
        journal: tells what waits for a commit.
    """

    def __init__(self, connections: Connections, admin: Space, turn: Turn, journal: JournalLink) -> None:
        self._connections = connections
        self._admin = admin
        self._lanes = Lanes(turn, lambda: 0 < journal.unconfirmed_bytes <= FEW_BYTES)

    def on_connected(self, binding: Binding, number: int) -> None:
        """Nobody knows yet to which space it belongs."""

    def on_opened(self, binding: Binding, number: int) -> None:
        """It belongs to a space."""
        if binding.space is not None and binding.space is not self._admin:
            self._connections.shells[binding].load = Load(self._lanes.of(binding.space.name), self._lanes.turn.now)

    def on_closed(self, binding: Binding) -> None:
        """Its shell is gone, and the lane with the last of them."""
