"""Whatever fails and whenever the node dies: what was acknowledged comes, and with QoS 2 it comes once.

Each seed is a story of three clients. A publisher sends numbers with QoS 2, and keeps what it has to send again as
MQTT says; two subscribers have them with QoS 1 and 2. Connections are lost and taken over, batches are committed in
part or fail, and the node dies and finds what reached the disk.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.sessions.session import NEVER, Session
from enmasse.messaging.sessions.session_filter import SubscribeRequest
from enmasse.messaging.sessions.sessions import OpenRequest
from enmasse.messaging.storage import Table
from tests.support.chance import seeds
from tests.unit.messaging.session_scene import Client, Published, Scene, message

SEEDS = seeds(60)
STEPS = 150


class Device(Client):
    """A client whose state outlives connections and nodes, as MQTT wants it."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story.scene, name)
        self.story = story
        self.is_open = False
        self.is_opening = False
        self.events: list[Any] = []
        """What it has yet to react to."""
        self.has_subscribed = False
        self.credit = 20

    def connect(self) -> None:
        """Connect, on a new connection; an old one that the node has is taken over."""
        self.drop()
        self.is_opening = True
        sessions = self.story.scene.space.sessions
        holder = self.connection = Connection(self)
        request = OpenRequest(self.name, "user:1", "anna", False, False, NEVER, 20, lambda _n: True, lambda _n: True)
        holder.session = sessions.open(request, holder, holder.opened)

    def drop(self) -> None:
        """Lose the connection without a word, or what is left of one."""
        if self.is_open or self.is_opening:
            self.is_open = self.is_opening = False
            if self.story.chance(0.7):
                self.connection.session.detach(self.connection, is_clean_close=False)

    def node_died(self) -> None:
        self.is_open = self.is_opening = False
        self.events.clear()

    def opened(self) -> None:
        """Go on where it was."""


