"""Deliveries that wait for the peer's word: how many there may be, and whose they are when links go."""

from __future__ import annotations

from random import Random

import pytest

from enmasse.message.outcomes import Accepted
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp import session_output
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import Detach, Disposition, End, Flow, Open, Transfer
from enmasse.wire.amqp.unsettled import number_of, tag_of
from tests.support.raw_peer import RawPeer

CREDIT = 1_000_000


def sending(links: int = 1, frame_bytes: int = 0xFFFFFFFF) -> tuple[RawPeer, list[RecordingSink]]:
    """An engine that sends on some links, with credit and a window that are never felt."""
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0))
    peer.greet(open_with=Open("raw", max_frame_size=frame_bytes))
    peer.begin(incoming_window=CREDIT)
    for handle in range(links):
        peer.attach_receiver(f"out{handle}", handle)
        peer.say(Flow(0, CREDIT, 0, CREDIT, handle, 0, CREDIT))
    peer.hear()
    return peer, [link.sink for link in handler.links]


def heard(peer: RawPeer) -> list[int | None]:
    return [transfer.delivery_id for transfer in peer.hear_all(Transfer)]


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_output, "MAX_UNSETTLED", 5)


@pytest.mark.usefixtures("_few")
def test_a_peer_that_settles_nothing_is_sent_no_more_and_goes_on_when_it_does() -> None:
    peer, (sink,) = sending()
    for _ in range(8):
        sink.send(b"x")
    assert heard(peer) == [0, 1, 2, 3, 4]
    assert sink.blocked == [True]
    peer.say(Flow(5, CREDIT, 0, CREDIT))
    assert heard(peer) == [], "a window is not what is missing"
    peer.say(Disposition(True, 0, 2, True, Accepted()))
    assert heard(peer) == [], "what waits to be sent counts as well"
    peer.say(Disposition(True, 3, 3, True, Accepted()))
    assert heard(peer) == [5, 6, 7]
    assert sink.blocked == [True, False]


@pytest.mark.usefixtures("_few")
def test_settled_messages_need_no_room() -> None:
    peer, (sink,) = sending()
    for _ in range(23):
        sink.send(b"x", settled=True)
    assert heard(peer) == list(range(23))
    assert True not in sink.blocked[-1:]


@pytest.mark.usefixtures("_few")
def test_a_link_that_goes_makes_room_for_the_others() -> None:
    peer, (first, second) = sending(2)
    for _ in range(5):
        first.send(b"x")
    second.send(b"y")
    assert heard(peer) == [0, 1, 2, 3, 4]
    link = first.link
    assert isinstance(link, SendingLink)
    taken = link.take_unsettled()
    assert len(taken) == 5
    peer.say(Detach(0, True))
    assert heard(peer) == [5]


# Whose deliveries they are


@pytest.mark.parametrize("seed", range(5))
def test_each_link_takes_its_own_deliveries_however_many_there_are(seed: int) -> None:
    chance = Random(seed)
    peer, sinks = sending(6)
    open_by_sink: dict[RecordingSink, list[int]] = {sink: [] for sink in sinks}
    sent: dict[int, object] = {}
    number = 0
    for _ in range(3):
        for _ in range(400):
            sink = chance.choice(sinks)
            sent[number] = sink.send(b"x")
            open_by_sink[sink].append(number)
            number += 1
        settled = chance.randrange(number)
        peer.say(Disposition(True, settled, settled + 50, True, Accepted()))
        for ids in open_by_sink.values():
            ids[:] = [i for i in ids if not settled <= i <= settled + 50]
        leaver = sinks.pop()
        assert isinstance(leaver.link, SendingLink)
        assert leaver.link.take_unsettled() == [sent[i] for i in open_by_sink.pop(leaver)]
    for sink, ids in open_by_sink.items():
        assert isinstance(sink.link, SendingLink)
        assert sink.link.take_unsettled() == [sent[i] for i in ids]
    session = peer.engine.sessions[0]
    assert not session.unsettled


# What dispositions of many may cost


def test_ranges_that_overlap_are_fine_for_what_was_sent() -> None:
    peer, (sink,) = sending()
    for _ in range(500):
        sink.send(b"x")
    for last in range(500):
        peer.say(Disposition(True, 0, last, True, Accepted()))
    assert len(sink.outcomes) == 500
    assert peer.hear_all(End) == []


def test_a_range_that_begins_beyond_what_was_sent_means_nothing() -> None:
    peer, (sink,) = sending()
    sink.send(b"x")
    for _ in range(100):
        peer.say(Disposition(True, 1, 0x70000000, True, Accepted()))
    assert sink.outcomes == []
    assert peer.hear_all(End) == []


def test_asking_for_the_same_deliveries_over_and_over_ends_the_session() -> None:
    peer, (sink,) = sending()
    for _ in range(2000):
        sink.send(b"x")
    peer.say(Disposition(True, 1, 1000, True, Accepted()))
    peer.hear()
    ends: list[End] = []
    for _ in range(10_000):
        peer.say(Disposition(True, 1, 1000, True, Accepted()))
        ends = peer.hear_all(End)
        if ends:
            break
    (end,) = ends
    assert end.error is not None
    assert end.error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("size", [1, 1_000])
def test_tags_are_utf8_and_each_delivery_has_its_own_however_many_there_were(size: int) -> None:
    peer, (sink,) = sending(frame_bytes=512)
    for start in (0, 1 << 14, 1 << 21, 1 << 28, (1 << 32) - 200):
        peer.engine.sessions[0].number_from(start)
        for _ in range(200):
            sink.send(b"x" * size, settled=True)
        begun = [sent for sent in peer.hear_all(Transfer) if sent.delivery_tag is not None]
        tags = {sent.delivery_tag.decode(): sent.delivery_id for sent in begun if sent.delivery_tag is not None}
        assert list(tags.values()) == list(range(start, start + 200))
        assert [number_of(tag.encode()) for tag in tags] == list(tags.values())
        assert [tag_of(number or 0).decode() for number in tags.values()] == list(tags)


def test_delivery_ids_begin_again_after_the_highest() -> None:
    peer, (sink,) = sending()
    peer.engine.sessions[0].number_from((1 << 32) - 2)
    for _ in range(4):
        sink.send(b"x", settled=True)
    sent = peer.hear_all(Transfer)
    assert [transfer.delivery_id for transfer in sent] == [(1 << 32) - 2, (1 << 32) - 1, 0, 1]
    assert [transfer.delivery_tag for transfer in sent] == [
        b"\x0f\x7f\x7f\x7f\x7e", b"\x0f\x7f\x7f\x7f\x7f", bytes(5), b"\0\0\0\0\1",
    ]  # fmt: skip
