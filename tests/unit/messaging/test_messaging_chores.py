"""Chores in turns: however many members an event concerns, one turn deals with some of them, and the rest follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from enmasse.messaging import address as addresses
from enmasse.messaging import chores
from enmasse.messaging.address import Address, Declaration
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.log.layout import delete_log
from enmasse.messaging.queues import subscribing
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.sessions.session_filter import SubscribeRequest
from enmasse.messaging.space import Space
from enmasse.messaging.streams.stream import Stream
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort
from tests.unit.messaging.session_scene import Client, Scene, message

MANY = 40
A_TURN = 10
"""Members that a turn deals with in these tests: what is done at once, and in the turn's two rounds."""

Event = tuple[CoreHarness, Callable[[], None], Callable[[], int]]
"""A core, what happens there, and the number of members that it does not concern any more."""


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that bear little, so that few members are many."""
    monkeypatch.setattr(chores, "MAX_UNITS", 3 * chores.ENDING_UNITS)
    for module in (addresses, subscribing):
        monkeypatch.setattr(module, "FEW_LINKS", 4)


def sessions(qos: int, *, expiry_s: int = 60) -> Scene:
    scene = Scene({"news": "topic", "other": "queue"})
    for number in range(MANY):
        client = scene.client(f"c{number}", expiry_s=expiry_s)
        client.subscribe("news/#", qos)
    return scene


def expiry() -> Event:
    scene = sessions(1)
    for session in list(scene.space.sessions):
        session.detach(session.require_holder(), is_clean_close=True)
    scene.harness.commit()

    def act() -> None:
        scene.harness.clock.advance(61.0)
        scene.harness.core.handle_deadline(scene.harness.clock.now)

    return scene.harness, act, lambda: MANY - len(scene.space.sessions)


def expiry_after_a_restart() -> Event:
    before = sessions(1)
    for session in list(before.space.sessions):
        session.detach(session.require_holder(), is_clean_close=True)
    before.harness.commit()
    # As a restarted node does it, but for its first turn.
    harness = before.harness.restarted()
    harness.clock.advance(before.harness.clock.now + 1_000.0)
    turn, harness.turn = harness.turn, lambda: None  # type: ignore[method-assign]
    scene = Scene(before.declared, harness)
    harness.turn = turn  # type: ignore[method-assign]
    assert len(scene.space.sessions) == MANY
    return harness, lambda: None, lambda: MANY - len(scene.space.sessions)


def deletion_of_a_topic(qos: int) -> Event:
    scene = sessions(qos)
    linked = [next(iter(session.links)) for session in scene.space.sessions]
    topic = scene.space.addresses["news"]
    return scene.harness, lambda: scene.space.remove(topic), lambda: sum(not link.is_open for link in linked)


def deletion_of_a_space() -> Event:
    scene = sessions(1)
    scene.space.remove(scene.space.addresses["news"])
    scene.harness.commit()
    return scene.harness, scene.space.close, lambda: MANY - len(scene.space.sessions)


def waiting(qos: int, kind: str) -> tuple[Scene, Address, list[Client]]:
    """Clients with filters that match an address which comes."""
    scene = Scene({"other": "queue"})
    clients = [scene.client(f"c{number}", expiry_s=60) for number in range(MANY)]
    for client in clients:
        client.subscribe("late/#", qos)
    scene.harness.commit()
    return scene, scene.make("late", kind), clients


def reached(scene: Scene) -> int:
    return sum(link.address.name == "late" for session in scene.space.sessions for link in session.links)


def declaration(qos: int, kind: str) -> Event:
    scene, address, _ = waiting(qos, kind)
    return scene.harness, lambda: scene.space.add(address), lambda: reached(scene)


def links(kind: type[Address], *, senders: bool = False, durable: bool = False) -> Event:
    harness = CoreHarness()
    space = Space(harness.core, "ns/shop", lambda: "id")
    address = kind.declared(harness.core, "news", Declaration(log_id=1_000, uid="u"))
    space.add(address)
    address.load()
    ports: list[MemoryConsumerPort | MemoryProducerPort] = []
    for number in range(MANY):
        if senders:
            ports.append(harness.sender(address))
            continue
        options = {"is_durable": True, "container": f"c{number}", "name": "s", "expiry_policy": "never"}
        ports.append(harness.receiver(address, 10, source="news", **(options if durable else {})))
    harness.commit()

    def act() -> None:
        space.remove(address)

    return harness, act, lambda: sum(port.is_detached for port in ports)


EVENTS: dict[str, Callable[[], Event]] = {
    "sessions expire": expiry,
    "sessions have expired before a restart": expiry_after_a_restart,
    "a topic of sessions is deleted": lambda: deletion_of_a_topic(1),
    "a topic of sessions with QoS 0 is deleted": lambda: deletion_of_a_topic(0),
    "a topic that filters match is declared": lambda: declaration(1, "topic"),
    "a topic that filters with QoS 0 match is declared": lambda: declaration(0, "topic"),
    "a multicast address that filters match is declared": lambda: declaration(1, "multicast"),
    "a space is deleted": deletion_of_a_space,
    **{
        f"{kind.kind} with {'senders' if senders else 'receivers'} is deleted": partial(links, kind, senders=senders)
        for kind in (Anycast, Multicast, Queue, Topic, Stream)
        for senders in (False, True)
    },
    "a topic with durable subscriptions is deleted": lambda: links(Topic, durable=True),
}


def turns(harness: CoreHarness) -> Iterator[None]:
    """One turn at a time; what is to be written is, in between."""
    while harness.step() or harness.storage.pending:
        yield
        if harness.storage.pending:
            harness.storage.commit()


@pytest.mark.parametrize("name", EVENTS)
def test_a_turn_deals_with_no_more_members_than_it_bears(name: str) -> None:
    harness, act, count = EVENTS[name]()
    assert count() == 0
    act()
    most, before, number = count(), count(), 0
    for _ in turns(harness):
        now = count()
        most, before, number = max(most, now - before), now, number + 1
    assert count() == MANY
    assert most <= A_TURN
    assert not harness.faults
    assert harness.core.is_idle


def test_an_address_is_declared_once_all_filters_reach_it_whoever_comes_and_goes_meanwhile() -> None:
    scene, address, clients = waiting(1, "topic")
    fresh = scene.client("fresh")
    told: list[int] = []
    # As an address that is declared, and made for the first who needs it.

    def wake(_name: str) -> Address:
        scene.space.add(address)
        address.load()
        return address

    scene.space.wake = wake
    scene.space.declared("late", "topic", lambda: told.append(reached(scene)))
    assert 0 < reached(scene) < MANY
    clients[-1].session.unsubscribe("late/#")
    scene.space.sessions.delete(clients[-2].session)
    fresh.session.subscribe(SubscribeRequest("late/#", 1))
    assert told == []
    scene.harness.commit()
    assert told == [MANY - 1]
    assert reached(scene) == MANY - 1
    assert not [*clients[-1].session.links]
    scene.send("late", "x")
    assert [client.bodies for client in (*clients[:-2], fresh)] == [["x"]] * (MANY - 1)


@pytest.mark.parametrize("again", ["topic", "multicast", "queue"])
def test_an_address_that_is_deleted_while_filters_come_is_reached_by_none(again: str) -> None:
    scene, address, _ = waiting(1, "topic")
    scene.space.add(address)
    assert 0 < reached(scene) < MANY
    scene.space.remove(address)
    scene.harness.commit()
    assert reached(scene) == 0
    scene.declare("late", again)
    assert reached(scene) == (0 if again == "queue" else MANY)
    assert not scene.harness.faults


def test_logs_of_what_ended_are_deleted_in_turns() -> None:
    """What is over leaves nothing in the journal, though many batches of it are committed at once."""
    scene = sessions(1)
    for session in list(scene.space.sessions):
        session.detach(session.require_holder(), is_clean_close=True)
    scene.send("news", *range(3))
    logs = [session.log_id for session in scene.space.sessions]
    logs += [one.log_id for session in scene.space.sessions for one in session.room.subscriptions]
    assert len(logs) == 2 * MANY
    for session in list(scene.space.sessions):
        scene.space.sessions.delete(session)
    asked: list[int] = []
    read = scene.harness.storage.scan

    def scan(*given: object) -> object:
        asked[-1] += 1
        return read(*given)  # type: ignore[arg-type]

    scene.harness.storage.scan = scan  # type: ignore[method-assign,assignment]
    while scene.harness.step():
        pass
    asked.append(0)
    asked.extend(0 for _ in turns(scene.harness))
    assert sum(asked) > 2 * MANY
    assert max(asked) <= sum(asked) // 3
    scene.harness.storage.scan = read  # type: ignore[method-assign]
    assert [operation for log in logs for operation in delete_log(scene.harness.storage, log)] == []


def test_what_a_queue_has_handed_out_stays_where_it_is_while_its_receivers_go() -> None:
    harness = CoreHarness()
    space = Space(harness.core, "ns/shop", lambda: "id")
    queue = Queue(harness.core, "news", 1_000)
    space.add(queue)
    ports = [harness.receiver(queue, 5) for _ in range(MANY)]
    sender = harness.sender(queue)
    harness.turn()
    for number in range(2 * MANY):
        sender.send(message(number))
    harness.commit()
    before = [len(port.arrivals) for port in ports]
    assert sum(before) == 2 * MANY
    done: list[bool] = []
    space.remove(queue, lambda: done.append(True))
    assert not done
    for _ in turns(harness):
        pass
    assert done == [True]
    assert [len(port.arrivals) for port in ports] == before
    assert all(port.is_detached for port in ports)
    assert sender.is_detached


def test_senders_of_an_anycast_address_have_outcomes_as_its_many_receivers_go() -> None:
    harness = CoreHarness()
    space = Space(harness.core, "ns/shop", lambda: "id")
    address = Anycast(harness.core, "news")
    space.add(address)
    ports = [harness.receiver(address, 1) for _ in range(MANY)]
    senders = [harness.sender(address) for _ in range(MANY)]
    harness.turn()
    for sender in senders:
        if sender.credit > 0:
            sender.send(message("x"))
    space.remove(address)
    for _ in turns(harness):
        pass
    assert all(port.is_detached for port in ports)
    assert all(sender.is_detached for sender in senders)
    for sender in senders:
        assert len(sender.outcomes) == sender.received


def test_a_chore_that_fails_is_over_and_others_go_on() -> None:
    harness = CoreHarness()
    done: list[int] = []

    def failing() -> Iterator[int]:
        yield chores.MAX_UNITS
        raise ValueError

    def other() -> Iterator[int]:
        for number in range(MANY):
            done.append(number)
            yield chores.ENDING_UNITS

    harness.core.chores.add("one", failing())
    harness.core.chores.add("another", other())
    for _ in turns(harness):
        pass
    assert done == list(range(MANY))
    assert [(name, type(error)) for name, error in harness.faults] == [("one", ValueError)]