class Connection:
    """One connection of a device: what the node sends on it after its end is lost."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.session: Session

    @property
    def is_current(self) -> bool:
        return self.device.connection is self and (self.device.is_open or self.device.is_opening)

    def opened(self, problem: str | None) -> None:
        if not self.is_current:
            if problem is None:
                self.session.detach(self, is_clean_close=False)
            return
        device = self.device
        device.is_opening = False
        if problem is not None:
            return
        device.is_open = True
        device.session = self.session
        device.ports.clear()
        device.events.clear()
        self.session.resume()
        device.opened()

    def make_port(self, link: Any) -> Any:
        return self.device.make_port(link)

    def joined(self, link: Any) -> None:
        self.device.joined(link)

    def left(self, link: Any) -> None:
        self.device.left(link)

    def taken_over(self) -> None:
        pass

    deleted = taken_over

    def changed(self, link: Any) -> None:
        pass

    def filter_ended(self, text: str, error: Exception) -> None:
        raise AssertionError(text)

    def put_pubrel(self, packet_id: int) -> None:
        if self.is_current:
            self.device.events.append(packet_id)


class Subscriber(Device):
    """Receives numbers with one QoS."""

    def __init__(self, story: Story, name: str, qos: int) -> None:
        super().__init__(story, name)
        self.qos = qos
        self.numbers: list[int] = []
        self.known: set[int] = set()

    def put(self, published: Published) -> None:
        if self.is_open:
            self.events.append(published)

    def opened(self) -> None:
        if not self.has_subscribed:
            for text in ("news/#", "news/+", "+/n"):
                # Whatever comes, comes once for all of them.
                self.session.subscribe(SubscribeRequest(text, self.qos))
            self.session.after_stored(self._subscribed)

    def _subscribed(self) -> None:
        self.has_subscribed = True

    def react(self) -> None:
        """React to one event."""
        if not self.events or not self.is_open:
            return
        event = self.events.pop(0)
        outgoing = self.session.outgoing
        if isinstance(event, int):
            self.known.discard(event)
            outgoing.complete(event)
        elif event.qos == 1:
            self.numbers.append(int(event.body))
            assert outgoing.acknowledge(event.packet_id)
        else:
            if event.packet_id not in self.known:
                self.known.add(event.packet_id)
                self.numbers.append(int(event.body))
            connection, packet_id = self.connection, event.packet_id

            def released() -> None:
                if connection.is_current:
                    self.events.append(packet_id)

            assert outgoing.receive(packet_id, released)
        for port in self.ports.values():
            port.credit += 1
            port.link.consumer.on_credit(1, False)


class Publisher(Device):
    """Sends numbers with QoS 2."""

    def __init__(self, story: Story) -> None:
        super().__init__(story, "publisher")
        self.next = 0
        self.unsent: dict[int, int] = {}
        """Numbers by packet id, for which PUBREC has not come."""
        self.unreleased: dict[int, int] = {}
        """The same, for which PUBCOMP has not come."""
        self.acknowledged: set[int] = set()
        self.wanted: set[int] = set()
        """Numbers that were sent for the first time when both subscribers had subscribed."""

    def opened(self) -> None:
        for packet_id in self.unreleased:
            self._release(packet_id)
        for packet_id in list(self.unsent):
            self._publish(packet_id)

    def send(self) -> None:
        if not self.is_open or len(self.unsent) + len(self.unreleased) >= 5:
            return
        free = next(n for n in range(1, 8) if n not in self.unsent and n not in self.unreleased)
        self.unsent[free] = self.next
        if all(one.has_subscribed for one in self.story.subscribers):
            self.wanted.add(self.next)
        self.next += 1
        self._publish(free)

    def _publish(self, packet_id: int) -> None:
        number = self.unsent[packet_id]
        connection = self.connection

        def answered(outcome: Any) -> None:
            if not connection.is_current or self.unsent.get(packet_id) != number:
                return
            if outcome is ACCEPTED:
                del self.unsent[packet_id]
                self.unreleased[packet_id] = number
                self.acknowledged.add(number)
                self._release(packet_id)

        address = self.story.scene.space.find_target("news/n")
        self.session.incoming.receive(packet_id, address, "news/n", message(number), answered)  # type: ignore[arg-type]

    def _release(self, packet_id: int) -> None:
        connection = self.connection

        def completed() -> None:
            if connection.is_current:
                self.unreleased.pop(packet_id, None)

        if not self.session.incoming.release(packet_id, completed):
            # It is forgotten already, and says so by PUBCOMP.
            self.story.later.append(completed)


class Story:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scene = Scene()
        self.later: list[Any] = []
        self.subscribers: list[Subscriber] = []
        self.subscribers = [Subscriber(self, "one", 1), Subscriber(self, "two", 2)]
        self.publisher = Publisher(self)

    @property
    def devices(self) -> list[Device]:
        return [*self.subscribers, self.publisher]

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def step(self) -> None:
        harness = self.scene.harness
        kind = self.random.random()
        if kind < 0.35:
            self.publisher.send()
        elif kind < 0.65:
            for subscriber in self.subscribers:
                for _ in range(self.random.randrange(4)):
                    subscriber.react()
        elif kind < 0.75:
            device = self.random.choice(self.devices)
            if device.is_open and self.chance(0.5):
                device.drop()
            elif not device.is_opening or self.chance(0.2):
                device.connect()
        elif kind < 0.93:
            pending = harness.storage.pending
            if pending and self.chance(0.2):
                harness.storage.fail()
            elif pending:
                harness.storage.commit(self.random.choice(pending))
            if self.chance(0.5):
                harness.advance(self.random.choice([0.0, PAUSE_S, 2.0]))
        elif kind < 0.96:
            self.crash()
        later, self.later = self.later, []
        for call in later:
            call()
        harness.turn()
        assert not self.scene.harness.faults, self.scene.harness.faults

    def crash(self) -> None:
        pending = self.scene.harness.storage.pending
        self.scene = self.scene.restart(self.random.choice([0, *pending]))
        for device in self.devices:
            device.scene = self.scene
            device.node_died()

    def calm_down(self) -> None:
        for _ in range(200):
            for device in self.devices:
                if not device.is_open and not device.is_opening:
                    device.connect()
            for subscriber in self.subscribers:
                while subscriber.is_open and subscriber.events:
                    subscriber.react()
                    self.scene.harness.turn()
            later, self.later = self.later, []
            for call in later:
                call()
            publisher = self.publisher
            if publisher.is_open:
                for packet_id in list(publisher.unsent):
                    publisher._publish(packet_id)
            self.scene.harness.commit()
            self.scene.harness.advance(PAUSE_S)
            assert not self.scene.harness.faults, self.scene.harness.faults


@pytest.mark.chance
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_acknowledged_is_lost_and_qos_2_is_once(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.step()
    story.calm_down()
    publisher, (one, two) = story.publisher, story.subscribers
    assert not publisher.unsent
    assert not publisher.unreleased
    wanted = publisher.wanted & publisher.acknowledged
    assert wanted <= set(one.numbers)
    assert wanted <= set(two.numbers)
    assert len(two.numbers) == len(set(two.numbers)), "QoS 2 is exactly once"
    for subscriber in story.subscribers:
        session = story.scene.space.sessions.get(subscriber.name)
        assert session is not None
        assert len(session.outgoing) == 0
        assert session.depth == session.bytes_stored == 0
    story.scene.harness.advance(5)
    story.scene.harness.commit()
    frames = list(story.scene.harness.storage.scan_all(Table.FRAME))
    assert not frames, "what everybody has is deleted"
