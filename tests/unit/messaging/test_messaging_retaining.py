"""Messages that are retained, and receivers that are given what was: topics, multicast, transactions, restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from enmasse.message.codec import encode
from enmasse.message.outcomes import ACCEPTED, RELEASED, Rejected
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.message.types import Described, Timestamp, ULong
from enmasse.messaging.budget import Budget
from enmasse.messaging.core import PAUSE_S
from enmasse.messaging.delivery import SMALL_BYTES
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import EXCEEDED, SpaceLimits
from enmasse.messaging.patterns import parse
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.retaining import (
    FED_AT_ONCE,
    FED_BYTES,
    RETAINED_FILTER,
    copy_of,
    is_clearing,
    plain_start,
)
from enmasse.messaging.selectors.selector import SELECTOR_FILTER
from enmasse.messaging.space import AnonymousTerminus, Space
from enmasse.messaging.storage import Table
from enmasse.messaging.transaction import Transaction
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort, MemoryProducerPort

ALWAYS = {RETAINED_FILTER: "always"}
NEW = {RETAINED_FILTER: "new"}


def message(
    body: Any = b"v", *, retain: Any = True, durable: bool = True, ttl: int | None = None, **more: Any
) -> bytes:
    annotations = {} if retain is None else {"x-opt-retain": retain}
    return encode_message(
        body,
        header=Header(durable=durable, ttl=ttl),
        message_annotations=annotations | more.pop("annotations", {}),
        **more,
    )


class Scene:
    """A space with the topic ``news``, the multicast address ``all``, and the queue ``rest``."""

    def __init__(self, harness: CoreHarness | None = None, **options: Any) -> None:
        self.harness = harness or CoreHarness()
        core = self.harness.core
        self.space = Space(core, "ns/shop", lambda: "id")
        self.options = options
        self.topic = Topic(core, "news", 1, options=AddressSettings(**options))
        self.all = Multicast(core, "all", 2)
        self.rest = Queue(core, "rest", 3)
        for address in (self.topic, self.all, self.rest):
            self.space.add(address)
        for address in (self.topic, self.all, self.rest):
            address.load()
        self.harness.commit()

    def restarted(self, through: int = 0) -> Scene:
        return Scene(self.harness.restarted(through), **self.options)

    def sender(self, target: str = "news/a", **options: Any) -> MemoryProducerPort:
        port = self.harness.sender(self.space.find(target), target, **options)
        self.harness.turn()
        return port

    def anonymous(self) -> MemoryProducerPort:
        port = MemoryProducerPort()
        port.sink = AnonymousTerminus(self.space, port)
        return port

    def receiver(self, source: str = "news/#", credit: int = 100, **options: Any) -> MemoryConsumerPort:
        port = self.harness.receiver(self.space.find(source), credit, source=source, **options)
        self.harness.turn()
        return port

    def send(self, *names: str, body: Any = b"v", properties: Properties | None = None, **options: Any) -> None:
        sender = self.anonymous()
        for name in names:
            named = replace(properties or Properties(), to=name)
            sender.send(message(body, properties=named, **options))

    def put(self, *names: str, **options: Any) -> None:
        self.send(*names, **options)
        self.harness.commit()

    @property
    def values(self) -> dict[str, Any]:
        return {value.name: Sections(value.payload).body for value in self.space.retained.match(parse("#"))}


@pytest.fixture
def scene() -> Scene:
    return Scene()


def got(port: MemoryConsumerPort) -> list[tuple[Any, Any, bool]]:
    """The name below the topic, the body, and whether it is a retained value, of each message."""
    found = []
    for payload in port.payloads:
        sections = Sections(payload)
        annotations = sections.message_annotations
        found.append((annotations.get("x-opt-topic-name"), sections.body, annotations.get("x-opt-retained", False)))
    return found


# Setting


def test_a_retained_message_goes_to_those_who_are_there_and_stays_for_those_who_come(scene: Scene) -> None:
    present = scene.receiver()
    sender = scene.sender()
    sender.send(message(b"on"))
    scene.harness.turn()
    assert got(present) == [("news/a", b"on", False)]
    assert Sections(present.payloads[0]).message_annotations["x-opt-retain"] is True
    assert sender.outcomes == []
    scene.harness.commit()
    assert sender.states == {0: ACCEPTED}
    later = scene.receiver(filters=ALWAYS)
    assert got(later) == [("news/a", b"on", True)]
    assert got(scene.receiver()) == []


def test_values_survive_a_restart(scene: Scene) -> None:
    scene.put("news", "news/a", "news/b", "all")
    scene.put("news/b", body=b"")
    again = scene.restarted()
    assert again.values == {"news": b"v", "news/a": b"v", "all": b"v"}
    assert sorted(got(again.receiver(filters=ALWAYS)), key=str) == [("news/a", b"v", True), (None, b"v", True)]


def test_a_durable_message_is_accepted_once_its_value_is_on_disk_too(scene: Scene) -> None:
    durable = scene.receiver("news/#", is_durable=True, name="mine", container="me")
    scene.harness.commit()
    sender = scene.sender()
    sender.send(message(b"1"))
    sender.send(message(b"2", durable=False))
    scene.harness.turn()
    assert sender.states == {1: ACCEPTED}
    assert len(durable.payloads) == 2
    through = scene.harness.storage.pending[-1]
    again = scene.restarted(through)
    assert again.values == {"news/a": b"2"}


def test_a_value_that_could_not_be_written_has_its_sender_try_again(scene: Scene) -> None:
    sender = scene.sender()
    sender.send(message())
    scene.harness.fail()
    assert sender.states == {0: RELEASED}
    scene.harness.advance(2 * PAUSE_S)
    scene.harness.commit()
    assert scene.restarted().values == {"news/a": b"v"}


@pytest.mark.parametrize("storage", ["message", "durable", "memory"])
def test_what_is_on_disk_and_who_waits_for_it_is_as_the_topic_stores(storage: str) -> None:
    scene = Scene(storage=storage)
    sender = scene.sender()
    sender.send(message(b"1"))
    sender.send(message(b"2", durable=False))
    sender.send(message(b"3"), settled=True)
    scene.harness.turn()
    waits = {"message": [1], "durable": [], "memory": [1, 0]}[storage]
    assert sorted(sender.states) == sorted(waits)
    scene.harness.commit()
    assert sender.states == {0: ACCEPTED, 1: ACCEPTED}
    assert scene.values == {"news/a": b"3"}
    assert scene.restarted().values == ({} if storage == "memory" else {"news/a": b"3"})


@pytest.mark.parametrize(
    "payload",
    [
        message(b""),
        message(""),
        message(None),
        message([]),
        message(b"")[:-5],
        message(b"") + message(b"")[-5:],
        message(b"")[:-5] + encode(Described(ULong(0x75), b"")).replace(b"\xa0\x00", b"\xb0\0\0\0\0"),
    ],
)
def test_an_empty_body_clears_the_value_and_goes_out_as_any_message(scene: Scene, payload: bytes) -> None:
    scene.put("news/a")
    receiver = scene.receiver()
    sender = scene.sender()
    sender.send(payload)
    scene.harness.commit()
    assert (scene.values, sender.states) == ({}, {0: ACCEPTED})
    assert len(receiver.payloads) == 1
    assert scene.restarted().values == {}


@pytest.mark.parametrize("body", [b"\0", " ", 0, False, [None], {}, b"x" * 100])
def test_no_other_body_clears_a_value(body: Any) -> None:
    assert not is_clearing(message(body))


def test_a_body_that_cannot_be_read_is_a_value(scene: Scene) -> None:
    broken = message(None)[:-4] + b"\x00\x53\x77\xc1\x03\x01\x40\x40"
    assert not is_clearing(broken)


@pytest.mark.parametrize("retain", [None, False, 1, "true"])
def test_only_true_retains_a_message(scene: Scene, retain: Any) -> None:
    scene.put("news/a", "all", retain=retain)
    assert scene.values == {}


def test_a_sender_cannot_make_up_that_a_message_is_a_retained_value(scene: Scene) -> None:
    receivers = [scene.receiver(), scene.receiver("all")]
    forged = {"x-opt-retained": True, "x-opt-other": 1}
    for retain in (None, True):
        scene.put("news", "news/a", "all", retain=retain, annotations=forged)
    numbered = scene.sender("news", properties={"enmasse:producer": "p"})
    numbered.send(message(retain=None, annotations=forged | {"x-opt-sequence": 1}))
    scene.harness.commit()
    found = [Sections(payload).message_annotations for port in receivers for payload in port.payloads]
    assert len(found) >= 6
    assert all("x-opt-retained" not in annotations and annotations["x-opt-other"] == 1 for annotations in found)


def test_the_value_of_a_topic_is_not_that_of_a_topic_below_it(scene: Scene) -> None:
    inner = Topic(scene.harness.core, "news/in", 9)
    scene.space.add(inner)
    inner.load()
    scene.put("news/a", "news/in", "news/in/b")
    assert [name for name, *_ in got(scene.receiver("news/#", filters=ALWAYS))] == ["news/a"]
    assert [name for name, *_ in got(scene.receiver("news/in/#", filters=ALWAYS))] == [None, "news/in/b"]
    scene.space.remove(inner)
    scene.harness.commit()
    assert scene.values == {"news/a": b"v"}


# Limits


def test_a_value_beyond_the_limits_is_rejected_and_nobody_gets_it(scene: Scene) -> None:
    scene.space.limit(SpaceLimits(retained=1))
    scene.put("news/a")
    receivers = [scene.receiver(), scene.receiver("all")]
    for name in ("news/b", "all"):
        sender = scene.sender(name)
        sender.send(message())
        sender.send(message(), settled=True)
        sender.send(message(retain=False))
        scene.harness.commit()
        refused = sender.states[0]
        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == EXCEEDED
        assert "1 retained values, and its plan allows no more" in (refused.error.description or "")
    assert [len(port.payloads) for port in receivers] == [1, 1]
    assert (scene.topic.dropped, scene.all.dropped) == (1, 1)
    scene.put("news/a", body=b"larger")
    assert scene.values == {"news/a": b"larger"}


def test_a_value_can_be_cleared_whatever_the_limits_are(scene: Scene) -> None:
    scene.put("news/a", "news/b", "all")
    scene.receiver("all")
    scene.space.limit(SpaceLimits(retained=1, retained_bytes=1))
    scene.put("news/a", "news/c", "all", body=b"")
    assert scene.values == {"news/b": b"v"}


# Transactions and numbered messages


def test_a_transaction_sets_values_with_its_commit_or_not_at_all(scene: Scene) -> None:
    scene.put("news/b")
    receiver = scene.receiver()
    for fails in (True, False):
        transaction = Transaction(scene.harness.core, Budget(1 << 30, grain=1), 1 << 20)
        assert transaction.post(scene.topic, "news/a", message(b"t", retain=True)) is None
        assert transaction.post(scene.topic, "news/b", message(b"", retain=True)) is None
        told: list[Any] = []
        transaction.commit(told.append)
        scene.harness.turn()
        assert scene.values == {"news/b": b"v"}
        if fails:
            scene.harness.fail()
            assert told != [None]
            scene.harness.advance(2 * PAUSE_S)
        scene.harness.commit()
    assert told == [None]
    assert scene.values == scene.restarted().values == {"news/a": b"t"}
    assert [body for _, body, _ in got(receiver)] == [b"t", b""]


def test_a_transaction_with_a_value_beyond_the_limits_is_good_for_a_rollback_only(scene: Scene) -> None:
    scene.space.limit(SpaceLimits(retained=1))
    scene.put("news/a")
    transaction = Transaction(scene.harness.core, Budget(1 << 30, grain=1), 1 << 20)
    problem = transaction.post(scene.topic, "news/b", message())
    assert problem is not None
    assert problem.condition == EXCEEDED


def test_a_numbered_message_sets_its_value_once(scene: Scene) -> None:
    scene.space.limit(SpaceLimits(retained=2))
    sender = scene.sender("news/a", properties={"enmasse:producer": "p"})
    sender.send(message(b"1", annotations={"x-opt-sequence": 1}))
    scene.harness.commit()
    scene.put("news/a", body=b"newer")
    sender.send(message(b"1", annotations={"x-opt-sequence": 1}))
    scene.harness.commit()
    assert sender.states == {0: ACCEPTED, 1: ACCEPTED}
    assert scene.values == scene.restarted().values == {"news/a": b"newer"}
    scene.put("news/b")
    other = scene.sender("news/c", properties={"enmasse:producer": "q"})
    other.send(message(b"1", annotations={"x-opt-sequence": 1}))
    assert isinstance(other.states[0], Rejected)


def test_the_anonymous_terminus_retains_too(scene: Scene) -> None:
    sender = scene.anonymous()
    for to in ("news/a", "all"):
        sender.send(message(properties=Properties(to=to)))
    scene.harness.commit()
    assert sender.states == {0: ACCEPTED, 1: ACCEPTED}
    assert scene.values == {"news/a": b"v", "all": b"v"}


# Receivers


def test_a_receiver_asks_for_values_always_when_new_or_never(scene: Scene) -> None:
    scene.put("news/a", "all")
    for source in ("news/#", "all"):
        for wanted, count in (("always", 1), ("new", 1), ("never", 0)):
            assert len(scene.receiver(source, filters={RETAINED_FILTER: wanted}).payloads) == count
        for wrong in ("ALWAYS", 1, None):
            with pytest.raises(AttachError, match="enmasse:retained is always, new or never, not"):
                scene.receiver(source, filters={RETAINED_FILTER: wrong})


def test_a_durable_subscription_gets_values_when_it_is_new_or_always(scene: Scene) -> None:
    scene.put("news/a")
    mine: dict[str, Any] = {"is_durable": True, "name": "mine", "container": "me", "expiry_policy": "never"}
    first = scene.receiver(filters=NEW, **mine)
    scene.harness.commit()
    first.accept()
    first.leave()
    scene.put("news/b")
    again = scene.receiver(filters=NEW, **mine)
    assert got(again) == [("news/b", b"v", False)]
    again.accept()
    again.leave()
    third = scene.receiver(filters=ALWAYS, **mine)
    scene.harness.commit()
    assert got(third) == [("news/a", b"v", True), ("news/b", b"v", True)]
    third.leave()
    later = scene.restarted().receiver(**mine)
    assert got(later) == [("news/a", b"v", True), ("news/b", b"v", True)]


def test_a_shared_subscription_gets_values_once_when_it_is_new(scene: Scene) -> None:
    scene.put("news/a")
    for is_durable in (False, True):
        share: dict[str, Any] = {
            "capabilities": ("shared", "global"),
            "name": f"group-{is_durable}|1",
            "is_durable": is_durable,
        }
        assert len(scene.receiver(filters=NEW, **share).payloads) == 1
        assert scene.receiver(filters=NEW, **share).payloads == []


def test_values_go_through_the_selector(scene: Scene) -> None:
    scene.put("news/a", application_properties={"n": 1})
    scene.put("news/b", application_properties={"n": 2})
    for is_durable in (False, True):
        receiver = scene.receiver(
            filters=ALWAYS | {SELECTOR_FILTER: "n = 2"}, is_durable=is_durable, name="s", container="me"
        )
        scene.harness.commit()
        assert [name for name, *_ in got(receiver)] == ["news/b"]


def test_a_copy_has_the_time_to_live_that_is_left(scene: Scene) -> None:
    scene.put("news/a", ttl=10_000)
    scene.put("news/b", properties=Properties(absolute_expiry_time=Timestamp(1_900_000_000_000)))
    scene.harness.advance(4)
    receiver = scene.receiver(filters=ALWAYS)
    ttls = {
        name: Sections(payload).header.ttl
        for (name, *_), payload in zip(got(receiver), receiver.payloads, strict=True)
    }
    assert ttls == {"news/a": 6_000, "news/b": None}
    scene.harness.advance(7)
    assert [name for name, *_ in got(scene.receiver(filters=ALWAYS))] == ["news/b"]


def test_a_receiver_gets_what_comes_meanwhile_as_messages_alone(scene: Scene) -> None:
    scene.put(*(f"news/{number}" for number in range(3 * FED_AT_ONCE)))
    port = scene.harness.receiver(scene.topic, 10_000, source="news/#", filters=ALWAYS)
    last = f"news/{3 * FED_AT_ONCE - 1}"
    meanwhile = [("news/new", b"new", False), (last, b"new", False), ("news/5", b"", False)]
    for name, body, _ in meanwhile:
        scene.send(name, body=body)
    scene.harness.commit()
    found = got(port)
    assert [one for one in found if one[0] in ("news/new", last, "news/5")] == meanwhile
    assert len(found) == len(set(found)) == 3 * FED_AT_ONCE + 1


def test_a_slow_receiver_is_given_values_as_it_takes_them_and_none_is_lost(scene: Scene) -> None:
    size, count = 16 << 10, 600
    scene.put(*(f"news/{number}" for number in range(count)), body=bytes(size))
    receiver = scene.receiver(credit=1, filters=ALWAYS)
    (subscription,) = scene.topic.subscriptions
    assert subscription.resident_bytes < FED_BYTES + 2 * size
    assert subscription.depth < count / 10
    seen = 0
    while seen < count:
        assert receiver.unsettled
        seen += len(receiver.unsettled)
        receiver.accept(len(receiver.unsettled))
        receiver.grant(7)
        scene.harness.turn()
    assert len({name for name, *_ in got(receiver)}) == count
    assert subscription.feed is None
    assert subscription.dropped == 0


def test_a_large_value_waits_for_room_on_its_way_and_comes_as_it_is_then(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [bytes([number]) * (SMALL_BYTES + 1) for number in range(3)]
    for name, body in zip("abc", large, strict=True):
        scene.put(f"news/{name}", body=body)
    is_full: dict[MemoryConsumerPort, bool] = {}

    def admits(port: MemoryConsumerPort, _size: int) -> bool:
        port.sink.is_blocked = is_full.setdefault(port, True)
        return not is_full[port]

    monkeypatch.setattr(MemoryConsumerPort, "admits", admits)
    ports = [scene.receiver(filters=ALWAYS) for _ in range(3)]
    assert [port.payloads for port in ports] == [[], [], []]
    assert sum(subscription.resident_bytes for subscription in scene.topic.subscriptions) == 0
    first = ports[0]
    is_full[first] = False
    first.block(False)
    scene.harness.turn()
    first.accept(len(first.unsettled))
    scene.harness.turn()
    assert sorted(got(first)) == [(f"news/{name}", body, True) for name, body in zip("abc", large, strict=True)]
    scene.put("news/a", body=b"")
    scene.put("news/b", body=b"small")
    for port in ports[1:]:
        is_full[port] = False
        port.block(False)
    scene.harness.turn()
    for port in ports[1:]:
        port.accept(len(port.unsettled))
    scene.harness.turn()
    meanwhile = [("news/a", b"", False), ("news/b", b"small", False)]
    for port in ports:
        assert [one for one in got(port) if not one[2]] == meanwhile
    for port in ports[1:]:
        assert [one for one in got(port) if one[2]] == [("news/c", large[2], True)]
        assert all(subscription.feed is None for subscription in scene.topic.subscriptions)


def test_a_receiver_that_drains_gets_all_values_before_its_credit_is_used_up(scene: Scene) -> None:
    count = 5 * FED_AT_ONCE
    scene.put(*(f"news/{number}" for number in range(count)))
    port = scene.harness.receiver(scene.topic, 0, source="news/#", filters=ALWAYS)
    port.drain(2 * count)
    scene.harness.turn()
    assert (len(port.payloads), port.credit) == (count, 0)


def test_a_receiver_that_leaves_ends_what_it_is_given(scene: Scene) -> None:
    scene.put(*(f"news/{number}" for number in range(200)), body=bytes(8000))
    for is_durable in (False, True):
        receiver = scene.receiver(credit=1, filters=ALWAYS, is_durable=is_durable, name="x", container="me")
        subscription = next(iter(scene.topic.subscriptions))
        receiver.sink.on_detached(closed=True)
        scene.harness.commit()
        assert list(scene.topic.subscriptions) == []
        assert subscription.feed is None or subscription.is_closed


def test_a_topic_that_is_deleted_takes_its_values_along(scene: Scene) -> None:
    scene.put(*(f"news/{number}" for number in range(200)), body=bytes(8000))
    scene.receiver(credit=1, filters=ALWAYS)
    sender = scene.sender()
    sender.send(message())
    scene.space.remove(scene.topic)
    scene.harness.commit()
    assert (len(scene.space.retained), scene.space.retained.bytes_retained) == (0, 0)


# Multicast


def test_multicast_keeps_one_value_and_settles_by_its_receivers(scene: Scene) -> None:
    receiver = scene.receiver("all")
    sender = scene.sender("all")
    sender.send(message(b"1"))
    scene.harness.commit()
    assert sender.outcomes == []
    receiver.accept()
    assert sender.states == {0: ACCEPTED}
    sender.send(message(b"2"))
    receiver.settle(RELEASED)
    assert sender.unsettled == {1}
    scene.harness.commit()
    assert sender.states[1] is RELEASED
    later = scene.receiver("all", filters=ALWAYS)
    assert got(later) == [(None, b"2", True)]
    assert later.arrivals[0].settled
    assert scene.restarted().values == {"all": b"2"}
    assert scene.harness.storage.scan(Table.RETAINED, b"", b"\xff" * 16, 1)


def test_multicast_without_receivers_accepts_what_is_retained_and_releases_the_rest(scene: Scene) -> None:
    sender = scene.anonymous()
    for retain, durable in ((True, True), (True, False), (False, True)):
        sender.send(message(retain=retain, durable=durable, properties=Properties(to="all")))
    assert sender.states == {1: ACCEPTED, 2: RELEASED}
    scene.harness.commit()
    assert sender.states[0] is ACCEPTED
    sender.send(message(b"", properties=Properties(to="all")), settled=True)
    assert scene.values == {}


def test_a_fallback_takes_what_is_retained_where_nobody_receives(scene: Scene) -> None:
    scene.all.fall_back_to("rest")
    sender = scene.sender("all")
    sender.send(message(b"1"))
    sender.send(message(b"2", retain=None))
    scene.harness.turn()
    assert sender.outcomes == []
    scene.harness.commit()
    assert sender.states == {0: ACCEPTED, 1: ACCEPTED}
    assert scene.values == {"all": b"1"}
    assert [body for _, body, _ in got(scene.receiver("rest"))] == [b"1", b"2"]


def test_messages_of_other_formats_and_malformed_ones_pass_through_multicast_as_they_are(scene: Scene) -> None:
    receiver = scene.receiver("all")
    sender = scene.sender("all")
    odd = [b"x-opt-retain", b"\0\x53\x72\xc1\xff\x02\xa3\x0cx-opt-retain\x41", b"", message()]
    for payload in odd[:3]:
        sender.send(payload)
    sender.send(odd[3], message_format=7)
    assert receiver.payloads == odd
    assert scene.values == {}


@pytest.mark.parametrize(
    ("payload", "start"),
    [
        (encode_message(b"x"), b"\0\x53\x75"),
        (encode_message(b"x", properties=Properties(subject="s")), b"\0\x53\x73"),
        (encode_message(b"x", header=Header(durable=True)), b"\0\x53\x70\xc0\x02\x01\x41\0\x53\x75"),
        (encode_message(b"x", header=Header()), None),
        (message(), b""),
        (message(annotations={"x-opt-a": 1}), b""),
        (message(retain=None, annotations={"x-opt-retained": True}), b""),
        (
            message(retain=None, durable=False, annotations={"x-opt-a": 1}),
            b"\0\x53\x72\xc1\x0c\x02\xa3\x07x-opt-aU\x01\0\x53\x75",
        ),
        (encode_message(b"x", delivery_annotations={"x-opt-retain": True}), b""),
        (encode_message(b"x", delivery_annotations={"x-opt-hop": 1}), None),
        (b"\0\x53\x72\xc1\xff\x02", b""),
        (b"\0\x53\x70\xc0", b""),
        (b"\0\x53\x70", b""),
        (b"\0\x53\x70\xd0\0\0\0\5", b""),
        (b"", b""),
    ],
)
def test_the_start_of_a_message_tells_that_it_is_not_to_be_retained(payload: bytes, start: bytes | None) -> None:
    found = plain_start(payload)
    assert payload.startswith(found)
    if start is not None:
        assert found == start


@pytest.mark.parametrize(
    "annotations", [{}, {"x-opt-a": "b" * 200}, {"x-opt-a": "b" * 300}, {f"x-opt-{n}": n for n in range(200)}]
)
@pytest.mark.parametrize("header", [None, Header(durable=True), Header(durable=True, ttl=1 << 20, priority=9)])
def test_a_copy_of_a_value_says_so_beside_everything_else(
    scene: Scene, annotations: dict[str, Any], header: Header | None
) -> None:
    payload = encode_message(b"v", header=header, message_annotations=annotations | {"x-opt-retain": True})
    scene.sender("news").send(payload)
    scene.harness.commit()
    value = scene.space.retained.get("news")
    assert value is not None
    copy = Sections(copy_of(value, scene.harness.core))
    assert copy.message_annotations == annotations | {"x-opt-retain": True, "x-opt-retained": True}
    assert (copy.body, copy.header) == (b"v", header or Header())
