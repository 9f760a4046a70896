"""Fan-out in turns: however many receivers a message has, one turn gives it to some of them, and the rest follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging import core, fan_out
from enmasse.messaging.core import MUCH_UNITS, TURN_UNITS
from enmasse.messaging.direct import multicast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.fan_out import FEW
from enmasse.messaging.log import shared_log
from enmasse.messaging.queues import backlog, topic_wave
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.retaining import FED_AT_ONCE
from enmasse.messaging.sessions.session_filter import SubscribeRequest
from enmasse.messaging.space import Space
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort
from tests.unit.messaging.session_scene import Client
from tests.unit.messaging.session_scene import Scene as SessionScene

MANY = 3 * FEW
A_TURN = 16
"""Receivers of a message that one turn bears in these tests: some parts of waves, and whoever is due."""


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that bear little, so that few receivers are many."""
    monkeypatch.setattr(fan_out, "MAX_UNITS", 100)
    monkeypatch.setattr(topic_wave, "STEP_UNITS", 50)
    monkeypatch.setattr(multicast, "STEP_UNITS", 50)
    monkeypatch.setattr(topic_wave, "BATCH_UNITS", 100)
    monkeypatch.setattr(shared_log, "BATCH_UNITS", 100)
    monkeypatch.setattr(core, "MAX_UNITS", 200)


class Scene:
    """Many receivers of one address, and a sender.

    Attributes:
        harness: the core.
        sender: the sender.
    """

    target = "news"
    harness: CoreHarness
    sender: MemoryProducerPort
    address: Any

    def send(self, body: int, *, settled: bool = False) -> int:
        payload = encode_message(str(body).encode(), header=Header(durable=True))
        return self.sender.send(payload, settled=settled)

    def got(self) -> list[list[bytes]]:
        """The bodies that each receiver has."""
        raise NotImplementedError

    def come(self) -> Callable[[], list[bytes]]:
        """One more receiver; returns what tells the bodies that it has."""
        raise NotImplementedError

    def leave(self, number: int) -> None:
        """One receiver goes."""
        raise NotImplementedError

    def finish(self) -> None:
        """Go on until all is handed out and written."""
        self.harness.commit()
        assert not self.harness.faults
        assert not self.harness.core.fan_out.is_busy


class Links(Scene):
    """Receivers of a topic's or a multicast address's own."""

    options: Callable[[int], dict[str, Any]] = staticmethod(lambda _number: {"presettle": True})

    def __init__(self, kind: Callable[..., Any] = Topic) -> None:
        self.harness = CoreHarness()
        self.space = Space(self.harness.core, "ns/shop", lambda: "id")
        self.address = kind(self.harness.core, "news", 1_000)
        self.space.add(self.address)
        self.address.load()
        self.ports = [self._receiver() for _ in range(MANY)]
        self.harness.commit()
        self.sender = self.harness.sender(self.address)
        self.harness.turn()

    def _receiver(self) -> MemoryConsumerPort:
        number = len(getattr(self, "ports", ())) + self.harness.core.log_numbers.next
        return self.harness.receiver(self.address, 100, source="news", **self.options(number))

    def got(self) -> list[list[bytes]]:
        return [[Sections(payload).body for payload in port.payloads] for port in self.ports]

    def come(self) -> Callable[[], list[bytes]]:
        port = self._receiver()
        return lambda: [Sections(payload).body for payload in port.payloads]

    def leave(self, number: int) -> None:
        self.ports.pop(number).leave()


class Durable(Links):
    """Durable subscriptions, each with a receiver."""

    made = 0

    @staticmethod
    def options(_number: int) -> dict[str, Any]:
        Durable.made += 1
        return {
            "is_durable": True,
            "container": f"client-{Durable.made}",
            "name": "s",
            "expiry_policy": "never",
            "presettle": True,
        }


class Copies(Links):
    """Receivers of a multicast address."""

    def __init__(self) -> None:
        super().__init__(Multicast)


