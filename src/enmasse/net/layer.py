"""Layers between a socket and a protocol: a protocol to what is below, a transport to what is above.

Layers are stacked: TLS on a socket, WebSocket on either. The protocol at the top, usually ``EngineProtocol``, sees an
ordinary transport. Flow control passes through: pausing reading pauses the socket, and a socket that takes no more
pauses the top.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, cast

_NOBODY: Final = asyncio.Protocol()
"""The protocol above a layer whose connection is lost: it does nothing."""


class Borrower(asyncio.Protocol):
    """A protocol that can read received bytes in the buffer of the layer below, without a copy."""

    __slots__ = ()

    def data_lent(self, data: memoryview) -> None:
        """Handle received bytes, whose memory is reused as soon as this returns."""
        self.data_received(bytes(data))


class Layer(asyncio.Transport, asyncio.BaseProtocol):
    """A layer that changes nothing; the base of others.

    Args:
        upper: the protocol above; its ``connection_made`` is called by ``raise_upper``.

    Attributes:
        lower: the transport below.
        upper: the protocol above.
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
        """Keep the transport below."""
        # uvloop's transports implement the interface without inheriting it.
        self.lower = cast("asyncio.Transport", transport)

    def eof_received(self) -> bool | None:
        """Pass on the end of input; the socket is closed unless the protocol above wants to go on."""
        return self.upper.eof_received() if self._is_up else False

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the loss of the connection, even if the protocol above was never connected."""
        self._is_up = False
        # It knows this layer.
        upper, self.upper = self.upper, _NOBODY
        upper.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on that the peer does not keep up."""
        if self._is_up:
            self.upper.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the peer has caught up."""
        if self._is_up:
            self.upper.resume_writing()

    # A transport to the upper protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the layers below know."""
        return self.lower.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol above."""
        self.upper = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol above."""
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
        """Return the number of bytes that wait in the socket's buffer."""
        return self.lower.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Stop reading from the socket."""
        self.lower.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self.lower.resume_reading()

    def is_reading(self) -> bool:
        """Return true if the socket is read."""
        return self.lower.is_reading()

    def is_closing(self) -> bool:
        """Return true if the connection is closed or about to be."""
        return self.lower.is_closing()

    def can_write_eof(self) -> bool:
        """Return false: half a connection cannot be closed through layers."""
        return False

    def close(self) -> None:
        """Close when everything is written."""
        self.lower.close()

    def abort(self) -> None:
        """Drop the socket."""
        self.lower.abort()
