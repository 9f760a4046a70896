"""Traces of HTTP: frames, masked and described."""

from __future__ import annotations

import pytest

from enmasse.wire.http.trace import Splitter, describe, mask, shorten

REQUEST = b"POST /m HTTP/1.1\r\nHost: a\r\nAuthorization: Basic c2VjcmV0\r\nContent-Length: 5\r\n\r\nhello"
CHUNKS = [b"DELETE / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_bytes_become_frames(size: int) -> None:
    data = REQUEST + b"".join(CHUNKS) + REQUEST
    splitter = Splitter()
    found = [frame for at in range(0, len(data), size) for frame in splitter.feed(data[at : at + size])]
    assert found == [REQUEST, *CHUNKS, REQUEST]


def test_what_is_no_frame_is_not_shown() -> None:
    splitter = Splitter()
    assert splitter.feed(REQUEST + b"\x16\x03secret") == [REQUEST, b""]
    assert splitter.feed(REQUEST) == []


def test_secrets_are_masked_and_lengths_stay() -> None:
    masked = mask(REQUEST)
    assert b"c2VjcmV0" not in masked
    assert len(masked) == len(REQUEST)
    assert all(mask(chunk) == chunk for chunk in CHUNKS)


def test_frames_are_described_in_a_line() -> None:
    assert describe(mask(REQUEST), 2).endswith("body 5 bytes b'he'")
    assert "POST /m HTTP/1.1" in describe(REQUEST)
    assert describe(CHUNKS[1], 9) == "chunk 3 bytes b'abc'"
    assert describe(b"nothing") == "7 bytes that are no frame"
    assert shorten(REQUEST, 2) == REQUEST[:-3]
