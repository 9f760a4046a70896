"""What tells messages apart."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from enmasse.message.sections import Header, Properties, encode_message
from enmasse.pipeline.source.consumed.spool import IDENTITY_BYTES, identity_of


def message(body: Any = b"x", message_id: Any = "m-1", subject: str | None = None, **sections: Any) -> bytes:
    return encode_message(body, properties=Properties(message_id=message_id, subject=subject), **sections)


def test_header_and_annotations_do_not_count() -> None:
    first = identity_of(message())
    again = message(header=Header(durable=True, delivery_count=3), message_annotations={"x-opt-a": 1})
    assert first is not None
    assert len(first) == IDENTITY_BYTES
    assert identity_of(again) == first


@pytest.mark.parametrize(
    "other",
    [message(message_id="m-2"), message(body=b"y"), message(subject="s"), message(application_properties={"a": 1})],
)
def test_all_that_the_sender_wrote_counts(other: bytes) -> None:
    assert identity_of(other) not in (None, identity_of(message()))


@pytest.mark.parametrize("message_id", ["m", "", 7, b"bin", UUID(int=5), "long" * 100])
def test_every_kind_of_id_will_do(message_id: Any) -> None:
    assert identity_of(message(message_id=message_id)) is not None


@pytest.mark.parametrize(
    "nameless",
    [
        message(message_id=None, subject="s"),
        encode_message(b"x"),
        encode_message(b"x", application_properties={"id": 1}),
        message(message_id=None, subject="s" * 300),
        b"",
        b"\x00\x53\x73",
        b"no AMQP",
        b"\x00\x53\x73\xc0",
    ],
)
def test_without_an_id_a_message_is_like_any_other(nameless: bytes) -> None:
    assert identity_of(nameless) is None
