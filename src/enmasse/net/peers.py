"""The sockets by which the nodes of a machine hand connections over to each other.

Each node listens on a socket of its own in a directory that only this user may look into. Whoever connects says with
a header (``wire/peer_header``) whose connection it hands over, and is answered before anything else.

Rules:
1. Both ends are processes of this user, as the system says; a header counts by the secret in it, which is for the
   receiver to compare.
2. A connection without a whole header has ``HEADER_S`` for it (``proxy_layer``), and there may be only so many.
3. A home that has not answered within ``ANSWER_S`` is away, as one is that cannot be reached: the caller goes on.
4. A connection whose caller has hung up is not taken, though its header and more came first: a client that was told
   to come again has said nothing, left no will and taken no session over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from enmasse.net.logs import log_event
from enmasse.net.proxy_layer import AwaitedHeaders, HeaderLayer, Proxied
from enmasse.wire.peer_header import Answer, PeerHeader, read_peer_header
from enmasse.wire.proxy_header import ProxyHeaderError

if TYPE_CHECKING:
    from enmasse.net.loop import Turn

ANSWER_S: Final = 5.0
"""The time in which a home answers: as long as clients wait for the end of a login without wondering, and long enough
for the commit of a large batch."""

_CREDENTIALS: Final = struct.Struct("3i")
"""Of a Unix socket's other end: process, user and group."""

_PF_EXITING: Final = 0x4

_log = logging.getLogger(__name__)


@cache
def path_of(directory: Path, node: str) -> Path:
    """Return the socket of a node."""
    return directory / f"{node}.sock"


def own_process(sock: socket.socket) -> int:
    """Return the process at the other end of a Unix socket; 0: it is of another user."""
    given = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(given)
    return pid if user == os.geteuid() else 0


def is_ending(pid: int) -> bool:
    """Return true if a process has ended, or has begun to: the kernel notes that before it closes its sockets."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return True
    # Behind the name, which may have anything in it: the state, and five fields later the flags of <linux/sched.h>.
    fields = stat.rpartition(b")")[2].split()
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _PF_EXITING)


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Return true if the other end of a connection has closed it, though what it said before may not be read yet."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


_NOBODY: Final = asyncio.Protocol()


class PeerLayer(HeaderLayer, asyncio.Protocol):
    """A connection that another node hands over, until its header is there.

    Then the socket is the protocol's above, and what comes takes no way through here.

    Args:
        awaited: the connections whose header has not come.
        judge: called with the header and this layer, which it has to ``take`` or ``refuse``, now or later.
    """

    __slots__ = ("_answer", "_awaited", "_given", "_judge", "_pid", "header", "proxied")

    def __init__(self, awaited: AwaitedHeaders, judge: Callable[[PeerHeader, PeerLayer], None]) -> None:
        super().__init__(_NOBODY)
        self._awaited = awaited
        self._judge = judge
        self._given = b""
        self._answer = b""
        self._pid = 0
        self.header: PeerHeader | None = None
        self.proxied: Proxied | None = None

    # A protocol to the socket, until the header is there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the header, if the other end may say anything."""
        super().connection_made(transport)
        self._pid = own_process(transport.get_extra_info("socket"))
        if self._pid:
            self._awaited.await_header(self)
        else:
            self.refuse("it is a process of another user")

    def data_received(self, data: bytes) -> None:
        """Take bytes of the header, and of what follows it."""
        if self.is_closing():
            return
        self._given += data
        try:
            found = read_peer_header(self._given)
        except ProxyHeaderError as error:
            self.refuse(str(error))
            return
        if found is not None:
            self._awaited.forget(self)
            header, size = found
            self.header, self._given = header, self._given[size:]
            front = header.front or "another node"
            self.proxied = Proxied(
                header.client, front, True, header.names, header.chain, front, self._pid, is_here=header.is_here
            )
            # What follows waits in the socket until it is known whose it is.
            self.lower.pause_reading()
            self._judge(header, self)

    def raise_to(self, upper: asyncio.Protocol) -> None:
        """Connect the protocol above, which hears nothing yet."""
        self.upper = upper
        self.lower.set_protocol(upper)
        upper.connection_made(self)

    def take(self, turn: Turn) -> None:
        """Tell the front that the connection is ours, and have the protocol above hear what has come.

        The front hears it with what the protocol says in this turn, or at its end.
        """
        given, self._given = self._given, b""
        if self.is_closing():
            return
        if has_hung_up(self.lower):
            self.refuse("its front has hung up meanwhile")
            return
        self._answer = bytes((Answer.TAKEN,))
        self.lower.resume_reading()
        if given:
            self.upper.data_received(given)
        turn.mark(self)

    def flush(self) -> None:
        """Tell the front what it has not been told."""
        if self._answer and not self.lower.is_closing():
            self.write(b"")

    def refuse(self, reason: str, answer: Answer | None = None) -> None:
        """Close the connection, and log why.

        Args:
            reason: for the log.
            answer: for the front; None: nobody is to be told anything.
        """
        self._awaited.forget(self)
        self._given = b""
        front = {} if self.header is None else {"front": self.header.front, "space": self.header.space}
        log_event(_log, logging.WARNING, "handover-refused", description=reason, **front)
        if answer is None:
            self.lower.abort()
        else:
            self.lower.write(bytes((answer,)))
            self.lower.close()

    def eof_received(self) -> bool | None:
        """Close the connection: nobody has begun to speak."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, whose header has not come, or not all of it."""
        self._awaited.forget(self)
        self._given = b""

    # A transport to the protocol above

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the front says of the client; what is not its to say, as the socket has it."""
        proxied = self.proxied
        if proxied is not None:
            if name == "proxied":
                return proxied
            if name in ("peername", "sockname"):
                found = proxied.header.source if name == "peername" else proxied.header.destination
                return "" if found is None else found
        return self.lower.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, behind the answer."""
        if self._answer:
            answer, self._answer = self._answer, b""
            data = answer + data
        self.lower.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several chunks, behind the answer."""
        self.flush()
        self.lower.writelines(list_of_data)

    def close(self) -> None:
        """Close when everything is written."""
        self.flush()
        self.lower.close()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol above, to which the socket speaks itself."""
        self.lower.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
        return self.lower.get_protocol()


