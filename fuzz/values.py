"""Targets of the codec: values, performatives, sections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from enmasse.errors import RemoteError
from enmasse.message.codec import decode, decode_all, encode, skip
from enmasse.message.composites import decode_composite, encode_composite
from enmasse.message.sections import (
    Header,
    Sections,
    decode_message,
    encode_message,
    header_of,
    is_durable,
    key_and_subject,
    to_of,
    with_header,
    with_message_annotations,
    without_message_annotations,
)
from fuzz.mutation import mutate_performative, mutate_sections, mutate_value
from fuzz.target import Target
from fuzz.vocabulary import MESSAGES, PERFORMATIVES, SASL, VALUES

__all__ = ["PERFORMATIVES_TARGET", "SECTIONS_TARGET", "TYPES_TARGET"]


def run_types(data: bytes) -> None:
    """Whatever decodes also encodes, decodes to the same again, and is skipped by its size."""
    try:
        value, end = decode(data)
    except RemoteError:
        value = end = None
    if end is not None:
        assert skip(data, 0, len(data)) == end
        again = encode(value)
        second, stop = decode(again)
        assert stop == len(again)
        assert encode(second) == again
    for look in (lambda: skip(data, 0, len(data)), lambda: decode_all(data), lambda: decode(data, 1, len(data) - 1)):
        _try(look)


def run_performatives(data: bytes) -> None:
    """Whatever decodes to a performative also encodes, and decodes to the same again."""
    try:
        found, after = decode_composite(data, 0, len(data))
    except RemoteError:
        return
    assert 0 < after <= len(data)
    again = encode_composite(found)
    second, stop = decode_composite(again, 0, len(again))
    assert stop == len(again)
    assert type(second) is type(found)
    assert encode_composite(second) == again


_HEADER = Header(durable=True, priority=9, ttl=5, delivery_count=2)
_PARTS = (
    "header", "delivery_annotations", "message_annotations", "properties", "application_properties", "body",
    "body_range", "footer",
)  # fmt: skip


def run_sections(data: bytes) -> None:
    """Everything that is asked of a payload is answered or refused; a change changes what it says it does."""
    whole = _try(lambda: decode_message(data))
    sections = Sections(data)
    for name in _PARTS:
        _try(lambda name=name: getattr(sections, name))  # type: ignore[misc]
    for ask in (header_of, is_durable, key_and_subject, to_of):
        _try(lambda ask=ask: ask(data))  # type: ignore[misc]
    headed = _try(lambda: with_header(data, _HEADER))
    if headed is not None:
        assert header_of(headed) == _HEADER
    noted = _try(lambda: with_message_annotations(data, {"x-opt-fuzz": 1}))
    bare = _try(lambda: without_message_annotations(data, ("x-opt-fuzz",)))
    if whole is not None:
        assert headed is not None
        assert decode_message(headed).body_range[1] - len(headed) == whole.body_range[1] - len(data)
        assert noted is not None
        assert decode_message(noted).message_annotations["x-opt-fuzz"] == 1
        assert bare is not None
        assert "x-opt-fuzz" not in decode_message(bare).message_annotations
        again = encode_message(whole.body, properties=whole.properties, footer=None)
        decode_message(again)


def _try(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except RemoteError:
        return None


def _value_seeds() -> Sequence[bytes]:
    return [encode(value) for value in VALUES]


def _performative_seeds() -> Sequence[bytes]:
    return [encode_composite(item) for item in (*PERFORMATIVES, *SASL)]


TYPES_TARGET = Target("types", run_types, _value_seeds, 2048, mutate_value)
PERFORMATIVES_TARGET = Target("performatives", run_performatives, _performative_seeds, 1024, mutate_performative)
SECTIONS_TARGET = Target("sections", run_sections, lambda: MESSAGES, 2048, mutate_sections)
