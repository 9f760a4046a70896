"""Connections end with the tokens that they were opened with.

Who wants to stay comes again with a new token. A password that a provider has found right has no end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from enmasse.wire.amqp.performatives import AmqpError

if TYPE_CHECKING:
    from enmasse.node.binding import Binding
    from enmasse.node.federation import Federation

__all__ = ["Expiry"]

LOOK_S = 3_600.0
"""Between two looks at the clock at most: somebody may set it."""


class Expiry:
    """Closes connections whose tokens have ended; one of the watchers of a node's connections.

    Args:
        loop: whose timers it uses.
        wall: seconds since 1970 UTC.
        federation: says how far clocks may differ, and so how much longer a token is good.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wall: Callable[[], float], federation: Federation) -> None:
        self._loop = loop
        self._wall = wall
        self._federation = federation
        self._timers: dict[Binding, asyncio.TimerHandle] = {}

    def on_connected(self, binding: Binding, number: int) -> None:
        """Nobody has come in yet."""

    def on_opened(self, binding: Binding, number: int) -> None:
        """Somebody has come in: note until when."""
        self._look(binding)

    def on_closed(self, binding: Binding) -> None:
        """It is gone."""
        timer = self._timers.pop(binding, None)
        if timer is not None:
            timer.cancel()

    def _look(self, binding: Binding) -> None:
        self._timers.pop(binding, None)
        user = binding.admission.rights.user
        if user is None or user.identity is None or user.identity.expires_at is None:
            return
        settings = self._federation.settings_of(user.space)
        left_s = user.identity.expires_at + (settings.leeway_s if settings is not None else 0) - self._wall()
        if left_s > 0:
            self._timers[binding] = self._loop.call_later(min(left_s, LOOK_S), self._look, binding)
            return
        binding.connection.close(
            AmqpError("amqp:unauthorized-access", "the token has expired; connect again with a new one")
        )
