"""Which protocol a peer speaks."""

from __future__ import annotations

import pytest

from enmasse.net.first_bytes import Speech, recognise

ALL = set(Speech)


@pytest.mark.parametrize(
    ("data", "speech"),
    [
        (b"AMQP\x00\x01\x00\x00", Speech.AMQP),
        (b"AMQP\x03\x01\x00\x00", Speech.AMQP),
        (b"AMQP\x02\x01\x00\x00", Speech.AMQP_TLS),
        (b"\x16\x03\x01\x02\x00\x01", Speech.TLS),
        (b"GET /healthz HTTP/1.1\r\n", Speech.HTTP),
        (b"HEAD / HTTP/1.1\r\n", Speech.HTTP),
        (b"OPTIONS * HTTP/1.1\r\n", Speech.HTTP),
    ],
)
def test_a_protocol_is_known_by_how_it_begins(data: bytes, speech: Speech) -> None:
    assert recognise(data, ALL) is speech


@pytest.mark.parametrize("data", [b"A", b"AMQP", b"AMQP\x02", b"AMQP\x02\x01\x00", b"G", b"GET", b"OPTION", b"P"])
def test_more_bytes_are_awaited_while_several_protocols_are_possible(data: bytes) -> None:
    assert recognise(data, ALL) is None


@pytest.mark.parametrize("data", [b"\x00", b"HELO", b"GETS ", b"get /", b"AMQP\x01", b"AMQP\x02\x02", b"\x80\x01"])
def test_a_stranger_is_left_to_the_engine_of_amqp(data: bytes) -> None:
    assert recognise(data, ALL) is Speech.AMQP


def test_what_is_not_spoken_here_is_left_to_the_engine_of_amqp() -> None:
    assert recognise(b"\x16\x03\x01", {Speech.AMQP, Speech.HTTP}) is Speech.AMQP
    assert recognise(b"AMQP\x02\x01\x00\x00", {Speech.AMQP}) is Speech.AMQP
    assert recognise(b"GET / HTTP/1.1\r\n", {Speech.AMQP}) is Speech.AMQP
