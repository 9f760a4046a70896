"""A peer on a raw socket that says whatever a test has it say, to a real node.

It knows no state machine and no limits. What it hears is read by the general decoder.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self, TypeVar

from enmasse.message.composites import decode_composite
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import Attach, Begin, Composite, Open, Source, Target

__all__ = ["Stranger", "condition_of"]

TIMEOUT_S = 30.0
"""Longer than any answer takes, however busy the machine."""

P = TypeVar("P", bound=Composite)


def condition_of(performative: Any) -> str | None:
    """The condition of the error that a performative carries."""
    return performative.error.condition if performative.error is not None else None


class Stranger:
    """Says whatever it is told to, and reads frames when it is asked to; a context manager.

    Every wait ends after ``TIMEOUT_S`` with ``TimeoutError``.

    Args:
        port: of the node, on the loopback interface.
        receive_buffer_bytes: how much the system takes in for it while it does not read; 0 leaves
            that to the system.
        address: from which address of the loopback interface it comes.
    """

    def __init__(self, port: int, *, receive_buffer_bytes: int = 0, address: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.bind((address, 0))
        self.socket.connect(("127.0.0.1", port))
        self.headers: list[bytes] = []
        """The protocol headers that were heard, in order."""
        self._data = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def say_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def say(self, *performatives: Composite, channel: int = 0, payload: bytes = b"") -> None:
        """Send each performative in a frame of its own; the payload goes with every one."""
        self.say_bytes(b"".join(amqp_frame(channel, p, len(payload)) + payload for p in performatives))

    def hear_frame(self) -> tuple[Composite, bytes] | None:
        """The next frame that is no heartbeat, with its payload; nothing at the end."""
        while True:
            data = self._data
            if data[:4] == b"AMQP" and len(data) >= 8:
                self.headers.append(bytes(data[:8]))
                del data[:8]
            elif len(data) >= 8 and len(data) >= (size := int.from_bytes(data[:4], "big")) and data[:4] != b"AMQP":
                frame = bytes(data[:size])
                del data[:size]
                if size > 8:
                    found, at = decode_composite(frame, 4 * frame[4], size)
                    return found, frame[at:]
            else:
                try:
                    more = self.socket.recv(65_536)
                except ConnectionResetError:
                    return None
                if not more:
                    return None
                data += more

    def hear(self, kind: type[P]) -> P:
        """The next frame of one kind; others are let go.

        Raises:
            ConnectionError: the connection ended before one came.
        """
        while True:
            frame = self.hear_frame()
            if frame is None:
                raise ConnectionError(f"the connection ended before {kind.__name__}")
            if isinstance(frame[0], kind):
                return frame[0]

    def open(self, **fields: Any) -> Open:
        """Exchange headers and opens; the node's open."""
        self.say_bytes(AMQP_HEADER)
        self.say(Open("stranger", **fields))
        return self.hear(Open)

    def begin(self, channel: int = 0) -> Begin:
        """Begin a session with windows that are never felt; the node's begin."""
        self.say(Begin(incoming_window=1 << 30, outgoing_window=1 << 30), channel=channel)
        return self.hear(Begin)

    def attach_sender(self, address: str, handle: int = 0, channel: int = 0) -> Attach:
        """Attach a link on which the stranger sends; the node's attach."""
        attach = Attach(
            f"s{handle}", handle, False, source=Source(), target=Target(address), initial_delivery_count=0
        )
        self.say(attach, channel=channel)
        return self.hear(Attach)

    def attach_receiver(self, address: str, handle: int = 0, channel: int = 0, **fields: Any) -> Attach:
        """Attach a link on which the stranger receives; ``fields`` are the source's. The node's attach."""
        attach = Attach(f"r{handle}", handle, True, source=Source(address, **fields), target=Target())
        self.say(attach, channel=channel)
        return self.hear(Attach)

    def is_hung_up(self) -> bool:
        """Whether the node ends the connection; what it says before is let go."""
        while self.hear_frame() is not None:
            pass
        return True
