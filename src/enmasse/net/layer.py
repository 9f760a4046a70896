"""What stands between a socket and a protocol, and is a transport to the one and a protocol to the other.

Layers are stacked: TLS on a socket, WebSocket on either. The protocol at the top, usually an engine's
shell, sees an ordinary transport. Pressure passes straight through: whoever pauses reading pauses the
socket, and a socket that takes no more pauses the top.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

__all__ = ["Borrower", "Layer"]


class Borrower(asyncio.Protocol):
    """A protocol that may be lent what has come, rather than given it."""

    __slots__ = ()

    def data_lent(self, data: memoryview) -> None:
        """Bytes have come, and lie where others will lie as soon as this returns."""
        self.data_received(bytes(data))


class Layer(asyncio.Transport, asyncio.BaseProtocol):
    """A layer that changes nothing; others refine it.

    Args:
        upper: what it carries, which hears of its connection once ``raise_upper`` is called.

    Attributes:
        lower: the transport that it stands on.
        upper: the protocol that stands on it.
    """

    __slots__ = ("_is_up", "lower", "upper")

    def __init__(self, upper: asyncio.Protocol) -> None:
        super().__init__()
        self.upper = upper
        self.lower: asyncio.Transport
        self._is_up = False

    def raise_upper(self) -> None:
        """Tell the upper protocol that it is connected."""
        self._is_up = True
        self.upper.connection_made(self)

    # A protocol to the lower transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The lower transport is connected."""
        # uvloop's transports implement the interface without inheriting it.
        self.lower = cast("asyncio.Transport", transport)

    def eof_received(self) -> bool | None:
        """The peer says no more; the lower transport closes unless the upper protocol wants to go on."""
        return self.upper.eof_received() if self._is_up else False

    def connection_lost(self, exc: Exception | None) -> None:
        """The lower transport is gone; the upper protocol hears of it even if it was never connected."""
        self._is_up = False
        self.upper.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not keep up."""
        if self._is_up:
            self.upper.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._is_up:
            self.upper.resume_writing()

    # A transport to the upper protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Give what the layers below know."""
        return self.lower.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have another protocol on top from now on."""
        self.upper = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Give the protocol on top."""
        return self.upper

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        self.lower.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several chunks."""
        self.lower.writelines(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many bytes may wait in the socket's buffer."""
        self.lower.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Tell how many bytes wait in the socket's buffer."""
        return self.lower.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Leave what comes in the socket."""
        self.lower.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self.lower.resume_reading()

    def is_reading(self) -> bool:
        """Tell whether the socket is read."""
        return self.lower.is_reading()

    def is_closing(self) -> bool:
        """Tell whether the connection is closed or about to be."""
        return self.lower.is_closing()

    def can_write_eof(self) -> bool:
        """Half a connection cannot be closed through layers."""
        return False

    def close(self) -> None:
        """Close when all has been written."""
        self.lower.close()

    def abort(self) -> None:
        """Drop the socket."""
        self.lower.abort()
