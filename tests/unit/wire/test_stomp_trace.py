"""What an observer sees of a STOMP connection: every frame, no secret, and a line for each."""

from __future__ import annotations

import pytest

from enmasse.wire.stomp.trace import Splitter, describe, mask, shorten

SECRET = b"correct horse battery staple"

FRAMES = [
    b"CONNECT\naccept-version:1.2\nlogin:me\npasscode:" + SECRET + b"\nhost:h\n\n\0",
    b"CONNECTED\nversion:1.2\n\n\0",
    b"SEND\r\ndestination:a\r\ncontent-length:5\r\n\r\na\0b\n\n\0",
    b"SEND\ndestination:a\n\nx\n\ny\0",
    b"MESSAGE\nmessage-id:1\nack:1\ncontent-length:0\n\n\0",
    b"ACK\nid:1\n\n\0",
]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100_000])
def test_frames_are_found_however_they_come_and_heart_beats_are_left_out(size: int) -> None:
    data = b"\n".join(FRAMES) + b"\r\n"
    splitter = Splitter()
    found = [frame for at in range(0, len(data), size) for frame in splitter.feed(data[at : at + size])]
    assert found == FRAMES
    assert not splitter.is_lost


def test_frames_are_found_from_the_middle_of_one_on() -> None:
    data = b"".join(FRAMES)
    for cut in range(0, len(data), 7):
        first = Splitter()
        before = first.feed(data[:cut])
        begun = data[sum(map(len, before)) : cut]
        assert before + Splitter(begun).feed(data[cut:]) == FRAMES


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\1\2\n", b"x" * 100_000])
def test_what_is_no_frame_is_told_once_and_not_shown(garbage: bytes) -> None:
    splitter = Splitter()
    assert splitter.feed(FRAMES[1] + garbage) == [FRAMES[1], b""]
    assert splitter.feed(FRAMES[1]) == []


@pytest.mark.parametrize("line", [b"\npasscode:", b"\r\npasscode:"])
def test_a_passcode_is_masked_and_its_length_stays(line: bytes) -> None:
    frame = FRAMES[0].replace(b"\npasscode:", line)
    masked = mask(frame)
    assert SECRET not in masked
    assert len(masked) == len(frame)
    assert b"login:me" in masked
    assert mask(FRAMES[3]) == FRAMES[3]


def test_a_body_is_shortened_and_nothing_else() -> None:
    assert shorten(FRAMES[2], 2) == FRAMES[2][:-4]
    assert shorten(FRAMES[2], 100) == FRAMES[2]
    assert shorten(FRAMES[5], 0) == FRAMES[5]


def test_a_frame_is_a_line() -> None:
    assert describe(FRAMES[5]) == "ACK id:1"
    assert describe(FRAMES[2]) == "SEND destination:a content-length:5 body 5 bytes"
    assert describe(shorten(FRAMES[2], 1), 1) == "SEND destination:a content-length:5 body 5 bytes b'a'"
    assert describe(b"\1\2") == "2 bytes that are no frame"
