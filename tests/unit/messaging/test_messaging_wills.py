"""Wills: sent once when a client is gone, after its delay, by the grants of its user, whatever dies."""

from __future__ import annotations

import pytest

from enmasse.messaging.errors import AttachError
from enmasse.messaging.patterns import Cut, Pattern
from enmasse.messaging.sessions.wills import GRACE_S, MAX_TRIES, LinkKey, WillMessage, WillState
from enmasse.messaging.storage import Table
from tests.unit.messaging.session_scene import Client, Scene, message

WILL = WillMessage("news/gone", message("gone"))
SLOW = WillMessage("news/gone", message("gone"), 10)


class WillScene(Scene):
    """A scene with a reader of what is sent."""

    def read(self) -> list[str]:
        """What is there to be read by now, in all."""
        reader = Client(self, "reader").open()
        reader.acknowledges = False
        reader.subscribe("news/#")
        bodies = reader.bodies
        reader.leave()
        return bodies


def scene_with_reader() -> WillScene:
    scene = WillScene()
    assert scene.read() == []
    return scene


def wills_on_disk(scene: Scene) -> int:
    return sum(1 for key, _ in scene.harness.storage.scan_all(Table.SESSION) if key[4:5] == b"w")


def again(scene: Scene, *, away_s: float = 0.0, through: int = 0) -> WillScene:
    harness = scene.harness.restarted(through)
    harness.wall_shift_s = scene.harness.wall_shift_s + scene.harness.clock.now + away_s
    return WillScene(scene.declared, harness, options=scene.options)


@pytest.mark.parametrize("expiry_s", [0, 100])
def test_a_will_is_sent_when_the_connection_is_lost(expiry_s: int) -> None:
    scene = scene_with_reader()
    client = scene.client(expiry_s=expiry_s, will=WILL)
    assert wills_on_disk(scene) == 1
    client.leave()
    assert scene.read() == ["gone"]
    assert wills_on_disk(scene) == 0
    assert scene.space.sessions.wills.sent == 1
    scene.harness.advance(200)
    assert scene.read() == ["gone"]


@pytest.mark.parametrize("expiry_s", [0, 100])
def test_who_has_lost_the_node_that_it_had_reached_has_some_time_to_come_back(expiry_s: int) -> None:
    scene = scene_with_reader()
    for name in ("back", "away", "slow"):
        will = SLOW if name == "slow" else WillMessage("news/gone", message(name))
        scene.client(name, expiry_s=expiry_s, will=will).leave(is_node_gone=True)
    scene.harness.advance(4)
    assert scene.read() == []
    scene.client("back", expiry_s=expiry_s).leave(clean=True)
    scene.harness.advance(2)
    # A delay of its own ends with its session, if that does not last.
    assert scene.read() == (["away"] if expiry_s else ["away", "gone"])
    scene.harness.advance(5)
    assert sorted(scene.read()) == ["away", "gone"]
    assert wills_on_disk(scene) == 0
    assert len(scene.space.sessions._orphans) <= 3


def test_the_node_of_a_will_may_end_after_that_of_its_client() -> None:
    scene = scene_with_reader()
    scene.client("back", expiry_s=0, will=WILL).leave(is_node_gone=True)
    scene.client("away", expiry_s=0, will=WILL).leave(is_node_gone=True)
    scene = again(scene, away_s=60)
    scene.client("back", expiry_s=0)
    assert scene.read() == []
    scene.harness.advance(GRACE_S + 1)
    assert scene.read() == ["gone"]


def test_a_goodbye_cancels_a_will() -> None:
    scene = scene_with_reader()
    client = scene.client(will=WILL)
    client.leave(clean=True)
    scene.harness.advance(200)
    assert scene.read() == []
    assert wills_on_disk(scene) == 0
    scene = again(scene)
    scene.harness.advance(200)
    assert scene.read() == []


def test_a_will_waits_for_its_delay_and_goes_when_the_client_comes_back() -> None:
    scene = scene_with_reader()
    client = scene.client(will=SLOW)
    client.leave()
    scene.harness.advance(9)
    assert scene.read() == []
    client = scene.client(will=SLOW)
    scene.harness.advance(100)
    assert scene.read() == []
    client.leave()
    scene.harness.advance(9)
    assert scene.read() == []
    scene.harness.advance(2)
    assert scene.read() == ["gone"]


