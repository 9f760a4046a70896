"""Topics: who gets a copy, when the sender is answered, and what a slow subscriber costs."""

from __future__ import annotations

import pytest

from enmasse.message.outcomes import ACCEPTED, RELEASED, Modified
from enmasse.messaging.core import MAX_UNCONFIRMED_BYTES, PAUSE_S
from enmasse.messaging.errors import UNSUPPORTED_FORMAT, AttachError
from enmasse.messaging.patterns import Wild, parse
from enmasse.messaging.queues import subscription as subscription_module
from enmasse.messaging.queues.queue import MAX_CREDIT
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.storage import Operation, Table
from tests.unit.messaging.topic_scene import TOPIC_LOG, Scene, bodies, message


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Who gets a copy


@pytest.mark.parametrize("durable", [True, False])
def test_every_subscriber_gets_a_copy(scene: Scene, durable: bool) -> None:
    scene.subscription("audit"), scene.subscription("billing")
    receivers = [scene.receiver(name) for name in ("audit", "billing", "news", "news")]
    scene.sender().send(message(b"one", durable=durable))
    scene.harness.commit()
    assert [bodies(receiver) for receiver in receivers] == [[b"one"]] * 4


def test_names_below_a_topic_reach_those_whose_pattern_matches(scene: Scene) -> None:
    sources = ["news", "news/#", "news/*", "news/sport/#", "news/*/chess"]
    receivers = {source: scene.receiver(source) for source in sources}
    for target in ("news", "news/sport", "news/sport/chess", "news/arts/chess"):
        scene.sender(target).send(message(target.encode()))
    scene.harness.commit()
    assert {source: bodies(receiver) for source, receiver in receivers.items()} == {
        "news": [b"news"],
        "news/#": [b"news", b"news/sport", b"news/sport/chess", b"news/arts/chess"],
        "news/*": [b"news/sport"],
        "news/sport/#": [b"news/sport", b"news/sport/chess"],
        "news/*/chess": [b"news/sport/chess", b"news/arts/chess"],
    }


def test_a_durable_subscription_has_a_pattern_too(scene: Scene) -> None:
    sport, everything = scene.subscription("sport", "news/sport/#"), scene.subscription("all")
    scene.sender("news/arts").send(message(b"arts"))
    scene.sender("news/sport").send(message(b"sport"))
    scene.harness.commit()
    assert (sport.depth, everything.depth) == (1, 2)


def test_a_subscription_gets_what_comes_after_it(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(message(b"before"))
    late = scene.subscription("late")
    volatile = scene.receiver("news")
    sender.send(message(b"after"))
    scene.harness.commit()
    assert late.depth == 1
    assert bodies(volatile) == [b"after"]


def test_receivers_of_one_subscription_compete(scene: Scene) -> None:
    scene.subscription("audit")
    receivers = [scene.receiver("audit"), scene.receiver("news::audit")]
    sender = scene.sender()
    for _ in range(4):
        sender.send(message())
    scene.harness.turn()
    assert [len(receiver.arrivals) for receiver in receivers] == [2, 2]


def test_a_subscription_takes_as_many_receivers_as_it_may(scene: Scene) -> None:
    scene.subscription("audit", max_consumers=1)
    scene.receiver("audit")
    with pytest.raises(AttachError, match="subscription 'audit' has 1 receivers"):
        scene.receiver("audit")


def test_nobody_sends_into_a_subscription(scene: Scene) -> None:
    scene.subscription("audit")
    with pytest.raises(AttachError, match="send to topic 'news'") as refusal:
        scene.sender("audit")
    assert refusal.value.condition == "amqp:not-allowed"


def test_a_topic_takes_only_messages_of_format_0(scene: Scene) -> None:
    audit = scene.subscription("audit")
    sender = scene.sender()
    sender.send(b"frame", message_format=5)
    sender.send(b"frame", message_format=5, settled=True)
    assert sender.outcomes == [(0, UNSUPPORTED_FORMAT)]
    assert audit.depth == 0


# When the sender is answered


def test_without_subscribers_a_message_is_accepted_and_gone(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(message())
    assert sender.outcomes == [(0, ACCEPTED)]
    scene.harness.turn()
    assert scene.harness.storage.pending == []


def test_a_durable_message_is_accepted_once_every_durable_subscription_has_stored_it(scene: Scene) -> None:
    scene.subscription("audit"), scene.subscription("billing")
    sender = scene.sender()
    sender.send(message(b"one"))
    scene.harness.turn()
    assert sender.outcomes == []
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]
    assert scene.stored() == scene.stored() == [b"one"]


def test_a_copy_that_is_consumed_first_waits_for_the_others(scene: Scene) -> None:
    scene.subscription("audit"), scene.subscription("billing")
    receiver = scene.receiver("audit")
    sender = scene.sender()
    sender.send(message())
    scene.harness.turn()
    receiver.accept()
    assert sender.outcomes == []
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]