class Failure(NamedTuple):
    """The reason why a home has not taken a connection.

    Attributes:
        answer: the home's; None: it has not given any.
        reason: for the log.
    """

    answer: Answer | None
    reason: str


class PeerCall(asyncio.Protocol):
    """A connection to the home of a space, until that has taken it.

    Args:
        path: the socket of the home.
        message: returns the header, and what is known of what follows.
        expected: what the home says first, which is not passed on.
        taken: called with the transport, and with what the home has said beyond that. The transport's protocol is
            to be set then.
        failed: called with the reason, instead.
    """

    def __init__(
        self,
        path: Path,
        message: Callable[[], bytes],
        taken: Callable[[asyncio.Transport, bytes], None],
        failed: Callable[[Failure], None],
        *,
        expected: bytes = b"",
    ) -> None:
        self._taken = taken
        self._failed = failed
        self._message = message
        self._expected = expected
        self._given = b""
        self._unsent = b""
        self._is_over = False
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ANSWER_S, self._fail, f"it has not answered within {ANSWER_S:g} s")
        self._task = loop.create_task(self._dial(loop, path), name="hand a connection over")

    async def _dial(self, loop: asyncio.AbstractEventLoop, path: Path) -> None:
        if self._is_over:
            return
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            sock.connect(str(path))
            if not own_process(sock):
                self._fail("its socket is of another user")
                sock.close()
                return
            # At once: the home has the header as it accepts, and both loops come round once less.
            message = self._message()
            self._unsent = message[sock.send(message) :]
        except OSError as error:
            sock.close()
            self._fail(f"it cannot be reached ({error.strerror or error})")
            return
        await loop.create_unix_connection(lambda: self, sock=sock)

    def cancel(self) -> None:
        """Hang up, as nobody waits for it any more; neither function is called."""
        self._is_over = True
        self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what the socket has not taken of the header and what follows it."""
        # uvloop's transports implement the interface without inheriting it.
        self._transport = cast("asyncio.Transport", transport)
        if self._is_over:
            self._transport.abort()
        elif self._unsent:
            self._transport.write(self._unsent)

    def data_received(self, data: bytes) -> None:
        """Take the answer."""
        if self._is_over:
            return
        self._given += data
        answer, rest = self._given[0], self._given[1:]
        if answer != Answer.TAKEN:
            known = answer in list(Answer)
            self._fail("it refuses the connection", Answer(answer) if known else None)
        elif not self._expected.startswith(rest[: len(self._expected)]):
            self._fail("it speaks another protocol")
        elif len(rest) >= len(self._expected):
            self._is_over = True
            self._timer.cancel()
            assert self._transport is not None
            self._taken(self._transport, rest[len(self._expected) :])

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail, as the home has hung up without an answer."""
        self._fail("it has hung up without an answer")

    def _fail(self, reason: str, answer: Answer | None = None) -> None:
        if not self._is_over:
            self.cancel()
            self._failed(Failure(answer, reason))