def test_a_will_does_not_wait_beyond_the_end_of_its_session() -> None:
    scene = scene_with_reader()
    client = scene.client(expiry_s=3, will=SLOW)
    client.leave()
    scene.harness.advance(4)
    assert scene.read() == ["gone"]
    client = scene.client(expiry_s=100, will=SLOW)
    client.leave()
    # A clean start ends the session, and so the wait.
    scene.client(is_clean=True)
    scene.harness.commit()
    assert scene.read() == ["gone", "gone"]


def test_a_takeover_sends_the_will_unless_that_would_wait() -> None:
    scene = scene_with_reader()
    scene.client(will=WILL)
    scene.client()
    assert scene.read() == ["gone"]
    scene.client(will=SLOW)
    scene.client()
    scene.harness.advance(100)
    assert scene.read() == ["gone"]
    scene.client(will=SLOW)
    scene.client(is_clean=True)
    assert scene.read() == ["gone", "gone"]


def test_after_a_restart_clients_have_some_time_to_come_back() -> None:
    scene = scene_with_reader()
    scene.client("back", will=WILL)
    scene.client("brief", expiry_s=0, will=WillMessage("news/gone", message("brief")))
    scene.client("gone", will=WillMessage("news/gone", message("really")))
    scene = again(scene)
    scene.harness.advance(GRACE_S - 1)
    scene.client("back")
    scene.harness.advance(2)
    assert sorted(scene.read()) == ["brief", "really"]
    assert wills_on_disk(scene) == 0
    scene = again(scene)
    scene.harness.advance(2 * GRACE_S)
    assert sorted(scene.read()) == ["brief", "really"]


def test_a_client_with_a_session_in_memory_that_comes_back_in_time_keeps_its_will_from_being_sent() -> None:
    scene = scene_with_reader()
    scene.client(expiry_s=0, will=WILL)
    scene = again(scene)
    scene.harness.advance(GRACE_S - 1)
    scene.client(expiry_s=0)
    scene.harness.advance(100)
    assert scene.read() == []
    assert wills_on_disk(scene) == 0


def test_a_delay_that_began_before_the_restart_goes_on() -> None:
    scene = scene_with_reader()
    client = scene.client(will=WillMessage("news/gone", message("gone"), 100))
    client.leave()
    scene = again(scene, away_s=50)
    scene.harness.advance(49)
    assert scene.read() == []
    scene.harness.advance(2)
    assert scene.read() == ["gone"]


def test_a_node_that_stops_in_order_sends_no_wills_but_after_its_return() -> None:
    scene = scene_with_reader()
    client = scene.client(will=WILL)
    scene.space.sessions.stop()
    client.leave()
    assert scene.read() == []
    scene = again(scene)
    scene.harness.advance(GRACE_S + 1)
    assert scene.read() == ["gone"]


def test_a_will_is_sent_once_wherever_the_node_dies() -> None:
    for cut in range(4):
        scene = scene_with_reader()
        client = scene.client(will=WILL)
        client.session.detach(client, is_clean_close=False)
        scene.harness.turn()
        pending = scene.harness.storage.pending
        if cut > len(pending):
            break
        scene = again(scene, through=0 if not cut else pending[cut - 1])
        scene.harness.advance(2 * GRACE_S)
        assert scene.read() == ["gone"], cut
        assert wills_on_disk(scene) == 0


def test_the_grants_count_when_a_will_is_made_and_when_it_is_sent() -> None:
    scene = scene_with_reader()
    allowed = {"news/gone"}
    with pytest.raises(AttachError) as refused:
        Client(scene, "bad").open(allowed=lambda _name: False, will=WILL)
    assert refused.value.condition == "amqp:unauthorized-access"
    assert len(scene.space.sessions.wills) == 0
    client = scene.client(allowed=allowed.__contains__, will=WILL)
    allowed.clear()
    client.leave()
    assert scene.read() == []
    assert scene.space.sessions.wills.refused == 1
    assert wills_on_disk(scene) == 0


