"""Which protocol a peer speaks."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.net.first_bytes import HTTP, TLS, ProtocolSignature, recognise
from enmasse.net.listener import Port
from enmasse.node.protocols import PROTOCOLS

AMQP = PROTOCOLS["amqp"].signature
MQTT = PROTOCOLS["mqtt"].signature
AMQP_TLS = ProtocolSignature("amqp-tls", (AMQP.tls_header,))
LINES = ProtocolSignature("lines", (b"HELLO ",))
ALL = (AMQP, LINES, HTTP, TLS, AMQP_TLS, MQTT)


@pytest.mark.parametrize(
    ("data", "signature"),
    [
        (b"AMQP\x00\x01\x00\x00", AMQP),
        (b"AMQP\x03\x01\x00\x00", AMQP),
        (b"AMQP\x02\x01\x00\x00", AMQP_TLS),
        (b"HELLO there", LINES),
        (b"\x16\x03\x01\x02\x00\x01", TLS),
        (b"GET /healthz HTTP/1.1\r\n", HTTP),
        (b"HEAD / HTTP/1.1\r\n", HTTP),
        (b"OPTIONS * HTTP/1.1\r\n", HTTP),
        (b"\x10\x0c\x00\x04MQTT\x05", MQTT),
        (b"\x10\xff\xff\xff\x7f\x00\x04MQTT", MQTT),
        (b"\x10\x80\x01\x00\x06MQIsdp\x03", MQTT),
    ],
)
def test_a_protocol_is_known_by_how_it_begins(data: bytes, signature: ProtocolSignature) -> None:
    assert recognise(data, ALL, AMQP) is signature


@pytest.mark.parametrize(
    "data",
    [
        b"A",
        b"AMQP",
        b"AMQP\x02",
        b"AMQP\x02\x01\x00",
        b"G",
        b"GET",
        b"OPTION",
        b"P",
        b"HE",
        b"HELLO",
        b"\x10",
        b"\x10\x80",
        b"\x10\xff\x7f\x00\x04MQT",
    ],
)
def test_more_bytes_are_awaited_while_several_protocols_are_possible(data: bytes) -> None:
    assert recognise(data, ALL, AMQP) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"HELO",
        b"GETS ",
        b"get /",
        b"AMQP\x01",
        b"AMQP\x02\x02",
        b"\x80\x01",
        b"\x10\xff\xff\xff\xff\x01",
        b"\x10\x0c\x00\x04HTTP",
    ],
)
@pytest.mark.parametrize("default", [AMQP, LINES])
def test_a_stranger_is_left_to_the_port_s_own_protocol(data: bytes, default: ProtocolSignature) -> None:
    assert recognise(data, ALL, default) is default


def test_what_is_not_spoken_here_is_left_to_the_port_s_own_protocol() -> None:
    assert recognise(b"\x16\x03\x01", (AMQP, HTTP), AMQP) is AMQP
    assert recognise(b"AMQP\x02\x01\x00\x00", (AMQP,), AMQP) is AMQP
    assert recognise(b"GET / HTTP/1.1\r\n", (AMQP,), AMQP) is AMQP


def test_what_tls_does_not_carry_is_spoken_in_the_clear_alone() -> None:
    bare = ProtocolSignature("bare", (b"BARE ",), over_tls=False)
    nobody: Any = None  # nothing connects here
    port = Port(nobody, {bare: nobody, AMQP: nobody}, nobody, nobody, nobody)
    assert recognise(b"BARE words", port.accepted, port.default) is bare
    assert recognise(b"BARE words", port.inside_tls, port.inside_tls[0]) is AMQP
