"""Which addresses a filter of a session reaches, by what is declared and by what the user may receive."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.patterns import Cut, Pattern, covers, matches, meet, parse, parse_filter
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.sessions.filters import Filter
from enmasse.messaging.sessions.session import NEVER
from enmasse.messaging.sessions.word_index import WordIndex
from enmasse.messaging.storage import Table
from tests.support.chance import seeds
from tests.unit.messaging.session_scene import Client, Scene


def grants(*patterns: str) -> Callable[[str], bool]:
    return lambda name: any(covers(parse(pattern), name) for pattern in patterns)


@pytest.mark.parametrize(
    ("text", "topic", "part"),
    [
        ("#", "news", "news/#"),
        ("news/#", "news", "news/#"),
        ("news/+", "news", "news/+"),
        ("news", "news", "news"),
        ("+", "news", "news"),
        ("+/sport", "news", "news/sport"),
        ("+/+/x", "a/b", "a/b/x"),
        ("a/#", "a/b", "a/b/#"),
        ("a/b", "a/b/c", None),
        ("b/#", "a", None),
        ("a/+", "a/b/c", None),
        ("a/*/c", "a", "a/*/c"),
        ("x/+", "#", "x/+"),
    ],
)
def test_what_a_filter_stands_for_at_a_topic(text: str, topic: str, part: str | None) -> None:
    assert Filter(text).part_of(topic, owns_subtree=True) == part


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [("#", "a", "a"), ("a/#", "a", "a"), ("a/+", "a", None), ("a/b/#", "a", None), ("+", "a", "a"), ("a", "a", "a")],
)
def test_what_a_filter_stands_for_at_another_address(text: str, name: str, part: str | None) -> None:
    assert Filter(text).part_of(name, owns_subtree=False) == part


@pytest.mark.parametrize(
    "text", ["", "a/#/b", "a/b#", "a+/b", "#/a", "$share/g", "$share//a", "$share/+/a", "$share/g/", "a\0"]
)
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(AttachError):
        Filter(text)


def test_an_index_finds_what_belongs_together_and_forgets() -> None:
    index: WordIndex[str] = WordIndex()
    filters = ["a/b/c", "a/b", "a/+/c", "a/#", "#", "b/+", "a", "+/b/#", "a/b/c/d"]
    for text in filters:
        index.add(tuple(text.split("/")), text)
    assert sorted(index) == sorted(filters)

    def reaching(name: str) -> set[str]:
        return set(index.reaching(tuple(name.split("/"))))

    for name in ("a", "a/b", "a/b/c", "a/x", "b", "c/b", "x"):
        assert reaching(name) == {f for f in filters if Filter(f).part_of(name, owns_subtree=True) is not None}, name
    for text in filters:
        index.remove(tuple(text.split("/")), text)
        assert text not in set(index)
    assert list(index) == []
    assert not index._root.branches


def test_an_index_of_names_finds_what_a_filter_reaches() -> None:
    index: WordIndex[str] = WordIndex()
    names = ["a", "a/b", "a/b/c", "b", "b/x", "c/d/e"]
    for name in names:
        index.add(tuple(name.split("/")), name)
    for text in ("#", "a/#", "a/b", "+", "+/b", "+/+/+", "c/#", "c/d", "b/x/y", "x"):
        found = set(index.reached_by(tuple(text.split("/"))))
        reached = {n for n in names if Filter(text).part_of(n, owns_subtree=True) is not None}
        assert reached <= found, text
        assert {n for n in found if Filter(text).part_of(n, owns_subtree=True) is not None} == reached, text


def test_a_filter_reaches_topics_and_multicast_addresses_alone() -> None:
    scene = Scene({"a": "topic", "b": "multicast", "c": "queue", "d": "anycast"})
    client = scene.client()
    client.subscribe("#", 1)
    assert sorted(link.address.name for link in client.links) == ["a", "b"]
    client.subscribe("c", 1)
    client.subscribe("d", 1)
    assert sorted(link.address.name for link in client.links) == ["a", "b", "c", "d"]


def test_a_filter_reaches_addresses_that_are_declared_later() -> None:
    scene = Scene()
    online, away = scene.client("online"), scene.client("away")
    online.subscribe("#", 1)
    away.subscribe("+/sport", 1)
    away.leave()
    scene.declare("weather")
    scene.declare("calls", "multicast")
    scene.send("weather/sport", "storm")
    assert online.bodies == ["storm"]
    assert sorted(link.address.name for link in online.links) == ["calls", "news", "weather"]
    scene = scene.restart()
    assert scene.client("away").bodies == ["storm"]


def test_a_filter_of_a_client_that_is_away_reaches_what_was_declared_while_the_node_was_down() -> None:
    scene = Scene()
    scene.client().subscribe("#", 1)
    scene.declared["weather"] = "topic"
    scene = scene.restart()
    scene.send("weather/today", "storm")
    assert scene.client().bodies == ["storm"]


def test_names_that_no_address_has_belong_to_the_topic_of_all() -> None:
    scene = Scene({"#": "topic", "news": "topic"})
    client = scene.client()
    client.subscribe("a/b", 1)
    client.subscribe("+/c", 1)
    client.subscribe("#", 0)
    scene.send("a/b", "one")
    scene.send("x/c", "two")
    scene.send("news/c", "three")
    with pytest.raises(AttachError):
        scene.space.find("$sys/x")
    assert sorted(client.bodies) == ["one", "three", "two"]
    assert {got.body: set(got.filters) for got in client.got} == {
        "one": {"a/b", "#"}, "two": {"+/c", "#"}, "three": {"+/c", "#"},
    }  # fmt: skip


def test_an_exact_name_moves_to_an_address_of_its_own_and_back() -> None:
    scene = Scene({"a": "topic"})
    client = scene.client()
    client.subscribe("a/b/c", 1)
    made = scene.declare("a/b")
    scene.send("a/b/c", "one")
    assert [link.address.name for link in client.links] == ["a/b"]
    scene.space.remove(made)
    scene.harness.commit()
    assert [link.address.name for link in client.links] == ["a"]
    scene.send("a/b/c", "two")
    assert client.bodies == ["one", "two"]
    assert client.ended == []


def test_an_exact_name_that_leads_nowhere_is_refused() -> None:
    scene = Scene()
    client = scene.client()
    with pytest.raises(AttachError) as refused:
        client.subscribe("orders")
    assert refused.value.condition == "amqp:not-found"
    assert not client.session.filters


def test_an_exact_name_that_the_grants_do_not_cover_is_refused() -> None:
    scene = Scene()
    client = scene.client(allowed=grants("news/sport"))
    client.subscribe("news/sport")
    with pytest.raises(AttachError) as refused:
        client.subscribe("news/weather")
    assert refused.value.condition == "amqp:unauthorized-access"


def test_of_each_address_a_filter_has_what_the_grants_cover() -> None:
    scene = Scene({"a": "topic", "b": "topic", "c": "multicast"})
    client = scene.client(allowed=grants("a/#", "b/x"))
    client.subscribe("#")
    assert [link.source for link in client.links] == ["a/#"]
    client.subscribe("+/x")
    assert sorted(link.source for link in client.links) == ["a/#", "b/x"]
    assert [list(client.session.joints[name].filters.values()) for name in "ab"] == [["a/#", "a/x"], ["b/x"]]
    with pytest.raises(AttachError):
        client.subscribe("b/+")


class Known:
    """The grants of a user who is not connected."""

    def __init__(self, *patterns: str) -> None:
        self._patterns = patterns

    def of_client(self, _client: str) -> Known:
        return self

    def may_receive(self, name: str) -> bool:
        return grants(*self._patterns)(name)

    def may_send(self, name: str) -> bool:
        return False

    def parts(self, filter_: str) -> list[Pattern]:
        found = [meet(parse_filter(filter_), parse(pattern)) for pattern in self._patterns]
        return [pattern for each in found for pattern in each or ()]

    def granted(self, source: str) -> str:
        return source if self.may_receive(source) else Cut.of(source, tuple(self.parts(source)))


def wanted_of(scene: Scene, name: str = "#") -> set[Pattern]:
    topic = scene.space.find(name)
    assert isinstance(topic, Topic)
    return {pattern for subscription in topic.subscriptions for pattern in subscription.patterns}


@pytest.mark.parametrize("overlapping", ["once", "each"])
def test_a_session_gathers_what_its_grants_cover_while_its_client_is_away_and_after_a_restart(
    overlapping: str,
) -> None:
    scene, known = Scene({"#": "topic"}, overlapping=overlapping), Known("hall/#", "line/1")
    client = scene.client(allowed=known.may_receive, parts=known.parts)
    client.subscribe("#")
    client.subscribe("line/+")
    client.leave()
    covered = {parse("hall/#"), parse("line/1")}
    assert wanted_of(scene) == covered
    scene.space.grants = lambda _owner, _user: Known("hall/#")
    scene.space.sessions.review("bert")
    scene.harness.turn()
    assert wanted_of(scene) == covered
    scene.space.sessions.review("anna")
    scene.harness.turn()
    assert wanted_of(scene) == {parse("hall/#")}
    scene.send("hall/a", "before")
    scene = scene.restart()
    # Nobody has said yet what the user may do: what is too much is dropped before it is sent.
    scene.send("office", "meanwhile")
    scene.space.grants = lambda _owner, _user: Known("hall/#")
    scene.space.sessions.review()
    scene.harness.turn()
    assert wanted_of(scene) == {parse("hall/#")}
    scene.send("office", "after")
    scene.send("hall/b", "after")
    known = Known("hall/#")
    (session,) = scene.space.sessions
    assert session.depth == 3
    back = scene.client(allowed=known.may_receive, parts=known.parts)
    back.subscribe("+/b")
    back.session.unsubscribe("#")
    assert wanted_of(scene) == {parse("hall/b")}


@pytest.mark.parametrize("text", ["mill/#", "mill/+", "mill/+/x", "$share/group/mill/#"])
def test_wildcards_of_another_container_need_grants_that_cover_all_of_them(text: str) -> None:
    scene = Scene()
    scene.space.add_connector(Anycast(scene.harness.core, "mill"))
    allowed = ["mill/orders"]

    def allows(name: str) -> bool:
        return grants(*allowed)(name)

    client = scene.client(allowed=allows)
    with pytest.raises(AttachError) as refused:
        client.subscribe(text)
    assert refused.value.condition == "amqp:unauthorized-access"
    assert not client.session.filters
    allowed.append("mill/#")
    client.subscribe(text)
    assert [link.source for link in client.links] == [Filter(text).topic]
    client.session.review()
    assert len(list(client.links)) == 1
    allowed.remove("mill/#")
    client.session.review()
    assert (list(client.links), client.ended) == ([], [text])
    client.subscribe("mill/orders")
    client.leave()
    client = scene.client(allowed=grants("mill/flour"))
    assert list(client.links) == []


def test_filters_reach_a_connector_that_is_declared_again() -> None:
    scene = Scene()
    space = scene.space
    space.add_connector(Anycast(scene.harness.core, "mill"))
    client = scene.client()
    client.subscribe("mill/orders")
    client.subscribe("mill/#")
    client.leave()
    del space.connectors["mill"]
    client = scene.client()
    assert list(client.links) == []
    space.add_connector(Anycast(scene.harness.core, "mill"))
    scene.harness.commit()
    assert sorted(link.source for link in client.links) == ["mill/#", "mill/orders"]


def test_a_grant_that_goes_ends_what_it_covered() -> None:
    scene = Scene({"a": "topic", "b": "topic"})
    allowed = ["a/#", "b/#"]

    def allows(name: str) -> bool:
        return grants(*allowed)(name)

    client = scene.client(allowed=allows)
    client.subscribe("#")
    client.subscribe("b/x")
    allowed.remove("b/#")
    client.session.review()
    scene.harness.commit()
    assert [link.source for link in client.links] == ["a/#"]
    assert client.ended == ["#", "b/x"]
    assert list(client.session.filters) == ["#"]
    allowed.append("b/#")
    client.session.review()
    assert [link.source for link in client.links] == ["a/#", "b/#"]
    scene.send("b/x", "one")
    assert client.bodies == ["one"]


def test_what_the_grants_do_not_cover_at_its_return_a_session_does_not_get() -> None:
    scene = Scene({"a": "topic", "b": "topic"})
    client = scene.client()
    client.subscribe("#")
    client.leave()
    scene.send("a/x", "one")
    scene.send("b/x", "two")
    client = scene.client(allowed=grants("a/#"))
    assert client.bodies == ["one"]
    client.leave()
    assert scene.client().bodies == ["one"]


def test_a_filter_may_not_stand_for_too_many_addresses() -> None:
    scene = Scene({"a": "topic", "b": "topic"}, limits=SpaceLimits(filter_addresses=2))
    client = scene.client()
    client.subscribe("#")
    # It goes without those that come later.
    scene.declare("c")
    assert len(client.links) == 2
    with pytest.raises(AttachError) as refused:
        client.subscribe("+")
    assert refused.value.condition == "amqp:resource-limit-exceeded"
    assert list(client.session.filters) == ["#"]
    client.leave()
    assert len(scene.client().links) == 2


def test_an_address_that_is_deleted_leaves_the_session_and_comes_again() -> None:
    scene = Scene({"a": "topic", "b": "topic"})
    client = scene.client()
    client.subscribe("a/#", 2)
    client.subscribe("b", 1)
    scene.send("a/x", "one")
    topic = scene.space.find("a")
    scene.space.remove(topic)
    scene.harness.commit()
    assert [link.source for link in client.links] == ["b"]
    # Its message is gone with it; the client may still say that it has it.
    client.acknowledge(client.got[0])
    scene.harness.commit()
    assert client.pubrels == [client.got[0].packet_id]
    scene.declare("a")
    scene.send("a/x", "two")
    assert client.bodies == ["one", "two"]
    assert not scene.harness.faults


def test_a_literal_star_is_a_letter() -> None:
    scene = Scene({"a": "topic"})
    client = scene.client()
    client.subscribe("a/*", 1)
    scene.send("a/b", "one")
    assert client.bodies == []


@pytest.mark.chance
@pytest.mark.parametrize("seed", seeds(10))
def test_whatever_filters_come_and_go_each_message_comes_once_for_all_of_them(seed: int) -> None:
    chance = Random(seed)
    is_lasting = chance.random() < 0.7
    scene = Scene({"a": "topic", "#": "topic", "c": "multicast"})
    client = scene.client(expiry_s=NEVER if is_lasting else 0)
    client.acknowledges = True
    wanted: dict[str, int] = {}
    expected: list[tuple[str, int, set[str]]] = []
    got: list[tuple[str, int, set[str]]] = []
    for number in range(60):
        kind = chance.random()
        text = chance.choice(["a/#", "a/+", "+/b", "a/b", "#", "+", "a/b/#", "+/+", "c", "x/#", "a"])
        if kind < 0.3:
            wanted[text] = chance.randrange(3)
            client.subscribe(text, wanted[text], no_local=chance.random() < 0.2)
        elif kind < 0.45:
            assert client.session.unsubscribe(text) == (wanted.pop(text, None) is not None)
            scene.harness.commit()
        elif kind < 0.9:
            name = chance.choice(["a", "a/b", "a/c", "x/b", "x", "a/b/c"])
            qos = chance.choice([0, 2])
            if found := [text for text in wanted if matches(parse_filter(text), name)]:
                expected.append((str(number), min(qos, max(wanted[text] for text in found)), set(found)))
            scene.send(name, number, durable=qos > 0)
        elif is_lasting:
            got += [(one.body, one.qos, set(one.filters)) for one in client.got]
            client.leave()
            is_restart = chance.random() < 0.5
            scene = scene.restart() if is_restart else scene
            found = [text for text in wanted if matches(parse_filter(text), "a/b")]
            if any(wanted[text] for text in found):
                expected.append((f"away {number}", max(wanted[text] for text in found), set(found)))
            scene.send("a/b", f"away {number}")
            client = Client(scene, "device")
            client.acknowledges = True
            client.open()
    assert [*got, *((one.body, one.qos, set(one.filters)) for one in client.got)] == expected
    for text in wanted:
        client.session.unsubscribe(text)
    scene.harness.commit()
    assert not client.links
    assert not client.session.joints
    for name in ("a", "#"):
        topic = scene.space.find(name)
        assert isinstance(topic, Topic)
        assert (len(topic._stored), len(topic._volatile), topic.subscriptions, topic.sessions.greater) == (
            0,
            0,
            {},
            {},
        )
    assert scene.space.usage.subscriptions == 0
    assert not scene.harness.faults


# Groups


def test_a_group_gets_each_message_once_between_its_members() -> None:
    scene = Scene()
    first, second, alone = scene.client("first"), scene.client("second", expiry_s=0), scene.client("alone")
    first.subscribe("$share/workers/news/#")
    second.subscribe("$share/workers/news/#")
    alone.subscribe("$share/others/news/#")
    for body in range(6):
        scene.send("news/a", body)
    assert len(first.bodies) == len(second.bodies) == 3
    assert sorted(first.bodies + second.bodies) == alone.bodies == [str(body) for body in range(6)]


def test_a_group_keeps_messages_for_members_that_are_away() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("$share/workers/news/#")
    client.leave()
    scene.send("news/a", "one")
    scene = scene.restart()
    other = scene.client("other")
    other.subscribe("$share/workers/news/#")
    assert other.bodies == ["one"]


def test_what_a_member_has_with_qos_1_is_another_s_when_it_goes() -> None:
    scene = Scene()
    first, second = scene.client("first"), scene.client("second")
    first.subscribe("$share/workers/news/#", 1)
    second.credit = 0
    second.subscribe("$share/workers/news/#", 2)
    scene.send("news/a", "one")
    assert first.bodies == ["one"]
    first.leave()
    port = second.ports[second.links[0]]
    port.credit = 10
    second.links[0].consumer.on_credit(10, False)
    scene.harness.commit()
    assert second.bodies == ["one"]
    # With QoS 2 it stays with the member, over a restart too, and is nobody's after its end.
    scene = scene.restart()
    third = scene.client("third")
    third.subscribe("$share/workers/news/#", 1)
    assert third.bodies == []
    again = scene.client("second")
    assert again.got == [second.got[0]._replace(is_duplicate=True)]
    again.leave(clean=True, expiry_s=0)
    assert third.bodies == []
    assert scene.space.sessions.groups.all[0].kept["news"].depth == 0


def test_a_group_ends_with_its_last_member() -> None:
    scene = Scene()
    first, second = scene.client("first", expiry_s=0), scene.client("second", expiry_s=0)
    first.subscribe("$share/workers/news/#")
    second.subscribe("$share/workers/news/#")
    first.leave()
    assert len(scene.space.sessions.groups) == 1
    second.session.unsubscribe("$share/workers/news/#")
    scene.harness.commit()
    assert len(scene.space.sessions.groups) == 0
    found = [len(list(scene.harness.storage.scan_all(table))) for table in (Table.SESSION, Table.SUBSCRIPTION)]
    assert found == [0, 0]


def test_a_group_whose_members_were_in_memory_alone_is_over_after_a_restart() -> None:
    scene = Scene()
    scene.client(expiry_s=0).subscribe("$share/workers/news/#")
    scene = scene.restart()
    scene.harness.commit()
    assert len(scene.space.sessions.groups) == 0
    found = [len(list(scene.harness.storage.scan_all(table))) for table in (Table.SESSION, Table.SUBSCRIPTION)]
    assert found == [0, 0]


# A full session


def test_a_full_session_loses_its_oldest_and_holds_up_nobody() -> None:
    scene = Scene(limits=SpaceLimits(session_bytes=5_000))
    away, other = scene.client("away"), scene.client("other")
    for client in (away, other):
        client.subscribe("news/#")
    other.acknowledges = True
    away.leave()
    for body in range(20):
        scene.send("news/a", f"{body:04}" + "x" * 496)
    assert len(other.bodies) == 20
    session = scene.space.sessions.get("away")
    assert session is not None
    kept = 20 - session.room.dropped
    assert 5 <= kept < 10
    assert session.bytes_stored <= 5_000
    scene = scene.restart()
    assert [body[:4] for body in scene.client("away").bodies] == [f"{body:04}" for body in range(20 - kept, 20)]


def test_a_session_that_is_full_on_disk_since_an_earlier_run_loses_its_oldest_too() -> None:
    scene = Scene(limits=SpaceLimits(session_bytes=5_000))
    scene.client().subscribe("news/#")
    scene.client().leave()
    for body in range(5):
        scene.send("news/a", f"{body:04}" + "x" * 496)
    scene = scene.restart()
    for body in range(5, 20):
        scene.send("news/a", f"{body:04}" + "x" * 496)
    session = scene.space.sessions.get("device")
    assert session is not None
    assert session.bytes_stored <= 5_000
    bodies = [body[:4] for body in scene.client().bodies]
    assert bodies == [f"{body:04}" for body in range(20 - len(bodies), 20)]
    assert len(bodies) >= 5


def test_the_bound_counts_for_all_filters_of_a_session_together() -> None:
    scene = Scene({"a": "topic", "b": "topic"}, limits=SpaceLimits(session_bytes=3_000))
    client = scene.client()
    client.subscribe("a")
    client.subscribe("b")
    client.leave()
    for body in range(5):
        scene.send("a", f"a{body}" + "x" * 500)
    scene.send("b", "b0" + "x" * 500)
    session = scene.space.sessions.get("device")
    assert session is not None
    assert session.bytes_stored <= 3_000
    assert "b0" in [body[:2] for body in scene.client().bodies]


def test_messages_of_a_client_that_is_away_are_on_disk_and_not_in_memory() -> None:
    scene = Scene()
    client = scene.client()
    client.subscribe("news/#")
    client.leave()
    for body in range(10):
        scene.send("news/a", body)
    session = scene.space.sessions.get("device")
    assert session is not None
    (kept,) = session.filters["news/#"].kept.values()
    assert (kept.depth, kept.resident_bytes) == (10, 0)
    client = scene.client()
    client.acknowledges = True
    assert client.bodies == [str(body) for body in range(10)]


def test_a_space_that_is_full_costs_a_session_its_oldest() -> None:
    scene = Scene(max_bytes=3_000)
    client = scene.client()
    client.subscribe("news/#")
    client.leave()
    for body in range(10):
        scene.send("news/a", f"{body}" + "x" * 500)
    assert scene.space.bytes_stored <= 3_000
    bodies = [body[0] for body in scene.client().bodies]
    assert bodies == [str(body) for body in range(10 - len(bodies), 10)]
