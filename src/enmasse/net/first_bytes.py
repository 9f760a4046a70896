"""Recognises the protocol that a peer speaks by the first bytes that it sends.

This package knows TLS and HTTP, which carry others. The protocols of clients are data: a port is given a table of
``ProtocolSignature``, so that a further protocol changes nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_LENGTH_BYTES = 4
"""The most bytes of a packet's length that are written seven bits to a byte."""

MAX_UPGRADE_BYTES = 16 << 10
"""The longest head of a request for WebSocket: those of browsers have some KiB, with cookies."""

_BARE_END = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
"""A line of HTTP that ends in another way than with CR and LF."""

_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*websocket[ \t]*\r\n", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PacketStart:
    """The beginning of a packet whose type and content are known, with its length between them.

    Attributes:
        kind: its first byte.
        content: the first bytes after its length, which takes up to ``MAX_LENGTH_BYTES``, each but the last with its
            highest bit set.
    """

    kind: int
    content: bytes

    def fits(self, data: bytes) -> bool | None:
        """Return whether bytes begin so; None if more of them are needed."""
        if not data or data[0] != self.kind:
            return False if data else None
        at = 1
        while at < len(data) and data[at] & 0x80:
            at += 1
            if at > MAX_LENGTH_BYTES:
                return False
        content = data[at + 1 : at + 1 + len(self.content)]
        if not self.content.startswith(content):
            return False
        return True if len(content) == len(self.content) else None


@dataclass(frozen=True, slots=True)
class ProtocolSignature:
    """The signs by which a protocol that a port accepts is recognised.

    Attributes:
        name: in lower case, such as ``amqp``.
        beginnings: the first bytes that it may begin with.
        tls_header: first bytes that ask for TLS. They are answered with the same bytes, and only this protocol may
            follow inside TLS. Empty if the protocol has none.
        subprotocols: the WebSocket sub-protocols that select it; none if WebSocket does not carry it.
        takes_text: true if its bytes may come in WebSocket's text messages, too.
        over_tls: true if TLS may carry it.
        packets: beginnings of the first packet, of a protocol that has a length in it.
        answers_http: true if it gets the requests of HTTP that do not ask for WebSocket.
    """

    name: str
    beginnings: tuple[bytes, ...]
    tls_header: bytes = b""
    subprotocols: tuple[str, ...] = ()
    takes_text: bool = False
    over_tls: bool = True
    packets: tuple[PacketStart, ...] = ()
    answers_http: bool = False


TLS = ProtocolSignature("tls", (b"\x16",))

_METHODS = (
    b"ACL", b"BASELINE-CONTROL", b"BIND", b"CHECKIN", b"CHECKOUT", b"CONNECT", b"COPY", b"DELETE", b"GET", b"HEAD",
    b"LABEL", b"LINK", b"LOCK", b"MERGE", b"MKACTIVITY", b"MKCALENDAR", b"MKCOL", b"MKREDIRECTREF", b"MKWORKSPACE",
    b"MOVE", b"OPTIONS", b"ORDERPATCH", b"PATCH", b"POST", b"PROPFIND", b"PROPPATCH", b"PUT", b"QUERY", b"REBIND",
    b"REPORT", b"SEARCH", b"TRACE", b"UNBIND", b"UNCHECKOUT", b"UNLINK", b"UNLOCK", b"UPDATE",
    b"UPDATEREDIRECTREF", b"VERSION-CONTROL",
)  # fmt: skip
"""The methods that IANA lists, whoever knows them: HTTP says so of those that are not served."""

HTTP = ProtocolSignature(
    "http",
    (*(b"%b " % method for method in _METHODS), b"PRI * HTTP/2.0\r\n"),
)
"""Requests of HTTP/1.1, and what HTTP/2 begins with [RFC 9113 3.4]."""


def recognise(
    data: bytes, among: Iterable[ProtocolSignature], default: ProtocolSignature
) -> ProtocolSignature | None:
    """Return the protocol that the first bytes of a connection belong to.

    Args:
        data: the bytes received so far.
        among: the protocols that are accepted.
        default: the protocol for anything else: its engine answers peers that are not recognised.

    Returns:
        The protocol, or None if more bytes are needed.
    """
    is_open = False
    for signature in among:
        for beginning in signature.beginnings:
            if data.startswith(beginning):
                return signature
            is_open = is_open or beginning.startswith(data)
        for packet in signature.packets:
            fits = packet.fits(data)
            if fits:
                return signature
            is_open = is_open or fits is None
    return None if is_open else default


def asks_for_websocket(data: bytes) -> bool | None:
    """Return whether the first request of HTTP asks for WebSocket; None if more bytes are needed.

    Only the line that says so is sought: both who serves WebSocket and who serves HTTP parse the head.
    """
    if not data.startswith(b"GET /"):
        return None if b"GET /".startswith(data) else False
    head, end, _ = data[:MAX_UPGRADE_BYTES].partition(b"\r\n\r\n")
    if end:
        return _UPGRADE.search(head + b"\r\n") is not None
    # The end of lines in another way, and a head that is too long, are for who answers HTTP.
    return None if len(head) < MAX_UPGRADE_BYTES and _BARE_END.search(head) is None else False
