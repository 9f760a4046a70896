"""Browsing and selecting from a queue with python-qpid-proton and rhea."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Described, Message, symbol, ulong
from proton.reactor import AtLeastOnce, Copy, Filter, Selector
from proton.utils import LinkDetached

from tests.support.node_process import NodeProcess
from tests.support.proton_blocking import ProtonClient

pytestmark = pytest.mark.slow


def bodies(messages: list[Any]) -> list[Any]:
    return [message.body for message in messages]


def numbered(count: int) -> list[Message]:
    return [Message(body=n, properties={"n": n, "colour": "red" if n % 3 else "blue"}) for n in range(count)]


def test_browsing_shows_everything_and_takes_nothing(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, *range(20))
        for _ in range(2):
            browser = client.receiver(address, Copy())
            assert bodies(browser.rest()) == list(range(20))
            browser.close()
        assert addresses.read(address)["messagesStored"] == 20
        assert bodies(client.receiver(address).rest()) == list(range(20))
        assert bodies(client.receiver(address, Copy()).rest()) == []


def test_a_browser_may_do_with_its_copies_what_it_likes(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, "a", "b")
        browser = client.receiver(address, Copy(), AtLeastOnce())
        assert bodies(browser.rest(settle=False)) == ["a", "b"]
        browser.receiver.reject()
        browser.fail()
        browser.close()
        taken = client.receiver(address).rest()
        assert [(message.body, message.delivery_count) for message in taken] == [("a", 0), ("b", 0)]


def test_a_browser_leaves_out_what_a_receiver_has(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, "a", "b", "c")
        receiver = client.receiver(address)
        assert bodies(receiver.take(1, settle=False)) == ["a"]
        assert bodies(client.receiver(address, Copy()).rest()) == ["b", "c"]
        receiver.settle()


def test_a_browser_sees_what_comes_later(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, "a")
        browser = client.receiver(address, Copy())
        assert bodies(browser.rest()) == ["a"]
        client.send(address, "b")
        assert bodies(browser.take(1)) == ["b"]
        assert addresses.read(address)["messagesStored"] == 2


def test_browsing_with_a_selector_shows_what_suits(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, *numbered(9))
        browser = client.receiver(address, Copy(), Selector("n BETWEEN 2 AND 4"))
        assert bodies(browser.rest()) == [2, 3, 4]


def test_a_receiver_with_a_selector_takes_what_suits_and_leaves_the_rest(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, *numbered(9))
        blue = client.receiver(address, Selector("colour = 'blue'"))
        assert bodies(blue.rest()) == [0, 3, 6]
        client.send(address, Message(body="new", properties={"colour": "blue"}))
        assert bodies(blue.take(1)) == ["new"]
        assert bodies(client.receiver(address).rest()) == [1, 2, 4, 5, 7, 8]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("JMSPriority > 5", ["urgent"]),
        ("JMSType = 'tea' OR JMSCorrelationID = 'c-1'", ["tea", "answer"]),
        ("JMSDeliveryMode = 'PERSISTENT'", ["kept"]),
        ("amqp.content_type LIKE 'text/%'", ["text"]),
        ("colour IS NOT NULL AND NOT colour IN ('red', 'blue')", ["green"]),
        ("price * 2 >= 5.5 AND name LIKE '100!%_' ESCAPE '!'", ["percent"]),
        ("JMSXGroupID = 'g'", ["grouped"]),
    ],
)
def test_selectors_see_header_properties_and_application_properties(
    node: NodeProcess, addresses: Any, selector: str, expected: list[str]
) -> None:
    address = addresses.declare("queue")
    messages = [
        Message(body="plain"),
        Message(body="urgent", priority=9),
        Message(body="tea", subject="tea"),
        Message(body="answer", correlation_id="c-1"),
        Message(body="kept", durable=True),
        Message(body="text", content_type=symbol("text/plain")),
        Message(body="green", properties={"colour": "green"}),
        Message(body="red", properties={"colour": "red"}),
        Message(body="percent", properties={"price": 2.75, "name": "100%!"}),
        Message(body="grouped", group_id="g"),
    ]
    with ProtonClient(node.url) as client:
        client.send(address, *messages)
        assert bodies(client.receiver(address, Selector(selector)).rest()) == expected


@pytest.mark.parametrize(
    "filters",
    [
        {symbol("jms-selector"): Described(ulong(0x0000468C00000004), "n = 1")},
        {symbol("mine"): Described(symbol("apache.org:selector-filter:string"), "n = 1")},
        {symbol("mine"): Described(ulong(0x0000468C00000004), "n = 1")},
        {symbol("apache.org:selector-filter:string"): "n = 1"},
    ],
)
def test_the_filter_may_be_named_as_clients_do(node: NodeProcess, addresses: Any, filters: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        client.send(address, *numbered(3))
        receiver = client.receiver(address, Filter(filters))
        assert bodies(receiver.rest()) == [1]
        remote = receiver.receiver.link.remote_source.filter
        remote.rewind()
        assert remote.next() is not None
        assert list(remote.get_dict()) == list(filters)


@pytest.mark.parametrize(
    ("selector", "place"),
    [("colour = ", "at character 10"), ("colour == 'red'", "at character 9"), ("n > 'x'", "at character 5")],
)
@pytest.mark.parametrize("kind", ["queue", "subscription"])
def test_a_malformed_selector_is_refused_with_its_place(
    node: NodeProcess, addresses: Any, kind: str, selector: str, place: str
) -> None:
    source, target = addresses.pair(kind)
    with ProtonClient(node.url) as client:
        with pytest.raises(LinkDetached, match=place) as refused:
            client.receiver(source, Selector(selector))
        assert refused.value.condition == "amqp:invalid-field"
        client.send(target, "alive")
        assert bodies(client.receiver(source).take(1)) == ["alive"]


def test_receivers_with_different_selectors_share_a_queue(node: NodeProcess, addresses: Any) -> None:
    address = addresses.declare("queue")
    with ProtonClient(node.url) as client:
        red = client.receiver(address, Selector("colour = 'red'"))
        blue = client.receiver(address, Selector("colour = 'blue'"))
        client.send(address, *numbered(30))
        assert bodies(red.take(20)) == [n for n in range(30) if n % 3]
        assert bodies(blue.take(10)) == [n for n in range(30) if not n % 3]
        assert addresses.read(address)["messagesStored"] == 0


def test_rhea_selects_and_browses(rhea: Callable[..., dict[str, Any]], addresses: Any) -> None:
    address = addresses.declare("queue")
    messages = [{"body": n, "application_properties": {"n": n}} for n in range(10)]
    rhea("exchange", target=address, messages=messages, expect=0)
    browsed = rhea("exchange", source=address, messages=[], expect=10, browse=True)
    assert [message["body"] for message in browsed["received"]] == list(range(10))
    selected = rhea("exchange", source=address, messages=[], expect=3, selector="n >= 7")
    assert [message["body"] for message in selected["received"]] == [7, 8, 9]
    refused = rhea("refused", source=address, selector="n >=")
    assert refused["errors"][0][0] == "amqp:invalid-field"
    assert "at character 5" in refused["errors"][0][1]
