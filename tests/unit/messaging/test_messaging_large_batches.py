"""Batches for more subscriptions than one turn bears: one batch all the same, cut and reported in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, encode_message
from enmasse.messaging import chores, core
from enmasse.messaging.log import shared_log
from enmasse.messaging.queues.log_share import LogShare
from enmasse.messaging.sessions.wills import GRACE_S, RETRY_S, WillMessage
from enmasse.messaging.storage import Table
from enmasse.messaging.transaction import COPY_BYTES, MESSAGE_OVERHEAD_BYTES, OutcomeLog
from enmasse.testing.ports import CoreHarness
from tests.unit.messaging.session_scene import Scene as SessionScene
from tests.unit.messaging.session_scene import message
from tests.unit.messaging.test_messaging_transaction import begin

MANY = 40

A_TURN = 12
"""Subscriptions that one turn bears here."""


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns that bear little."""
    for name, value in (("BATCH_UNITS", 100), ("PART_UNITS", 20)):
        monkeypatch.setattr(shared_log, name, value)
    monkeypatch.setattr(chores, "MAX_UNITS", 60)
    monkeypatch.setattr(core, "MAX_UNITS", 200)


class Scene(SessionScene):
    """A topic with many durable subscriptions, and a message that all of them have or none.

    Args:
        harness: what an earlier node left; a new one without.
    """

    messages = 1

    def __init__(self, harness: CoreHarness | None = None) -> None:
        super().__init__({"news": "topic"}, harness)
        self.topic: Any = self.space.find("news")
        self.told: list[Any] = []
        """The outcomes that the sender was told."""

    def subscribe(self, container: str) -> None:
        options: dict[str, Any] = {"is_durable": True, "container": container, "name": "s", "expiry_policy": "never"}
        self.harness.receiver(self.topic, source="news", **options).leave()

    def prepare(self) -> None:
        """Make what is there before the message is sent."""
        for number in range(MANY):
            self.subscribe(f"client-{number}")
        self.harness.commit()

    @property
    def depths(self) -> list[int]:
        return [subscription.depth for subscription in self.topic.subscriptions]

    def steps(self) -> Iterator[None]:
        """One turn at a time; what is to be written is, in between."""
        while True:
            is_over = not self.harness.step()
            yield
            if is_over:
                if not self.harness.storage.pending:
                    return
                self.harness.storage.commit()

    def begin(self) -> None:
        """Have the message sent."""
        raise NotImplementedError

    def begin_again(self) -> None:
        """Do what the sender does after a crash."""
        self.begin()


class Transaction(Scene):
    """Two messages of a transaction, which nobody sends again."""

    messages = 2

    def begin(self) -> None:
        logs = [self.topic.enlist_message(message(body), "news", lambda _reason: None) for body in "xy"]
        self.harness.core.write_together([*logs, OutcomeLog("a transaction", self.told.append)])

    def begin_again(self) -> None:
        pass


class Numbered(Scene):
    """A numbered message."""

    def begin(self) -> None:
        port = self.harness.sender(self.topic, properties={"enmasse:producer": "p"})
        while self.harness.step():
            pass
        payload = encode_message(b"x", header=Header(durable=True), message_annotations={"x-opt-sequence": 1})
        port.send(payload)
        self.port = port

    @property
    def told(self) -> list[Any]:
        return list(self.port.states.values()) if hasattr(self, "port") else []

    @told.setter
    def told(self, _told: list[Any]) -> None:
        pass


class Will(Scene):
    """A will, which a node sends again by itself."""

    def prepare(self) -> None:
        super().prepare()
        wills = self.space.sessions.wills
        will = wills.make("o", "u", WillMessage("news", message("x")), client="c")
        self.harness.core.store([self.harness.core.log_counter(), will.operation()], lambda _reason: None)
        self.harness.commit()

    def begin(self) -> None:
        (will,) = self.space.sessions.wills.all
        will.lost(0.0)

    @property
    def told(self) -> list[Any]:
        return [None] * self.space.sessions.wills.sent

    @told.setter
    def told(self, _told: list[Any]) -> None:
        pass

    def begin_again(self) -> None:
        self.harness.advance(GRACE_S + 1)


@pytest.fixture(params=[Transaction, Numbered, Will], ids=lambda kind: kind.__name__)
def kind(request: pytest.FixtureRequest) -> type[Scene]:
    found: type[Scene] = request.param
    return found


