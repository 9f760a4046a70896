"""Sessions: what waits for a client that is away, who may have it, and when it ends."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from enmasse.message.sections import with_message_annotations
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.sessions.records import SESSION
from enmasse.messaging.sessions.session import NEVER
from enmasse.messaging.sessions.session_filter import SubscribeRequest
from enmasse.messaging.sessions.wills import GRACE_S, WillMessage
from enmasse.messaging.storage import Operation, Table
from tests.unit.messaging.session_scene import Client, Scene, message


def records(scene: Scene, table: Table = Table.SESSION) -> list[bytes]:
    return [key for key, _ in scene.harness.storage.scan_all(table)]


def test_a_session_gets_what_its_filter_wants() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/sport/#")
    scene.send("news/sport/chess", "e4")
    scene.send("news/weather", "rain")
    assert client.bodies == ["e4"]


def test_what_came_while_the_client_was_away_waits_for_it() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#")
    client.leave()
    scene.send("news/a", "one", "two")
    client = scene.client()
    assert client.session.is_present
    assert client.bodies == ["one", "two"]


def test_what_came_while_the_client_was_away_survives_the_node() -> None:
    scene = Scene()
    scene.client().subscribe("news/#")
    scene = scene.restart()
    scene.send("news/a", "one", "two")
    scene = scene.restart()
    client = scene.client()
    assert client.session.is_present
    assert client.bodies == ["one", "two"]
    assert not scene.harness.faults


def test_what_is_not_durable_does_not_wait_for_a_client_that_is_away() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#")
    scene.send("news/a", "one", durable=False)
    client.leave()
    scene.send("news/a", "two", durable=False)
    again = scene.client()
    assert client.bodies == ["one"]
    assert again.bodies == []


def test_a_session_that_ends_with_its_connection_leaves_nothing_on_disk() -> None:
    scene = Scene()
    client = scene.client(expiry_s=0)
    client.subscribe("news/#", 2)
    scene.send("news/a", "one")
    assert client.bodies == ["one"]
    assert records(scene) == records(scene, Table.SUBSCRIPTION) == []
    client.leave()
    again = scene.client(expiry_s=0)
    assert not again.session.is_present
    assert len(scene.space.sessions) == 1


def test_a_clean_start_forgets_what_was_there() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#")
    client.leave()
    scene.send("news/a", "one")
    client = scene.client(is_clean=True, expiry_s=0)
    assert not client.session.is_present
    assert client.bodies == []
    scene.harness.commit()
    assert [len(records(scene, table)) for table in (Table.SESSION, Table.SUBSCRIPTION, Table.FRAME)] == [0, 0, 0]


def test_another_user_is_refused() -> None:
    scene = Scene()
    scene.client().leave()
    with pytest.raises(AttachError) as refused:
        Client(scene, "device").open(user="bert")
    assert refused.value.condition == "amqp:unauthorized-access"
    scene = scene.restart()
    with pytest.raises(AttachError):
        Client(scene, "device").open(user="bert", is_clean=True)
    assert Client(scene, "device").open(user="bert", may_manage=True).session.is_present


def test_a_second_connection_takes_the_session_over() -> None:
    scene = Scene()
    first = scene.client()
    first.subscribe("news/#")
    scene.send("news/a", "one")
    second = scene.client()
    assert first.is_taken_over
    assert not first.links
    assert second.session.is_present
    # It was not acknowledged.
    assert second.bodies == ["one"]
    assert second.got[0].is_duplicate
    # Whatever the first does now concerns nobody.
    first.leave(clean=True)
    scene.send("news/a", "two")
    assert second.bodies == ["one", "two"]
    assert first.bodies == ["one"]


def test_a_session_ends_when_its_client_stays_away_for_too_long() -> None:
    scene = Scene()
    client = scene.client(expiry_s=60)
    client.subscribe("news/#")
    client.leave()
    scene.harness.advance(59)
    client = scene.client(expiry_s=60)
    assert client.session.is_present
    client.leave()
    scene.harness.advance(61)
    scene.harness.commit()
    assert len(scene.space.sessions) == 0
    assert records(scene) == records(scene, Table.SUBSCRIPTION) == []
    assert not scene.client().session.is_present


def test_the_time_of_the_node_s_absence_counts_but_for_a_moment_of_grace() -> None:
    scene = Scene()
    scene.client("gone", expiry_s=100).leave()
    scene.client("over", expiry_s=60).leave()
    scene.client("there", expiry_s=10)
    scene = scene.restart(away_s=95)
    # Who was connected when the node stopped has the moment of grace; for who was away, its time went on.
    assert [session.client_id for session in scene.space.sessions] == ["gone", "there"]
    scene.harness.commit()
    assert {key[:4] for key in records(scene)} == {
        session.log_id.to_bytes(4, "big") for session in scene.space.sessions
    }
    scene.harness.advance(6)
    assert [session.client_id for session in scene.space.sessions] == ["there"]
    scene.harness.advance(GRACE_S - 7)
    assert len(scene.space.sessions) == 1
    scene.harness.advance(2)
    assert len(scene.space.sessions) == 0


def test_a_client_may_say_at_its_end_how_long_its_session_is_kept() -> None:
    scene = Scene()
    client = scene.client()
    client.leave(clean=True, expiry_s=5)
    scene.harness.advance(6)
    assert len(scene.space.sessions) == 0
    client = scene.client()
    client.leave(clean=True, expiry_s=0)
    assert len(scene.space.sessions) == 0


def test_the_plan_bounds_the_expiry() -> None:
    scene = Scene(limits=SpaceLimits(session_expiry_ms=10_000))
    client = scene.client(expiry_s=NEVER)
    assert client.session.expiry_s == 10
    client.leave()
    scene.harness.advance(11)
    assert len(scene.space.sessions) == 0


def test_the_plan_bounds_the_number_of_sessions_that_outlive_their_connections() -> None:
    scene = Scene(limits=SpaceLimits(sessions=1))
    scene.client("first").leave()
    with pytest.raises(AttachError) as refused:
        Client(scene, "second").open()
    assert refused.value.condition == "amqp:resource-limit-exceeded"
    scene.client("second", expiry_s=0)
    assert scene.client("first").session.is_present


def test_without_a_log_number_only_what_would_need_one_is_refused() -> None:
    scene = Scene({"news": "topic", "old": "topic"})
    scene.client().subscribe("news/#")
    numbers = scene.harness.core.log_numbers
    numbers.take([(2_000, 2_001)], 0)
    numbers.ranges = []
    for options in ({"will": WillMessage("news", message("gone"))}, {}):
        with pytest.raises(AttachError, match="no number left"):
            scene.client("other", **options)
    assert not len(scene.space.sessions.wills)
    client = scene.client()
    with pytest.raises(AttachError, match="no number left"):
        client.subscribe("$share/group/old/#")
    scene.send("news/a", "one")
    assert (client.session.is_present, client.bodies) == (True, ["one"])
    numbers.take([(3_000, 3_100)], 0)
    client.subscribe("$share/group/old/#")
    scene.send("old/a", "two")
    assert client.bodies == ["one", "two"]


def test_a_client_is_told_that_it_is_connected_once_its_session_is_on_disk() -> None:
    scene = Scene()
    client = Client(scene, "device").open(waits=False)
    scene.harness.turn()
    assert client.answers == []
    scene.harness.fail()
    assert client.answers == ["the disk is full"]
    assert len(scene.space.sessions) == 0


def test_a_filter_is_on_disk_before_the_client_is_told() -> None:
    scene = Scene()
    client = scene.client()
    told: list[int] = []
    client.session.subscribe(SubscribeRequest("news/#", 1))
    client.session.after_stored(lambda: told.append(1))
    scene.harness.turn()
    assert not told
    scene.harness.commit()
    assert told == [1]
    assert scene.restart().space.sessions.get("device").filters.keys() == {"news/#"}  # type: ignore[union-attr]


def test_an_ended_filter_stays_ended() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#")
    assert client.session.unsubscribe("news/#")
    assert not client.session.unsubscribe("news/#")
    scene.harness.commit()
    scene.send("news/a", "one")
    assert client.bodies == []
    scene = scene.restart()
    assert scene.client().bodies == []
    assert records(scene, Table.SUBSCRIPTION) == []


def test_overlapping_filters_get_a_copy_each_if_the_space_says_so() -> None:
    scene = Scene(overlapping="each")
    client = scene.client()
    client.subscribe("news/#", 1)
    client.subscribe("news/+", 0)
    scene.send("news/a", "one")
    assert sorted((got.filter, got.qos) for got in client.got) == [("news/#", 1), ("news/+", 0)]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("restarts", [1, 2])
def test_what_an_older_version_stored_comes_as_it_was_stored_and_what_is_new_once(qos: int, restarts: int) -> None:
    scene = Scene(overlapping="each")
    client = scene.client()
    client.credit = 1
    for text in ("news/#", "news/+", "+/a", "news/b"):
        client.subscribe(text, qos)
    scene.send("news/a", "begun")
    begun = client.got
    assert len(begun) == 3
    client.leave()
    scene.send("news/a", "old")
    scene.send("news/b", "old")
    # The older version kept a subscription for each filter, as is done for a copy each, and said nothing of it.
    for key, value in list(scene.harness.storage.scan_all(Table.SESSION)):
        if key[4:] == SESSION:
            record = json.loads(value)
            assert record.pop("overlapping") == "each"
            scene.harness.core.store_in_time([Operation(Table.SESSION, key, json.dumps(record).encode())])
    scene.harness.commit()
    scene.overlapping = "once"
    for number in range(restarts):
        scene = scene.restart()
        scene.send("news/a", f"new {number}")
        assert scene.space.sessions.get("device").depth == 3 + 3 + 3 + number + 1  # type: ignore[union-attr]
    client = scene.client()
    client.acknowledges = True
    assert [one.packet_id for one in client.got[:3]] == [one.packet_id for one in begun]
    for one in client.got:
        client.acknowledge(one)
    scene.harness.commit()
    counts = Counter((got.body, got.filters) for got in client.got)
    stored = {(body, (text,)): 1 for body in ("begun", "old") for text in ("news/#", "news/+", "+/a")}
    stored |= {("old", ("news/#",)): 2, ("old", ("news/+",)): 2, ("old", ("news/b",)): 1}
    assert counts == stored | {(f"new {number}", ("+/a", "news/+", "news/#")): 1 for number in range(restarts)}
    # Nothing is left of the older version's subscriptions, on disk either.
    scene.harness.commit()
    assert client.session.depth == 0
    assert len(client.links) == 1
    assert len(records(scene, Table.SUBSCRIPTION)) == 1
    client.session.unsubscribe("news/#")
    client.leave()
    scene = scene.restart()
    scene.send("news/a", "last")
    assert scene.client().bodies == ["last"]
    assert not scene.harness.faults


def test_the_only_filter_of_an_older_version_goes_on_with_what_it_has() -> None:
    scene = Scene(overlapping="each")
    scene.client().subscribe("news/#")
    session = scene.space.sessions.get("device")
    assert session is not None
    session.is_joint = True
    scene.harness.core.store_in_time([session.record()])
    scene.harness.commit()
    before = records(scene, Table.SUBSCRIPTION)
    scene = scene.restart()
    scene.send("news/a", "old")
    assert records(scene, Table.SUBSCRIPTION) == before
    scene = scene.restart()
    client = scene.client()
    client.subscribe("news/+", 2)
    scene.send("news/a", "new")
    assert client.bodies == ["old", "new"]
    assert records(scene, Table.SUBSCRIPTION) == before


def test_the_end_of_a_filter_takes_along_what_an_older_version_stored_for_it_alone() -> None:
    scene = Scene(overlapping="each")
    client = scene.client()
    for text in ("news/#", "news/+"):
        client.subscribe(text)
    client.leave()
    scene.send("news/a", "old")
    session = scene.space.sessions.get("device")
    assert session is not None
    session.is_joint = True
    scene.harness.core.store_in_time([session.record()])
    scene.harness.commit()
    scene = scene.restart()
    client = Client(scene, "device")
    client.credit = 0
    client.open()
    assert len(records(scene, Table.SUBSCRIPTION)) == 3
    client.session.unsubscribe("news/+")
    scene.harness.commit()
    assert len(records(scene, Table.SUBSCRIPTION)) == 2
    client.leave()
    assert scene.client().bodies == ["old"]


def test_a_filter_that_comes_again_has_the_new_options_and_keeps_its_messages() -> None:
    scene = Scene()
    client = scene.client()
    client.credit = 1
    client.subscribe("news/#", 1)
    scene.send("news/a", "one", "two")
    client.subscribe("news/#", 2, identifier=7)
    client.leave()
    scene = scene.restart()
    client = scene.client()
    assert client.bodies == ["one", "two"]
    assert client.session.filters["news/#"].identifier == 7
    assert client.session.filters["news/#"].qos == 2


def test_no_local_leaves_out_what_the_client_sends_itself() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#", 1, no_local=True)
    client.subscribe("news/+", 0, no_local=True)
    client.subscribe("news/a", 1)
    other = scene.client("other")
    other.subscribe("news/#", 1)
    scene.send("news/a", "mine", origin=client.session)
    scene.send("news/a", "theirs", origin=other.session)
    assert client.bodies == other.bodies == ["mine", "theirs"]
    client.session.unsubscribe("news/a")
    scene.harness.commit()
    scene.send("news/a", "mine", origin=client.session)
    assert client.bodies == ["mine", "theirs"]


def test_a_node_that_stops_in_order_leaves_sessions_as_they_are() -> None:
    scene = Scene()
    client = scene.client(expiry_s=5)
    client.subscribe("news/#")
    scene.space.sessions.stop()
    client.leave()
    scene = scene.restart()
    assert scene.client().session.is_present


def retained(body: str, *, cleared: bool = False) -> bytes:
    payload = with_message_annotations(message("" if cleared else body), {"x-opt-retain": True})
    return payload if not cleared else with_message_annotations(message(""), {"x-opt-retain": True})


@pytest.mark.parametrize("kind", ["topic", "multicast"])
def test_retained_values_come_with_a_subscription_as_their_handling_says(kind: str) -> None:
    scene = Scene({"news": kind})
    port = scene.harness.sender(scene.space.find("news"), "news")
    scene.harness.turn()
    port.sink.on_message(retained("old"), 0, True, 0)
    scene.harness.commit()
    client = scene.client(expiry_s=0)
    client.subscribe("news", 1, retain_handling=2)
    assert client.bodies == []
    client.subscribe("news", 1, retain_handling=1)
    assert client.bodies == []
    client.subscribe("news", 1, retain_handling=0)
    assert client.bodies == ["old"]
    other = scene.client("other")
    other.subscribe("+", 1, retain_handling=1)
    assert other.bodies == ["old"]
    third = scene.client("third")
    if kind == "topic":
        third.subscribe("$share/group/news", 1)
        assert third.bodies == []
