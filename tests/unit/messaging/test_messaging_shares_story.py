"""Random stories of receivers whose grants change: nobody is given what it may not have, and nothing is left over."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Modified
from enmasse.message.sections import TOPIC_NAME, Header, Properties, Sections, encode_message
from enmasse.messaging.address import AttachOptions
from enmasse.messaging.patterns import Cut
from enmasse.messaging.queues.topic import Topic
from enmasse.testing.ports import MemoryConsumerPort
from tests.support.chance import seeds
from tests.unit.messaging.session_scene import Scene
from tests.unit.messaging.test_messaging_shares import KINDS, Known

SEEDS = seeds(20)
STEPS = 150
NAMES = ("hall", "hall/a", "hall/b", "hall/a/x", "hall/c", "hall/c/y")
GRANTS = ("#", "hall/#", "hall/a/#", "hall/b", "+/c", "hall/+", "hall/c/#", "hall")
OUTCOMES = (ACCEPTED, ACCEPTED, RELEASED, Modified(delivery_failed=True), Modified(undeliverable_here=True))


class Reader(MemoryConsumerPort):
    """A receiver that is sent what its grants cover, or fails."""

    def __init__(self, user: str, grants: Known) -> None:
        super().__init__()
        self.user = user
        self.grants = grants

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        name = Sections(payload).message_annotations.get(TOPIC_NAME, "hall")
        assert self.grants.may_receive(name), f"{name} is not for one who may have {self.grants.patterns}"
        super().send(delivery, payload, settled, message_format)


class Story:
    """A topic, a subscription of one kind, and readers that come and go; anna made it, and bert may manage it."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.kind = self.chance.choice(list(KINDS))
        self.scene = Scene({"hall": "topic"}, options={"hall": {"max_attempts": self.chance.choice([0, 3])}})
        self.known = Known("#")
        self.readers: list[Reader] = []
        self._take_up()

    def _take_up(self) -> None:
        self.scene.space.grants = lambda _owner, user: self.known if user == "anna" else None
        self.scene.space.review_grants()

    @property
    def topic(self) -> Topic:
        found = self.scene.space.find("hall")
        assert isinstance(found, Topic)
        return found

    def some_grants(self, least: int = 1) -> Known:
        return Known(*self.chance.sample(GRANTS, self.chance.randint(least, 3)))

    def attach(self, user: str, grants: Known) -> None:
        source = grants.granted("hall/#")
        if isinstance(source, Cut) and not source.patterns:
            return
        reader = Reader(user, grants)
        options = AttachOptions(
            source=source,
            container="office",
            name="r",
            owner=user,
            user=user,
            presettle=self.chance.random() < 0.3,
            **KINDS[self.kind],
        )
        if user == "anna":
            self.known = grants
        reader.sink = self.topic.attach_consumer(reader, options)
        self.readers = [one for one in (*self.readers, reader) if not one.is_detached]

    def regrant(self, reader: Reader, grants: Known) -> None:
        source = grants.granted("hall/#")
        if isinstance(source, Cut) and not source.patterns:
            return
        reader.grants = grants
        if reader.user == "anna":
            self.known = grants
        reader.sink.recut(source)

    def send(self) -> None:
        chance = self.chance
        name = chance.choice(NAMES)
        sender = self.scene.harness.sender(self.topic, name)
        self.scene.harness.turn()
        payload = encode_message(
            b"x",
            header=Header(durable=chance.random() < 0.6, priority=chance.choice([4, 4, 2, 8])),
            properties=Properties(group_id=chance.choice("gh")) if chance.random() < 0.2 else None,
        )
        if sender.credit > 0:
            sender.send(payload, settled=chance.random() < 0.5)
        if chance.random() < 0.5:
            self.scene.harness.commit()
        sender.leave()

    def step(self) -> None:
        chance, readers = self.chance, self.readers
        reader = chance.choice(readers) if readers else None
        match chance.choice(("come", "go", "grant", "grant", "away", *["send"] * 5, *["credit"] * 3, *["settle"] * 3,
                             "commit", "restart" if chance.random() < 0.2 else "turn")):  # fmt: skip
            case "come" if len(readers) < 4:
                self.attach(chance.choice(["anna", "anna", "bert"]), self.some_grants())
            case "go" if reader is not None:
                reader.leave()
                readers.remove(reader)
            case "grant" if reader is not None:
                self.regrant(reader, self.some_grants())
            case "away" if not any(one.user == "anna" for one in readers):
                self.known = self.some_grants(0)
                self.scene.space.review_grants("anna")
            case "send":
                self.send()
            case "credit" if reader is not None:
                reader.grant(chance.randint(0, 5))
            case "settle" if reader is not None and reader.unsettled:
                reader.settle(chance.choice(OUTCOMES))
            case "restart" if "durable" in self.kind:
                self.scene.harness.commit()
                self.readers = []
                self.scene = self.scene.restart()
                self._take_up()
            case "commit":
                self.scene.harness.commit()
            case _:
                self.scene.harness.turn()
        assert self.scene.harness.faults == []

    def end(self) -> None:
        """Let everybody have everything, and then go."""
        if not self.readers and "durable" in self.kind:
            self.attach("anna", Known("#"))
        for reader in self.readers:
            self.regrant(reader, Known("#"))
        for _ in range(10):
            for reader in self.readers:
                reader.grant(1_000)
            self.scene.harness.commit()
            for reader in self.readers:
                reader.accept(len(reader.unsettled))
            self.scene.harness.advance(1)
        for subscription in self.topic.subscriptions:
            order = subscription.order
            waiting = [] if order is None else subscription.in_memory()
            refused = [
                one for one in waiting if order and all(order.is_excluded(one, end) for end in subscription.consumers)
            ]
            assert subscription.depth == len(refused)
            assert (subscription.bytes_stored > 0) == bool(refused)
        for reader in self.readers:
            reader.is_detached = True
            reader.sink.on_detached(closed=True)
        self.scene.harness.commit()
        assert self.scene.harness.faults == []
        usage = self.scene.space.usage
        assert (usage.subscriptions, usage.subscription_bytes) == (0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_given_what_grants_do_not_cover_and_nothing_is_left_over(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.step()
    story.end()
