"""Parses the header by which a load balancer tells whose connection it passes on: PROXY protocol, versions 1 and 2.

https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt, named below as [PROXY] with its section.

Rules:
1. A header is whole, or an error, within ``MAX_BYTES``: then a text has its end, and the length of the other form is
   known with its first bytes.
2. What may be read in two ways is an error: two extensions of a kind that there is one of, numbers with zeros before
   them, more than one space.
3. A header without a client (``LOCAL``, ``UNKNOWN``) is one of the balancer's own connections.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, NamedTuple

from enmasse.errors import EnmasseError

MAX_BYTES: Final = 4096
"""The longest header that is read: the text has 107 bytes at most, and names and ciphers take a few hundred."""

_TEXT: Final = b"PROXY "
_MAX_TEXT: Final = 107
"""With the end of the line [PROXY 2.1]."""

_BINARY: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED: Final = len(_BINARY) + 4

_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _TCP4, _TCP6, _UNIX = 0x00, 0x11, 0x21, 0x31
_ADDRESSES: Final = {_TCP4: 12, _TCP6: 36, _UNIX: 216}
"""The bytes that the addresses of each family take."""

_AUTHORITY, _CHECKSUM, _SSL = 0x02, 0x03, 0x20
_SSL_VERSION, _SSL_NAME, _SSL_CIPHER = 0x21, 0x22, 0x23
_BY_TLS, _SHOWN_NOW, _SHOWN_BEFORE = 0x01, 0x02, 0x04

_MAX_HOST: Final = 255
_MAX_NAME: Final = 256
"""Characters of the name in a certificate: users have no longer ones."""

_MAX_WORD: Final = 64
"""Characters of a version or a cipher."""


class ProxyHeaderError(EnmasseError):
    """The bytes are no header."""


class BalancerTls(NamedTuple):
    """The client's connection to the balancer, as far as TLS goes.

    Attributes:
        is_used: whether the client came by TLS; false: it came in the clear.
        version: such as ``TLSv1.3``.
        cipher: such as ``TLS_AES_256_GCM_SHA384``.
        certified: the common name of the client's certificate, which the balancer has verified; None: there is none.
    """

    is_used: bool
    version: str = ""
    cipher: str = ""
    certified: str | None = None


class ProxyHeader(NamedTuple):
    """A header.

    Attributes:
        has_client: whether it is of a client; false: the connection is the balancer's own, as for health.
        source: the client's address and port; None: it came by a Unix socket, or ``has_client`` is false.
        destination: the address and port that the client connected to; None as for ``source``.
        tls: the TLS of the client's connection; None: the balancer says nothing of it.
        authority: the host that the client named, in lower case.
    """

    has_client: bool = False
    source: tuple[str, int] | None = None
    destination: tuple[str, int] | None = None
    tls: BalancerTls | None = None
    authority: str | None = None


def read_header(data: bytes) -> tuple[ProxyHeader, int] | None:
    """Return the header at the beginning of a connection, and its length; None if more bytes are needed.

    Raises:
        ProxyHeaderError: the connection does not begin with one.
    """
    if data.startswith(_TEXT):
        return _read_text(data)
    if data.startswith(_BINARY):
        return _read_binary(data)
    if _TEXT.startswith(data) or _BINARY.startswith(data):
        return None
    raise ProxyHeaderError("the connection does not begin with a header")


# Version 1


def _read_text(data: bytes) -> tuple[ProxyHeader, int] | None:
    line, end, _ = data[:_MAX_TEXT].partition(b"\r\n")
    if not end:
        if len(data) >= _MAX_TEXT:
            raise ProxyHeaderError(f"the line has no end within {_MAX_TEXT} bytes")
        return None
    size = len(line) + len(end)
    words = line.decode("latin-1").split(" ")[1:]
    if words[0] == "UNKNOWN":
        # What follows is to be ignored, whatever it is.
        return ProxyHeader(), size
    if words[0] not in ("TCP4", "TCP6") or len(words) != 5:
        raise ProxyHeaderError("expected PROXY, TCP4 or TCP6, two addresses and two ports, with a space between them")
    read = _text_4 if words[0] == "TCP4" else _text_6
    source, destination = read(words[1]), read(words[2])
    return ProxyHeader(True, (source, _port(words[3])), (destination, _port(words[4]))), size


def _text_4(word: str) -> str:
    try:
        return str(IPv4Address(word))
    except AddressValueError:
        raise ProxyHeaderError(f"{word!r} is no address of IPv4") from None


def _text_6(word: str) -> str:
    try:
        # The zone of an address means nothing on another machine.
        return str(IPv6Address(word if "%" not in word else ""))
    except AddressValueError:
        raise ProxyHeaderError(f"{word!r} is no address of IPv6") from None


def _port(word: str) -> int:
    if not (word.isascii() and word.isdigit()) or (word[0] == "0" and word != "0") or int(word) > 0xFFFF:
        raise ProxyHeaderError(f"{word!r} is no port")
    return int(word)


# Version 2


def _read_binary(data: bytes) -> tuple[ProxyHeader, int] | None:
    if len(data) > 12 and data[12] >> 4 != 2:
        raise ProxyHeaderError(f"version {data[12] >> 4} is none that there is")
    if len(data) < _FIXED:
        return None
    command, family = data[12] & 0xF, data[13]
    size = _FIXED + int.from_bytes(data[14:16], "big")
    if size > MAX_BYTES:
        raise ProxyHeaderError(f"it has {size} bytes, and {MAX_BYTES} at most are read")
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"command {command} is none that there is")
    if len(data) < size:
        return None
    if command == _LOCAL or family == _UNSPECIFIED:
        return ProxyHeader(), size
    if family not in _ADDRESSES:
        raise ProxyHeaderError(f"family and protocol 0x{family:02x} are none that connections have")
    at = _FIXED + _ADDRESSES[family]
    if at > size:
        raise ProxyHeaderError("it is too short for its addresses")
    tls, authority = _read_extensions(data[:size], at)
    if family == _UNIX:
        return ProxyHeader(True, None, None, tls, authority), size
    source, destination = _binary_addresses(data[_FIXED:at])
    return ProxyHeader(True, source, destination, tls, authority), size


def _binary_addresses(block: bytes) -> tuple[tuple[str, int], tuple[str, int]]:
    kind, size = (IPv4Address, 4) if len(block) == _ADDRESSES[_TCP4] else (IPv6Address, 16)
    ports = block[2 * size :]
    return (
        (str(kind(block[:size])), int.from_bytes(ports[:2], "big")),
        (str(kind(block[size : 2 * size])), int.from_bytes(ports[2:], "big")),
    )


def _read_extensions(data: bytes, at: int) -> tuple[BalancerTls | None, str | None]:
    tls: BalancerTls | None = None
    authority: str | None = None
    seen: set[int] = set()
    for kind, begin, end in _each(data, at):
        if kind in (_AUTHORITY, _CHECKSUM, _SSL):
            if kind in seen:
                raise ProxyHeaderError(f"extension 0x{kind:02x} comes twice")
            seen.add(kind)
        if kind == _AUTHORITY:
            authority = _word(data[begin:end], "the host", _MAX_HOST).lower()
        elif kind == _CHECKSUM:
            _check(data, begin, end)
        elif kind == _SSL:
            tls = _read_tls(data[begin:end])
    return tls, authority


def _each(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield each extension: its kind, and where its value begins and ends."""
    while at < len(data):
        begin = at + 3
        end = begin + int.from_bytes(data[at + 1 : begin], "big")
        if begin > len(data) or end > len(data):
            raise ProxyHeaderError("an extension goes beyond its end")
        yield data[at], begin, end
        at = end