def test_a_message_that_is_not_durable_is_accepted_at_once_and_kept_in_memory(scene: Scene) -> None:
    audit = scene.subscription("audit")
    sender = scene.sender()
    sender.send(message(durable=False))
    assert sender.outcomes == [(0, ACCEPTED)]
    scene.harness.commit()
    assert scene.stored() == []
    assert audit.depth == 1


def test_volatile_subscribers_are_not_waited_for(scene: Scene) -> None:
    scene.receiver("news")
    sender = scene.sender()
    sender.send(message())
    assert sender.outcomes == [(0, ACCEPTED)]


def test_a_failed_commit_releases_the_message_for_all(scene: Scene) -> None:
    audit, billing = scene.subscription("audit"), scene.subscription("billing")
    sender = scene.sender()
    sender.send(message())
    scene.harness.fail()
    assert sender.outcomes == [(0, RELEASED)]
    assert (audit.depth, billing.depth) == (0, 0)


def test_if_one_subscription_could_not_store_it_the_sender_sends_again(scene: Scene) -> None:
    audit, billing = scene.subscription("audit"), scene.subscription("billing")
    receiver = scene.receiver("audit")
    sender = scene.sender()
    sender.send(message(b"one"))
    scene.harness.turn()
    receiver.accept()
    scene.harness.fail()
    assert sender.outcomes == [(0, RELEASED)]
    scene.harness.advance(PAUSE_S)
    sender.send(message(b"one"))
    scene.harness.commit()
    assert sender.states[1] is ACCEPTED
    assert (audit.depth, billing.depth) == (1, 1)
    assert bodies(receiver) == [b"one", b"one"]


def test_a_subscription_that_is_deleted_meanwhile_is_not_waited_for(scene: Scene) -> None:
    audit = scene.subscription("audit")
    scene.subscription("billing")
    sender = scene.sender()
    sender.send(message())
    scene.space.remove(audit)
    scene.harness.commit()
    assert sender.outcomes == [(0, ACCEPTED)]
    assert scene.stored() == [b"x"]


def test_a_settled_message_is_stored_and_answered_by_nobody(scene: Scene) -> None:
    scene.subscription("audit")
    sender = scene.sender()
    sender.send(message(), settled=True)
    scene.harness.commit()
    assert sender.outcomes == []
    assert scene.stored() == [b"x"]


# Volatile subscribers


def test_what_a_volatile_subscriber_does_not_take_in_time_is_dropped_oldest_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "VOLATILE_BYTES", 5_000)
    slow, quick = scene.receiver("news", 0), scene.receiver("news")
    sender = scene.sender()
    for number in range(20):
        sender.send(message(b"%02d" % number * 300))
        scene.harness.turn()
        quick.accept()
    assert len(quick.arrivals) == 20
    slow.grant(100)
    scene.harness.turn()
    kept = [body[:2] for body in bodies(slow)]
    assert kept == [b"%02d" % number for number in range(20 - len(kept), 20)]
    assert len(kept) == 5_000 // 1_014
    assert scene.topic.counts()["dropped"] == 20 - len(kept)
    assert [state for _, state in sender.outcomes] == [ACCEPTED] * 20


def test_what_a_volatile_subscriber_holds_unsettled_counts_as_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "VOLATILE_BYTES", 2_500)
    receiver = scene.receiver("news")
    sender = scene.sender()
    for number in range(5):
        sender.send(message(b"%d" % number * 600))
        scene.harness.turn()
    assert [body[:1] for body in bodies(receiver)] == [b"0", b"1"]
    assert scene.topic.counts()["dropped"] == 3
    receiver.accept(2)
    sender.send(message(b"5"))
    scene.harness.turn()
    assert bodies(receiver)[2:] == [b"5"]


def test_a_message_that_alone_is_too_large_for_a_volatile_subscriber_is_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_module, "VOLATILE_BYTES", 1_000)
    receiver = scene.receiver("news")
    scene.sender().send(message(b"x" * 2_000))
    scene.harness.turn()
    assert receiver.arrivals == []
    assert scene.topic.counts()["dropped"] == 1


def test_a_volatile_subscriber_may_give_messages_back_to_itself(scene: Scene) -> None:
    receiver = scene.receiver("news", 1)
    scene.sender().send(message(b"one"))
    scene.harness.turn()
    receiver.settle(Modified(delivery_failed=True))
    receiver.grant(1)
    scene.harness.turn()
    assert bodies(receiver) == [b"one", b"one"]