class Sessions(Scene):
    """Clients of MQTT."""

    qos = 1

    def __init__(self) -> None:
        self.scene = SessionScene({"news": "topic"})
        self.harness = self.scene.harness
        self.clients = [self._client() for _ in range(MANY)]
        self.sender = self.harness.sender(self.scene.space.find("news"))
        self.address = self.scene.space.find("news")
        self.harness.turn()

    def _client(self) -> Client:
        client = self.scene.client(f"c{len(getattr(self, 'clients', ())) + self.harness.core.log_numbers.next}")
        client.subscribe("news/#", self.qos)
        return client

    def got(self) -> list[list[bytes]]:
        return [[body.encode() for body in client.bodies] for client in self.clients]

    def come(self) -> Callable[[], list[bytes]]:
        client = self._client()
        return lambda: [body.encode() for body in client.bodies]

    def leave(self, number: int) -> None:
        self.clients.pop(number).leave()


class Watches(Sessions):
    """The same with QoS 0."""

    qos = 0


KINDS: tuple[type[Scene], ...] = (Links, Durable, Copies, Sessions, Watches)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def scene(request: pytest.FixtureRequest) -> Scene:
    found: Scene = request.param()
    return found


def steps(scene: Scene) -> Iterator[None]:
    """One turn at a time; what is to be written is, in between."""
    harness = scene.harness
    while True:
        is_over = not harness.step()
        yield
        if is_over:
            if not harness.storage.pending:
                return
            harness.storage.commit()


def count(scene: Scene) -> int:
    return sum(map(len, scene.got()))


def test_a_turn_gives_messages_to_no_more_receivers_than_it_bears_and_each_has_them_in_order(scene: Scene) -> None:
    sent = [scene.send(number) for number in range(3)]
    before, turns = count(scene), 0
    assert before == 0
    for _ in steps(scene):
        now = count(scene)
        assert now - before <= 3 * A_TURN
        turns += now > before
        before = now
        for number, delivery in enumerate(sent):
            if delivery in scene.sender.states:
                # The moment of the sender's answer is as ever: each receiver has had it.
                assert all(len(bodies) > number for bodies in scene.got())
    assert turns >= 2
    assert scene.got() == [[b"0", b"1", b"2"]] * MANY
    assert scene.sender.states == dict.fromkeys(sent, ACCEPTED)
    scene.finish()


def test_who_comes_meanwhile_has_what_is_sent_from_then_on_and_who_goes_has_no_more(scene: Scene) -> None:
    scene.send(0)
    scene.harness.step()
    assert 0 < count(scene) < MANY or scene.address.is_behind
    fresh = scene.come()
    scene.leave(-1)
    scene.leave(0)
    scene.harness.step()
    scene.send(1)
    scene.finish()
    assert fresh() == [b"1"]
    assert scene.got() == [[b"0", b"1"]] * (MANY - 2)
    assert list(scene.sender.states.values()) == [ACCEPTED] * 2


def test_a_message_for_few_waits_behind_one_for_many() -> None:
    scene = Links()
    few = scene.harness.receiver(scene.address, 100, source="news/few", presettle=True)
    both = scene.harness.receiver(scene.address, 100, source="news/#", presettle=True)
    scene.harness.turn()
    narrow = scene.harness.sender(scene.address, "news/few")
    scene.harness.turn()
    scene.send(0)
    narrow.send(encode_message(b"1"))
    assert few.payloads == []
    scene.finish()
    assert [Sections(payload).body for payload in both.payloads] == [b"0", b"1"]
    assert len(few.payloads) == 1
    # Afterwards it goes at once again.
    narrow.send(encode_message(b"2"))
    assert len(few.payloads) == 2


@pytest.mark.parametrize("kind", [Links, Durable, Copies])
def test_an_address_that_is_deleted_meanwhile_leaves_nothing(kind: type[Links]) -> None:
    scene = kind()
    scene.send(0)
    scene.harness.step()
    scene.send(1)
    scene.space.remove(scene.address)
    scene.address.close("amqp:resource-deleted", "it is deleted")
    scene.finish()
    assert scene.harness.core.fan_out.waiting_bytes == 0
    assert scene.harness.core.is_idle


