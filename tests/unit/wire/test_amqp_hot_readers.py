"""Transfer, disposition and flow are read by hand: the general decoder is what they must agree with."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enmasse.message.codec import encode
from enmasse.message.composites import decode_composite, encode_composite
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED, Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Described, Symbol, ULong
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import ReceivingLink, SendingLink
from enmasse.wire.amqp.performatives import Disposition, Flow, Received, Transfer
from tests.support.chance import examples
from tests.support.raw_peer import RawPeer

HANDLES = (0, 1, 255, 256, 4095)
NULL = b"\x40"


def uint_forms(value: int) -> list[bytes]:
    """Every way to write a uint."""
    forms = [b"\x70" + struct.pack(">I", value)]
    if value < 256:
        forms.append(bytes((0x52, value)))
    if value == 0:
        forms.append(b"\x43")
    return forms


def uints(values: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    return values.flatmap(lambda value: st.sampled_from(uint_forms(value)))


def binaries(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(max_size=size).flatmap(
        lambda tag: st.sampled_from([bytes((0xA0, len(tag))) + tag, b"\xb0" + struct.pack(">I", len(tag)) + tag])
    )


booleans = st.sampled_from([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
any_uint = uints(st.integers(0, 300) | st.integers(0, 0xFFFFFFFF))
small_uint = uints(st.integers(0, 3) | st.integers(0, 300))
ubytes = st.integers(0, 1).map(lambda value: bytes((0x50, value)))
states = st.sampled_from(
    [
        encode_composite(state)
        for state in (
            Accepted(),
            Released(),
            Rejected(),
            Rejected(AmqpError("acme:bad", "why", {Symbol("k"): 1})),
            Modified(),
            Modified(True, True, {Symbol("x-opt-n"): 1}),
            Received(0, 0),
        )
    ]
    + [
        bytes.fromhex("005324c00100"),
        bytes.fromhex("005324d00000000400000000"),
        bytes.fromhex("00800000000000000024 45"),
        b"\x00" + encode(Symbol("amqp:released:list")) + b"\x45",
        encode(Described(ULong(0x99), [b"txn", Described(ULong(0x24), [])])),
    ]
)
maps = st.sampled_from([b"\xc1\x01\x00", encode({Symbol("k"): "v"})])


def lists(fields: list[tuple[st.SearchStrategy[bytes], bool]]) -> st.SearchStrategy[tuple[int, bytes]]:
    """Fields in any form, any tail left out: (how many, their bytes)."""
    least = max(index + 1 for index, (_, mandatory) in enumerate(fields) if mandatory)

    def some(count: int) -> st.SearchStrategy[tuple[int, bytes]]:
        forms = [form if mandatory else form | st.just(NULL) for form, mandatory in fields[:count]]
        return st.tuples(*forms).map(lambda parts: (count, b"".join(parts)))

    return st.integers(least, len(fields)).flatmap(some)


TRANSFER = lists(
    [
        (uints(st.sampled_from((*HANDLES, 7))), True),
        (any_uint, False),
        (binaries(300), False),
        (any_uint, False),
        (booleans, False),
        (booleans, False),
        (ubytes, False),
        (states, False),
        (booleans, False),
        (booleans, False),
        (booleans, False),
    ]
)
DISPOSITION = lists(
    [
        (booleans, True),
        (small_uint, True),
        (small_uint, False),
        (booleans, False),
        (states, False),
        (booleans, False),
    ]
)
FLOW = lists(
    [
        (small_uint, False),
        (any_uint, True),
        (any_uint, True),
        (any_uint, True),
        (uints(st.sampled_from(HANDLES)), False),
        (small_uint, False),
        (any_uint, False),
        (any_uint, False),
        (booleans, False),
        (booleans, False),
        (maps, False),
    ]
)


def descriptors(code: int, symbol: str) -> st.SearchStrategy[bytes]:
    return st.sampled_from(
        [
            bytes((0, 0x53, code)),
            b"\x00\x80" + struct.pack(">Q", code),
            b"\x00\xa3" + bytes((len(symbol),)) + symbol.encode(),
            b"\x00\xb3" + struct.pack(">I", len(symbol)) + symbol.encode(),
        ]
    )


def bodies(code: int, symbol: str, fields: st.SearchStrategy[tuple[int, bytes]]) -> st.SearchStrategy[bytes]:
    """A performative in any form: any descriptor, list8 or list32."""

    def body(descriptor: bytes, counted: tuple[int, bytes], wide: bool) -> bytes:
        count, content = counted
        if wide or len(content) > 254:
            return descriptor + b"\xd0" + struct.pack(">II", len(content) + 4, count) + content
        return descriptor + bytes((0xC0, len(content) + 1, count)) + content

    return st.builds(body, descriptors(code, symbol), fields, st.booleans())


def frame(body: bytes, data_offset: int = 2) -> bytes:
    extended = bytes(4 * (data_offset - 2))
    size = 8 + len(extended) + len(body)
    return struct.pack(">IBBH", size, data_offset, 0, 0) + extended + body


class Bench:
    """A server with one session, whose peer is the test."""

    def __init__(self) -> None:
        self.handler = Recorder()
        self.engine = Connection(self.handler, container_id="s", is_server=True, now=0.0)
        self.peer = RawPeer(self.engine)
        self.peer.greet()
        self.peer.begin()

    @property
    def session(self) -> Any:
        return self.handler.sessions[0]

    def receivers(self) -> dict[int, RecordingSink]:
        """Links on which the engine receives, with credit, by handle."""
        sinks = {}
        for handle in HANDLES:
            self.peer.attach_sender(f"in{handle}", handle)
            link = self.handler.links[-1]
            assert isinstance(link, ReceivingLink)
            link.grant(5)
            sinks[handle] = link.sink
        self.peer.hear()
        return sinks

    def sender(self, handle: int = 0) -> RecordingSink:
        """A link on which the engine sends."""
        self.peer.attach_receiver(f"out{handle}", handle)
        sink = self.handler.links[-1].sink
        assert isinstance(sink, RecordingSink)
        return sink

    @property
    def ended_with(self) -> str | None:
        """Why the session or the connection ended."""
        if self.engine.error is not None:
            return self.engine.error.condition
        ends = self.handler.calls("ended")
        return ends[0][1] if ends else None


def general(body: bytes) -> Any:
    """What the general decoder makes of it, or nothing."""
    try:
        return decode_composite(body, 0, len(body))[0]
    except DecodeError:
        return None


def check_transfer(body: bytes, payload: bytes, data_offset: int = 2) -> None:
    bench = Bench()
    sinks = bench.receivers()
    bench.peer.say_bytes(frame(body + payload, data_offset))
    received = [(handle, item) for handle, sink in sinks.items() for item in sink.received]
    expected = general(body)
    if expected is None:
        assert bench.ended_with in ("amqp:decode-error", "amqp:session:unattached-handle")
        assert not received
        return
    assert isinstance(expected, Transfer)
    if expected.handle not in HANDLES:
        assert bench.ended_with == "amqp:session:unattached-handle"
    elif expected.aborted:
        assert bench.ended_with is None
        assert not received
        assert bench.handler.links[HANDLES.index(expected.handle)].received == 1  # type: ignore[attr-defined]
    elif expected.delivery_id is None:
        assert bench.ended_with == "amqp:invalid-field"
    elif expected.more:
        assert bench.ended_with is None
        assert not received
        last = Transfer(expected.handle)
        bench.peer.say(last, payload=b"end")
        ((handle, item),) = [(handle, item) for handle, sink in sinks.items() for item in sink.received]
        assert (handle, item.payload, item.delivery_id) == (expected.handle, payload + b"end", expected.delivery_id)
        assert item.settled == bool(expected.settled)
    else:
        assert bench.ended_with is None
        ((handle, item),) = received
        assert handle == expected.handle
        assert item.payload == payload
        assert item.delivery_id == expected.delivery_id
        assert item.settled == bool(expected.settled)
        assert item.message_format == (expected.message_format or 0)


@settings(max_examples=examples(100))
@given(bodies(0x14, "amqp:transfer:list", TRANSFER), st.binary(max_size=20), st.integers(2, 4))
def test_a_transfer_in_any_form_is_read_as_the_decoder_reads_it(body: bytes, payload: bytes, offset: int) -> None:
    assert general(body) is not None
    check_transfer(body, payload, offset)


def check_disposition(body: bytes) -> None:
    bench = Bench()
    sink = bench.sender()
    bench.peer.say(Flow(0, 1000, 0, 1000, 0, 0, 100))
    deliveries = [sink.send(b"x") for _ in range(6)]
    bench.peer.hear()
    bench.peer.say_bytes(frame(body))
    expected = general(body)
    if expected is None:
        assert bench.ended_with == "amqp:decode-error"
        return
    assert isinstance(expected, Disposition)
    last = expected.first if expected.last is None else expected.last
    if last < expected.first and expected.role:
        assert bench.ended_with in ("amqp:invalid-field", None)
        return
    assert bench.ended_with is None
    tells = isinstance(expected.state, Accepted | Released | Rejected | Modified) or expected.settled
    for delivery_id, delivery in enumerate(deliveries):
        if expected.role and tells and expected.first <= delivery_id <= last:
            assert delivery.is_settled
            assert delivery.state == expected.state
            assert not isinstance(expected.state, Accepted) or delivery.state is ACCEPTED, "sinks compare by identity"
        else:
            assert not delivery.is_settled
    answers = bench.peer.hear_all(Disposition)
    if expected.role and tells and not expected.settled:
        (answer,) = answers
        assert (answer.role, answer.first, answer.last, answer.settled) == (False, expected.first, last, True)
    else:
        assert not answers


@settings(max_examples=examples(100))
@given(bodies(0x15, "amqp:disposition:list", DISPOSITION))
def test_a_disposition_in_any_form_is_read_as_the_decoder_reads_it(body: bytes) -> None:
    assert general(body) is not None
    check_disposition(body)


def check_flow(body: bytes) -> None:
    bench = Bench()
    sinks = {handle: bench.sender(handle) for handle in HANDLES}
    bench.peer.hear()
    bench.peer.say_bytes(frame(body))
    expected = general(body)
    if expected is None:
        assert bench.ended_with == "amqp:decode-error"
        return
    assert isinstance(expected, Flow)
    assert bench.ended_with is None
    outgoing = 0 if expected.next_incoming_id is None else expected.next_incoming_id
    window = bench.session.remote_window + bench.session._held_window
    # RFC 1982: nothing was sent, so what it counts is ahead or, beyond half of all numbers, behind.
    ahead = outgoing if outgoing < 1 << 31 else outgoing - (1 << 32)
    assert window == expected.incoming_window + ahead
    for handle, sink in sinks.items():
        if handle != expected.handle or expected.link_credit is None:
            assert not sink.credits
            continue
        link = sink.link
        assert isinstance(link, SendingLink)
        assert link.credit == min(0xFFFFFFFF, (expected.delivery_count or 0) + expected.link_credit)
        assert sink.credits == [(link.credit, expected.drain)]
    answers = bench.peer.hear_all(Flow)
    assert len(answers) == int(expected.echo)
    if answers and expected.handle is not None:
        link = sinks[expected.handle].link
        assert link is not None
        assert answers[0].handle == link.handle


@settings(max_examples=examples(80))
@given(bodies(0x13, "amqp:flow:list", FLOW))
def test_a_flow_in_any_form_is_read_as_the_decoder_reads_it(body: bytes) -> None:
    assert general(body) is not None
    check_flow(body)


def check_bare_transfer(body: bytes) -> None:
    check_transfer(body, b"")


CHECKS: dict[str, tuple[st.SearchStrategy[bytes], Callable[[bytes], None]]] = {
    "transfer": (bodies(0x14, "amqp:transfer:list", TRANSFER), check_bare_transfer),
    "disposition": (bodies(0x15, "amqp:disposition:list", DISPOSITION), check_disposition),
    "flow": (bodies(0x13, "amqp:flow:list", FLOW), check_flow),
}


@pytest.mark.parametrize("kind", CHECKS)
@settings(max_examples=examples(80))
@given(data=st.data())
def test_a_changed_list_never_passes_where_the_decoder_refuses_it(kind: str, data: st.DataObject) -> None:
    forms, check = CHECKS[kind]
    body = bytearray(data.draw(forms))
    # Behind the descriptor, whose change would make it another performative.
    start = 3 if body[1] == 0x53 else 10 if body[1] == 0x80 else len(body) - 1
    for _ in range(data.draw(st.integers(1, 2))):
        body[data.draw(st.integers(start, len(body) - 1))] = data.draw(st.integers(0, 255))
    if general(bytes(body)) is None:
        check(bytes(body))


UINTS = ["43", "5200", "5205", "7000000005", "40"]
BOOLEANS = ["41", "42", "5600", "5601", "40"]
# Each field's forms; the first of each is what stands there while another field is tried.
FORMS: dict[str, tuple[int, list[list[str]]]] = {
    "transfer": (
        0x14,
        [
            ["43", "5201", "7000000100"], UINTS, ["a00101", "b0000000020102", "40"], UINTS, BOOLEANS, BOOLEANS,
            ["40", "5000", "5001"], ["40", "00532445", "005325c00100"], ["40", *BOOLEANS], ["40", *BOOLEANS],
            ["40", *BOOLEANS],
        ],
    ),
    "disposition": (
        0x15,
        [BOOLEANS[:-1], UINTS[:-1], UINTS, BOOLEANS, ["00532445", "005324c00100", "00532645", "40"], BOOLEANS],
    ),
    "flow": (
        0x13,
        [UINTS, *[UINTS[:-1]] * 3, ["40", "43", "5201"], UINTS, UINTS, UINTS, BOOLEANS, BOOLEANS, ["40", "c10100"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("kind", FORMS)
def test_each_form_of_each_field_is_read_as_the_decoder_reads_it(kind: str, wide: bool) -> None:
    code, forms = FORMS[kind]
    check = CHECKS[kind][1]
    mandatory = {"transfer": 1, "disposition": 2, "flow": 4}[kind]
    for index in range(len(forms)):
        for form in forms[index]:
            fields = [bytes.fromhex(others[0]) for others in forms[: max(index + 1, mandatory)]]
            fields[index] = bytes.fromhex(form)
            content = b"".join(fields)
            head = bytes((0, 0x53, code))
            if wide:
                check(head + b"\xd0" + struct.pack(">II", len(content) + 4, len(fields)) + content)
            else:
                check(head + bytes((0xC0, len(content) + 1, len(fields))) + content)


@pytest.mark.parametrize(
    "body",
    [
        "005315 45",  # no fields
        "005315 c0020141",  # no first
        "005315 c0030241a0",  # a binary as first
        "005315 c0050341 43 a000",  # a binary as last
        "005315 c0050441 43 43 44",  # a number as settled
        "005315 c0060541 43 43 41 45",  # a list as state
        "005315 c0050541 43 43 41",  # fewer fields than announced
        "005315 c0080541 43 43 41 532445",  # a state without descriptor
        "005315 c0090541 43 43 41 00532441",  # a state that is no list
        "005315 d000000007 00000102 41 43 40",  # a count that only fits when cut to a byte
    ],
)
def test_broken_dispositions_are_refused(body: str) -> None:
    data = bytes.fromhex(body)
    assert general(data) is None
    check_disposition(data)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_flow_without_a_mandatory_field_is_refused(missing: int) -> None:
    fields = [b"\x43"] * 4
    fields[missing] = b"\x40"
    check_flow(b"\x00\x53\x13\xc0\x05\x04" + b"".join(fields))


@pytest.mark.parametrize(
    "body",
    [
        "005314 45",  # no list with fields
        "005314 c1020143",  # a map
        "005314 c00100",  # no handle
        "005314 c0020140",  # a null handle
        "005314 c0020141",  # a boolean handle
        "005314 c003014342",  # more bytes than fields
        "005314 c0020243",  # more fields than bytes
        "005314 c0030243a1",  # a text as delivery id
        "005314 c00806 43 43 40 40 56 02 42",  # a boolean of 2
        "005314 c00806 43 43 40 40 42 56 02",
        "005314 c00707 43 43 40 40 42 42",  # a seventh field that is not there
        "005314 c00d0c 43 43 40 40 42 42 40 40 42 42 42 42",  # twelve fields
        "005314 c00907 43 43 40 40 42 42 a000",  # a binary as settle mode
        "005314 c00908 43 43 40 40 42 42 40 42",  # a boolean as state
        "005314 d000000005 00000101 43",  # a count that only fits when cut to a byte
        "005314 d0ffffffff 00000001 43",  # a size beyond the frame
    ],
)
def test_broken_transfers_are_refused(body: str) -> None:
    data = bytes.fromhex(body)
    assert general(data) is None
    check_transfer(data, b"")
