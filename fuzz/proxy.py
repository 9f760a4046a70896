"""The targets of headers of load balancers and other nodes: whole and in crumbs, which must mean the same."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from random import Random

from enmasse.wire import peer_header
from enmasse.wire.peer_header import (
    PeerDevice,
    PeerHeader,
    PeerToken,
    PeerUser,
    read_peer_header,
    write_peer_header,
)
from enmasse.wire.proxy_header import MAX_BYTES, BalancerTls, ProxyHeader, ProxyHeaderError, read_header
from fuzz.target import Target

__all__ = ["PEER_HEADER_TARGET", "PROXY_HEADER_TARGET"]

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
ADDRESSES = bytes([203, 0, 113, 7, 198, 51, 100, 1, 156, 64, 22, 39])
V6 = bytes.fromhex("20010db8" + "0" * 23 + "7") + bytes.fromhex("20010db8" + "0" * 23 + "1") + ADDRESSES[8:]


def _extension(kind: int, value: bytes) -> bytes:
    return struct.pack("!BH", kind, len(value)) + value


EXTENSIONS = (
    _extension(0x01, b"h2"),
    _extension(0x02, b"shop.default"),
    _extension(0x03, bytes(4)),
    _extension(0x04, b""),
    _extension(0x05, bytes(16)),
    _extension(0x20, bytes(5)),
    _extension(0x20, b"\1\0\0\0\0" + _extension(0x21, b"TLSv1.3") + _extension(0x23, b"AES")),
    _extension(0x20, b"\7\0\0\0\0" + _extension(0x21, b"TLSv1.2") + _extension(0x22, b"meter-1")),
    _extension(0x20, b"\3\0\0\0\1" + _extension(0x22, b"\xc3\xbc")),
    _extension(0xEA, b"\1vpce"),
)

FAMILIES = ((0x00, b""), (0x11, ADDRESSES), (0x21, V6), (0x31, bytes(216)), (0x12, ADDRESSES))

LINES = (
    b"PROXY TCP4 203.0.113.7 198.51.100.1 40000 5671\r\n",
    b"PROXY TCP6 2001:db8::7 ::ffff:198.51.100.1 0 65535\r\n",
    b"PROXY UNKNOWN\r\n",
    b"PROXY UNKNOWN ff ff 1 2\r\n",
)

_PIECES = (b" ", b"\r\n", b"0", b"::", b".", b"%", b"\0", b"\xff", b"TCP6", b"PROXY ", SIGNATURE)


def _binary(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(rest) & 0xFFFF) + rest


def run_proxy_header(data: bytes) -> None:
    """Read any bytes at once, and in growing parts: the first verdict is the last."""
    whole = _verdict(data)
    for size in sorted({*range(min(len(data), 24)), *range(24, len(data), 97), len(data)}):
        found = _verdict(data[:size])
        if found is not None:
            assert found == whole, "a verdict changes with what follows"
    if isinstance(whole, tuple):
        header, size = whole
        assert 0 < size <= min(len(data), MAX_BYTES)
        assert header.has_client or header == ProxyHeader()
    elif whole is None:
        assert len(data) < MAX_BYTES, "a header that has no end"


def _verdict(data: bytes) -> tuple[ProxyHeader, int] | str | None:
    try:
        return read_header(data)
    except ProxyHeaderError as error:
        # A text is wrong by its whole line, of which the message may tell more with more of it.
        return str(error)


def mutate_header(data: bytes, most: int, chance: Random) -> bytes:
    """An input that is another header, or nearly one."""
    match chance.randrange(4):
        case 0:
            made = chance.choice(LINES)
        case 1:
            family, addresses = chance.choice(FAMILIES)
            parts = [chance.choice(EXTENSIONS) for _ in range(chance.randrange(4))]
            made = _binary(chance.choice((0x20, 0x21, 0x21, 0x21, 0x22)), family, addresses + b"".join(parts))
        case 2:
            at = chance.randrange(len(data) + 1)
            made = data[:at] + chance.choice(_PIECES) + data[at + chance.randrange(3) :]
        case _:
            at = chance.randrange(max(1, len(data)))
            made = data[:at] + chance.randbytes(1) + data[at + 1 :]
    return made[:most]


def _seeds() -> Sequence[bytes]:
    return [
        *LINES,
        *(_binary(command, family, rest) for command in (0x20, 0x21) for family, rest in FAMILIES),
        *(_binary(0x21, 0x11, ADDRESSES + each) for each in EXTENSIONS),
    ]


PROXY_HEADER_TARGET = Target("proxy-header", run_proxy_header, _seeds, mutate=mutate_header)


# Headers of other nodes


def run_peer_header(data: bytes) -> None:
    """Read any bytes at once, and in growing parts: the first verdict is the last, and is written as it was read."""
    whole = _peer_verdict(data)
    for size in sorted({*range(min(len(data), 24)), *range(24, len(data), 197), len(data)}):
        found = _peer_verdict(data[:size])
        if found is not None:
            assert found == whole, "a verdict changes with what follows"
    if isinstance(whole, tuple):
        header, size = whole
        assert 0 < size <= min(len(data), peer_header.MAX_BYTES)
        written = write_peer_header(header)
        assert read_peer_header(written) == (header, len(written)), "it is written as another one"
    elif whole is None:
        assert len(data) < peer_header.MAX_BYTES, "a header that has no end"


def _peer_verdict(data: bytes) -> tuple[PeerHeader, int] | str | None:
    try:
        return read_peer_header(data)
    except ProxyHeaderError as error:
        return str(error)


def _peer_headers() -> Sequence[bytes]:
    client = ProxyHeader(True, ("203.0.113.7", 40_000), ("198.51.100.1", 5671), BalancerTls(False))
    plain = PeerHeader(client, bytes(32), "id", "node-0", "ns/shop", 1, "amqp")
    secure = client._replace(tls=BalancerTls(True, "TLSv1.3", "TLS_AES_256_GCM_SHA384"), authority="shop.ns")
    user = PeerUser("jo", "user:1", bytes(32))
    token = PeerToken("https://id", "7", ("staff", "ops"), ("read",), 1e9, True)
    device = PeerDevice("ns.barn", "d", "hashed-password", "d", bytes(16), 1e9, "key")
    return [
        write_peer_header(each)
        for each in (
            plain,
            plain._replace(client=ProxyHeader(True), is_here=True, container="c"),
            plain._replace(client=secure, names=("jo", "jo.example"), chain=(b"one", b"two"), mechanism="EXTERNAL"),
            plain._replace(user=user, mechanism="SCRAM-SHA-256", final_data=b"v=x", protocol="mqtt"),
            plain._replace(user=user._replace(token=token), is_in_websocket=True),
            plain._replace(device=device, protocol="mqtt"),
        )
    ]


def mutate_peer_header(data: bytes, most: int, chance: Random) -> bytes:
    """An input that is another header of a node, or nearly one."""
    if chance.randrange(3):
        made = chance.choice(_peer_headers())
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(made))
            made = made[:at] + chance.randbytes(chance.randrange(3)) + made[at + chance.randrange(3) :]
        if chance.randrange(2):
            begin = len(peer_header.SIGNATURE) + 1
            made = made[:begin] + struct.pack("!H", max(0, len(made) - begin - 2)) + made[begin + 2 :]
        return made[:most]
    return mutate_header(data, most, chance)


PEER_HEADER_TARGET = Target("peer-header", run_peer_header, _peer_headers, mutate=mutate_peer_header)