def _read_tls(value: bytes) -> BalancerTls:
    if len(value) < 5:
        raise ProxyHeaderError("its extension for TLS is too short")
    flags, is_unverified = value[0], any(value[1:5])
    found: dict[int, str] = {}
    for kind, begin, end in _each(value, 5):
        if kind in (_SSL_VERSION, _SSL_NAME, _SSL_CIPHER):
            if kind in found:
                raise ProxyHeaderError(f"extension 0x{kind:02x} comes twice")
            is_name = kind == _SSL_NAME
            what, most = ("the name", _MAX_NAME) if is_name else ("a word of TLS", _MAX_WORD)
            found[kind] = _word(value[begin:end], what, most)
    if not flags & _BY_TLS:
        return BalancerTls(is_used=False)
    is_proved = bool(flags & (_SHOWN_NOW | _SHOWN_BEFORE)) and not is_unverified
    return BalancerTls(
        True, found.get(_SSL_VERSION, ""), found.get(_SSL_CIPHER, ""), found.get(_SSL_NAME) if is_proved else None
    )


def _word(value: bytes, what: str, most: int) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise ProxyHeaderError(f"{what} is not UTF-8") from None
    if not 0 < len(text) <= most or not text.isprintable():
        raise ProxyHeaderError(f"{what} has 1 to {most} characters that can be printed")
    return text


def _check(data: bytes, begin: int, end: int) -> None:
    """Check the sum of a header [PROXY 2.2.3]."""
    if end - begin != 4:
        raise ProxyHeaderError("its checksum has four bytes")
    given = int.from_bytes(data[begin:end], "big")
    if _crc32c(data[:begin] + b"\0\0\0\0" + data[end:]) != given:
        raise ProxyHeaderError("its checksum is another one")


def _crc32c(data: bytes) -> int:
    """Return the checksum of Castagnoli [RFC 3720 B.4], bit by bit: few balancers send it, and headers are short."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1
    return crc ^ 0xFFFFFFFF
