"""Traced frames as a capture file (pcap) that Wireshark and tshark read as AMQP 1.0.

A node hands over frames, not packets, also those that came through TLS. So the packets around them are made
up: each connection runs from its client's address to port 5672 of this machine, opens with a handshake
of TCP and loses nothing. Where a trace began in the middle of a connection, the protocol header is made up
too, because Wireshark tells the version of AMQP by it.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["Capture"]

AMQP_PORT = 5672
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

LINKTYPE_RAW = 101
"""Packets begin with the header of IP, version 4 or 6."""

SNAP_BYTES = 262_144
SEGMENT_BYTES = 60_000
"""The size of a packet of IP has 16 bits."""

WINDOW = 65_535
TCP = 6

FIN, SYN, PUSH, ACK = 0x01, 0x02, 0x08, 0x10

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_FILE = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")
_IP4 = struct.Struct(">BBHHHBBH4s4s")
_IP6 = struct.Struct(">IHBB16s16s")
_TCP = struct.Struct(">HHIIBBHHH")


@dataclass(slots=True)
class _Side:
    """One end of a connection: where it is, and how many bytes it has sent."""

    address: Address
    port: int
    sequence: int = 0
    has_header: bool = False


class Capture:
    """Writes a capture file, frame by frame.

    Args:
        file: where to; the caller closes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._connections: dict[int, tuple[_Side, _Side]] = {}
        self.frames = 0
        file.write(_FILE.pack(0xA1B2C3D4, 2, 4, 0, 0, SNAP_BYTES, LINKTYPE_RAW))

    @property
    def connections(self) -> int:
        """Of how many connections there are frames."""
        return len(self._connections)

    def add(self, time_us: int, connection: int, peer: str, *, is_outgoing: bool, frame: bytes) -> None:
        """Add a protocol header or a whole frame.

        Args:
            time_us: when, in microseconds since 1970 UTC.
            connection: its number.
            peer: where the client is, as ``host:port``.
            is_outgoing: whether the node sent it.
            frame: the bytes.
        """
        ends = self._connections.get(connection)
        if ends is None:
            ends = self._connections[connection] = _ends(peer, connection)
            self._greet(time_us, *ends)
        client, node = ends
        sender, receiver = (node, client) if is_outgoing else (client, node)
        if not sender.has_header:
            sender.has_header = True
            if not frame.startswith(b"AMQP"):
                self._send(time_us, sender, receiver, AMQP_HEADER, PUSH | ACK)
        for at in range(0, len(frame), SEGMENT_BYTES):
            self._send(time_us, sender, receiver, frame[at : at + SEGMENT_BYTES], PUSH | ACK)
        self.frames += 1

    def _greet(self, time_us: int, client: _Side, node: _Side) -> None:
        self._send(time_us, client, node, b"", SYN)
        self._send(time_us, node, client, b"", SYN | ACK)
        self._send(time_us, client, node, b"", ACK)

    def _send(self, time_us: int, sender: _Side, receiver: _Side, data: bytes, flags: int) -> None:
        acknowledged = receiver.sequence if flags & ACK else 0
        head = (sender.port, receiver.port, sender.sequence, acknowledged, 5 << 4, flags, WINDOW)
        length = _TCP.size + len(data)
        source, target = sender.address.packed, receiver.address.packed
        pseudo = source + target + struct.pack(">II", length, TCP)
        segment = _TCP.pack(*head, 0, 0) + data
        segment = _TCP.pack(*head, _checksum(pseudo + segment), 0) + data
        if sender.address.version == 4:
            packet = _ip4(source, target, length) + segment
        else:
            packet = _IP6.pack(6 << 28, length, TCP, 64, source, target) + segment
        seconds, micros = divmod(time_us, 1_000_000)
        self._file.write(_RECORD.pack(seconds & 0xFFFFFFFF, micros, len(packet), len(packet)) + packet)
        sender.sequence = (sender.sequence + len(data) + (1 if flags & (SYN | FIN) else 0)) & 0xFFFFFFFF


def _ends(peer: str, connection: int) -> tuple[_Side, _Side]:
    host, _, port = peer.rpartition(":")
    address: Address
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        number = int(port)
    except ValueError:
        # A socket of another kind: somewhere on this machine.
        address, number = ipaddress.IPv4Address("127.0.0.1"), 0xC000 + connection % 0x3FFF
    here = "127.0.0.1" if address.version == 4 else "::1"
    return _Side(address, number), _Side(ipaddress.ip_address(here), AMQP_PORT)


def _ip4(source: bytes, target: bytes, length: int) -> bytes:
    head = (0x45, 0, 20 + length, 0, 0x4000, 64, TCP)
    return _IP4.pack(*head, _checksum(_IP4.pack(*head, 0, source, target)), source, target)


def _checksum(data: bytes) -> int:
    """The sum of the Internet protocols [RFC 1071]."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
