"""The partition of a key is the one that Kafka's own clients compute."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.messaging.partition import murmur2, partition_of

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