def die(at: int, *, is_atomic: bool, is_lucky: bool) -> tuple[list[int], bool, bool]:
    """A node that dies some turns after a message came.

    Args:
        at: how many.
        is_atomic: whether a transaction brings the message.
        is_lucky: whether batches that were under way still reached the disk.

    Returns:
        The messages of each subscription in the node that follows, whether the message was accepted, and whether
        all was over before.
    """
    scene = Durable()
    for port in scene.ports:
        port.leave()
    scene.finish()
    told: list[Any] = scene.sender.outcomes
    payload = encode_message(b"x", header=Header(durable=True))
    if is_atomic:
        told = []
        scene.harness.core.write_together([scene.address.enlist_message(payload, "news", told.append)])
    else:
        scene.sender.send(payload)
    turns = steps(scene)
    is_over = False
    for _ in range(at):
        is_over = is_over or next(turns, True) is True
    pending = scene.harness.storage.pending
    harness = scene.harness.restarted(pending[-1] if is_lucky and pending else 0)
    space = Space(harness.core, "ns/shop", lambda: "id")
    topic = Topic(harness.core, "news", 1_000)
    space.add(topic)
    topic.load()
    assert len(topic.subscriptions) == MANY
    return [subscription.depth for subscription in topic.subscriptions], bool(told), is_over


@pytest.mark.parametrize("is_lucky", [False, True], ids=["", "lucky"])
@pytest.mark.parametrize("is_atomic", [False, True], ids=["plain", "transaction"])
def test_wherever_the_node_dies_what_was_accepted_is_in_all_subscriptions(*, is_atomic: bool, is_lucky: bool) -> None:
    seen, at, is_over = set(), 0, False
    while not is_over:
        depths, is_accepted, is_over = die(at, is_atomic=is_atomic, is_lucky=is_lucky)
        at += 1
        seen.add(sum(depths))
        assert set(depths) <= {0, 1}
        if is_accepted:
            assert depths == [1] * MANY
    assert {0, MANY} <= seen
    # A transaction is in all of them or in none.
    assert (len(seen) == 2) is is_atomic


def test_what_a_failed_batch_kept_from_some_is_sent_again() -> None:
    scene = Durable()
    for port in scene.ports:
        port.leave()
    scene.finish()
    sent = scene.send(0)
    harness = scene.harness
    while not harness.storage.pending:
        assert harness.step()
    harness.storage.fail()
    harness.advance(1)
    scene.finish()
    assert scene.sender.states[sent] is RELEASED
    again = scene.send(0)
    scene.finish()
    assert scene.sender.states[again] is ACCEPTED
    assert all(subscription.depth >= 1 for subscription in scene.address.subscriptions)


def test_what_was_sent_settled_survives_a_failed_batch() -> None:
    scene = Durable()
    for port in scene.ports:
        port.leave()
    scene.finish()
    scene.send(0, settled=True)
    harness = scene.harness
    while not harness.storage.pending:
        assert harness.step()
    harness.storage.fail()
    harness.advance(1)
    scene.finish()
    assert [subscription.depth for subscription in scene.address.subscriptions] == [1] * MANY


def test_spaces_have_parts_of_a_turn_in_turn() -> None:
    scene = Links()
    other = Space(scene.harness.core, "ns/other", lambda: "id")
    topic = Topic(scene.harness.core, "news", 2_000)
    other.add(topic)
    topic.load()
    ports = [scene.harness.receiver(topic, 10, source="news", presettle=True) for _ in range(MANY)]
    sender = scene.harness.sender(topic)
    scene.harness.turn()
    for number in range(50):
        scene.send(number)
    scene.harness.step()
    sender.send(encode_message(b"x"))
    turns = 0
    while not sender.states:
        assert scene.harness.step()
        turns += 1
    assert [len(port.payloads) for port in ports] == [1] * MANY
    assert scene.harness.core.fan_out.is_busy
    scene.finish()


