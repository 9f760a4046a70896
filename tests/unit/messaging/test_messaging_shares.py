"""What receivers of a subscription may have of it, by grants that cover a part of its source."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.outcomes import RELEASED
from enmasse.message.sections import TOPIC_NAME, encode_message
from enmasse.messaging.errors import AttachError
from enmasse.messaging.limits import SpaceLimits, patterns_memory
from enmasse.messaging.patterns import Cut, Pattern, covers, meet, parse
from enmasse.messaging.queues.shares import NameSelector
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.retaining import ALWAYS, RETAINED_FILTER
from enmasse.testing.ports import MemoryConsumerPort
from tests.unit.messaging.session_scene import Scene, body_of

DURABLE: dict[str, Any] = {"is_durable": True, "expiry_policy": "never"}
KINDS: dict[str, dict[str, Any]] = {
    "volatile": {},
    "shared": {"capabilities": ("shared",)},
    "durable": DURABLE,
    "durable and shared": DURABLE | {"capabilities": ("shared", "global")},
}
NAMES = ("hall", "hall/a", "hall/b", "hall/a/x")


class Known:
    """The grants of a user who is not connected."""

    def __init__(self, *patterns: str) -> None:
        self.patterns = patterns

    def of_client(self, client: str) -> Known:
        return Known(*(pattern.replace("%c", client or "/") for pattern in self.patterns))

    def may_receive(self, name: str) -> bool:
        return any(covers(parse(pattern), name) for pattern in self.patterns)

    def parts(self, filter_: str) -> list[Pattern]:
        return [part for pattern in self.patterns for part in meet(parse(filter_), parse(pattern)) or ()]

    def granted(self, source: str) -> str:
        return source if self.may_receive(source) else Cut.of(source, tuple(self.parts(source)))

    def may_send(self, name: str) -> bool:
        return False


@pytest.fixture
def scene() -> Scene:
    return Scene({"hall": "topic"})


def attach(
    scene: Scene, *granted: str, credit: int = 100, source: str = "hall/#", **options: Any
) -> MemoryConsumerPort:
    asked = {"container": "office", "name": "r", "owner": "1", "user": "anna", "may_manage": False} | options
    port = scene.harness.receiver(scene.space.find("hall"), credit, source=Known(*granted).granted(source), **asked)
    scene.harness.commit()
    return port


def sent(scene: Scene, port: MemoryConsumerPort, *names: str) -> list[str]:
    """Return what comes of a message to each of these names, and accept it."""
    before = len(port.payloads)
    for name in names or NAMES:
        scene.send(name, name)
    port.accept(len(port.unsettled))
    scene.harness.commit()
    return [body_of(payload) for payload in port.payloads[before:]]


def wanted(scene: Scene) -> set[Pattern]:
    topic = scene.space.find("hall")
    assert isinstance(topic, Topic)
    return {pattern for subscription in topic.subscriptions for pattern in subscription.patterns}


def granted(scene: Scene, *patterns: str) -> None:
    """Have the grants of who is away changed."""
    scene.space.grants = lambda _owner, _user: Known(*patterns)
    scene.space.review_grants("anna")
    scene.harness.commit()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("presettle", [True, False])
def test_a_receiver_has_what_grants_cover_of_its_source_as_they_are(scene: Scene, kind: str, presettle: bool) -> None:
    port = attach(scene, "hall/a/#", presettle=presettle, **KINDS[kind])
    assert wanted(scene) == {parse("hall/a/#")}
    assert sent(scene, port) == ["hall/a", "hall/a/x"]
    port.sink.recut(Known("hall", "hall/b").granted("hall/#"))
    assert sent(scene, port) == ["hall", "hall/b"]
    port.sink.recut(Known("#").granted("hall/#"))
    assert sent(scene, port) == list(NAMES)
    assert wanted(scene) == {parse("hall/#")}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [("#",), ("hall/a/#", "hall/b")])
def test_what_waits_and_is_not_covered_any_more_is_not_handed_out(scene: Scene, kind: str, before: Any) -> None:
    port = attach(scene, *before, credit=0, **KINDS[kind])
    assert sent(scene, port) == []
    port.sink.recut(Known("hall/b").granted("hall/#"))
    port.grant(100)
    assert sent(scene, port, "hall/a", "hall/b") == ["hall/b", "hall/b"]
    (subscription,) = scene.space.find("hall").subscriptions  # type: ignore[attr-defined]
    assert (subscription.depth, subscription.bytes_stored) == (0, 0)
    # What it had and gives back is its own no more, either.
    scene.send("hall/b", "again")
    port.sink.recut(Known("hall/a").granted("hall/#"))
    port.release()
    scene.harness.commit()
    assert sent(scene, port) == ["hall/a"]
    assert (subscription.depth, scene.harness.faults) == (0, [])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "durable" in kind])
def test_a_durable_subscription_gathers_what_grants_cover_while_nobody_is_there(scene: Scene, kind: str) -> None:
    options = KINDS[kind]
    attach(scene, "#", **options).leave()
    for name in NAMES:
        scene.send(name, name)
    granted(scene, "hall/a/#", "%c")
    assert wanted(scene) == {parse("hall/a/#")}
    scene = scene.restart()
    granted(scene, "hall/b", "hall/a/#")
    scene.send("hall", "nobody's")
    port = attach(scene, "hall/b", "hall/a/#", **options)
    assert [body_of(payload) for payload in port.payloads] == ["hall/a", "hall/b", "hall/a/x"]
    assert sent(scene, port, "hall/b", "hall") == ["hall/b"]
    # Nothing is covered for a while: what waits stays, and nothing more comes.
    granted(scene)
    assert wanted(scene) == {parse("hall/b"), parse("hall/a/#")}
    scene.send("hall/b", "unsettled")
    port.leave()
    assert wanted(scene) == set()
    scene.send("hall/b", "meanwhile")
    granted(scene, "#")
    scene.send("hall/b", "after")
    port = attach(scene, "#", **options)
    assert [body_of(payload) for payload in port.payloads] == ["unsettled", "after"]
    assert scene.harness.faults == []


def test_grants_that_name_the_client_are_those_of_the_container(scene: Scene) -> None:
    for number, options in enumerate(KINDS[kind] for kind in KINDS if "durable" in kind):
        attach(scene, "#", name=f"r{number}", container="office", **options).leave()
    scene.space.grants = lambda _owner, _user: Known("hall/%c/#")
    scene.space.review_grants()
    scene = scene.restart()
    scene.space.grants = lambda _owner, _user: Known("hall/%c/#")
    scene.space.review_grants()
    scene.harness.commit()
    assert wanted(scene) == {parse("hall/office/#")}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "shared" in kind])
@pytest.mark.parametrize("presettle", [True, False])
def test_a_message_goes_to_a_member_that_may_have_it(scene: Scene, kind: str, presettle: bool) -> None:
    options = KINDS[kind] | {"presettle": presettle}
    some = attach(scene, "hall/a/#", **options)
    every = attach(scene, "hall/a/#", "hall/b", credit=0, may_manage=True, owner="2", **options)
    assert sent(scene, some) == ["hall/a", "hall/a/x"]
    # What only the other may have waits for that, and holds nothing up.
    assert sent(scene, some, "hall/b", "hall/a") == ["hall/a"]
    every.grant(2)
    scene.harness.commit()
    assert [body_of(payload) for payload in every.payloads] == ["hall/b", "hall/b"]
    every.settle(RELEASED, len(every.unsettled))
    some.sink.recut(Known("hall/b").granted("hall/#"))
    assert sent(scene, some, "hall/b") == (["hall/b"] if presettle else ["hall/b"] * 3)
    assert sent(scene, some, "hall/a", "hall/b") == ["hall/b"]
    every.leave()
    # What was the other's alone is nobody's.
    assert sent(scene, some, "hall/a", "hall/b") == ["hall/b"]
    if "durable" in kind:
        some.sink.recut(Known("#").granted("hall/#"))
    assert wanted(scene) == ({parse("hall/#")} if "durable" in kind else {parse("hall/b")})
    assert scene.harness.faults == []


def test_receivers_that_share_a_subscription_name_the_same_source(scene: Scene) -> None:
    for number, kind in enumerate(kind for kind in KINDS if "shared" in kind):
        options = KINDS[kind] | {"name": f"r{number}"}
        first = attach(scene, "#", **options)
        with pytest.raises(AttachError, match="has receivers, and is of 'hall/#', not of 'hall/b'"):
            attach(scene, "#", source="hall/b", **options)
        first.leave()
        assert sent(scene, attach(scene, "#", source="hall/b", **options)) == ["hall/b"]
    mine = attach(scene, "#", name="mine", **DURABLE)
    with pytest.raises(AttachError, match="or of another kind"):
        attach(scene, "#", name="mine", **DURABLE, capabilities=("shared",))
    again = attach(scene, "#", name="mine", source="hall/b", **DURABLE)
    assert mine.error.condition == "amqp:link:stolen"
    assert sent(scene, again) == ["hall/b"]


def test_a_member_has_what_it_named_of_a_subscription_that_another_widens(scene: Scene) -> None:
    options = KINDS["durable and shared"]
    narrow = attach(scene, "hall", source="hall", **options)
    subtree = options | {"capabilities": ("shared", "global", "enmasse:subtree"), "owner": "2", "may_manage": True}
    wide = attach(scene, "#", source="hall/#", credit=0, **subtree)
    assert sent(scene, narrow) == ["hall"]
    wide.grant(10)
    scene.harness.commit()
    assert [body_of(payload) for payload in wide.payloads] == ["hall/a", "hall/b", "hall/a/x"]


@pytest.mark.parametrize("kind", KINDS)
def test_retained_values_of_the_part_that_is_covered_are_given(scene: Scene, kind: str) -> None:
    topic = scene.space.find("hall")
    for name in NAMES:
        value = encode_message(name.encode(), message_annotations={"x-opt-retain": True})
        sender = scene.harness.sender(topic, name)
        scene.harness.commit()
        sender.send(value, settled=True)
        scene.harness.commit()
    asked = KINDS[kind] | {"filters": {RETAINED_FILTER: ALWAYS}}
    port = attach(scene, "hall/a/#", **asked)
    assert sorted(body_of(payload) for payload in port.payloads) == ["hall/a", "hall/a/x"]
    # Values that are on their way as grants change are dropped, too.
    scene.harness.receiver(topic, 0, source="hall/#", container="b", name="r", **asked)
    late = scene.harness.receiver(topic, 0, source="hall/#", container="c", name="r", **asked)
    late.sink.recut(Known("hall/b").granted("hall/#"))
    scene.harness.commit()
    late.grant(10)
    scene.harness.commit()
    assert [body_of(payload) for payload in late.payloads] == ["hall/b"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_grants_leave_takes_memory_that_counts(scene: Scene, kind: str) -> None:
    usage, options = scene.space.usage, KINDS[kind]
    attach(scene, "#", name="all", **options).sink.on_detached(closed=True)
    attach(scene, "#", name="same", **options)
    plain = usage.subscription_bytes
    port = attach(scene, "hall/a/#", "hall/b", name="part", **options)
    part = patterns_memory([parse("hall/a/#"), parse("hall/b")])
    assert usage.subscription_bytes == 2 * plain + part
    port.sink.recut(Known("#").granted("hall/#"))
    assert usage.subscription_bytes == 2 * plain
    port.sink.recut(Known("hall/b").granted("hall/#"))
    assert usage.subscription_bytes == 2 * plain + patterns_memory([parse("hall/b")])
    if "shared" in kind:
        scene.space.limit(SpaceLimits(subscription_bytes=usage.subscription_bytes + 1))
        with pytest.raises(AttachError, match="bytes of memory"):
            attach(scene, "hall/a", name="part", **options)
    port.sink.on_detached(closed=True)
    assert usage.subscription_bytes == plain


def test_a_message_is_selected_by_the_name_that_it_was_sent_to() -> None:
    selector = NameSelector((parse("hall/a"), parse("hall")), "hall")
    named = [encode_message(b"x", message_annotations={TOPIC_NAME: name}) for name in ("hall/a", "hall/b")]
    assert [selector.matches(payload) for payload in named] == [True, False]
    assert selector.matches(encode_message(b"x"))
    assert not selector.matches(b"\x00\x53\x72\xff")
