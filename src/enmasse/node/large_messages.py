"""Collects the pieces of a large message for protocols whose messages are sent whole.

What is collected counts as what its sender has begun and not ended (``node.connections.unfinished``).
"""

from __future__ import annotations

from typing import Any, Protocol

from enmasse.message.outcomes import TOO_LARGE

MAX_MESSAGE_BYTES = 16 << 20
"""The largest message that is stored or copied, as it is held whole. An anycast address passes on a message of any
size while it is received."""


class Gathering(Protocol):
    """The port of a receiver of whole messages."""

    credit: int

    @property
    def consumer(self) -> Any:
        """Its end at the address."""

    def put(self, delivery: Any, payload: bytes, settled: bool) -> None:
        """Send a message whose credit is used up."""

    def take_back(self) -> None:
        """Give a credit back whose message was not sent."""


class Gathered:
    """Collects a message that an address passes on while it comes, for a protocol that needs it whole.

    Args:
        receiver: the port of the receiver.
        delivery: the message's.
        settled: whether its sender has settled it.
    """

    is_kept = True
    __slots__ = ("_bytes", "_delivery", "_is_over", "_receiver", "_settled")

    def __init__(self, receiver: Gathering, delivery: Any, settled: bool) -> None:
        receiver.credit -= 1
        self._receiver = receiver
        self._delivery = delivery
        self._settled = settled
        self._bytes = bytearray()
        self._is_over = False

    def write(self, part: bytes | memoryview) -> None:
        """Add a piece that is not the last."""
        if len(self._bytes) <= MAX_MESSAGE_BYTES:
            self._bytes += part

    def end(self, part: bytes | memoryview) -> None:
        """Add the last piece, and send the message."""
        self.write(part)
        if self._is_over:
            return
        self._is_over = True
        receiver = self._receiver
        if len(self._bytes) <= MAX_MESSAGE_BYTES:
            receiver.put(self._delivery, bytes(self._bytes), self._settled)
            return
        receiver.take_back()
        if not self._settled:
            receiver.consumer.on_outcome(self._delivery, TOO_LARGE)

    def abort(self) -> None:
        """Drop the message, as it was aborted."""
        if not self._is_over:
            self._is_over = True
            self._bytes = bytearray()
            self._receiver.take_back()
