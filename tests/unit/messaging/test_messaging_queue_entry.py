"""What a message in a queue remembers of its deliveries."""

from __future__ import annotations

import pytest

from enmasse.message.codec import encode
from enmasse.message.section_writer import encode_message
from enmasse.message.sections import Header, header_of
from enmasse.message.types import Described, ULong
from enmasse.messaging.log.entry import with_attempts


def test_failed_deliveries_are_added_to_those_before() -> None:
    payload = encode_message(b"x", header=Header(durable=True, priority=7, delivery_count=3))
    header = header_of(with_attempts(payload, 2))
    assert header == Header(durable=True, priority=7, delivery_count=5)


def test_a_message_without_header_gets_one() -> None:
    payload = encode_message(b"x")
    assert with_attempts(payload, 1).endswith(payload)
    header = header_of(with_attempts(payload, 1))
    assert header is not None
    assert header.delivery_count == 1


def test_the_count_stops_at_its_largest() -> None:
    payload = encode_message(b"x", header=Header(delivery_count=0xFFFFFFFF))
    header = header_of(with_attempts(payload, 1))
    assert header is not None
    assert header.delivery_count == 0xFFFFFFFF


@pytest.mark.parametrize("payload", [b"\x00", b"garbage", encode(Described(ULong(0x70), [True, -1]))])
def test_a_message_that_cannot_be_read_goes_out_as_it_came(payload: bytes) -> None:
    assert with_attempts(payload, 1) == payload