def test_a_volatile_subscription_ends_with_its_receiver_but_its_counts_stay(scene: Scene) -> None:
    receiver = scene.receiver("news", 2)
    sender = scene.sender()
    for _ in range(3):
        sender.send(message())
    scene.harness.turn()
    receiver.accept()
    before = scene.topic.counts()
    assert (before["receivers"], before["messagesStored"], before["messagesOut"]) == (1, 2, 2)
    receiver.leave()
    after = scene.topic.counts()
    assert not scene.topic.subscriptions
    assert (after["receivers"], after["messagesStored"], after["messagesOut"]) == (0, 0, 2)
    assert (after["accepted"], after["modified"], after["messagesIn"]) == (1, 1, 3)


# Credit


def test_senders_have_credit_though_nobody_subscribes(scene: Scene) -> None:
    sender = scene.sender()
    assert sender.credit == MAX_CREDIT
    while sender.credit:
        sender.send(message())
    scene.harness.turn()
    assert sender.credit == MAX_CREDIT


def test_senders_have_what_every_durable_subscription_has_room_for(scene: Scene) -> None:
    scene.subscription("roomy")
    small = scene.subscription("small", max_bytes=10_240)
    sender = scene.sender()
    assert sender.credit == 10
    for _ in range(12):
        if sender.credit:
            sender.send(message(bytes(1_000)))
            scene.harness.commit()
    assert small.free_bytes < 1_500
    assert sender.credit <= 1
    receiver = scene.receiver("small")
    receiver.accept(len(receiver.unsettled))
    scene.harness.commit()
    assert sender.credit > 4


@pytest.mark.parametrize("is_full", [False, True])
def test_a_message_that_crossed_a_call_in_needs_room_in_every_durable_subscription(
    scene: Scene, is_full: bool
) -> None:
    small = scene.subscription("small", max_bytes=3_000)
    sender = scene.sender()
    sender.send(message(bytes(3_000 if is_full else 10)))
    scene.harness.commit()
    sender.grant(0)
    sender.highest = sender.received + 2
    crossed = sender.send(message())
    sender.send(message(), settled=True)
    scene.harness.commit()
    assert sender.states[crossed] is (RELEASED if is_full else ACCEPTED)
    assert scene.topic.counts()["dropped"] == is_full
    assert small.depth == (1 if is_full else 3)


def test_while_the_journal_is_behind_senders_get_no_credit_and_then_they_do(scene: Scene) -> None:
    scene.subscription("audit")
    sender = scene.sender()
    scene.harness.core.store([Operation(Table.ENTITY, b"k", bytes(MAX_UNCONFIRMED_BYTES))], lambda _reason: None)
    scene.harness.turn()
    scene.topic.due()
    scene.harness.turn()
    assert sender.credit == 0
    scene.harness.commit()
    assert sender.credit == MAX_CREDIT


# Coming and going


def test_a_subscription_may_come_before_its_topic(scene: Scene) -> None:
    scene.space.remove(scene.topic)
    audit = scene.subscription("audit")
    scene.space.add(Topic(scene.harness.core, "news", TOPIC_LOG))
    scene.sender().send(message())
    assert audit.depth == 1


def test_deleting_a_topic_takes_its_messages_along_and_another_may_feed_its_subscriptions(scene: Scene) -> None:
    audit = scene.subscription("audit")
    volatile, durable = scene.receiver("news"), scene.receiver("audit", 0)
    sender = scene.sender()
    sender.send(message(b"one"))
    scene.harness.commit()
    scene.space.remove(scene.topic)
    conditions = {port.error.condition for port in (volatile, durable, sender)}
    assert conditions == {"amqp:resource-deleted"}
    assert (audit.topic, audit.depth, audit.counts()["bytesStored"]) == (None, 0, 0)
    again = Topic(scene.harness.core, "news", TOPIC_LOG + 1)
    scene.space.add(again)
    again.load()
    scene.sender().send(message(b"two"))
    scene.harness.commit()
    assert bodies(scene.receiver("audit")) == [b"two"]


def test_deleting_a_subscription_detaches_its_receivers_and_feeds_it_no_longer(scene: Scene) -> None:
    audit = scene.subscription("audit")
    receiver = scene.receiver("audit")
    sender = scene.sender()
    scene.space.remove(audit)
    assert receiver.error.condition == "amqp:resource-deleted"
    sender.send(message())
    assert sender.outcomes == [(0, ACCEPTED)]
    assert audit.depth == 0


def test_subscriptions_are_there_again_after_a_restart(scene: Scene) -> None:
    scene.subscription("audit")
    scene.sender().send(message(b"one"))
    scene.harness.commit()
    again = Scene(scene.harness.restarted(), is_fresh=False)
    again.subscription("audit")
    again.topic.load()
    assert bodies(again.receiver("audit")) == [b"one"]


def test_a_pattern_is_everything_below_the_topic_including_itself() -> None:
    assert (*parse("news"), Wild.REST) == parse("news/#")
