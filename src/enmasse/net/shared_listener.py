"""Accepts connections from a socket that several processes listen on, so that each gets about as many.

Left alone, the process that the kernel wakes first would take most of what comes one by one.

Rules:
1. Each process tells the others how many connections it has (``Siblings``), and that it takes none, if it is full,
   stopping, or not there yet.
2. A process takes one connection each time its loop comes round. One that is more than ``AHEAD`` ahead of the least
   leaves what comes to the others for ``YIELD_S``. What is still there then, it takes: the others are busy, or hang.
3. One that is full leaves everything to the others, as long as one of them is not. Once all are full, it takes
   connections to tell them so.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

    from enmasse.net.connection_limiter import ConnectionLimiter

AHEAD: Final = 8
"""Connections that one may have more than another, and an eighth of that one's: so few make no difference."""

YIELD_S: Final = 0.002
"""The time that an idle process needs to take a connection, several times over."""

FULL_YIELD_S: Final = 0.05

_AT_ONCE: Final = 16
"""Connections that one takes which the others have left to it: so it does not take all that wait."""

_RETRY_S: Final = 1.0
"""The time after which one that has no descriptors left tries again, as asyncio does."""

_COUNT: Final = struct.Struct("=I")
_NONE: Final = 0xFFFFFFFF
"""The count of a process that takes no connections."""

_log = logging.getLogger(__name__)


def no_counts(processes: int) -> bytes:
    """Return the first contents of the memory that so many processes share."""
    return _COUNT.pack(_NONE) * processes


class Siblings:
    """The connections of each of the processes that listen on the same sockets, in memory that they share.

    Args:
        descriptor: the memory; see ``no_counts``.
        index: the number of this process among them.

    Raises:
        OSError: the descriptor is no such memory.
        ValueError: there is no such number.
    """

    def __init__(self, descriptor: int, index: int) -> None:
        self._memory = mmap.mmap(descriptor, 0)
        self._counts = memoryview(self._memory).cast("I")
        if not 0 <= index < len(self._counts):
            raise ValueError(f"there are {len(self._counts)} processes, and none is number {index}")
        self._index = index
        self.tell(None)  # whatever a former process of this number has said

    def tell(self, count: int | None) -> None:
        """Tell the others how many connections this process has; None: it takes none."""
        self._counts[self._index] = _NONE if count is None else count

    def least(self) -> int | None:
        """Return the fewest connections that another process has which takes more; None if none does."""
        own = self._index
        found = min((count for index, count in enumerate(self._counts) if index != own), default=_NONE)
        return None if found == _NONE else found


class SharedListener:
    """One socket that other processes listen on, too.

    Args:
        loop: the event loop.
        listening: the socket, which is bound.
        backlog: the connections that the kernel holds until they are accepted.
        make_protocol: makes the protocol of a connection.
        siblings: what the processes tell each other.
        limiter: counts the connections of this one.

    Attributes:
        sockets: the socket.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        backlog: int,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        siblings: Siblings,
        limiter: ConnectionLimiter,
    ) -> None:
        self._loop = loop
        self.sockets = (listening,)
        self._socket = listening
        self._make_protocol = make_protocol
        self._siblings = siblings
        self._limiter = limiter
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        listening.setblocking(False)
        listening.listen(backlog)
        loop.add_reader(listening, self._on_readable)

    def close(self) -> None:
        """Accept no more; what waits is for the others."""
        if self._socket.fileno() >= 0:
            if self._timer is None:
                self._loop.remove_reader(self._socket)
            else:
                self._timer.cancel()
            self._socket.close()

    def _on_readable(self) -> None:
        least = self._siblings.least()
        if least is None:
            self._accept()
        elif self._limiter.is_full:
            self._wait(FULL_YIELD_S)
        elif len(self._limiter) > least + AHEAD + least // 8:
            self._wait(YIELD_S)
        else:
            self._accept()

    def _wait(self, seconds: float) -> None:
        self._loop.remove_reader(self._socket)
        self._timer = self._loop.call_later(seconds, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._loop.add_reader(self._socket, self._on_readable)
        if not self._limiter.is_full:
            for _ in range(_AT_ONCE):
                if not self._accept():
                    break

    def _accept(self) -> bool:
        """Take a connection; return false if there is none."""
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as error:
            _log.error("no connection can be accepted: %s; trying again", error.strerror)
            self._wait(_RETRY_S)
            return False
        accepted.setblocking(False)
        task = self._loop.create_task(self._connect(accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _connect(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError:  # the peer has gone meanwhile
            accepted.close()
