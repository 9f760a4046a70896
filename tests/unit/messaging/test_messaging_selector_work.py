"""The bound of what a selector may cost: steps are counted, and no time is taken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.message.codec import encode
from enmasse.message.sections import Header, Properties, encode_message
from enmasse.message.types import Described, Symbol, ULong
from enmasse.messaging.queues.operations import Choice, count, purge
from enmasse.messaging.selectors.evaluation import STEP
from enmasse.messaging.selectors.fields import MessageFields
from enmasse.messaging.selectors.grammar import parse
from enmasse.messaging.selectors.selector import SELECTOR_FILTER, Selector
from enmasse.messaging.selectors.work import MAX_WORK, Work
from tests.support.steps import steps
from tests.unit.messaging import queue_scene, topic_scene

LONG = 300_000
DEAR = " OR ".join(["x LIKE '%a_b%'"] * 200)
MANY = {f"k{number}": None for number in range(60_000)}
NESTED: Any = [[number] for number in range(60_000)]


def message(properties: dict[str, Any] | None = None, **fields: Any) -> bytes:
    header = Header(durable=True)
    return encode_message(b"", header=header, properties=Properties(**fields), application_properties=properties)


def unusual(properties: dict[Any, Any]) -> bytes:
    return encode(Described(Symbol("amqp:application-properties:map"), properties))


@pytest.mark.parametrize(
    ("selector", "payload_of"),
    [
        (DEAR, partial(message, {"x": "a" * LONG})),
        ("x LIKE '%a_b%'", partial(message, {"x": "a" * LONG})),
        ("x NOT LIKE '%a_b%'", partial(message, {"x": "a" * LONG})),
        ("JMSType LIKE '%a_b%'", partial(message, subject="a" * LONG)),
        ("x LIKE '%" + "a_" * 1_900 + "%'", partial(message, {"x": "a" * 10_000})),
        (" OR ".join(["x LIKE '%ab%'"] * 200), partial(message, {"x": "a" * LONG})),
        (" OR ".join(["JMSType = y"] * 250), partial(message, {"y": "a" * LONG}, subject="a" * LONG)),
        (" OR ".join(f"n{number} = 1" for number in range(300)), partial(message, MANY)),
        ("nothing IS NULL", partial(message, MANY)),
        ("nothing IS NULL", partial(unusual, {Symbol(name): None for name in MANY})),
        ("JMSDeliveryTime IS NULL", partial(encode, Described(ULong(0x72), {Symbol(name): None for name in MANY}))),
    ],
    ids=str.split(
        "200-forms form form-not of-a-field long-piece plain-forms comparisons names properties symbols annotations"
    ),
)
def test_what_would_be_too_much_is_not_selected_and_is_counted(
    selector: str, payload_of: Callable[[], bytes]
) -> None:
    payload = payload_of()
    address = queue_scene.Scene().queue
    chosen = Selector(selector)
    chosen.tally = address
    assert steps(lambda: chosen.matches(payload)) < 10 * MAX_WORK // STEP
    assert not chosen.matches(payload)
    assert not chosen.selects(MessageFields(payload))
    assert address.counts()["selectorsExceeded"] == 3


@pytest.mark.parametrize(
    ("selector", "payload_of"),
    [
        (DEAR, partial(message, {"x": "a" * 40 + "b"})),
        ("x LIKE '%a_b%'", partial(message, {"x": "a" * 9_000 + "b"})),
        ("x LIKE '%ab%'", partial(message, {"x": "a" * 150_000 + "b"})),
        ("x LIKE 'a_%_a' AND y = 1", partial(message, {"x": "a" * 100_000, "y": 1})),
        ("y = 1", partial(message, {"x": "a" * 5_000_000, "y": 1})),
        ("y = 1", partial(message, {"x": NESTED, "y": 1})),
        ("x IS NOT NULL AND NOT (x = 1)", partial(message, {"x": NESTED})),
        ("k3999 IS NULL", partial(message, dict.fromkeys(list(MANY)[:4_000]))),
        ("*".join("x" * 2_000) + " > 0 OR TRUE", partial(message, {"x": 2**63 - 1})),
    ],
    ids=str.split("200-forms form plain-form ends beside a-list-beside a-list properties products"),
)
def test_what_is_not_too_much_is_selected(selector: str, payload_of: Callable[[], bytes]) -> None:
    payload = payload_of()
    chosen = Selector(selector)
    assert chosen.matches(payload)
    assert steps(lambda: chosen.selects(MessageFields(payload))) < 10 * MAX_WORK // STEP


def test_a_product_beyond_all_numbers_is_unknown() -> None:
    huge = "*".join("x" * 2_000)
    assert Selector(f"({huge} > 0) IS NULL").matches(message({"x": 2**63 - 1}))
    assert Selector("*".join("x" * 16) + " > 0").matches(message({"x": 2**63 - 1}))


texts = st.text("ab%_", max_size=300)
payloads = st.builds(
    message,
    st.dictionaries(st.text("xyz", max_size=2), texts | st.integers(0, 9) | st.lists(st.just(1), max_size=3)),
    subject=texts,
)


@given(payloads, st.sampled_from((DEAR, "x = y OR z LIKE '%a_b%' AND xx IN ('a')", "JMSType = 'a' OR xyz IS NULL")))
def test_no_message_of_the_free_size_can_be_too_much(payload: bytes, selector: str) -> None:
    work = Work(parse(selector))
    assert work.of(MessageFields(payload)) * work.free_bytes <= MAX_WORK * len(payload)


def test_every_receiver_has_the_same_verdict() -> None:
    """One message that is too much, and one that is not: however it is asked for."""
    cheap, dear = message({"x": "a" * 40 + "b"}), message({"x": "a" * LONG + "b"})
    options: dict[str, Any] = {"filters": {SELECTOR_FILTER: DEAR}}
    scene = queue_scene.Scene()
    for payload in (dear, cheap):
        scene.sender.send(payload)
    scene.harness.commit()
    counted: list[Any] = []
    for _ in range(2):
        browser = scene.receiver(10, **options, browse=True)
        scene.harness.commit()
        assert browser.payloads == [cheap]
        count(scene.queue, Choice(Selector(DEAR)), lambda _: True, lambda *found: counted.append(found))
        scene.harness.commit()
        assert scene.queue.counts()["selectorsExceeded"] > 0
        scene = scene.restart()
    assert counted == [(1, None)] * 2
    receiver = scene.receiver(10, **options)
    scene.harness.commit()
    assert receiver.payloads == [cheap]
    for payload in (dear, cheap):
        scene.sender.send(payload)
    scene.harness.commit()
    assert receiver.payloads == [cheap, cheap]
    receiver.leave()
    purged: list[Any] = []
    purge(scene.queue, Choice(Selector(DEAR)), lambda *found: purged.append(found))
    scene.harness.commit()
    assert purged == [(2, None)]
    assert scene.queue.depth == 2


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_subscription_has_the_same_verdict(is_durable: bool) -> None:
    scene = topic_scene.Scene()
    options: dict[str, Any] = {"filters": {SELECTOR_FILTER: DEAR}}
    if is_durable:
        options |= {"is_durable": True, "expiry_policy": "never", "container": "c", "name": "n"}
    receiver = scene.receiver("news", 10, **options)
    sender = scene.sender()
    cheap = message({"x": "a" * 40 + "b"})
    sender.send(message({"x": "a" * LONG + "b"}))
    sender.send(cheap)
    scene.harness.turn()
    assert len(receiver.payloads) == 1
    if not is_durable:
        assert scene.topic.counts()["selectorsExceeded"] == 1
        receiver.leave()
        scene.harness.turn()
        assert scene.topic.counts()["selectorsExceeded"] == 1
