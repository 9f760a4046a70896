"""A message that goes through each node and back, now and then: whether messaging works, not only management."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from enmasse.control.errors import NodeUnavailableError
from enmasse.errors import EnmasseError

if TYPE_CHECKING:
    from enmasse.control.ports import FiguresSource

__all__ = ["Canary"]

INTERVAL_S = 30.0
"""As often as EnMasse 1.0 sent its own; nobody who is woken for less would thank us."""

PATIENCE_S = 5.0
"""A node answers in a millisecond; so late, its clients have noticed."""

_log = logging.getLogger(__name__)


class Canary:
    """Sends a message through one node and waits for it.

    Args:
        source: the way to the node.
        interval_s: seconds between two messages.
        patience_s: how long each may take.

    Attributes:
        failures: messages that did not come back in time.
        check_failures: times that none could be sent, as the node was not reachable.
    """

    def __init__(
        self, source: FiguresSource, *, interval_s: float = INTERVAL_S, patience_s: float = PATIENCE_S
    ) -> None:
        self.failures = 0
        self.check_failures = 0
        self._source = source
        self._interval_s = interval_s
        self._patience_s = patience_s

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            await self.check()

    async def check(self) -> bool:
        """Send one now, and tell whether it came back."""
        try:
            async with asyncio.timeout(self._patience_s):
                await self._source.ping()
        except NodeUnavailableError as error:
            self.check_failures += 1
            _log.info("no canary for node %s: %s", self._source.name, error)
        except (TimeoutError, EnmasseError) as error:
            self.failures += 1
            _log.warning("the canary of node %s did not come back: %s", self._source.name, error or "too late")
        else:
            return True
        return False
