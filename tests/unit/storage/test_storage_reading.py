"""Requests to the reader process and its answers: whole again however they were cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enmasse.storage.reading import (
    READY,
    WARM,
    ReadAnswer,
    ReadRequest,
    encode_read,
    encode_request,
    split_reads,
    split_requests,
)

KEYS = st.binary(max_size=401)
REQUESTS = st.lists(st.builds(ReadRequest, st.integers(0, 255), KEYS, KEYS, st.integers(0, 2**64 - 1)), max_size=5)
ANSWERS = st.lists(
    st.builds(ReadAnswer, st.sampled_from([READY, WARM]), KEYS, st.booleans(), st.lists(KEYS, max_size=4).map(tuple)),
    max_size=5,
)


@given(REQUESTS, st.integers(1, 50))
def test_requests_come_whole(requests: list[ReadRequest], step: int) -> None:
    data = b"".join(map(encode_request, requests))
    found: list[ReadRequest] = []
    rest = b""
    for at in range(0, len(data), step):
        more, rest = split_requests(rest + data[at : at + step])
        found += more
    assert (found, rest) == (requests, b"")


@given(ANSWERS, st.integers(1, 50))
def test_answers_come_whole(answers: list[ReadAnswer], step: int) -> None:
    data = b"".join(encode_read(kind, end, damaged, found=found) for kind, end, found, damaged in answers)
    heard: list[ReadAnswer] = []
    rest = b""
    for at in range(0, len(data), step):
        more, rest = split_reads(rest + data[at : at + step])
        heard += more
    assert (heard, rest) == (answers, b"")


def test_a_limit_above_64_bits_is_no_limit() -> None:
    ((_, _, _, limit),), _ = split_requests(encode_request(ReadRequest(2, b"a", b"b", 1 << 80)))
    assert limit == (1 << 64) - 1
