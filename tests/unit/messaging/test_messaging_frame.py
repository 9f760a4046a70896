"""Frames: what was written comes back, and nothing else passes for a frame."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enmasse.messaging.log.frame import (
    FLAG_VOLATILE,
    FLAG_WHOLE,
    Frame,
    FrameError,
    check_frame,
    encode_frame,
    frame_head,
    restamp_frame,
    split_payload,
)


class Row(NamedTuple):
    timestamp: int
    key: bytes
    head: bytes
    body: bytes
    whole: bool


CELLS = st.binary(max_size=40)
ROWS = st.lists(st.builds(Row, st.integers(-(2**63), 2**63 - 1), CELLS, CELLS, CELLS, st.booleans()), max_size=20)


def encode(rows: list[Row], first_offset: int = 0, producer: bytes = b"", sequence: int = 0) -> bytes:
    return encode_frame(
        first_offset,
        [row.timestamp for row in rows],
        [row.key for row in rows],
        [row.head for row in rows],
        [row.body for row in rows],
        whole=[index for index, row in enumerate(rows) if row.whole],
        producer=producer,
        sequence=sequence,
    )


def with_right_crc(data: bytes) -> bytes:
    return data[:24] + zlib.crc32(data[28:], zlib.crc32(data[:24])).to_bytes(4, "little") + data[28:]


def as_first_version(data: bytes) -> bytes:
    """The same frame as the first version wrote it, whose checksum leaves out the header before it."""
    return b"EMF1" + data[4:24] + zlib.crc32(data[28:]).to_bytes(4, "little") + data[28:]


@given(ROWS, st.integers(0, 2**64 - 1), st.binary(max_size=255), st.integers(0, 2**64 - 1))
def test_what_was_encoded_comes_back(rows: list[Row], first: int, producer: bytes, sequence: int) -> None:
    data = encode(rows, first, producer, sequence)
    frame = Frame(data)
    assert (frame.rows, frame.first_offset, frame.next_offset) == (len(rows), first, first + len(rows))
    assert (frame.producer, frame.sequence) == (producer, sequence)
    assert frame.timestamps().tolist() == [row.timestamp for row in rows]
    assert frame.cells(frame.keys) == [row.key for row in rows]
    assert frame.cells(frame.heads) == [row.head for row in rows]
    assert frame.cells(frame.bodies) == [row.body for row in rows]
    assert frame.payloads() == [row.head + row.body for row in rows]
    assert frame.has_whole == any(row.whole for row in rows)
    assert [frame.is_whole(index) for index in range(len(rows))] == [row.whole for row in rows]


@given(ROWS, st.binary(max_size=9))
def test_every_column_starts_at_a_multiple_of_eight(rows: list[Row], producer: bytes) -> None:
    frame = Frame(encode(rows, producer=producer))
    places = [frame.ts_at, frame.whole_at]
    for column in (frame.keys, frame.heads, frame.bodies):
        places += (column.offsets_at, column.data_at)
    assert [place % 8 for place in places] == [0] * 8


@given(ROWS, st.data())
def test_any_changed_byte_is_noticed(rows: list[Row], data: st.DataObject) -> None:
    frame = bytearray(encode(rows))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        Frame(bytes(frame))
    with pytest.raises(FrameError):
        check_frame(bytes(frame), 0)


@given(ROWS, st.integers(0, 2**64 - 1), st.binary(max_size=9), st.data())
def test_frames_of_the_first_version_are_read(
    rows: list[Row], first: int, producer: bytes, data: st.DataObject
) -> None:
    old = as_first_version(encode(rows, first, producer, 7))
    frame = Frame(old)
    check_frame(old, first)
    assert (frame.first_offset, frame.producer, frame.sequence) == (first, producer, 7)
    assert frame.payloads() == [row.head + row.body for row in rows]
    damaged = bytearray(old)
    damaged[data.draw(st.integers(28, len(old) - 1))] ^= 1
    with pytest.raises(FrameError):
        Frame(bytes(damaged))
    with pytest.raises(FrameError):
        check_frame(bytes(damaged), first)


def test_a_sound_frame_under_a_wrong_key_is_noticed() -> None:
    frame = encode([], 5)
    check_frame(frame, 5)
    with pytest.raises(FrameError, match="at offset 6 says that it belongs at 5"):
        check_frame(frame, 6)


@pytest.mark.parametrize("volatile", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_the_first_bytes_tell_what_a_frame_is(volatile: bool, whole: bool) -> None:
    data = encode_frame(9, [1, 2], [b"k"] * 2, [b"h"] * 2, [b"b"] * 2, whole=[1] * whole, volatile=volatile)
    frame = Frame(data)
    assert (frame.is_volatile, frame.has_whole) == (volatile, whole)
    flags = FLAG_VOLATILE * volatile | FLAG_WHOLE * whole
    assert frame_head(data[:64]) == (9, 2, len(data), flags)
    assert frame_head(as_first_version(data)[:64]) == (9, 2, len(data), flags)


@pytest.mark.parametrize("start", [b"", b"EMF2", b"EMF3" + bytes(60)])
def test_other_first_bytes_are_refused(start: bytes) -> None:
    with pytest.raises(FrameError):
        frame_head(start)


def test_a_frame_that_a_log_takes_up_gets_its_place_and_is_kept() -> None:
    sent = encode_frame(0, [1, 2], [b"k"] * 2, [b"h"] * 2, [b"b"] * 2, producer=b"p", sequence=4, volatile=True)
    for data in (sent, as_first_version(sent)):
        frame = Frame(restamp_frame(Frame(data), 70, 99))
        assert (frame.first_offset, frame.timestamps().tolist()) == (70, [99, 99])
        assert (frame.producer, frame.sequence, frame.is_volatile) == (b"p", 4, False)
        assert frame.data[:4] == b"EMF2"


@given(ROWS, st.data())
def test_a_frame_that_was_cut_or_padded_is_refused(rows: list[Row], data: st.DataObject) -> None:
    frame = encode(rows)
    with pytest.raises(FrameError):
        Frame(frame[: data.draw(st.integers(0, len(frame) - 1))])
    with pytest.raises(FrameError):
        Frame(frame + b"\0")


def read_everything(data: bytes, *, verify: bool) -> None:
    frame = Frame(data, verify=verify)
    frame.timestamps()
    frame.payloads()
    frame.cells(frame.keys)
    for row in range(min(frame.rows, 1000)):
        frame.is_whole(row)


@given(st.binary(max_size=200))
@example(b"")
@example(b"EMF1" + b"\0" * 32)
@example(b"EMF2" + b"\0" * 32)
def test_any_bytes_are_a_frame_or_a_frame_error(data: bytes) -> None:
    for verify in (True, False):
        try:
            read_everything(data, verify=verify)
        except FrameError:
            continue


@given(ROWS, st.data())
def test_a_frame_with_wrong_fields_and_right_checksum_is_a_frame_or_a_frame_error(
    rows: list[Row], data: st.DataObject
) -> None:
    frame = bytearray(encode(rows, producer=b"p"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        frame[12:16] = len(frame).to_bytes(4, "little")
    try:
        read_everything(with_right_crc(bytes(frame)), verify=True)
    except FrameError:
        return


@pytest.mark.parametrize("rows", [1, 2**31, 2**32 - 1])
def test_a_frame_that_claims_more_rows_than_it_holds_is_refused(rows: int) -> None:
    data = bytearray(encode([]))
    data[8:12] = rows.to_bytes(4, "little")
    with pytest.raises(FrameError, match="do not fit"):
        Frame(with_right_crc(bytes(data)))


def test_columns_of_different_length_are_refused() -> None:
    with pytest.raises(FrameError, match="2 timestamps, 1 keys"):
        encode_frame(0, [1, 2], [b""], [b"", b""], [b"", b""])


def test_a_producer_id_above_255_bytes_is_refused() -> None:
    with pytest.raises(FrameError, match="256 bytes"):
        encode([], producer=b"p" * 256)


HEADER = b"\0\x53\x70\xc0\x04\x02\x41\x50\x04"
PROPERTIES = b"\0\x53\x73\xd0\0\0\0\x07\0\0\0\x01\xa1\x01m"
APPLICATION = b"\0\x53\x74\xc1\x01\x00"


@pytest.mark.parametrize("before", [b"", HEADER, PROPERTIES, HEADER + PROPERTIES + APPLICATION])
@pytest.mark.parametrize("content", [b"", b"x", b"\0\x53\x75\xa0\x00", b"y" * 255])
@pytest.mark.parametrize(
    ("prefix", "width"),
    [(b"\0\x53\x75\xa0", 1), (b"\0\x53\x75\xb0", 4), (b"\0\x53\x77\xa0", 1), (b"\0\x53\x77\xb0", 4),
     (b"\0\x53\x77\xa1", 1), (b"\0\x53\x77\xb1", 4)],
)  # fmt: skip
def test_one_data_section_or_plain_value_is_cut_before_its_content(
    before: bytes, content: bytes, prefix: bytes, width: int
) -> None:
    head = before + prefix + len(content).to_bytes(width, "big")
    assert split_payload(head + content) == (head, content, False)


DATA = b"\0\x53\x75\xa0\x01x"
SEQUENCE = b"\0\x53\x76\xc0\x03\x01\x54\x05"


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(DATA + DATA, id="two data sections"),
        pytest.param(DATA + b"\0\x53\x78\xc1\x01\x00", id="a footer"),
        pytest.param(SEQUENCE, id="a sequence"),
        pytest.param(SEQUENCE + DATA, id="a sequence and data"),
        pytest.param(b"\0\x53\x77\x54\x05", id="a value that is a number"),
        pytest.param(b"\0\x53\x77\xc1\x01\x00", id="a value that is a map"),
        pytest.param(b"\0\x53\x75\xa1\x01x", id="a string where data belongs"),
        pytest.param(DATA[:-1], id="cut in the content"),
        pytest.param(HEADER, id="no body"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_any_other_message_lies_whole_in_head(payload: bytes) -> None:
    assert split_payload(payload) == (payload, b"", True)


SECTIONS = st.sampled_from(
    [HEADER, PROPERTIES, APPLICATION, DATA, SEQUENCE, b"\0\x53", b"\0\x53\x77\xb1\0\0", b"\xff"]
)


@given(st.lists(st.one_of(SECTIONS, st.binary(max_size=12)), max_size=8).map(b"".join))
def test_split_never_raises_and_loses_nothing(payload: bytes) -> None:
    head, body, whole = split_payload(payload)
    assert head + body == payload
    assert not (whole and body)


def test_the_layout_is_the_documented_one() -> None:
    data = encode([Row(7, b"k", b"head", b"body", False), Row(8, b"", b"h", b"", True)], 5, b"me", 9)
    header = struct.unpack_from("<4sBBHIIQIQ", data)
    assert header == (b"EMF2", 1, 2, 0, 2, len(data), 5, zlib.crc32(data[28:], zlib.crc32(data[:24])), 9)
    assert data[36:40] == b"me\0\0"
    assert struct.unpack_from("<2q", data, 40) == (7, 8)
    assert struct.unpack_from("<3i", data, 56) == (0, 1, 1)
    assert data[72:80] == b"k" + bytes(7)
    assert struct.unpack_from("<3i", data, 80) == (0, 4, 5)
    assert data[96:104] == b"headh" + bytes(3)
    assert struct.unpack_from("<3i", data, 104) == (0, 4, 4)
    assert data[120:] == b"body" + bytes(4) + b"\x02"
