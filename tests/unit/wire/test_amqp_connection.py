"""Connections end, from either side, and what they say last."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import LocalError
from enmasse.message.outcomes import AmqpError
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.performatives import Close, Composite, Flow, Open
from tests.support.raw_peer import RawPeer


def server(open_with: Open | None = None) -> tuple[RawPeer, Recorder]:
    handler = Recorder()
    peer = RawPeer(Connection(handler, container_id="s", is_server=True, now=0.0))
    peer.greet(open_with=open_with)
    return peer, handler


def only(frames: list[Any]) -> Composite:
    (frame,) = frames
    assert frame.performative is not None
    return frame.performative  # type: ignore[no-any-return]


def condition(performative: Composite) -> str | None:
    error = performative.error  # type: ignore[attr-defined]
    return error.condition if error is not None else None


@pytest.mark.parametrize("closer", ["client", "server"])
def test_close_takes_everything_along_on_both_sides(closer: str) -> None:
    pair = RecordedPair()
    session = pair.begin()
    pair.sender(session, "a")
    pair.receiver(session, "b")
    engine = pair.client if closer == "client" else pair.server
    engine.close(AmqpError("amqp:connection:forced", "going down"))
    engine.close()
    pair.pump()
    for diary in (pair.client_diary, pair.server_diary):
        assert sorted(name for name, _, _ in diary.calls("detached")) == ["a", "b"]
        assert diary.calls("ended") == [(0, "amqp:connection:forced")]
        assert diary.diary[-1] == ("closed", "amqp:connection:forced")
    assert pair.client.closed
    assert pair.server.closed
    assert pair.client.next_deadline() is None


def test_both_sides_may_close_at_once() -> None:
    pair = RecordedPair()
    pair.begin()
    pair.client.close()
    pair.server.close(AmqpError("amqp:connection:forced"))
    pair.pump()
    assert pair.client_diary.calls("closed") == ["amqp:connection:forced"]
    assert pair.server_diary.calls("closed") == ["amqp:connection:forced"]


def test_a_cut_connection_is_told_as_lost() -> None:
    pair = RecordedPair()
    pair.sender(pair.begin(), "a")
    pair.cut()
    for diary in (pair.client_diary, pair.server_diary):
        assert diary.calls("detached") == [("a", None, False)]
        assert diary.calls("ended") == [(0, None)]
        assert diary.calls("closed") == [None]
    pair.pump()
    with pytest.raises(LocalError):
        pair.client.begin()


def test_after_the_end_an_engine_is_deaf() -> None:
    pair = RecordedPair()
    pair.begin()
    pair.client.close()
    pair.pump()
    before = list(pair.server_diary.diary)
    pair.server.receive(b"\xff" * 100, 0.0)
    pair.server.lost()
    assert pair.server_diary.diary == before
    assert pair.server.pending_output() == []


def test_a_peer_that_closes_gets_its_close_answered() -> None:
    peer, handler = server()
    peer.begin()
    peer.say(Close(AmqpError("acme:bye")))
    assert only(peer.hear()) == Close()
    assert handler.calls("closed") == ["acme:bye"]


def test_what_is_due_goes_out_before_close() -> None:
    peer, handler = server()
    peer.begin()
    peer.attach_sender()
    handler.links[0].grant(10)  # type: ignore[attr-defined]
    peer.engine.close()
    assert [type(frame.performative) for frame in peer.hear()] == [Flow, Close]


def test_the_shell_is_woken_once_for_all_that_is_to_be_written() -> None:
    peer, handler = server()
    woken: list[Connection] = []
    peer.engine.wake = woken.append
    peer.begin()
    peer.attach_sender()
    assert len(woken) == 2, "once per turn, as each was taken"
    link = handler.links[0]
    link.grant(1)  # type: ignore[attr-defined]
    link.grant(2)  # type: ignore[attr-defined]
    assert len(woken) == 3
    assert only(peer.hear()).link_credit == 2  # type: ignore[attr-defined]
