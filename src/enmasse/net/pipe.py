"""A pipe between two connections: what comes from one is written to the other, unread.

Each end is an engine of ``transport.py``. Rules:
1. What one read brings is written at the end of the turn, with all else that has come for that side.
2. A side that takes no more (``block_output``) has the other one left unread, and nothing else: the two directions
   do not wait for each other.
3. When one side says that nothing more comes from it, the other one is told the same and goes on to speak: a client
   may still read what it is answered.
4. When one side is gone, the other one is closed once it was written everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from enmasse.net.transport import Engine, EngineProtocol

if TYPE_CHECKING:
    import asyncio

TURN_BYTES: Final = 1 << 20
"""The output above which ``more_out`` is asked: more than a read brings."""

LAST_S: Final = 60.0
"""The time that a home may take to read the last bytes of a client that has gone: one that is busy, or holds back
what it cannot pass on, would have found them in the client's own socket."""


class PipeEnd:
    """One end of a pipe.

    Args:
        ended: called once, as this side has ended.
    """

    __slots__ = (
        "_ended", "_other", "admits", "closed", "has_more", "is_blocked", "is_ending", "is_held", "is_late",
        "is_paused", "more_out", "out", "out_bytes", "out_room", "wake",
    )  # fmt: skip

    def __init__(self, ended: Callable[[], None] | None = None) -> None:
        self.out: list[bytes | memoryview] = []
        self.out_bytes = 0
        self.out_room = TURN_BYTES
        self.more_out: Callable[[int], bool] = _enough
        self.admits: Callable[[int], bool] = _enough
        self.wake: Callable[[Any], None] = _nobody
        self.is_late: Callable[[bool], bool] = _never
        self.has_more = False
        self.is_paused = False
        self.is_blocked = False
        self.is_held = False
        self.closed = False
        self.is_ending = False
        """True once nothing more is put out."""
        self._ended = ended
        self._other: PipeEnd | None = None

    def join(self, other: PipeEnd) -> None:
        """Make this and another one the two ends of a pipe."""
        self._other, other._other = other, self

    def receive(self, data: bytes, now: float) -> None:
        """Pass bytes on to the other side."""
        other = self._other
        if other is not None and data:
            other.put(data)

    def put(self, data: bytes | memoryview) -> None:
        """Have bytes written at the end of the turn."""
        if not self.out:
            self.wake(self)
        self.out.append(data)
        self.out_bytes += len(data)
        if self.out_bytes > self.out_room and not self.more_out(self.out_bytes):
            self.block_output()

    def pending_output(self) -> list[bytes | memoryview]:
        """Return what is to be written."""
        out = self.out
        self.out = []
        self.out_bytes = 0
        return out

    def next_deadline(self) -> float | None:
        """Return None: time is for those at the ends."""
        return None

    def handle_deadline(self, now: float) -> None:
        """Do nothing."""

    def block_output(self) -> None:
        """Have the other side left unread."""
        self.is_blocked = True
        if self._other is not None:
            self._other.hold(True)

    def resume_output(self) -> None:
        """Have the other side read on."""
        self.is_blocked = False
        if self._other is not None:
            self._other.hold(False)

    def hold(self, is_held: bool) -> None:
        """Leave this side unread, or read on."""
        if is_held is not self.is_held:
            self.is_held = is_held
            self.wake(self)

    def end_input(self) -> bool:
        """Tell the other side that this one says nothing more; return whether there is one that may still speak."""
        other = self._other
        if other is None:
            return False
        other.is_ending = True
        other.wake(other)
        return True

    def close(self) -> None:
        """Close this side once everything is written."""
        if not self.closed:
            self.closed = True
            self._part()
            self.wake(self)

    def lost(self) -> None:
        """End the other side, as this one is gone."""
        self.closed = True
        self._part()

    def _part(self) -> None:
        other, self._other = self._other, None
        ended, self._ended = self._ended, None
        if other is not None:
            other._other = None  # noqa: SLF001  they know each other
            other.close()
        if ended is not None:
            ended()


class HomeEngine(Engine, Protocol):
    """An engine that speaks to the home of a space.

    Attributes:
        out: what is to be written.
        is_ending: whether nothing more is said behind that.
    """

    out: Any
    is_ending: bool


class HomeProtocol(EngineProtocol):
    """A connection to the home of a space."""

    __slots__ = ()
    engine: HomeEngine
    linger_s = LAST_S

    def eof_received(self) -> bool:
        """Close the connection: a home that says nothing more hears nothing either."""
        return False

    def flush(self) -> None:
        """Write what the client has said, and that it says nothing more, if that is so."""
        super().flush()
        if self.engine.is_ending and not (self.engine.out or self.engine.closed or self.is_lost):
            self.engine.is_ending = False
            self.transport.write_eof()


class PipeProtocol(HomeProtocol):
    """The side of a pipe at the home of a space."""

    __slots__ = ()
    engine: PipeEnd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the engine: of a Unix socket there is nothing else to be known."""
        # uvloop's transports implement the interface without inheriting it.
        self.transport = cast("asyncio.Transport", transport)
        self.peer = "unix"
        # What a home does not read stays with the client, but for one read.
        self.transport.set_write_buffer_limits(high=0, low=0)
        self._take(self._make_engine(self))
        self._wake(self.engine)


def _enough(_size: int) -> bool:
    """Return true: what is asked for is there already."""
    return True


def _nobody(_engine: Any) -> None:
    """Wake nobody."""


def _never(_is_hot: bool) -> bool:
    """Return false: bytes are passed on whole."""
    return False
