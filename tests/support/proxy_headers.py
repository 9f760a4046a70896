"""Headers of the PROXY protocol, as load balancers write them."""

from __future__ import annotations

import socket
import struct

__all__ = ["LOCAL", "binary", "extension", "text", "tls_extension"]

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"

LOCAL = SIGNATURE + b"\x20\x00\x00\x00"
"""The header of a balancer's own connections."""

CLIENT, BALANCER = ("203.0.113.7", 40_000), ("198.51.100.1", 5671)


def text(source: tuple[str, int] = CLIENT, destination: tuple[str, int] = BALANCER) -> bytes:
    """A header of version 1."""
    family = "TCP6" if ":" in source[0] else "TCP4"
    return f"PROXY {family} {source[0]} {destination[0]} {source[1]} {destination[1]}\r\n".encode()


def binary(
    *extensions: bytes, source: tuple[str, int] | None = CLIENT, destination: tuple[str, int] = BALANCER
) -> bytes:
    """A header of version 2; without a source the client has come by a Unix socket."""
    if source is None:
        family, addresses = 0x31, bytes(216)
    else:
        family, kind = (0x21, socket.AF_INET6) if ":" in source[0] else (0x11, socket.AF_INET)
        addresses = b"".join(socket.inet_pton(kind, each[0]) for each in (source, destination))
        addresses += struct.pack("!HH", source[1], destination[1])
    rest = addresses + b"".join(extensions)
    return SIGNATURE + struct.pack("!BBH", 0x21, family, len(rest)) + rest


def extension(kind: int, value: bytes | str) -> bytes:
    """One extension, such as 0x02 for the host that the client has named."""
    given = value.encode() if isinstance(value, str) else value
    return struct.pack("!BH", kind, len(given)) + given


def tls_extension(flags: int = 1, verified: int = 0, name: str | None = None) -> bytes:
    """What is said of the client's TLS: flags 1, it was used; 2, it had a certificate, which 0 has verified."""
    parts = [extension(0x21, "TLSv1.3"), extension(0x23, "TLS_AES_256_GCM_SHA384")] if flags & 1 else []
    if name is not None:
        parts.append(extension(0x22, name))
    return extension(0x20, struct.pack("!BI", flags, verified) + b"".join(parts))
