"""A server's end of a STOMP connection: frames however they come, and what is no frame."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.errors import RemoteError
from enmasse.wire.stomp.connection import CONNECT_TIMEOUT_S, LINGER_S, TURN_BYTES
from enmasse.wire.stomp.frames import (
    COMMANDS,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    Version,
    encode_frame,
    read_head,
)
from tests.unit.wire.stomp_scene import CONNECT, Scene

SEND = b"SEND\ndestination:orders\ncontent-length:3\n\na\x00b\x00"
UNCOUNTED = b"SEND\ndestination:orders\nreceipt:r\\c1\n\ntext\n\ntext\x00"
CRLF = b"SEND\r\ndestination:orders\r\nreceipt:5\r\n\r\nx\n\ny\x00\r\n"
TRANSCRIPT = (
    CONNECT + b"\n\r\n" + SEND + SEND + UNCOUNTED + CRLF + b"ACK\nid:17\n\n\x00ACK\nid:18\nreceipt:a\n\n\x00\n"
    b"SUBSCRIBE\nid:0\ndestination:orders\nselector:a\\c'b'\n\n\x00" + SEND
)


def events_of(pieces: list[bytes]) -> tuple[list[tuple[object, ...]], bytes]:
    scene = Scene()
    for piece in pieces:
        scene.engine.receive(piece, 1.0)
    return scene.heard, scene.said()


WHOLE = events_of([TRANSCRIPT])


def test_frames_are_told_in_their_order_with_their_headers_unescaped() -> None:
    heard, said = WHOLE
    assert said.startswith(b"CONNECTED\nversion:1.2\n")
    assert [what[0] for what in heard] == [
        "CONNECT", "SEND", "SEND", "SEND", "SEND", "ACK", "ACK", "SUBSCRIBE", "SEND",
    ]  # fmt: skip
    assert heard[1] == ("SEND", {"destination": "orders", "content-length": "3"}, b"a\x00b", None)
    assert heard[3] == ("SEND", {"destination": "orders"}, b"text\n\ntext", b"r\\c1")
    assert heard[4] == ("SEND", {"destination": "orders"}, b"x\n\ny", b"5")
    assert heard[6] == ("ACK", {"id": "18", "receipt": "a"}, b"a")
    assert heard[7][1]["selector"] == "a:'b'"  # type: ignore[index]


@given(st.lists(st.integers(1, len(TRANSCRIPT) - 1), max_size=20))
def test_reads_of_any_sizes_tell_the_same(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(TRANSCRIPT)]
    assert events_of([TRANSCRIPT[a:b] for a, b in pairwise(ends)]) == WHOLE


def test_bytes_that_come_one_by_one_tell_the_same() -> None:
    assert events_of([TRANSCRIPT[at : at + 1] for at in range(len(TRANSCRIPT))]) == WHOLE


def test_a_head_that_is_said_again_with_another_receipt_is_read_once() -> None:
    scene = Scene().opened()
    for number in range(5):
        scene.engine.receive(b"SEND\ndestination:a\nreceipt:%d\n\nx\x00" % number, 0.0)
    assert [what[3] for what in scene.heard] == [b"0", b"1", b"2", b"3", b"4"]
    assert scene.sinks == 1
    scene.engine.forget_sinks()
    scene.engine.receive(b"SEND\ndestination:a\n\nx\x00", 0.0)
    assert scene.sinks == 2


@pytest.mark.parametrize("asked", ["1.0", "1.1", "1.2", "1.0,1.1,1.2", "1.1, 1.3"])
def test_the_latest_version_that_both_speak_is_agreed_on(asked: str) -> None:
    scene = Scene()
    scene.engine.receive(f"CONNECT\naccept-version:{asked}\n\n\0".encode(), 0.0)
    latest = max(version for version in Version if version.text in asked)
    assert f"\nversion:{latest.text}\n".encode() in scene.said()
    assert scene.engine.version is latest


def test_who_names_no_version_speaks_the_first_one_which_has_no_escapes() -> None:
    scene = Scene()
    scene.engine.receive(b"CONNECT\nlogin: me\n\n\0SEND\ndestination: a\\c\n\nx\0", 0.0)
    assert scene.heard[-1] == ("SEND", {"destination": "a\\c"}, b"x", None)


def test_a_peer_of_other_versions_is_told_which_there_are() -> None:
    scene = Scene()
    scene.engine.receive(b"CONNECT\naccept-version:2.0\n\n\0", 0.0)
    assert b"\nversion:1.0,1.1,1.2\n" in scene.said()
    assert scene.is_closed()


BAD: dict[str, bytes] = {
    "no command 'NUDGE'": b"NUDGE\n\n\0",
    "no command 'GET / ": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no command 'A long ": b"A long story without an end of its line",
    "a NUL comes before the empty line": b"SEND\ndestination:a\0b\n\nx\0",
    "is no header": b"SEND\ndestination\n\nx\0",
    "is not UTF-8": b"SEND\ndestination:\xff\n\nx\0",
    "has the escape '\\\\t'": b"SEND\ndestination:a\\tb\n\nx\0",
    "is a number of bytes, not '-1'": b"SEND\ndestination:a\ncontent-length:-1\n\nx\0",
    "is a number of bytes, not '9999": b"SEND\ndestination:a\ncontent-length:" + b"9" * 400 + b"\n\nx\0",
    f"a body has up to {MAX_BODY_BYTES}": b"SEND\ndestination:a\ncontent-length:%d\n\n" % (MAX_BODY_BYTES + 1),
    "is not followed by a NUL": b"SEND\ndestination:a\ncontent-length:1\n\nxyz\0",
    "CONNECT comes again": CONNECT,
    "STOMP comes again": CONNECT.replace(b"CONNECT", b"STOMP"),
    "only SEND has a body": b"SUBSCRIBE\nid:1\ndestination:a\n\nx\0",
    "SEND has no destination": b"SEND\n\nx\0",
    f"up to {MAX_HEADERS} headers": b"SEND\n" + b"a:b\n" * (MAX_HEADERS + 1) + b"\nx\0",
    f"have up to {MAX_HEAD_BYTES} bytes": b"SEND\n" + b"a:b\n" * (MAX_HEAD_BYTES // 4 + 2),
}


@pytest.mark.parametrize("reason", BAD)
@pytest.mark.parametrize("size", [0, 7])
def test_what_is_no_frame_is_answered_with_the_reason_and_the_end(reason: str, size: int) -> None:
    scene = Scene().opened()
    bad = BAD[reason]
    for at in range(0, len(bad), size or len(bad)):
        scene.engine.receive(bad[at : at + (size or len(bad))], 0.0)
    said = scene.said()
    assert said.startswith(b"ERROR\nmessage:")
    assert reason in said.partition(b"\n\n")[2].decode()
    scene.engine.handle_deadline(LINGER_S)
    assert scene.is_closed()
    assert [what[0] for what in scene.heard] == ["closed"]


def test_an_error_names_the_receipt_of_the_frame_that_caused_it() -> None:
    scene = Scene().opened()
    scene.engine.receive(b"SUBSCRIBE\nreceipt:s\\c1\nid:1\n\nx\0", 0.0)
    assert scene.said().startswith(b"ERROR\nreceipt-id:s\\c1\nmessage:")


def test_frames_before_connect_are_refused() -> None:
    scene = Scene()
    scene.engine.receive(SEND, 0.0)
    assert b"SEND comes before CONNECT" in scene.said()
    assert scene.heard == [("closed", "SEND comes before CONNECT")]


def test_a_peer_that_was_talking_has_a_moment_to_see_the_error() -> None:
    scene = Scene().opened()
    scene.engine.receive(b"NUDGE\n\n\0" + SEND, 5.0)
    assert not scene.is_closed()
    scene.engine.receive(SEND, 5.5)
    assert scene.engine.next_deadline() == 5.0 + LINGER_S
    scene.engine.handle_deadline(5.0 + LINGER_S)
    assert scene.is_closed()
    assert [what[0] for what in scene.heard] == ["closed"]


def test_until_somebody_is_let_in_nothing_else_is_read() -> None:
    scene = Scene(lets_in=False)
    scene.engine.receive(CONNECT + SEND, 0.0)
    scene.engine.receive(SEND, 0.0)
    assert [what[0] for what in scene.heard] == ["CONNECT"]
    scene.engine.connected("1")
    scene.engine.receive(b"", 0.0)
    assert [what[0] for what in scene.heard] == ["CONNECT", "SEND", "SEND"]


def test_others_come_between_frames_where_they_have_waited() -> None:
    scene = Scene().opened()
    scene.engine.is_late = lambda _is_hot: True
    scene.engine.receive(SEND * 500, 0.0)
    first = len(scene.heard)
    assert 0 < first < 500
    assert scene.engine.unread
    while scene.engine.has_more:
        scene.engine.receive(b"", 0.0)
    assert len(scene.heard) == 500


def test_whoever_is_held_reads_nothing_and_loses_nothing() -> None:
    scene = Scene().opened()
    scene.engine.hold_input(True)
    scene.engine.receive(SEND + SEND[:9], 0.0)
    scene.engine.receive(SEND[9:], 0.0)
    assert scene.heard == []
    scene.engine.hold_input(False)
    scene.engine.receive(b"", 0.0)
    assert len(scene.heard) == 2


def test_there_is_no_room_for_a_frame_that_is_not_complete() -> None:
    scene = Scene().opened()
    asked: list[int] = []

    def more_room(size: int) -> bool:
        asked.append(size)
        return size < 10_000

    scene.engine.more_room = more_room
    scene.engine.receive(b"SEND\ndestination:a\ncontent-length:100000\n\n" + b"x" * 5_000, 0.0)
    scene.engine.receive(b"x" * 6_000, 0.0)
    assert b"there is no room" in scene.said()
    assert asked[-1] == 0


def test_heart_beats_go_both_ways() -> None:
    scene = Scene().opened(b"heart-beat:20000,4000")
    scene.engine.handle_deadline(scene.engine.next_deadline() or 0.0)
    assert scene.said() == b""
    assert (scene.engine.next_deadline() or 0.0) < 4.0
    scene.engine.handle_deadline(scene.engine.next_deadline() or 0.0)
    assert scene.said() == b"\n"
    scene.engine.receive(b"\n", 30.0)
    scene.engine.handle_deadline(69.0)
    assert not scene.is_closed()
    scene.said()
    scene.engine.handle_deadline(70.0)
    assert b"no heart-beat within 40 s" in scene.said()
    assert scene.is_closed()


def test_who_promises_no_heart_beat_is_not_missed() -> None:
    scene = Scene().opened(b"heart-beat:0,0")
    assert scene.engine.next_deadline() is None


@pytest.mark.parametrize("beat", ["1", "a,b", "-1,0", "1,2,3", "1234567890,0"])
def test_a_heart_beat_that_is_none_is_refused(beat: str) -> None:
    scene = Scene()
    scene.engine.receive(f"CONNECT\naccept-version:1.2\nheart-beat:{beat}\n\n\0".encode(), 0.0)
    assert b"a heart-beat is two numbers" in scene.said()


def test_who_does_not_connect_is_hung_up_on() -> None:
    scene = Scene()
    assert scene.engine.next_deadline() == CONNECT_TIMEOUT_S
    scene.engine.handle_deadline(CONNECT_TIMEOUT_S)
    assert b"no CONNECT within 30 s" in scene.said()
    assert scene.is_closed()


def test_output_beyond_a_turn_s_worth_blocks_until_it_is_written() -> None:
    scene = Scene().opened()
    scene.engine.put(bytes(TURN_BYTES + 1))
    assert scene.heard == [("blocked", True)]
    scene.said()
    scene.engine.resume_output()
    assert scene.heard[-1] == ("blocked", False)


def test_a_handler_that_fails_while_frames_follow_ends_the_connection_once() -> None:
    scene = Scene().opened()
    scene.engine.receive(SEND[:10], 0.0)
    scene.engine.fail(RemoteError("amqp:connection:forced", "go away"))
    scene.engine.receive(SEND, 0.0)
    scene.engine.lost()
    assert scene.heard == [("closed", "go away")]
    assert b"condition:amqp\\cconnection\\cforced" in scene.said()


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"))


@given(
    st.sampled_from([Version.V1_1, Version.V1_2]),
    st.dictionaries(texts.filter(bool), texts, max_size=8),
    st.binary(),
)
def test_what_is_written_is_read_as_it_was(version: Version, headers: dict[str, str], body: bytes) -> None:
    frame = encode_frame("SEND", headers.items(), body, version)
    head, _, rest = frame.partition(b"\n\n")
    assert rest == body + b"\x00"
    if version is Version.V1_1 and any("\r" in text for item in headers.items() for text in item):
        return  # it has no escape for that, so what a reader makes of it is its own
    assert read_head(head, version) == (b"SEND", headers)


@given(st.binary(max_size=300), st.sampled_from(sorted(COMMANDS)), st.booleans())
def test_no_bytes_make_it_fail(data: bytes, command: bytes, is_open: bool) -> None:
    scene = Scene().opened() if is_open else Scene()
    scene.engine.receive(command + b"\n" + data, 0.0)
    scene.engine.receive(data + b"\x00", 0.0)
    scene.said()


@pytest.mark.parametrize("size", [b"", b"content-length:3\n"])
def test_line_ends_are_no_body(size: bytes) -> None:
    for step in (1, 1_000):
        scene = Scene()
        said = CONNECT.replace(b"\x00", b"\n\n\x00") + b"SUBSCRIBE\nid:1\ndestination:a\n%b\n\r\n\n\0" % size
        for at in range(0, len(said), step):
            scene.engine.receive(said[at : at + step], 0.0)
        assert [found[0] for found in scene.heard] == ["CONNECT", "SUBSCRIBE"]


@pytest.mark.parametrize(
    "body", [b"\nx\0", b"\0\0", b"\n" * 99, b"content-length:3\n\n\n\0x\0", b"content-length:99\n\n\n"]
)
def test_a_body_is_of_send_alone_however_it_begins(body: bytes) -> None:
    scene = Scene().opened()
    head = b"" if body.startswith(b"content") else b"\n"
    scene.engine.receive(b"SUBSCRIBE\nid:1\ndestination:a\n" + head + body, 0.0)
    assert b"ERROR\n" in scene.said()
