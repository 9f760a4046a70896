"""Streams within a space that has a limit of its own."""

from __future__ import annotations

from enmasse.message.sections import encode_message
from enmasse.messaging.space import Space
from enmasse.messaging.streams.stream import Stream
from tests.support.stream_scene import StreamScene

ROW = len(encode_message(bytes(1_000))) + 20


def spaced(max_bytes: int, *others: int) -> tuple[StreamScene, Space, list[Stream]]:
    """A stream in a space, and further ones by their logs."""
    scene = StreamScene()
    space = Space(scene.harness.core, "default/s", lambda: "x", max_bytes=max_bytes)
    space.add(scene.stream)
    streams = [Stream(scene.harness.core, f"log{log}", log, uid=f"u{log}") for log in others]
    for stream in streams:
        space.add(stream)
    scene.settle()
    return scene, space, streams


def test_what_streams_store_counts_for_their_space() -> None:
    scene, space, (other,) = spaced(100 * ROW, 7)
    sender, second = scene.sender(), scene.harness.sender(other)
    scene.settle()
    for _ in range(3):
        sender.send(encode_message(bytes(1_000)))
    second.send(encode_message(bytes(1_000)))
    scene.settle()
    assert space.bytes_stored == 4 * ROW
    space.remove(other)
    assert space.bytes_stored == 3 * ROW
    space.configure(max_bytes=50 * ROW)
    assert space.bytes_stored == 3 * ROW


def test_in_a_full_space_senders_wait_until_there_is_room() -> None:
    scene, space, (other,) = spaced(20 * ROW, 7)
    sender = scene.sender()
    while sender.credit > 0:
        sender.send(encode_message(bytes(1_000)))
        scene.settle()
    assert 20 * ROW <= space.bytes_stored <= 22 * ROW
    second = scene.harness.sender(other)
    scene.settle()
    assert second.credit == 0
    scene.stream.configure(retention_bytes=2 * ROW)
    scene.settle()
    assert space.bytes_stored == 2 * ROW
    assert second.credit > 0


def test_what_a_stream_holds_counts_when_it_joins() -> None:
    scene = StreamScene()
    scene.append(bytes(1_000))
    space = Space(scene.harness.core, "default/s", lambda: "x", max_bytes=100 * ROW)
    space.add(scene.stream)
    assert space.bytes_stored == ROW


def test_a_space_without_a_limit_counts_nothing() -> None:
    scene, space, _ = spaced(0)
    scene.append(bytes(1_000))
    assert space.bytes_stored == 0
