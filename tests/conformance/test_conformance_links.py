"""2.6.1 to 2.6.6 and 2.7.3: links are named, attached, detached and closed."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import AmqpError
from enmasse.message.types import Symbol
from enmasse.testing.recorded_pair import RecordedPair
from enmasse.wire.amqp.link import Link
from enmasse.wire.amqp.performatives import Attach, Detach, End, Source, Target, Transfer
from tests.conformance.clause_list import clause
from tests.conformance.server_scene import Scene, condition_of, flow, is_alive, kinds


def scene() -> Scene:
    made = Scene()
    made.begin()
    return made


@clause("2.6.1:per-direction", "2.6.3:answered", "2.8.1:values")
def test_a_sender_and_a_receiver_may_share_a_name() -> None:
    peer = scene()
    sender = peer.attach_sender("both", 0)
    receiver = peer.attach_receiver("both", 1)
    assert (sender.name, sender.role) == ("both", True)
    assert (receiver.name, receiver.role) == ("both", False)
    assert peer.engine.closed is False


@clause("2.6.1:any-name")
@pytest.mark.parametrize("name", ["", " ", "é😀", "x" * 3000, "a\x00b"])
def test_a_name_is_any_string(name: str) -> None:
    assert scene().attach_sender(name).name == name


@clause("2.6.1:stolen", "2.8.18:stolen")
def test_a_link_that_is_attached_again_is_stolen() -> None:
    peer = scene()
    peer.sender(name="n", handle=0)
    peer.say(Attach("n", 1, False, source=Source(), target=Target("q"), initial_delivery_count=0))
    detached, attached = peer.heard()
    assert condition_of(detached) == "amqp:link:stolen"
    assert isinstance(attached, Attach)
    assert attached.name == "n"
    peer.say(Detach(0))
    peer.receiving("n").grant(1)
    peer.send(0, handle=1)
    assert peer.sink("n").payloads == [b"m"]


@clause("2.6.2:each-own")
def test_each_side_chooses_its_handle() -> None:
    peer = scene()
    attached = peer.attach_sender("in", 77)
    assert attached.handle == 0
    peer.receiving().grant(2)
    peer.send(0, handle=77)
    assert peer.sink("in").payloads == [b"m"]


@clause("2.6.2:in-use", "2.8.17:handle-in-use")
def test_a_handle_in_use_ends_the_session() -> None:
    peer = scene()
    peer.attach_sender("a", 0)
    peer.say(Attach("b", 0, True, source=Source("q"), target=Target()))
    assert condition_of(peer.hear_one(End)) == "amqp:session:handle-in-use"
    assert is_alive(peer)


@clause("2.6.2:unattached")
@pytest.mark.parametrize("frame", [Transfer(3, 0, b"t"), Detach(3), flow(3, 1)])
def test_a_frame_for_no_link_ends_the_session(frame: Any) -> None:
    peer = scene()
    peer.say(frame)
    assert condition_of(peer.hear_one(End)) == "amqp:session:unattached-handle"


@clause("2.6.2:free-again", "2.6.6:close-answered", "2.7.7:closed")
@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind_and_frees_name_and_handle(closed: bool) -> None:
    peer = scene()
    for _ in range(3):
        peer.attach_sender("n", 0)
        peer.say(Detach(0, closed=closed))
        answer = peer.hear_one(Detach)
        assert (answer.closed, answer.error) == (closed, None)
    assert peer.diary.calls("detached") == [("n", None, closed)] * 3


@clause("2.6.3:refused", "2.8.14:condition")
@pytest.mark.parametrize("is_sender", [True, False])
def test_a_refused_link_is_attached_without_terminus_and_detached(is_sender: bool) -> None:
    peer = scene()

    def refuse(link: Link, _attach: Attach) -> None:
        link.refuse("amqp:not-found", "no such thing", {Symbol("hint"): "x"})

    peer.diary.on_wish = refuse
    attach = peer.attach_sender if is_sender else peer.attach_receiver
    peer.say(Attach("n", 0, not is_sender, source=Source("q"), target=Target("q"), initial_delivery_count=0))
    attached, detached = peer.heard()
    assert isinstance(attached, Attach)
    assert (attached.target if is_sender else attached.source) is None
    assert isinstance(detached, Detach)
    assert (condition_of(detached), detached.closed) == ("amqp:not-found", True)
    assert detached.error is not None
    assert detached.error.info == {"hint": "x"}
    peer.say(Detach(0, closed=True))
    peer.diary.on_wish = None
    assert attach("n", 0).name == "n"


@clause("2.6.3:sender-fields")
def test_the_senders_attach_has_the_initial_delivery_count() -> None:
    peer = scene()
    assert peer.attach_receiver("out", 0).initial_delivery_count == 0
    assert peer.attach_sender("in", 1).initial_delivery_count is None


@clause("2.7.3:initial-count-needed")
def test_a_senders_attach_without_initial_count_counts_from_0() -> None:
    peer = scene()
    sink = peer.sender(initial_delivery_count=None)
    peer.send(0)
    assert peer.receiving().credit == 9
    assert sink.payloads == [b"m"]


@clause("2.7.3:modes", "2.8.2:mixed")
@pytest.mark.parametrize(("snd", "rcv"), [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)])
def test_the_settle_modes_are_told(snd: int, rcv: int) -> None:
    peer = scene()
    for answer in (
        peer.attach_sender("a", 0, snd_settle_mode=snd, rcv_settle_mode=rcv),
        peer.attach_receiver("b", 1, snd_settle_mode=snd, rcv_settle_mode=rcv),
    ):
        assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (snd, rcv)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"snd_settle_mode": 3}, marks=clause("2.8.2:invalid")),
        pytest.param({"rcv_settle_mode": 2}, marks=clause("2.8.3:invalid")),
    ],
)
@clause("2.8.15:invalid-field")
def test_settle_modes_that_do_not_exist_are_refused(fields: dict[str, int]) -> None:
    peer = scene()
    peer.say(Attach("n", 0, False, source=Source(), target=Target("q"), initial_delivery_count=0, **fields))  # type: ignore[arg-type]
    assert condition_of(peer.hear_one(End)) == "amqp:invalid-field"
    assert peer.diary.links == []


@clause("2.8.13:unknown", "2.7.3:properties", "2.7.3:capabilities")
def test_unknown_properties_and_desires_of_a_link_are_ignored() -> None:
    peer = scene()
    answer = peer.attach_sender(properties={Symbol("odd"): [1]}, desired_capabilities=("strange",))
    assert answer.target is not None
    assert answer.offered_capabilities is None


@clause("2.6.4:detach-answered", "2.6.4:reattach")
def test_a_link_is_attached_again_on_another_session() -> None:
    peer = scene()
    peer.begin(1)
    peer.sender(name="n", handle=0)
    peer.send(0)
    peer.say(Detach(0, closed=False))
    assert peer.hear_one(Detach).closed is False
    assert peer.attach_sender("n", 0, channel=1, initial_delivery_count=1).name == "n"
    peer.receiving("n").grant(1)
    peer.say(Transfer(0, 0, b"t2"), channel=1, payload=b"m2")
    assert peer.sink("n").payloads == [b"m2"]


@clause("2.6.5:detach-with-error", "2.6.5:discarding", "2.8.17:errant-link")
def test_a_link_in_error_is_detached_and_what_still_comes_is_ignored() -> None:
    peer = scene()
    sink = peer.sender(name="bad", handle=0)
    good = peer.sender(name="good", handle=1)
    assert sink.link is not None
    sink.link.detach(AmqpError("amqp:internal-error", "broken"))
    assert condition_of(peer.hear_one(Detach)) == "amqp:internal-error"
    peer.send(0)
    peer.say(flow(0, 0, echo=True))
    peer.send(1, handle=1)
    assert (sink.received, good.payloads) == ([], [b"m"])
    peer.say(Detach(0, closed=True))
    assert "End" not in kinds(peer.heard())
    assert peer.attach_sender("bad", 0).name == "bad"


@clause("2.7.7:error")
def test_the_error_in_a_detach_is_told() -> None:
    peer = scene()
    peer.attach_sender("n")
    peer.say(Detach(0, closed=True, error=AmqpError("example:tired")))
    assert peer.hear_one(Detach).error is None
    assert peer.diary.calls("detached") == [("n", "example:tired", True)]


@clause("2.6.6:close-answered")
def test_detaches_that_cross_are_enough() -> None:
    pair = RecordedPair()
    session = pair.begin()
    sink, theirs = pair.sender(session, "n")
    assert sink.link is not None
    sink.link.detach()
    theirs.detach()
    pair.pump()
    assert len(pair.client_diary.calls("detached")) == len(pair.server_diary.calls("detached")) == 1
    again, _ = pair.sender(session, "n")
    assert again.link is not None
    assert again.link.is_open


@clause("2.7.3:max-message-size", "2.8.18:size")
@pytest.mark.parametrize("parts", [1, 3])
def test_a_message_above_the_links_size_detaches_it(parts: int) -> None:
    peer = scene()

    def wish(link: Link, attach: Attach) -> None:
        from enmasse.testing.recorder import RecordingSink

        link.accept(RecordingSink(link), source=attach.source, target=attach.target, max_message_size=100)

    peer.diary.on_wish = wish
    assert peer.attach_sender().max_message_size == 100
    peer.receiving().grant(5)
    peer.hear()
    peer.send(0, bytes(100))
    assert len(peer.sink("in").received) == 1
    for part in range(parts):
        peer.send(1, bytes(120 // parts), more=part < parts - 1)
    assert condition_of(peer.hear_one(Detach)) == "amqp:link:message-size-exceeded"
    assert len(peer.sink("in").received) == 1
    assert is_alive(peer)


@clause("2.7.3:initial-count-ignored")
def test_an_initial_count_in_a_receivers_attach_means_nothing() -> None:
    peer = scene()
    assert peer.attach_receiver("out", 0, initial_delivery_count=17).initial_delivery_count == 0
    peer.say(flow(0, 3, count=0))
    assert peer.sending().credit == 3
