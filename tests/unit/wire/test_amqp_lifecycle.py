"""Sessions and links come and go, from either side, and what ends takes only its own along."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.errors import LocalError
from enmasse.message.outcomes import AmqpError
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.testing.recorder import Recorder, RecordingSink
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.connection_output import CHANNEL_MAX, HANDLE_MAX
from enmasse.wire.amqp.errors import RemoteError
from enmasse.wire.amqp.link import Link, SendingLink
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    Transfer,
)
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


# Sessions


def test_a_session_begins_on_either_side() -> None:
    pair = RecordedPair()
    pair.begin()
    assert pair.client_diary.calls("begun") == [0]
    assert pair.server_diary.calls("begun") == [0]
    pair.server.begin()
    pair.pump()
    assert pair.client_diary.calls("begun") == [0, 1]


def test_channels_of_both_sides_need_not_be_equal() -> None:
    peer, handler = server()
    assert peer.begin(channel=17).remote_channel == 17
    assert handler.sessions[0].channel == 0
    assert peer.attach_sender(channel=17).name == "in"
    peer.say(End(), channel=17)
    assert only(peer.hear()) == End()


def test_a_session_ended_by_the_client_takes_its_links_along() -> None:
    pair = RecordedPair()
    session = pair.begin()
    other = pair.begin()
    pair.sender(session, "a")
    pair.receiver(session, "b")
    pair.sender(other, "c")
    session.end()
    pair.pump()
    for diary in (pair.client_diary, pair.server_diary):
        assert sorted(name for name, _, _ in diary.calls("detached")) == ["a", "b"]
        assert diary.calls("ended") == [(0, None)]
        assert diary.diary[-1] == ("ended", (0, None)), "after its links"
    with pytest.raises(LocalError, match="ended"):
        session.attach_sender("late", None, Target("q"))
    assert not pair.client.closed


def test_a_session_ended_by_the_server_tells_the_client_why() -> None:
    pair = RecordedPair()
    pair.sender(pair.begin(), "a")
    pair.server_diary.sessions[0].end(AmqpError("acme:reason"))
    pair.pump()
    assert pair.client_diary.calls("detached") == [("a", "acme:reason", False)]
    assert pair.client_diary.calls("ended") == [(0, "acme:reason")]
    assert pair.server_diary.calls("ended") == [(0, None)]


def test_both_sides_may_end_a_session_at_once() -> None:
    pair = RecordedPair()
    session = pair.begin()
    session.end()
    pair.server_diary.sessions[0].end()
    pair.pump()
    assert pair.client_diary.calls("ended") == [(0, None)]
    assert pair.server_diary.calls("ended") == [(0, None)]
    assert not pair.client.closed
    pair.begin()
    assert pair.server_diary.calls("begun") == [0, 0], "the channel is free again"


def test_a_session_may_be_ended_before_its_begin_is_answered() -> None:
    pair = RecordedPair()
    pair.pump()
    session = pair.client.begin()
    session.end()
    pair.pump()
    assert pair.client_diary.calls("begun") == []
    assert pair.client_diary.calls("ended") == [(0, None)]
    assert pair.server_diary.calls("ended") == [(0, None)]
    assert not pair.server.closed


def test_a_channel_may_be_used_again_after_end() -> None:
    peer, handler = server()
    for _ in range(3):
        peer.begin()
        peer.say(End())
        assert only(peer.hear()) == End()
    assert len(handler.calls("ended")) == 3


@pytest.mark.parametrize(
    ("performative", "expected"),
    [
        (End(), "amqp:connection:framing-error"),
        (Attach("l", 0, False), "amqp:connection:framing-error"),
        (Detach(0), "amqp:connection:framing-error"),
        (Transfer(0, 0), "amqp:connection:framing-error"),
        (Disposition(True, 0), "amqp:connection:framing-error"),
        (Flow(None, 1, 0, 1), "amqp:connection:framing-error"),
        (Begin(remote_channel=3), "amqp:not-allowed"),
    ],
)
def test_frames_on_an_unknown_channel_end_the_connection(performative: Composite, expected: str) -> None:
    peer, _ = server()
    peer.say(performative, channel=9)
    assert condition(only(peer.hear())) == expected
    assert peer.engine.closed


def test_a_channel_begun_twice_ends_the_connection() -> None:
    peer, _ = server()
    peer.begin()
    peer.say(Begin(incoming_window=1))
    assert condition(only(peer.hear())) == "amqp:not-allowed"


def test_a_begin_is_answered_only_once() -> None:
    peer, _ = server()
    peer.engine.begin()
    assert peer.hear_one(Begin).remote_channel is None
    peer.say(Begin(remote_channel=0, incoming_window=1))
    peer.say(Begin(remote_channel=0, incoming_window=1), channel=1)
    assert condition(only(peer.hear())) == "amqp:not-allowed"


def test_channels_go_up_to_channel_max() -> None:
    peer, handler = server()
    peer.begin(channel=CHANNEL_MAX)
    peer.say(Begin(incoming_window=1), channel=CHANNEL_MAX + 1)
    assert condition(only(peer.hear())) == "amqp:connection:framing-error"
    assert handler.calls("begun") == [0]


def test_we_keep_to_the_channel_max_of_the_peer() -> None:
    peer, _ = server(Open("raw", channel_max=1))
    peer.engine.begin()
    peer.engine.begin()
    with pytest.raises(RemoteError, match="no free channel"):
        peer.engine.begin()


# Links


def test_a_link_attaches_and_detaches_from_the_client() -> None:
    pair = RecordedPair()
    session = pair.begin()
    sink, link = pair.sender(session, "a")
    assert pair.client_diary.calls("attached") == ["a"]
    assert link.remote_attach is not None
    assert link.remote_attach.target == Target("q")
    assert sink.link is not None
    sink.link.detach()
    pair.pump()
    assert pair.client_diary.calls("detached") == [("a", None, True)]
    assert pair.server_diary.calls("detached") == [("a", None, True)]
    assert not link.is_open


def test_a_link_attaches_and_detaches_from_the_server() -> None:
    pair = RecordedPair()
    pair.begin()
    theirs = pair.server_diary.sessions[0]
    sink = RecordingSink()
    link = theirs.attach_receiver("r", sink, Source("q"))
    sink.link = link
    pair.pump()
    assert pair.server_diary.calls("attached") == ["r"]
    pair.client_diary.links[0].detach(AmqpError("acme:gone"), closed=False)
    pair.pump()
    assert pair.server_diary.calls("detached") == [("r", "acme:gone", False)]
    assert pair.client_diary.calls("detached") == [("r", None, False)]


def test_both_sides_may_detach_at_once() -> None:
    pair = RecordedPair()
    sink, link = pair.sender(pair.begin(), "a")
    assert sink.link is not None
    sink.link.detach()
    link.detach(AmqpError("acme:gone"))
    pair.pump()
    assert pair.client_diary.calls("detached") == [("a", "acme:gone", True)]
    assert pair.server_diary.calls("detached") == [("a", None, True)]
    assert pair.client_diary.calls("ended") == []


def test_a_refused_link_gets_an_attach_without_terminus_and_a_detach() -> None:
    peer, handler = server()
    handler.on_wish = lambda link, _attach: link.refuse("amqp:not-found", "no address q", {"k": 1})
    peer.begin()
    peer.say(Attach("in", 5, False, target=Target("q"), initial_delivery_count=0))
    peer.say(Attach("out", 6, True, source=Source("q")))
    answers = [frame.performative for frame in peer.hear()]
    error = AmqpError("amqp:not-found", "no address q", {"k": 1})
    assert answers == [
        Attach("in", 0, True),
        Detach(0, True, error),
        Attach("out", 1, False, initial_delivery_count=0),
        Detach(1, True, error),
    ]
    peer.say(Detach(5, True), Detach(6, True))
    assert peer.hear() == []
    assert not peer.engine.closed
    handler.on_wish = None
    assert peer.attach_sender("in", 5).handle == 0, "name and handles are free again"


def test_the_client_hears_of_a_refusal() -> None:
    pair = RecordedPair()
    pair.server_diary.on_wish = lambda link, _attach: link.refuse("amqp:not-found", "no address")
    pair.sender(pair.begin(), "a")
    assert pair.client_diary.calls("attached") == ["a"]
    assert pair.client_diary.calls("detached") == [("a", "amqp:not-found", True)]
    assert pair.server_diary.calls("detached") == [("a", None, True)]
    assert not pair.client.closed


def test_an_attach_may_be_answered_later() -> None:
    peer, handler = server()
    handler.on_wish = lambda *_: None
    peer.begin()
    peer.say(Attach("in", 0, False, target=Target("q"), initial_delivery_count=0))
    assert peer.hear() == []
    link = handler.links[0]
    link.accept(RecordingSink(link), target=Target("q"))
    assert only(peer.hear()) == Attach("in", 0, True, target=Target("q"))
    with pytest.raises(LocalError, match="no attach to answer"):
        link.accept(None)


@pytest.mark.parametrize("is_sender", [True, False], ids=["sending", "receiving"])
def test_a_link_detached_before_it_was_answered_is_gone(is_sender: bool) -> None:
    peer, handler = server()
    handler.on_wish = lambda *_: None
    peer.begin()
    peer.say(
        Attach("x", 0, is_sender, source=Source("q"), target=Target("q"), initial_delivery_count=0), Detach(0, True)
    )
    assert handler.calls("detached") == [("x", None, True)]
    assert not peer.engine.closed
    # A detach is of a handle that an attach has named.
    attach, detach = (frame.performative for frame in peer.hear())
    assert isinstance(attach, Attach)
    assert (attach.name, attach.role, attach.source, attach.target) == ("x", not is_sender, None, None)
    assert detach == Detach(attach.handle, True)


@pytest.mark.parametrize("is_sender", [True, False], ids=["sending", "receiving"])
def test_a_link_that_we_detach_before_its_answer_is_refused(is_sender: bool) -> None:
    peer, handler = server()
    handler.on_wish = lambda *_: None
    peer.begin()
    peer.say(Attach("x", 0, is_sender, source=Source("q"), target=Target("q"), initial_delivery_count=0))
    link = handler.links[0]
    error = AmqpError("amqp:resource-deleted", "it is gone")
    link.detach(error)
    attach, detach = (frame.performative for frame in peer.hear())
    assert isinstance(attach, Attach)
    assert (attach.source, attach.target) == (None, None)
    assert detach == Detach(attach.handle, True, error)
    with pytest.raises(LocalError, match="no attach to answer"):
        link.accept(RecordingSink(link), source=Source("q"))


@pytest.mark.parametrize("gone", [[Detach(0, True)], [End()], [Close()]], ids=["detach", "end", "close"])
@pytest.mark.parametrize("is_sender", [True, False], ids=["sending", "receiving"])
def test_a_link_that_is_gone_is_answered_no_more(gone: list[Composite], is_sender: bool) -> None:
    peer, handler = server()
    handler.on_wish = lambda *_: None
    peer.begin()
    peer.say(Attach("in", 0, is_sender, source=Source("q"), target=Target("q"), initial_delivery_count=0))
    for frame in gone:
        peer.say(frame, channel=0)
    peer.hear()
    link = handler.links[0]
    with pytest.raises(LocalError, match="no attach to answer"):
        link.accept(RecordingSink(link), source=Source("q"))
    with pytest.raises(LocalError, match="no attach to answer"):
        link.refuse("amqp:not-found", "it took too long")
    assert peer.hear() == []


@pytest.mark.parametrize("drain", [False, True])
@pytest.mark.parametrize("granted", [[], [5], [5, 2], [5, 0]])
def test_credit_that_came_before_the_answer_reaches_the_link(granted: list[int], drain: bool) -> None:
    peer, handler = server()
    handler.on_wish = lambda *_: None
    peer.begin()
    peer.say(Attach("out", 0, True, source=Source("q")))
    for credit in granted:
        peer.say(Flow(0, 1000, 0, 1000, 0, None, credit, drain=drain))
    link = handler.links[0]
    assert isinstance(link, SendingLink)
    sink = RecordingSink(link)
    link.accept(sink, source=Source("q"))
    left = granted[-1] if granted else 0
    assert sink.credits == ([(left, drain)] if left or (granted and drain) else [])
    peer.say(Flow(0, 1000, 0, 1000, 0, 0, 9))
    assert sink.credits[-1] == (9 - left, False)


def test_what_attach_negotiates_reaches_both_sides() -> None:
    pair = RecordedPair()
    session = pair.begin()

    def accept(link: Link, attach: Attach) -> None:
        link.accept(
            RecordingSink(link),
            source=attach.source,
            target=Target("given", dynamic=True),
            snd_settle_mode=1,
            max_message_size=5000,
            offered_capabilities=("offered",),
            properties={"p": 1},
        )

    pair.server_diary.on_wish = accept
    sink, link = pair.sender(session, snd_settle_mode=0, desired_capabilities=("wanted",), properties={"q": 2})
    asked, answered = link.remote_attach, sink.link.remote_attach if sink.link else None
    assert asked is not None
    assert answered is not None
    assert (asked.snd_settle_mode, asked.desired_capabilities, asked.properties) == (0, ("wanted",), {"q": 2})
    assert answered.target == Target("given", dynamic=True)
    assert (answered.snd_settle_mode, answered.max_message_size) == (1, 5000)
    assert (answered.offered_capabilities, answered.properties) == (("offered",), {"p": 1})


def test_a_coordinator_is_a_target_like_another() -> None:
    peer, handler = server()
    peer.begin()
    peer.say(Attach("txn", 0, False, target=Coordinator(("amqp:local-transactions",)), initial_delivery_count=0))
    attach = handler.links[0].remote_attach
    assert attach is not None
    assert attach.target == Coordinator(("amqp:local-transactions",))


def test_names_are_apart_for_the_two_roles() -> None:
    pair = RecordedPair()
    session = pair.begin()
    pair.sender(session, "x")
    pair.receiver(session, "x")
    assert pair.server_diary.calls("attach") == ["x", "x"]
    with pytest.raises(LocalError, match="attached already"):
        session.attach_sender("x", None, Target("q"))


def test_a_link_attached_again_under_its_name_is_stolen() -> None:
    peer, handler = server()
    peer.begin()
    peer.attach_sender("in", 0)
    peer.say(Attach("in", 1, False, target=Target("q"), initial_delivery_count=0))
    detach, attach = (frame.performative for frame in peer.hear())
    assert isinstance(detach, Detach)
    assert (detach.handle, condition(detach)) == (0, "amqp:link:stolen")
    assert isinstance(attach, Attach)
    assert attach.handle == 1
    assert handler.calls("detached") == [("in", None, False)]
    peer.say(Detach(0, True))
    assert len(handler.calls("detached")) == 1
    peer.say(Detach(1, True))
    assert peer.hear_one(Detach).handle == 1
    assert len(handler.calls("detached")) == 2
    assert not peer.engine.closed


def test_a_handle_attached_twice_ends_the_session_only() -> None:
    peer, handler = server()
    peer.begin()
    peer.attach_sender("a", 0)
    peer.say(Attach("b", 0, False, initial_delivery_count=0))
    assert condition(only(peer.hear())) == "amqp:session:handle-in-use"
    assert handler.calls("ended") == [(0, "amqp:session:handle-in-use")]
    assert not peer.engine.closed
    peer.say(End())
    peer.begin(channel=1)
    assert peer.attach_sender("b", 0, channel=1).name == "b"


def test_handles_go_up_to_handle_max() -> None:
    peer, handler = server()
    assert peer.begin().handle_max == HANDLE_MAX
    peer.attach_sender("a", HANDLE_MAX)
    peer.say(Attach("b", HANDLE_MAX + 1, False, initial_delivery_count=0))
    assert condition(only(peer.hear())) == "amqp:connection:framing-error"
    assert handler.calls("attach") == ["a"]


def test_an_answer_too_keeps_to_handle_max() -> None:
    peer, handler = server()
    peer.begin()
    handler.sessions[0].attach_sender("mine", None, Target("q"))
    peer.say(Attach("mine", HANDLE_MAX + 1, True))
    assert peer.engine.error is not None
    assert peer.engine.error.condition == "amqp:connection:framing-error"


def test_we_keep_to_the_handle_max_of_the_peer() -> None:
    peer, handler = server()
    peer.say(Begin(incoming_window=10, handle_max=1))
    session = handler.sessions[0]
    session.attach_sender("a", None, Target("q"))
    session.attach_sender("b", None, Target("q"))
    with pytest.raises(RemoteError, match="no free handle"):
        session.attach_sender("c", None, Target("q"))


@pytest.mark.parametrize(
    "performative",
    [Transfer(3, 0, b"t"), Flow(0, 10, 0, 10, handle=3, link_credit=1), Detach(3, True)],
)
def test_an_unattached_handle_ends_the_session_only(performative: Composite) -> None:
    peer, handler = server()
    peer.begin()
    peer.begin(channel=1)
    peer.attach_sender("other", 3, channel=1)
    peer.say(performative)
    assert condition(only(peer.hear())) == "amqp:session:unattached-handle"
    assert handler.calls("ended") == [(0, "amqp:session:unattached-handle")]
    assert not peer.engine.closed
    peer.say(Transfer(3, 1, b"t"), Flow(0, 10, 0, 10), Attach("late", 0, False), Detach(3), channel=0)
    assert peer.hear() == [], "what crosses the end is let go"
    peer.say(End())
    assert peer.hear() == []
    assert len(handler.calls("ended")) == 1
    peer.say(Detach(3, True), channel=1)
    assert isinstance(only(peer.hear()), Detach)


def test_after_the_end_a_channel_left_is_unknown() -> None:
    peer, _ = server()
    peer.begin()
    peer.say(Transfer(3, 0, b"t"))
    peer.say(End())
    peer.hear()
    peer.say(Transfer(3, 1, b"t"))
    assert condition(only(peer.hear())) == "amqp:connection:framing-error"


def test_a_session_that_breached_is_told_of_once_even_if_the_connection_breaks() -> None:
    peer, handler = server()
    peer.begin()
    peer.say(Transfer(3, 0, b"t"))
    peer.engine.lost()
    assert len(handler.calls("ended")) == 1
    assert handler.calls("closed") == [None]