def test_a_turn_cuts_and_reports_for_no_more_subscriptions_than_it_bears(
    kind: type[Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = kind()
    scene.prepare()
    done = dict.fromkeys(("placed_rows", "written"), 0)

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(LogShare, name)

        def call(*args: Any, **options: Any) -> Any:
            done[name] += 1
            return original(*args, **options)

        return call

    for name in done:
        monkeypatch.setattr(LogShare, name, counted(name))
    committed = scene.harness.core.batches_committed
    scene.begin()
    before = dict(done)
    for _ in scene.steps():
        for name, count in done.items():
            assert count - before[name] <= A_TURN
        before = dict(done)
        if scene.told:
            assert all(depth == scene.messages for depth in scene.depths)
    assert done == dict.fromkeys(done, MANY)
    assert scene.harness.core.batches_committed == committed + 1
    assert len(scene.told) == 1
    assert scene.harness.core.is_idle
    assert not scene.harness.faults


@pytest.mark.parametrize("is_lucky", [False, True], ids=["", "lucky"])
def test_wherever_the_node_dies_each_has_it_once_or_nobody_has(kind: type[Scene], *, is_lucky: bool) -> None:
    seen, is_over, at = set(), False, 0
    while not is_over:
        scene = kind()
        scene.prepare()
        scene.begin()
        steps = scene.steps()
        for _ in range(at):
            is_over = is_over or next(steps, True) is True
        at += 1
        pending = scene.harness.storage.pending
        again = kind(scene.harness.restarted(pending[-1] if is_lucky and pending else 0))
        depths = again.depths
        assert depths in ([0] * MANY, [scene.messages] * MANY)
        assert scene.told in ([], [None]) or scene.told == [ACCEPTED]
        if scene.told:
            assert depths == [scene.messages] * MANY
        seen.add(depths[0])
        again.begin_again()
        again.harness.commit()
        assert again.depths == (depths if kind is Transaction else [1] * MANY)
        assert not again.harness.faults
    assert seen == {0, kind.messages}


@pytest.mark.parametrize("is_deleted", [False, True], ids=["", "deleted"])
def test_subscriptions_and_topics_that_go_meanwhile_leave_nothing(kind: type[Scene], *, is_deleted: bool) -> None:
    is_over, at = False, 0
    while not is_over:
        scene = kind()
        scene.prepare()
        scene.begin()
        steps = scene.steps()
        for _ in range(at):
            is_over = is_over or next(steps, True) is True
        at += 1
        if is_deleted:
            scene.space.remove(scene.topic)
            scene.topic.close("amqp:resource-deleted", "it is deleted")
        else:
            scene.subscribe("later")
            for lasting in [*scene.topic.subscribing][::2]:
                lasting.end()
        scene.harness.commit()
        scene.harness.advance(RETRY_S + 1)
        scene.harness.commit()
        assert not scene.harness.faults
        assert scene.harness.core.is_idle
        assert len(scene.told) == 1 or is_deleted
        if not is_deleted:
            again = kind(scene.harness.restarted())
            assert again.depths == scene.depths
            assert set(scene.depths) <= {0, kind.messages}
            for lasting in [*again.topic.subscribing]:
                lasting.end()
            again.harness.commit()
            left = [again.harness.storage.scan_all(table) for table in (Table.FRAME, Table.HOLDER, Table.MARK)]
            assert [[*found] for found in left] == [[], [], []]


def test_a_batch_that_fails_is_told_and_leaves_nothing(kind: type[Scene]) -> None:
    scene = kind()
    scene.prepare()
    scene.begin()
    while not scene.harness.storage.pending:
        assert scene.harness.step()
    scene.harness.storage.fail()
    scene.harness.step()
    assert scene.depths == [0] * MANY
    assert None not in scene.told
    assert ACCEPTED not in scene.told
    scene.harness.advance(RETRY_S + 1)
    scene.harness.commit()
    assert not scene.harness.faults
    assert scene.harness.core.is_idle
    assert scene.depths == [1 if kind is Will else 0] * MANY


def test_what_a_transaction_has_for_subscriptions_counts_for_each_of_them() -> None:
    scene = Transaction()
    scene.prepare()
    size = len(message("x")) + MESSAGE_OVERHEAD_BYTES + (MANY - 1) * COPY_BYTES
    transaction = begin(scene.harness, 2 * size)
    for _ in range(2):
        assert transaction.post(scene.topic, "news", message("x")) is None
    assert transaction.held_bytes == 2 * size
    problem = transaction.post(scene.topic, "news", message("x"))
    assert problem is not None
    assert f"with {COPY_BYTES} for each subscription" in (problem.description or "")
