"""``enmasse trace``: its usage, and the packets that it makes up around frames."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from enmasse.cli.commands.run.trace import Capture
from enmasse.node.protocols import PROTOCOLS
from enmasse.wire.amqp.framing import AMQP_HEADER, HEARTBEAT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Cli = Callable[..., Any]


AMQP = PROTOCOLS["amqp"]


class Packet(NamedTuple):
    time_us: int
    version: int
    ports: tuple[int, int]
    sequence: int
    acknowledged: int
    flags: int
    data: bytes


def packets(file: bytes) -> list[Packet]:
    """What a capture file holds; every checksum in it is right."""
    assert struct.unpack_from("<IHH", file) == (0xA1B2C3D4, 2, 4)
    assert struct.unpack_from("<I", file, 20) == (101,)
    found = []
    at = 24
    while at < len(file):
        seconds, micros, size, whole = struct.unpack_from("<IIII", file, at)
        packet = file[at + 16 : at + 16 + size]
        assert size == whole == len(packet)
        at += 16 + size
        version = packet[0] >> 4
        head, source, target = (20, packet[12:16], packet[16:20])
        if version == 6:
            head, source, target = (40, packet[8:24], packet[24:40])
        else:
            assert sum_of(packet[:20]) == 0xFFFF
        segment = packet[head:]
        assert sum_of(source + target + struct.pack(">II", len(segment), 6) + segment) == 0xFFFF
        one, other, sequence, acknowledged, _, flags = struct.unpack_from(">HHIIBB", segment)
        found.append(
            Packet(seconds * 1_000_000 + micros, version, (one, other), sequence, acknowledged, flags, segment[20:])
        )
    return found


def sum_of(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_a_connection_begins_with_a_handshake_and_each_frame_follows_the_one_before() -> None:
    file = io.BytesIO()
    capture = Capture(file)
    capture.add(1_700_000_000_000_001, 1, "10.1.2.3:4711", AMQP, is_outgoing=False, frame=AMQP_HEADER)
    capture.add(1_700_000_000_000_002, 1, "10.1.2.3:4711", AMQP, is_outgoing=True, frame=AMQP_HEADER)
    capture.add(1_700_000_000_000_003, 1, "10.1.2.3:4711", AMQP, is_outgoing=False, frame=HEARTBEAT)
    found = packets(file.getvalue())
    assert [packet.flags for packet in found] == [0x02, 0x12, 0x10, 0x18, 0x18, 0x18]
    assert [packet.data for packet in found[3:]] == [AMQP_HEADER, AMQP_HEADER, HEARTBEAT]
    assert found[5][:5] == (1_700_000_000_000_003, 4, (4711, 5672), 9, 9)
    assert (capture.frames, capture.connections) == (3, 1)


def test_a_protocol_header_is_made_up_where_the_trace_began_later() -> None:
    file = io.BytesIO()
    Capture(file).add(5, 1, "[::1]:4711", AMQP, is_outgoing=True, frame=HEARTBEAT)
    found = packets(file.getvalue())
    assert [packet.data for packet in found[3:]] == [AMQP_HEADER, HEARTBEAT]
    assert {packet.version for packet in found} == {6}


@pytest.mark.parametrize("size", [59_999, 60_000, 60_001, 1 << 20])
def test_a_frame_that_fits_into_no_packet_goes_in_several(size: int) -> None:
    file = io.BytesIO()
    capture = Capture(file)
    frame = size.to_bytes(4, "big") + b"x" * (size - 4)
    capture.add(5, 1, "10.1.2.3:4711", AMQP, is_outgoing=False, frame=AMQP_HEADER)
    capture.add(6, 1, "10.1.2.3:4711", AMQP, is_outgoing=False, frame=frame)
    found = packets(file.getvalue())[4:]
    assert b"".join(packet.data for packet in found) == frame
    assert len(found) == -(-size // 60_000)


def test_connections_of_other_sockets_are_told_apart() -> None:
    file = io.BytesIO()
    capture = Capture(file)
    for number in (1, 2):
        capture.add(5, number, "unix", AMQP, is_outgoing=False, frame=AMQP_HEADER)
    assert len({packet.ports for packet in packets(file.getvalue()) if packet.ports[1] == 5672}) == 2


@pytest.mark.parametrize("host", ["10.1.2.3", "mq.example.com", "[::1]"])
def test_what_is_behind_a_connector_is_at_the_customary_port(host: str) -> None:
    file = io.BytesIO()
    capture = Capture(file)
    for number in ("7/mill", "7/barn"):
        capture.add(5, number, f"{host}:4711", AMQP, is_outgoing=True, frame=HEARTBEAT)
    found = packets(file.getvalue())
    ports = {packet.ports for packet in found if packet.data == HEARTBEAT}
    assert {there for _, there in ports} == {5672}
    assert len(ports) == capture.connections == 2


@pytest.mark.parametrize("wrong", [["1", "--all"], ["--all", "--container", "c"], ["--seconds", "-1"]])
def test_only_one_choice_is_taken(cli: Cli, wrong: list[str]) -> None:
    assert cli("trace", *wrong).code == 2


@pytest.mark.parametrize("arguments", [[], ["--all"], ["7"]])
def test_without_a_node_it_says_so(cli: Cli, arguments: list[str], tmp_path: Path) -> None:
    result = cli("trace", "--admin", str(tmp_path / "no.sock"), *arguments)
    assert result.code == 4
    assert "no.sock" in result.err
