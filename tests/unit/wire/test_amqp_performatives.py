"""Performatives, terminus and outcomes: round trips, and fields that are missing or wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.message.codec import decode, encode
from enmasse.message.composites import _LAYOUT, decode_composite, encode_composite
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Array, Described, Symbol, UInt, ULong
from enmasse.wire.amqp.performatives import (
    _CLASSES,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Flow,
    Open,
    Received,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from tests.support.chance import examples

ascii_text = st.text(st.characters(max_codepoint=127), max_size=20)
text = st.text(max_size=20)
maps = st.dictionaries(ascii_text.map(Symbol), st.none() | text | st.integers(0, 9), min_size=1, max_size=3)
BY_KIND: dict[str, st.SearchStrategy[Any]] = {
    "ubyte": st.integers(0, 0xFF),
    "ushort": st.integers(0, 0xFFFF),
    "uint": st.integers(0, 0xFFFFFFFF),
    "ulong": st.integers(0, 0xFFFFFFFFFFFFFFFF),
    "boolean": st.booleans(),
    "string": text,
    "symbol": ascii_text,
    "binary": st.binary(max_size=40),
    "map": maps,
    "fields": maps,
    "symbols": st.lists(ascii_text, max_size=3).map(tuple),
    "value": text,
}
errors = st.builds(AmqpError, ascii_text, st.none() | text, st.none() | maps)
states = st.one_of(
    st.builds(Received, st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFFFFFFFFFF)),
    st.just(Accepted()),
    st.just(Released()),
    st.builds(Rejected, st.none() | errors),
    st.builds(Modified, st.booleans(), st.booleans(), st.none() | maps),
    st.builds(Described, st.just(ULong(0x99)), st.just([b"txn"])),
    st.builds(Declared, st.binary(max_size=8)),
    st.builds(TransactionalState, st.binary(max_size=8), st.none() | st.just(Accepted()) | st.just(Rejected())),
)


CLASSES = (*_CLASSES, AmqpError, Accepted, Rejected, Released, Modified, Declare, Declared, Discharge)


def composites(cls: type[Composite], name: str) -> st.SearchStrategy[Any]:
    if name == "error":
        return errors
    if name in ("state", "default_outcome"):
        return states
    if name == "source":
        return performatives(Source)
    assert cls is Attach
    return performatives(Target) | performatives(Coordinator)


def performatives(cls: type[Composite]) -> st.SearchStrategy[Any]:
    """Any instance of one class, each optional field present or at its default."""
    fields = {}
    for name, kind, _default in _LAYOUT[cls]:
        value = composites(cls, name) if kind.name == "composite" else BY_KIND[kind.name]
        default = cls.__dataclass_fields__[name].default  # type: ignore[attr-defined]
        fields[name] = value | st.just(default) if default in (None, True, False) else value
    return st.builds(cls, **fields)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_a_performative_comes_back(cls: type[Composite], data: st.DataObject) -> None:
    value = data.draw(performatives(cls))
    encoded = encode_composite(value)
    padded = b"\xff" + encoded + b"payload"
    assert decode_composite(padded, 1, len(padded)) == (value, 1 + len(encoded))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=examples(10))
@given(data=st.data())
def test_a_symbol_describes_as_well_as_a_number(cls: type[Composite], data: st.DataObject) -> None:
    value = data.draw(performatives(cls))
    described, _ = decode(encode_composite(value))
    named = encode(Described(Symbol(cls.SYMBOL), described.value))
    assert decode_composite(named, 0, len(named))[0] == value


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_any_list_of_values_is_read_or_refused(cls: type[Composite], data: st.DataObject) -> None:
    values = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(0, 0xFFFFFFFF).map(UInt),
        text,
        st.binary(max_size=5),
        maps,
        states.map(lambda state: decode(encode_composite(state))[0] if isinstance(state, Composite) else state),
        st.just(Array(0xA3, [Symbol("a")])),
        st.just([]),
        st.just(-1),
    )
    fields = data.draw(st.lists(values, max_size=len(_LAYOUT[cls]) + 1))
    encoded = encode(Described(ULong(cls.CODE), fields))
    try:
        found, _ = decode_composite(encoded, 0, len(encoded))
    except DecodeError:
        return
    assert isinstance(found, cls)
    again = encode_composite(found)
    assert decode_composite(again, 0, len(again))[0] == found


@settings(max_examples=examples(100))
@given(st.sampled_from([cls.CODE for cls in _CLASSES]), st.binary(max_size=60))
def test_any_bytes_behind_a_descriptor_are_read_or_refused(code: int, tail: bytes) -> None:
    data = b"\x00\x53" + bytes((code,)) + tail
    try:
        found, at = decode_composite(data, 0, len(data))
    except DecodeError:
        return
    assert at <= len(data)
    assert encode_composite(found)


def fields_of(cls: type[Composite], values: list[Any]) -> bytes:
    return encode(Described(ULong(cls.CODE), values))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (fields_of(Open, []), "lacks its mandatory field container_id"),
        (fields_of(Open, [None]), "lacks its mandatory field container_id"),
        (fields_of(Open, [1]), "1 where a string"),
        (fields_of(Open, ["c", None, -1]), "-1 where a uint"),
        (fields_of(Open, ["c", None, None, UInt(0x10000)]), "ushort"),
        (fields_of(Open, ["c"] + [None] * 10), "has 11 fields, 10 are known"),
        (fields_of(Open, ["c", None, None, None, None, "é"]), "symbol"),
        (fields_of(Open, ["c", None, None, None, None, Array(0xB1, ["é"])]), "symbol"),
        (fields_of(Open, ["c", None, None, None, None, Array(0xA0, [b"x"])]), "symbol"),
        (fields_of(Begin, [None, UInt(0)]), "lacks its mandatory field incoming_window"),
        (fields_of(Flow, [None, UInt(0)]), "lacks its mandatory field next_outgoing_id"),
        (fields_of(Attach, ["n", UInt(0)]), "lacks its mandatory field role"),
        (fields_of(Attach, ["n", UInt(0), UInt(1)]), "boolean"),
        (fields_of(Attach, ["n", UInt(0), True, None, None, "q"]), "composite"),
        (fields_of(Attach, ["n", UInt(0), True, None, None, Described(ULong(0x24), [])]), "Source"),
        (fields_of(Attach, ["n", UInt(0), True, None, None, Described(ULong(0x29), [])]), "Source"),
        (fields_of(Attach, ["n", UInt(0), True, None, None, None, Described(ULong(0x28), [])]), "Target"),
        (fields_of(Attach, ["n", UInt(0), True, None, None, None, Described(Symbol("my:target"), [])]), "Target"),
        (fields_of(Attach, ["n", UInt(0), True, None, None, Described(ULong(0x28), {})]), "not a list"),
        (fields_of(Transfer, []), "lacks its mandatory field handle"),
        (fields_of(Transfer, [UInt(0), UInt(0), "tag"]), "binary"),
        (fields_of(Disposition, [True, UInt(0), None, True, Described(ULong(0x10), ["c"])]), "Accepted"),
        (fields_of(Close, [Described(ULong(0x24), [])]), "AmqpError"),
        (fields_of(Close, [Described(ULong(0x1D), [])]), "lacks its mandatory field condition"),
        (fields_of(SaslInit, [Symbol("PLAIN"), "text"]), "binary"),
        (encode(Described(ULong(0x10), {})), "not a list"),
        (encode(Described(ULong(0x99), [])), "no composite that is known"),
        (encode(Described(Symbol("x" * 100_000), [])), "no composite that is known"),
        (encode(Described([], [])), "neither number nor symbol"),
        (encode([]), "composite"),
        (b"", "missing"),
    ],
)
def test_wrong_fields_are_decode_errors_with_a_short_reason(data: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why) as caught:
        decode_composite(data, 0, len(data))
    assert len(caught.value.description) < 200


def test_trailing_defaults_are_not_sent() -> None:
    assert encode_composite(Accepted()).hex() == "00532445"
    assert encode_composite(Close()).hex() == "00531845"
    assert encode_composite(Transfer(0, more=False)).hex() == "005314c0020143"
    assert encode_composite(Open("c", channel_max=0xFFFF)) == encode_composite(Open("c"))


def test_mandatory_numbers_are_sent_even_when_zero() -> None:
    data = encode_composite(Begin())
    assert decode(data)[0].value == [None, UInt(0), UInt(0), UInt(0)]


def test_a_single_symbol_stands_for_an_array_of_one() -> None:
    data = encode(Described(ULong(0x40), [Symbol("ANONYMOUS")]))
    found, _ = decode_composite(data, 0, len(data))
    assert found.mechanisms == ("ANONYMOUS",)  # type: ignore[attr-defined]


def test_symbols_longer_than_a_byte_counts_are_kept() -> None:
    value = Open("c", offered_capabilities=("x" * 300, "y"))
    data = encode_composite(value)
    assert decode_composite(data, 0, len(data))[0] == value


@pytest.mark.parametrize(
    "value",
    [
        Open("c", properties={"product": "p"}),
        Begin(properties={"k": 1}),
        Attach("link", 0, False, properties={"k": "v"}),
        Flow(properties={"k": 1}),
        Attach("link", 0, False, source=Source("q", filter={"f": 1}, dynamic_node_properties={"k": 1})),
        Attach("link", 0, False, target=Target("q", dynamic_node_properties={"k": 1})),
        Close(AmqpError("amqp:internal-error", None, {"k": 1})),
        Disposition(True, 0, state=Modified(message_annotations={"k": 1})),
        Disposition(True, 0, state=TransactionalState(b"t", Rejected(AmqpError("a", None, {"k": 1})))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_names_in_maps_of_fields_are_symbols(value: Composite) -> None:
    def keys(part: Any) -> list[Any]:
        if isinstance(part, Described):
            return keys(part.value)
        if isinstance(part, dict):
            return list(part)
        return [key for item in part for key in keys(item)] if isinstance(part, list) else []

    found = keys(decode(encode_composite(value))[0])
    assert found
    assert {type(key) for key in found} == {Symbol}


def test_peers_may_write_names_as_strings_but_not_beyond_ascii() -> None:
    data = encode(Described(ULong(0x10), ["c", None, None, None, None, None, None, None, None, {"product": "p"}]))
    assert decode_composite(data, 0, len(data))[0] == Open("c", properties={"product": "p"})
    data = encode(Described(ULong(0x1D), [Symbol("amqp:internal-error"), None, {"größe": 1}]))
    with pytest.raises(DecodeError, match="symbol"):
        decode_composite(data, 0, len(data))


def test_values_of_extensions_stay_as_they_are() -> None:
    unknown = Described(Symbol("acme:lifetime"), [1])
    value = Source("q", filter={Symbol("f"): unknown}, dynamic_node_properties={Symbol("p"): unknown})
    data = encode_composite(value)
    assert decode_composite(data, 0, len(data))[0] == replace(value)