def test_the_grants_that_the_node_knows_count_after_a_restart() -> None:
    class Nothing:
        def of_client(self, _client: str) -> Nothing:
            return self

        def may_receive(self, name: str) -> bool:
            return False

        def parts(self, _filter: str) -> list[Pattern]:
            return []

        def granted(self, source: str) -> str:
            return Cut.of(source, ())

        def may_send(self, name: str) -> bool:
            return False

    scene = scene_with_reader()
    scene.client(will=WILL)
    scene = again(scene)
    scene.space.grants = lambda _owner, _user: Nothing()
    scene.harness.advance(2 * GRACE_S)
    scene.space.grants = lambda _owner, _user: None
    assert scene.read() == []
    assert scene.space.sessions.wills.refused == 1


def test_a_will_whose_address_takes_nothing_is_tried_again_and_then_lost() -> None:
    scene = WillScene({"news": "topic", "orders": "queue"}, options={"orders": {"max_bytes": 100}})
    client = scene.client(will=WillMessage("orders", message("x" * 200)))
    client.leave()
    scene.harness.advance(MAX_TRIES - 10)
    assert [will.state for will in scene.space.sessions.wills.all] == [WillState.SENDING]
    scene.harness.advance(20)
    assert len(scene.space.sessions.wills) == 0
    assert scene.space.sessions.wills.lost == 1
    client = scene.client(will=WillMessage("nowhere", message("x")))
    client.leave()
    assert scene.space.sessions.wills.lost == 2


def test_a_journal_that_fails_delays_a_will() -> None:
    scene = scene_with_reader()
    client = scene.client(will=WILL)
    client.session.detach(client, is_clean_close=False)
    scene.harness.fail()
    scene.harness.advance(5)
    scene.harness.commit()
    scene.harness.advance(5)
    assert scene.read() == ["gone"]


def test_a_will_reaches_an_address_that_stores_nothing() -> None:
    scene = Scene({"calls": "multicast", "work": "anycast"})
    reader = scene.client("reader")
    reader.subscribe("calls", 1)
    reader.subscribe("work", 1)
    scene.client("one", will=WillMessage("calls", message("call"))).leave()
    scene.client("two", will=WillMessage("work", message("work"))).leave()
    assert reader.bodies == ["call", "work"]


def test_the_will_of_a_link_is_replaced_taken_over_and_sent_once() -> None:
    scene = scene_with_reader()
    wills = scene.space.sessions.wills
    key = LinkKey("user:1", "box", "lwt")
    answers: list[str | None] = []
    wills.put(key, "anna", WILL, answers.append)
    scene.harness.commit()
    wills.put(key, "anna", WillMessage("news/gone", message("new")), answers.append)
    scene.harness.commit()
    assert answers == [None, None]
    assert (len(wills), wills_on_disk(scene)) == (1, 1)
    scene = again(scene)
    wills = scene.space.sessions.wills
    scene.harness.advance(GRACE_S - 1)
    will = wills.take_over(key, "anna")
    assert will is not None
    scene.harness.advance(100)
    assert scene.read() == []
    will.lost(float("inf"))
    scene.harness.commit()
    assert scene.read() == ["new"]
    assert wills.take_over(key, "anna") is None


def test_a_will_of_a_link_that_cannot_be_stored_leaves_the_one_before() -> None:
    scene = scene_with_reader()
    wills = scene.space.sessions.wills
    key = LinkKey("user:1", "box", "lwt")
    answers: list[str | None] = []
    wills.put(key, "anna", WILL, answers.append)
    scene.harness.commit()
    wills.put(key, "anna", WillMessage("news/gone", message("new")), answers.append)
    scene.harness.fail()
    scene.harness.advance(1)
    assert answers == [None, "the disk is full"]
    will = wills.take_over(key, "anna")
    assert will is not None
    will.lost(0)
    scene.harness.commit()
    assert scene.read() == ["gone"]


def test_a_will_must_be_a_message() -> None:
    with pytest.raises(AttachError) as refused:
        Scene().client(will=WillMessage("news", b"\0\0"))
    assert refused.value.condition == "amqp:decode-error"
