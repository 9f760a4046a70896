"""What goes first, and to whom, where more than the order of arrival counts."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import RELEASED, Modified
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import ULong
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort

UNDELIVERABLE = Modified(undeliverable_here=True)


class Scene:
    """A queue, and one sender."""

    def __init__(self, **options: Any) -> None:
        self.harness = CoreHarness()
        self.queue = Queue(self.harness.core, "orders", 7, options=AddressSettings(**options))
        self.queue.load()
        self.sender = self.harness.sender(self.queue)
        self.harness.turn()

    def send(
        self, body: str, *, priority: int = 4, group: str | None = None, delay_ms: int = 0, **properties: Any
    ) -> None:
        self.sender.send(
            encode_message(
                body,
                header=Header(priority=priority),
                message_annotations={"x-opt-delivery-delay": ULong(delay_ms)} if delay_ms else None,
                properties=Properties(group_id=group),
                application_properties=properties,
            )
        )
        self.harness.turn()

    def receiver(self, credit: int = 0, selector: str | None = None) -> MemoryConsumerPort:
        filters = {} if selector is None else {SELECTOR_FILTER: selector}
        port = self.harness.receiver(self.queue, credit, filters=filters)
        self.harness.turn()
        return port

    def turn(self) -> None:
        self.harness.turn()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def bodies(port: MemoryConsumerPort) -> list[Any]:
    return [Sections(payload).body for payload in port.payloads]


def test_the_highest_priority_goes_first_and_then_the_oldest(scene: Scene) -> None:
    for body, priority in (("a", 4), ("b", 9), ("c", 0), ("d", 9), ("e", 4)):
        scene.send(body, priority=priority)
    assert bodies(scene.receiver(10)) == ["b", "d", "a", "e", "c"]


def test_what_comes_back_takes_its_old_place_within_its_priority(scene: Scene) -> None:
    for body, priority in (("a", 5), ("b", 5), ("c", 6)):
        scene.send(body, priority=priority)
    receiver = scene.receiver(2)
    assert bodies(receiver) == ["c", "a"]
    receiver.settle(RELEASED, 2)
    receiver.grant(3)
    scene.turn()
    assert bodies(receiver)[2:] == ["c", "a", "b"]


def test_a_group_stays_with_the_receiver_that_has_it(scene: Scene) -> None:
    first, second = scene.receiver(1), scene.receiver(1)
    scene.send("a1", group="a")
    scene.send("b1", group="b")
    holder, other = (first, second) if bodies(first) == ["a1"] else (second, first)
    scene.send("a2", group="a")
    other.grant(5)
    scene.turn()
    assert bodies(other) == ["b1"]
    holder.grant(1)
    scene.turn()
    assert bodies(holder) == ["a1", "a2"]


def test_what_was_held_back_first_of_all_has_its_priority_and_its_group(scene: Scene) -> None:
    scene.send("plain", delay_ms=500)
    scene.send("a1", group="a", delay_ms=1_000)
    scene.send("urgent", priority=9, delay_ms=1_000)
    scene.harness.advance(2)
    first = scene.receiver(2)
    assert bodies(first) == ["urgent", "plain"]
    first.grant(1)
    scene.turn()
    second = scene.receiver(5)
    scene.send("a2", group="a")
    assert (bodies(first), bodies(second)) == (["urgent", "plain", "a1"], [])


def test_a_group_is_free_when_its_receiver_goes(scene: Scene) -> None:
    first = scene.receiver(1)
    scene.send("a1", group="a")
    scene.send("a2", group="a")
    second = scene.receiver(5)
    assert bodies(second) == []
    first.leave()
    scene.turn()
    assert bodies(second) == ["a1", "a2"]


def test_a_message_that_its_groups_receiver_will_not_have_goes_to_another(scene: Scene) -> None:
    first = scene.receiver(1)
    scene.send("a1", group="a")
    first.settle(UNDELIVERABLE)
    first.grant(5)
    scene.send("a2", group="a")
    assert bodies(first) == ["a1", "a2"]
    second = scene.receiver(5)
    assert bodies(second) == ["a1"]


def test_a_group_passes_a_receiver_whose_selector_leaves_out_a_message(scene: Scene) -> None:
    picky = scene.receiver(5, "colour = 'red'")
    scene.send("a1", group="a", colour="red")
    other = scene.receiver(5)
    scene.send("a2", group="a", colour="blue")
    scene.send("a3", group="a", colour="red")
    assert bodies(picky) == ["a1", "a3"]
    assert bodies(other) == ["a2"]


def test_what_suits_nobody_holds_up_nothing(scene: Scene) -> None:
    red = scene.receiver(5, "colour = 'red'")
    scene.send("blue", colour="blue")
    scene.send("red", colour="red")
    assert bodies(red) == ["red"]
    assert scene.queue.depth == 2
    assert bodies(scene.receiver(5)) == ["blue"]


@pytest.mark.parametrize("is_gone", [False, True])
@pytest.mark.parametrize("outcome", [RELEASED, Modified(delivery_failed=True)])
def test_what_comes_back_after_a_newer_value_is_out_of_date(outcome: Any, is_gone: bool) -> None:
    scene = Scene(last_value_key="device", redelivery_delay=1_000)
    holder, other = scene.receiver(1), scene.receiver()
    scene.send("old", device="d")
    assert bodies(holder) == ["old"]
    if outcome is not RELEASED:
        # It waits for its next attempt while the newer one comes.
        holder.settle(outcome)
    scene.send("new", device="d")
    scene.send("another", device="e")
    if is_gone:
        other.grant(2)
        scene.turn()
        other.accept(2)
    if outcome is RELEASED:
        holder.settle(outcome)
    scene.harness.advance(5)
    other.grant(5)
    scene.turn()
    assert bodies(other) == ["new", "another"]
    assert scene.queue.depth == (0 if is_gone else 2)


def test_an_exclusive_queue_has_one_receiver_after_the_other() -> None:
    scene = Scene(exclusive=True)
    first, second = scene.receiver(2), scene.receiver(5)
    for body in "abc":
        scene.send(body)
    assert (bodies(first), bodies(second)) == (["a", "b"], [])
    first.accept(2)
    first.leave()
    scene.turn()
    assert bodies(second) == ["c"]
