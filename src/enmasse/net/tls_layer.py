"""A server's TLS on any transport, by OpenSSL through memory.

The event loop's own TLS is not used: it takes over a socket from its first byte on, whereas a port that
speaks several protocols has read some by then; and it costs more (``benchmarks/tls.py`` compares the two).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterable
from typing import Any

from enmasse.net.layer import Layer
from enmasse.net.logs import log_event

__all__ = ["TlsLayer"]

RECORD_BYTES = 16384
"""No record holds more [RFC 8446 5.1]."""

SLICE_BYTES = 64 << 10
"""So much goes through OpenSSL at once: its buffers keep the size that they once had."""

_log = logging.getLogger(__name__)


class TlsLayer(Layer):
    """One TLS connection on the server's side.

    Args:
        upper: what it carries, connected once the handshake is done.
        context: certificates and options.
    """

    __slots__ = ("_incoming", "_is_held", "_is_over", "_outgoing", "_rest", "_tls")

    def __init__(self, upper: asyncio.Protocol, context: ssl.SSLContext) -> None:
        super().__init__(upper)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_over = False
        self._is_held = False
        self._rest: memoryview | None = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Give what is known of the connection; ``ssl_object`` among it."""
        return self._tls if name == "ssl_object" else super().get_extra_info(name, default)

    def data_received(self, data: bytes) -> None:
        """Decrypt what has come."""
        if len(data) <= SLICE_BYTES:
            self._take(data)
        else:
            self._take_slices(memoryview(data))

    def _take_slices(self, data: memoryview) -> None:
        """Take slice by slice, as long as the upper protocol wants more."""
        for at in range(0, len(data), SLICE_BYTES):
            if self._is_held:
                self._rest = data[at:]
                return
            self._take(data[at : at + SLICE_BYTES])

    def _take(self, data: bytes | memoryview) -> None:
        if self._is_over:
            return
        chunks: list[bytes] = []
        try:
            is_ended = self._decrypt(data, chunks)
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:
            self.lower.write(self._outgoing.read())
        if chunks:
            self.upper.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if is_ended and not self.is_closing() and not self.upper.eof_received():
            self.close()

    def _decrypt(self, data: bytes | memoryview, chunks: list[bytes]) -> bool:
        """Read every complete record; tell whether the peer has said its last."""
        incoming = self._incoming
        incoming.write(data)
        read = self._tls.read
        try:
            if not self._is_up:
                self._shake_hands()
            # Asking OpenSSL for more than there is costs an exception, so it is asked only for what is there.
            while incoming.pending:
                chunk = read(RECORD_BYTES)
                if not chunk:
                    return True
                chunks.append(chunk)
        except ssl.SSLWantReadError:
            pass
        return False

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        if self._outgoing.pending:
            self.lower.write(self._outgoing.read())
        self.raise_upper()

    def pause_reading(self) -> None:
        """Leave what comes in the socket, and what has come undecrypted."""
        self._is_held = True
        self.lower.pause_reading()

    def resume_reading(self) -> None:
        """Read on, beginning with what has come."""
        self._is_held = False
        rest, self._rest = self._rest, None
        if rest is not None:
            self._take_slices(rest)
        if not self._is_held and not self.is_closing():
            self.lower.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone; what it brought is still heard."""
        self._is_held = False
        rest, self._rest = self._rest, None
        if rest is not None:
            self._take_slices(rest)
        super().connection_lost(exc)

    def _fail(self, error: ssl.SSLError) -> None:
        """Tell the peer what OpenSSL has against it, and hang up."""
        self._is_over = True
        peer = self.get_extra_info("peername")
        host = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix"
        log_event(_log, logging.INFO, "tls-failed", host=host, description=error.reason or str(error))
        if self._outgoing.pending:
            self.lower.write(self._outgoing.read())
        self.lower.close()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        if self._is_over:
            return
        if len(data) <= SLICE_BYTES:
            self._tls.write(data)
            self.lower.write(self._outgoing.read())
        else:
            self.writelines((data,))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt several chunks, and send them at once."""
        if self._is_over:
            return
        encrypt = self._tls.write
        outgoing = self._outgoing
        sealed: list[bytes] = []
        for data in list_of_data:
            view = memoryview(data)
            for at in range(0, len(data), SLICE_BYTES):
                encrypt(view[at : at + SLICE_BYTES])
                if outgoing.pending >= SLICE_BYTES:
                    sealed.append(outgoing.read())
        if outgoing.pending:
            sealed.append(outgoing.read())
        self.lower.writelines(sealed)

    def is_closing(self) -> bool:
        """Tell whether the connection is closed or about to be."""
        return self._is_over or self.lower.is_closing()

    def close(self) -> None:
        """Say that no more comes, and close when all has been written."""
        if not self._is_over:
            self._is_over = True
            with contextlib.suppress(ssl.SSLError):  # nobody waits for the peer's own farewell
                self._tls.unwrap()
            if self._outgoing.pending:
                self.lower.write(self._outgoing.read())
            self.lower.close()