def test_more_that_waits_than_there_is_room_for_is_handed_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Links()
    monkeypatch.setattr(fan_out, "MAX_WAITING_BYTES", 1)
    scene.send(0)
    scene.send(1)
    scene.harness.step()
    assert scene.got() == [[b"0", b"1"]] * MANY


def test_the_work_of_a_selector_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Links()
    filters = {"apache.org:selector-filter:string": "x = 1"}
    for _ in range(MANY):
        scene.harness.receiver(scene.address, 10, source="news", presettle=True, filters=filters)
    monkeypatch.setattr("enmasse.messaging.selectors.selector.Selector.units", lambda _self, _size: 1_000)
    scene.send(0)
    turns = 0
    while scene.harness.step():
        turns += 1
    assert turns >= MANY


class Busy:
    """An address that has much to do in each turn."""

    name = "busy"

    def __init__(self, harness: CoreHarness, units: int, turns: int) -> None:
        self.core = harness.core
        self.units = units
        self.left = turns
        self.is_due = False

    def due(self) -> None:
        if not self.is_due:
            self.is_due = True
            self.core.due(self)

    def on_turn(self, _now: float) -> None:
        self.core.units += self.units
        self.left -= 1
        if self.left > 0:
            self.due()


def test_addresses_that_have_much_to_do_share_turns_and_who_has_little_waits_for_none_of_them() -> None:
    harness = CoreHarness()
    busy = [Busy(harness, 150, turns=5) for _ in range(50)]
    for one in busy:
        one.due()
    harness.step()
    before = sum(one.left for one in busy)
    assert 250 - before <= 6
    turns = 0
    steady = Busy(harness, MUCH_UNITS - TURN_UNITS, turns=1_000)
    while any(one.left for one in busy):
        calm = Busy(harness, 0, turns=1)
        calm.due()
        steady.due()
        at = steady.left
        assert harness.step()
        assert calm.left == 0
        assert steady.left < at
        left = sum(one.left for one in busy)
        assert 0 < before - left <= 6
        # Each has had as many turns as the others.
        assert max(one.left for one in busy) - min(one.left for one in busy) <= 2
        before = left
        turns += 1
    assert turns >= 40
    steady.left = 1
    harness.turn()
    assert harness.core.is_idle


def test_retained_values_are_given_to_many_subscribers_in_turns() -> None:
    scene = SessionScene({"news": "topic"})
    topic = scene.space.find("news")
    sender = scene.harness.sender(topic)
    scene.harness.turn()
    for number in range(40):
        port = scene.harness.sender(topic, f"news/{number}")
        scene.harness.turn()
        port.send(encode_message(b"x", message_annotations={"x-opt-retain": True}))
    sender.leave()
    scene.harness.commit()
    clients = [scene.client(f"c{number}") for number in range(MANY)]
    for client in clients:
        client.session.subscribe(SubscribeRequest("news/#", 0))
    before = 0
    for _ in steps(scene):  # type: ignore[arg-type]  # it has a harness
        now = sum(len(client.got) for client in clients)
        assert now - before <= 6 * FED_AT_ONCE
        before = now
    assert before == 40 * MANY


def test_members_of_a_shared_subscription_are_looked_through_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "MAX_LOOKS", 2 * MANY)
    scene = SessionScene({"news": "topic"})
    clients = [scene.client(f"c{number}") for number in range(MANY)]
    for client in clients:
        client.subscribe("$share/group/news")
    sender = scene.harness.sender(scene.space.find("news"))
    scene.harness.turn()
    for number in range(100):
        sender.send(encode_message(str(number).encode(), header=Header(durable=True)))
    before = 0
    for _ in steps(scene):  # type: ignore[arg-type]  # it has a harness
        now = sum(len(client.got) for client in clients)
        assert now - before <= 6
        before = now
    assert sorted(int(body) for client in clients for body in client.bodies) == list(range(100))
    assert max(len(client.got) for client in clients) <= 3
