"""Heads that are known spare the work of reading them, and change nothing; a key's partition is Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.errors import DecodeError
from enmasse.message.sections import Header, Properties, check_order, encode_message
from enmasse.messaging.log.frame import split_payload
from enmasse.messaging.streams.heads import KNOWN_HEADS, NO_HEAD, Heads, key_of, murmur2, partition_of
from tests.support.stream_scene import StreamScene

CONTENTS = st.one_of(
    st.binary(max_size=6), st.just(b"\x00\x53\x75\xa0\x01x"), st.text(max_size=4), st.just({"a": 1}), st.just([1])
)
MESSAGES = st.builds(
    lambda content, subject, durable: encode_message(
        content,
        header=Header(durable=True) if durable else None,
        properties=None if subject is None else Properties(subject=subject),
    ),
    CONTENTS,
    st.sampled_from([None, "", "a", "b", "device-17"]),
    st.booleans(),
)
GARBAGE = st.sampled_from([b"", b"\x00", b"\x00\x53\x75\xa0\x05x", b"\x00\x53\x72garbage", b"\x00\x53\x75\xa0\x01xy"])


def is_message(payload: bytes) -> bool:
    try:
        check_order(payload)
    except DecodeError:
        return False
    return True


@given(st.lists(st.one_of(MESSAGES, GARBAGE), max_size=40))
def test_a_stream_stores_what_each_message_by_itself_would_be(payloads: list[bytes]) -> None:
    scene = StreamScene(3)
    sender = scene.sender()
    for payload in payloads:
        sender.send(payload)
    scene.settle()
    by_key: dict[bytes, list[tuple[bytes, bytes, bool]]] = {}
    for payload in payloads:
        if is_message(payload):
            by_key.setdefault(key_of(payload), []).append(split_payload(payload))
    keyless: list[tuple[bytes, bytes, bool]] = []
    for index in range(3):
        for frame in scene.stored(index):
            rows = zip(frame.cells(frame.keys), frame.cells(frame.heads), frame.cells(frame.bodies), strict=True)
            for row, (key, head, body) in enumerate(rows):
                stored = (head, body, frame.is_whole(row))
                if key:
                    assert partition_of(key, 3) == index
                    assert by_key[key].pop(0) == stored
                else:
                    keyless.append(stored)
    assert sorted(by_key.pop(b"", [])) == sorted(keyless)
    assert not any(by_key.values())


def test_a_head_is_worked_out_once() -> None:
    scene = StreamScene(2)
    heads = scene.stream.heads
    first = heads.of(encode_message(b"12345", properties=Properties(subject="a")))
    other = heads.of(encode_message(b"12345", properties=Properties(subject="b")))
    assert heads.of(encode_message(b"67890", properties=Properties(subject="a"))) is first
    assert heads.of(encode_message(b"67890", properties=Properties(subject="b")), first) is other
    assert heads.of(encode_message(b"6789", properties=Properties(subject="a")), first) is not first
    assert first.partition is scene.stream.partitions[partition_of(b"a", 2)]


def test_a_longer_message_that_begins_alike_is_another() -> None:
    heads = StreamScene().stream.heads
    first = heads.of(b"\x00\x53\x75\xa0\x01x")
    assert heads.of(b"\x00\x53\x75\xa0\x01xy", first).is_whole
    assert not heads.of(b"\x00\x53\x75\xa0\x01y", NO_HEAD).is_whole


def test_heads_are_bounded_and_whole_messages_are_not_kept() -> None:
    heads = Heads(StreamScene().stream.partitions)
    for number in range(2 * KNOWN_HEADS):
        heads.of(encode_message(b"x", properties=Properties(subject=str(number))))
        heads.of(encode_message({"whole": number}))
    assert len(heads._known) <= KNOWN_HEADS
    assert not any(head.is_whole for head in heads._known.values())


# From the Java client's own test of its hash (UtilsTest.testMurmur2).
PUBLISHED = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@pytest.mark.parametrize("key", PUBLISHED)
def test_the_hash_is_the_published_one(key: bytes) -> None:
    assert signed(murmur2(key)) == PUBLISHED[key]


@pytest.mark.parametrize("key", PUBLISHED)
@pytest.mark.parametrize("partitions", [1, 3, 12, 1_000])
def test_the_partition_is_the_hash_without_its_sign_bit(key: bytes, partitions: int) -> None:
    assert partition_of(key, partitions) == (PUBLISHED[key] & 0x7FFFFFFF) % partitions


@given(st.binary(max_size=40), st.integers(1, 1_024))
def test_every_key_has_a_partition_that_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of(key, partitions) < partitions
    assert 0 <= murmur2(key) < 1 << 32
