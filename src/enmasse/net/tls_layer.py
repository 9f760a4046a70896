"""The server's side of TLS on any transport, by OpenSSL with buffers in memory.

The event loop's own TLS is not used: it takes over a socket from its first byte on, whereas a port that
speaks several protocols has read some by then; and it costs more (``benchmarks/tls.py`` compares the two).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from enmasse.net.layer import Borrower, Layer
from enmasse.net.logs import log_event
from enmasse.net.tls_names import ServerTls

RECORD_BYTES = 16384
"""No record holds more [RFC 8446 5.1]."""

SEALED_RECORD_BYTES = 5 + RECORD_BYTES + 1 + 16
"""The size of a full record when it is sent: with its header, its type and the cipher's tag [RFC 8446 5.2]."""

SLICE_BYTES = 4 * RECORD_BYTES
"""So much goes through OpenSSL at once: its buffers keep the size that they once had."""

SEALED_SLICE_BYTES = 4 * SEALED_RECORD_BYTES
"""The same of what is sealed: a slice that ends in the middle of a record costs an exception."""

READ_BYTES = 512 << 10
"""So much is read from a socket at once: with half of it, TLS adds a tenth more to messages of 64 KiB."""

_CLEAR = memoryview(bytearray(RECORD_BYTES + READ_BYTES))
_SEALED = _CLEAR[RECORD_BYTES:]

_log = logging.getLogger(__name__)


class TlsLayer(Layer, asyncio.BufferedProtocol):
    """One TLS connection on the server's side.

    What comes is read into a buffer that all connections share, and decrypted into the same one: nothing is left
    in it from one read to the next, and it stays in the processor's cache. What is decrypted begins a record
    earlier, as OpenSSL may have had most of one before, and so never reaches what is not decrypted yet.

    Args:
        upper: the protocol above, connected once the handshake is done.
        context: the certificates and options.
    """

    __slots__ = ("_incoming", "_is_over", "_outgoing", "_tls")

    def __init__(self, upper: asyncio.Protocol, context: ssl.SSLContext) -> None:
        super().__init__(upper)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_over = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection, ``ssl_object`` included."""
        return self._tls if name == "ssl_object" else super().get_extra_info(name, default)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next read."""
        return _SEALED

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt the bytes that were read."""
        self.take(_SEALED[:nbytes])

    def take(self, data: bytes | memoryview) -> None:
        """Decrypt bytes, at most ``READ_BYTES`` of them."""
        if self._is_over:
            return
        try:
            size, is_ended = self._decrypt(memoryview(data))
        except ssl.SSLError as error:
            self._fail(error)
            return
        if self._outgoing.pending:
            self.lower.write(self._outgoing.read())
        if size:
            upper = self.upper
            if isinstance(upper, Borrower):
                upper.data_lent(_CLEAR[:size])
            else:
                upper.data_received(bytes(_CLEAR[:size]))
        if is_ended and not self.is_closing() and not self.upper.eof_received():
            self.close()

    def _decrypt(self, data: memoryview) -> tuple[int, bool]:
        """Read every complete record; return the number of bytes, and true at the end of the peer's data."""
        incoming = self._incoming
        # Typeshed does not know that it returns a number when it is given a buffer.
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        size = 0
        for at in range(0, len(data), SEALED_SLICE_BYTES):
            incoming.write(data[at : at + SEALED_SLICE_BYTES])
            try:
                if not self._is_up:
                    self._shake_hands()
                # Asking OpenSSL for more than there is costs an exception, so it is asked only for what is there.
                while incoming.pending:
                    count = read(RECORD_BYTES, _CLEAR[size:])
                    if not count:
                        return size, True
                    size += count
            except ssl.SSLWantReadError:
                pass
        return size, False

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        if isinstance(self._tls, ServerTls):
            self._tls.forget_context()
        if self._outgoing.pending:
            self.lower.write(self._outgoing.read())
        self.raise_upper()

    def _fail(self, error: ssl.SSLError) -> None:
        """Send the peer OpenSSL's alert, and close the connection."""
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
        """Return true if the connection is closed or about to be."""
        return self._is_over or self.lower.is_closing()

    def close(self) -> None:
        """Send the end of data, and close when everything is written."""
        if not self._is_over:
            self._is_over = True
            with contextlib.suppress(ssl.SSLError):  # the peer's own end of data is not waited for
                self._tls.unwrap()
            if self._outgoing.pending:
                self.lower.write(self._outgoing.read())
            self.lower.close()
