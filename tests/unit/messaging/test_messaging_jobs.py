"""Work that goes through a whole queue is cut into turns: what a turn does is counted in messages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.text_search import TextSearch
from enmasse.messaging.core import WINDOW_BYTES
from enmasse.messaging.queues import browse
from enmasse.messaging.queues.operations import ALL, Choice, count, everything, move, purge
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.selectors.selector import SELECTOR_FILTER, Selector
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort
from tests.support.chance import SEED

MANY = 3_000
MOST = 2_100
"""Messages that one turn may deal with: as many as it may hand out, and what a piece is more."""

DEAR = " OR ".join(["x LIKE '%a_b%'"] * 8 + ["x = 'b'"])
"""A selector that takes all but its whole budget for each of these messages."""

FEW_DEAR = 40
MAX_DEAR = 5


class Scene:
    """A queue with many messages, the last of them blue.

    Args:
        kind: where they are: in memory, there in an order of their own, or on disk.
        is_dear: whether to have few messages, which a selector takes long for.
    """

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch, *, is_dear: bool = False) -> None:
        self.harness = CoreHarness()
        self.harness.core.window_bytes = 16_000
        where: dict[str, Any] = {} if kind == "disk" else {"storage": "memory"}
        options = AddressSettings(max_bytes=1 << 30, **where)
        self.queue = Queue(self.harness.core, "orders", 1, options=options)
        self.target = Queue(self.harness.core, "target", 2, options=options)
        for queue in (self.queue, self.target):
            queue.load()
        self.count = FEW_DEAR if is_dear else MANY
        self.looks = 0
        """Messages that were looked at."""
        self.most = 0
        """The most messages that one turn dealt with."""
        self.most_looks = 0
        """The most of them that one turn looked at."""
        for looker in (Selector, TextSearch):
            monkeypatch.setattr(looker, "matches", self._counting(looker.matches))
        sender = self.harness.sender(self.queue)
        for number in range(self.count):
            if not sender.credit:
                self.harness.commit()
            priority = 5 if kind == "order" and number == self.count - 1 else 4
            header = Header(durable=True, priority=priority)
            named = Properties(subject="blue" if number == self.count - 1 else "red")
            text = {"x": ("b" if number == self.count - 1 else "a") * (1_000 if is_dear else 1)}
            sender.send(encode_message(b"%d" % number, header=header, properties=named, application_properties=text))
        self.play()
        self.most = 0
        # A page is of a mebibyte, as in a node.
        self.queue.window = WINDOW_BYTES

    def _counting(self, matches: Callable[..., bool]) -> Callable[..., bool]:
        def counting(looker: Any, *message: Any) -> bool:
            self.looks += 1
            return matches(looker, *message)

        return counting

    def _work(self) -> tuple[int, ...]:
        """What was looked at, brought into memory, deleted or moved, and handed out by now."""
        receivers = self.queue.receivers()
        return self.looks, self.queue.seq, -self.queue.depth, sum(receiver.deliveries for receiver in receivers)

    def play(self, act: Callable[[], Any] = lambda: None) -> Any:
        """Act, then go on until nothing is left to do, and note how much each turn does."""
        before = self._work()
        made = act()
        storage = self.harness.storage
        while True:
            after = self._work()
            done = [now - then for now, then in zip(after, before, strict=True)]
            self.most, self.most_looks = max(self.most, *done), max(self.most_looks, done[0])
            before = after
            if storage.waiting_reads:
                storage.answer_reads(1)
            elif storage.pending:
                storage.commit()
            elif not self.harness.step():
                break
        assert not self.harness.faults
        return made

    def receiver(self, credit: int, selector: str = "", **options: Any) -> MemoryConsumerPort:
        filters = {SELECTOR_FILTER: selector} if selector else {}
        return self.harness.receiver(self.queue, credit, presettle=True, filters=filters, **options)


def numbers(port: MemoryConsumerPort) -> list[int]:
    return [int(Sections(payload).body) for payload in port.payloads]


Told = list[tuple[int, str | None]]


def tell(told: Told) -> Callable[[int, str | None], None]:
    return lambda found, problem: told.append((found, problem))


def attached(scene: Scene, selector: str) -> list[int]:
    return numbers(scene.play(lambda: scene.receiver(10, selector)))


def browsed(scene: Scene, selector: str) -> list[int]:
    return numbers(scene.play(lambda: scene.receiver(10, selector, browse=True)))


def counted(scene: Scene, selector: str) -> int:
    told: Told = []
    scene.play(lambda: count(scene.queue, Choice(Selector(selector)), everything, tell(told)))
    return told[0][0]


def searched(scene: Scene, _selector: str) -> int:
    told: Told = []
    scene.play(lambda: count(scene.queue, Choice(search=TextSearch("blue")), everything, tell(told)))
    return told[0][0]


def purged(scene: Scene, selector: str) -> int:
    told: Told = []
    scene.play(lambda: purge(scene.queue, Choice(Selector(selector)), tell(told)))
    return told[0][0] if scene.queue.depth == scene.count - 1 else -1


def moved(scene: Scene, selector: str) -> int:
    told: Told = []
    scene.play(lambda: move(scene.queue, scene.target, Choice(Selector(selector)), tell(told)))
    return told[0][0] if scene.target.depth == 1 else -1


KINDS = ("memory", "order", "disk")
FINDING = {
    "attach": attached,
    "browse": browsed,
    "count": counted,
    "search": searched,
    "purge": purged,
    "move": moved,
}


@pytest.mark.parametrize("what", FINDING)
@pytest.mark.parametrize("kind", KINDS)
def test_the_one_message_that_is_sought_among_many_is_found_in_turns(
    kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(kind, monkeypatch)
    assert FINDING[what](scene, "JMSType = 'blue'") in (1, [MANY - 1])
    assert scene.looks >= MANY
    assert scene.most <= MOST


@pytest.mark.parametrize("what", [what for what in FINDING if what != "search"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_looks_at_few_messages_if_these_are_much_work(
    kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(kind, monkeypatch, is_dear=True)
    assert FINDING[what](scene, DEAR.replace("'b'", f"'{'b' * 1_000}'")) in (1, [FEW_DEAR - 1])
    assert scene.queue.selectors_exceeded == 0
    assert scene.most_looks <= MAX_DEAR


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["count", "purge"])
def test_what_nobody_waits_for_any_more_ends(kind: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(kind, monkeypatch)
    asked, told = [True] * 3, list[tuple[int, str | None]]()
    act = purge if what == "purge" else partial(count, is_meant=everything)
    scene.play(lambda: act(scene.queue, ALL, done=tell(told), is_wanted=lambda: bool(asked and asked.pop())))
    assert len(told) == 1
    assert 0 < told[0][0] < MANY
    assert scene.queue.depth == MANY - (told[0][0] if what == "purge" else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_all_is_moved_handed_out_and_deleted_in_order_and_in_turns(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(kind, monkeypatch)
    told: Told = []
    scene.play(lambda: move(scene.queue, scene.target, ALL, tell(told)))
    scene.play(lambda: move(scene.target, scene.queue, ALL, tell(told)))
    assert told == [(MANY, None), (MANY, None)]
    reader = scene.play(lambda: scene.receiver(MANY - 500))
    expected = list(range(MANY)) if kind != "order" else [MANY - 1, *range(MANY - 1)]
    assert numbers(reader) == expected[: MANY - 500]
    scene.play(reader.leave)
    scene.play(lambda: purge(scene.queue, ALL, tell(told)))
    assert told[2] == (500, None)
    assert (scene.queue.depth, scene.queue.resident_bytes, len(scene.queue.ready)) == (0, 0, 0)
    assert scene.most <= MOST


def grouped(number: int) -> bytes:
    header, properties = Header(durable=True), Properties(group_id="g")
    return encode_message(b"%d" % number, header=header, properties=properties)


def test_what_waited_for_the_receiver_of_its_group_goes_to_the_next_one_in_order_and_in_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene("memory", monkeypatch, is_dear=True)
    scene.play(lambda: purge(scene.queue, ALL, tell([])))
    first = scene.play(lambda: scene.receiver(1))
    sender = scene.harness.sender(scene.queue)
    for number in range(MANY):
        if not sender.credit:
            scene.play()
        sender.send(grouped(number))
    second = scene.play(lambda: scene.receiver(MANY))
    assert (numbers(first), numbers(second)) == ([0], [])
    scene.play(first.leave)
    assert numbers(second) == list(range(1, MANY))
    assert scene.most <= MOST


def test_each_of_many_receivers_with_selectors_has_its_messages_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("memory", monkeypatch, is_dear=True)
    ports = [scene.receiver(10, f"JMSType = 'colour-{number}'") for number in range(300)]
    scene.play()
    sender = scene.harness.sender(scene.queue)
    scene.play()
    for number in range(20):
        header, properties = Header(durable=True), Properties(subject=f"colour-{number // 2}")
        sender.send(encode_message(b"%d" % number, header=header, properties=properties))
    scene.play()
    assert [numbers(port) for port in ports[:10]] == [[2 * number, 2 * number + 1] for number in range(10)]
    assert scene.most_looks <= MOST


def test_what_cannot_be_moved_from_the_disk_is_handed_out_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("disk", monkeypatch)
    scene.play(lambda: scene.receiver(0, "JMSType = 'blue'"))
    scene.target.close("amqp:resource-deleted", "it is gone")
    told: Told = []
    scene.play(lambda: move(scene.queue, scene.target, ALL, tell(told)))
    assert told == [(0, "'target' was deleted")]
    assert sorted(numbers(scene.play(lambda: scene.receiver(MANY)))) == list(range(MANY))


def test_a_browser_that_goes_on_within_a_frame_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("disk", monkeypatch)
    ids = ["enmasse:ids"]
    first = scene.play(lambda: scene.receiver(MANY // 2, browse=True, capabilities=ids))
    last = str(Sections(first.payloads[-1]).message_annotations["x-opt-id"])
    filters = {"enmasse:start": last}
    rest = scene.play(lambda: scene.harness.receiver(scene.queue, MANY, browse=True, filters=filters))
    assert numbers(first) + numbers(rest) == list(range(MANY))
    only = scene.play(lambda: scene.harness.receiver(scene.queue, 5, browse=True, filters={"enmasse:id": last}))
    assert numbers(only) == [MANY // 2 - 1]


@pytest.mark.parametrize("kind", ["memory", "order", "disk"])
def test_a_browser_without_room_is_shown_everything_by_and_by(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused now and then, and drops what it has read whenever another is served."""
    scene = Scene(kind, monkeypatch)
    monkeypatch.setattr(browse, "SMALL_BYTES", 1)
    other = scene.play(lambda: scene.receiver(MANY, browse=True))
    whole = numbers(other)
    other.leave()
    chance = Random(SEED)
    port: Any = scene.play(lambda: scene.receiver(0, browse=True))
    browser: Any = port.sink

    def admits(_size: int) -> bool:
        browser.is_blocked = chance.random() < 0.02
        return not browser.is_blocked

    port.admits = admits
    scene.play(lambda: port.grant(MANY))
    refused = 0
    while browser.is_blocked:
        refused += 1
        assert scene.harness.core.read_ahead.held == 0
        browser.drop()
        scene.play(lambda: browser.on_blocked(False))
    assert refused > 10
    assert numbers(port) == whole
