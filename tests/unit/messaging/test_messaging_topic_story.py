"""Random stories of a topic whose subscriptions share their messages on disk: each gets all of its own, once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from enmasse.message.outcomes import Modified
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.log.numbers import LOG_COUNTER
from enmasse.messaging.patterns import matches, parse
from enmasse.messaging.queues.subscription import Subscription
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.selectors.selector import SELECTOR_FILTER, Selector
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.model.kinds.address_settings import AddressSettings, Storage
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort
from tests.support.chance import seeds

SEEDS = seeds(20)
STEPS = 120
TARGETS = ("news", "news/sport", "news/sport/chess")


class Model:
    """One subscription, and what it must hold.

    Args:
        name: the subscription's.
        source: the name or pattern that it is subscribed to.
        selector: what it selects.
        container: who made it; declared as an address without.
        storage: what of it survives a restart.
    """

    def __init__(
        self, name: str, source: str, selector: str, container: str = "", storage: Storage = "message"
    ) -> None:
        self.name = name
        self.source = source
        self.text = selector
        self.selector = Selector(selector) if selector else None
        self.container = container
        self.storage = storage
        self.exists = not container
        self.held: dict[int, bytes] = {}
        self.port: MemoryConsumerPort | None = None
        self.seen = 0
        self.out: set[int] = set()
        self.attempts: dict[int, int] = {}

    def wants(self, target: str, payload: bytes) -> bool:
        pattern = parse(self.source) if self.container else parse("news/#")
        return self.exists and matches(pattern, target) and (self.selector is None or self.selector.matches(payload))


class Story:
    """A topic, its subscriptions and their receivers."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.harness = CoreHarness()
        self.window = self.random.choice((1_500, 4_000, 1 << 20))
        self.count = 0
        self.models = [
            Model("all", "news", ""),
            Model("kept", "news", "", storage="durable"),
            Model("lost", "news", "", storage="memory"),
            Model("one", "news/#", "", container="ann"),
            Model("two", "news/*", "n > 20 AND colour = 'red'", container="ann"),
        ]
        self.open()

    def open(self) -> None:
        core = self.harness.core
        core.window_bytes = self.window
        self.space = Space(core, "ns/shop", lambda: "id")
        self.topic = Topic(core, "news", 1_000)
        self.space.add(self.topic)
        for number, model in enumerate(self.models):
            if not model.container:
                options = AddressSettings(storage=model.storage)
                pattern = parse("news/#")
                made = Subscription(core, model.name, number + 1, topic="news", pattern=pattern, options=options)
                self.space.add(made)
        counter = self.harness.storage.get(Table.ENTITY, LOG_COUNTER)
        core.log_numbers.next = 2_000 if counter is None else int.from_bytes(counter, "big")
        self.topic.load()
        for address in self.space.addresses.values():
            if isinstance(address, Subscription):
                address.load()
        self.senders = {target: self.harness.sender(self.topic, target) for target in TARGETS}
        self.harness.commit()

    # What happens

    def send(self) -> None:
        for _ in range(self.random.choice((1, 4, 15))):
            number = self.count
            self.count += 1
            payload = encode_message(
                b"x" * self.random.choice((10, 200)),
                header=Header(durable=self.random.random() < 0.6),
                application_properties={"n": number, "colour": self.random.choice(("red", "blue"))},
            )
            target = self.random.choice(TARGETS)
            for model in self.models:
                if model.wants(target, payload):
                    model.held[number] = payload
            self.senders[target].send(payload)
        self.harness.turn()

    def attach(self) -> None:
        model = self.random.choice(self.models)
        if model.port is not None:
            return
        credit = self.random.choice((0, 3, 100))
        if model.container:
            model.port = self.harness.receiver(
                self.topic, credit, source=model.source, is_durable=True, container=model.container, name=model.name,
                expiry_policy="never", filters={SELECTOR_FILTER: model.text},
            )  # fmt: skip
            model.exists = True
        else:
            model.port = self.harness.receiver(self.space.find(model.name), credit)
        model.seen = 0
        self.harness.turn()

    def attached(self) -> Model | None:
        models = [model for model in self.models if model.port is not None]
        return self.random.choice(models) if models else None

    def grant(self) -> None:
        model = self.attached()
        if model is not None and model.port is not None:
            model.port.grant(self.random.choice((0, 5, 100)))
            self.harness.turn()

    def settle(self) -> None:
        model = self.attached()
        if model is None or model.port is None:
            return
        for _ in range(self.random.randrange(len(model.port.unsettled) + 1)):
            number = number_of(model.port.unsettled[0].payload)
            model.out.discard(number)
            if self.random.random() < 0.75:
                del model.held[number]
                model.port.accept()
            elif self.random.random() < 0.5:
                model.port.release()
            else:
                model.attempts[number] = model.attempts.get(number, 0) + 1
                model.port.settle(Modified(delivery_failed=True))
        self.harness.turn()

    def leave(self) -> None:
        model = self.attached()
        if model is not None and model.port is not None:
            for number in model.out:
                model.attempts[number] = model.attempts.get(number, 0) + 1
            model.out = set()
            port, model.port = model.port, None
            if model.container and self.random.random() < 0.3:
                port.is_detached = True
                port.sink.on_detached(closed=True)
                model.exists = False
                model.held = {}
                model.attempts = {}
            else:
                port.leave()
            self.harness.turn()

    def commit(self) -> None:
        self.harness.commit()

    def wait(self) -> None:
        self.harness.commit()
        self.harness.advance(10)
        self.harness.commit()

    def restart(self) -> None:
        if self.random.random() < 0.5:
            return
        self.harness.commit()
        self.look()
        clock = self.harness.clock.now
        self.harness = self.harness.restarted()
        self.harness.clock.advance(clock)
        for model in self.models:
            model.port = None
            for number in model.out:
                model.attempts[number] = model.attempts.get(number, 0) + 1
            model.out = set()
            for number, payload in list(model.held.items()):
                if model.storage == "memory" or (model.storage == "message" and not Sections(payload).header.durable):
                    del model.held[number]
        self.open()

    # What must be so

    def look(self) -> None:
        assert self.harness.faults == []
        for model in self.models:
            if model.port is None:
                continue
            for arrival in model.port.arrivals[model.seen :]:
                number = number_of(arrival.payload)
                assert number in model.held, f"{number} is not for {model.name}, or comes again"
                assert number not in model.out, f"{number} comes twice at once to {model.name}"
                assert Sections(arrival.payload).header.delivery_count == model.attempts.get(number, 0)
                model.out.add(number)
            model.seen = len(model.port.arrivals)

    def finish(self) -> None:
        self.wait()
        self.look()
        for model in self.models:
            if model.port is not None:
                for number in model.out:
                    del model.held[number]
                model.port.accept(len(model.port.unsettled))
                model.port.leave()
                model.port = None
        self.wait()
        for model in self.models:
            if not model.exists:
                continue
            address = self.topic if model.container else self.space.find(model.name)
            port = self.harness.receiver(
                address, 10_000, source=model.source if model.container else model.name,
                is_durable=bool(model.container), container=model.container, name=model.name, expiry_policy="never",
                filters={SELECTOR_FILTER: model.text},
            )  # fmt: skip
            self.wait()
            assert sorted(number_of(payload) for payload in port.payloads) == sorted(model.held), model.name
            port.accept(len(port.unsettled))
        self.wait()
        assert self.harness.faults == []
        for subscription in self.topic.subscriptions:
            assert (subscription.depth, subscription.bytes_stored) == (0, 0), subscription.name


def number_of(payload: bytes) -> int:
    number: int = Sections(payload).application_properties["n"]
    return number


@pytest.mark.chance
@pytest.mark.parametrize("seed", SEEDS)
def test_every_subscription_gets_all_of_its_own_and_nothing_twice(seed: int) -> None:
    story = Story(seed)
    happenings: list[Any] = [
        story.send, story.send, story.attach, story.attach, story.grant, story.grant, story.settle, story.settle,
        story.leave, story.commit, story.wait, story.restart,
    ]  # fmt: skip
    for _ in range(STEPS):
        story.random.choice(happenings)()
        story.look()
    story.finish()
