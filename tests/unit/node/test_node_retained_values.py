"""What management does with the retained values of a space: lists them page by page, clears them step by step."""

from __future__ import annotations

from typing import Any

import pytest

from enmasse.message.sections import Header, Properties, encode_message
from enmasse.message.types import Timestamp
from enmasse.messaging.core import PAUSE_S
from enmasse.node.errors import EntityError
from enmasse.node.management import retained_values
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.node.management.retained_values import CLEAR, LIST, act_on_retained
from enmasse.testing.ports import FIRST_WALL_US
from tests.unit.node.entities_scene import Node


class Desk:
    """A node with the topic ``news``, asked for its values."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node()
        if node is None:
            self.node.space()
            self.node.address("news", "topic")
            self.node.address("all", "multicast")
        self.space = self.node.entities.spaces["ns/shop"]
        self.replies: list[tuple[int, str, Any]] = []

    def retain(
        self, *names: str, ttl: int | None = None, expires_ms: int | None = None, durable: bool = True
    ) -> None:
        expiry = None if expires_ms is None else Timestamp(expires_ms)
        payload = encode_message(
            b"v",
            header=Header(durable=durable, ttl=ttl),
            message_annotations={"x-opt-retain": True},
            properties=Properties(absolute_expiry_time=expiry),
        )
        for name in names:
            port = self.node.harness.sender(self.space.find(name), name)
            port.sink.on_crossed(payload, 0, True, 0)
        self.node.harness.commit()

    def ask(self, operation: str, body: Any) -> Any:
        act_on_retained(operation, self.space, body, lambda *reply: self.replies.append(reply))
        self.node.harness.commit()
        ((status, description, answer),) = self.replies
        self.replies.clear()
        assert status == 200, description
        return answer


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_value_is_shown_with_what_is_known_of_it(desk: Desk) -> None:
    desk.retain("news/a")
    desk.retain("news/b", ttl=60_000, durable=False)
    desk.retain("all", ttl=90_000, expires_ms=FIRST_WALL_US // 1000 + 70_000)
    now = FIRST_WALL_US // 1000 + int(desk.node.harness.clock.now * 1000)
    size = len(desk.space.retained.get("news/a").payload)  # type: ignore[union-attr]
    found = desk.ask(LIST, {"filter": "#"})
    assert found["offset"] is None
    first, second, third = found["results"]
    assert first == {
        "name": "news/a", "address": "news", "bytes": size, "durable": True, "time": now, "expires": None,
    }  # fmt: skip
    assert (second["name"], second["durable"], second["expires"]) == ("news/b", False, now + 60_000)
    assert (third["address"], third["expires"]) == ("all", FIRST_WALL_US // 1000 + 70_000)
    shown = desk.node.entities.read("io.enmasse.space", "ns/shop")
    assert (shown["retained"], shown["retainedBytes"]) == (3, desk.space.retained.bytes_retained)


def test_values_are_listed_page_by_page(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_values, "MAX_VALUES", 2)
    monkeypatch.setattr(retained_values, "MAX_LOOKS", 3)
    desk.retain(*(f"news/{n}" for n in range(7)))
    pages: list[list[str]] = []
    offset: int | None = 0
    while offset is not None:
        found = desk.ask(LIST, {"filter": "news/+", "offset": offset})
        pages.append([value["name"][-1] for value in found["results"]])
        offset = found["offset"]
    assert pages == [["0", "1"], ["2", "3"], ["4", "5"], ["6"]]


def test_values_are_cleared_step_by_step_and_others_stay(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_values, "MAX_VALUES", 2)
    monkeypatch.setattr(retained_values, "MAX_LOOKS", 3)
    desk.retain(*(f"news/{'x/' * (n % 2)}{n}" for n in range(9)), "all")
    count = 0
    offset: int | None = 0
    while offset is not None:
        step = desk.ask(CLEAR, {"filter": "news/+", "offset": offset})
        count, offset = count + step["count"], step["offset"]
    assert count == 5
    left = ["news/x/1", "news/x/3", "news/x/5", "news/x/7", "all"]
    assert [value["name"] for value in desk.ask(LIST, {"filter": "#"})["results"]][:2] == left[:2]
    assert sorted(Desk(desk.node.restarted()).space.retained._values) == sorted(left)
    assert desk.ask(CLEAR, {"filter": "nothing/#"}) == {"count": 0, "offset": None}


def test_clearing_is_answered_once_it_is_on_disk(desk: Desk) -> None:
    desk.retain("news/a", "all")
    act_on_retained(CLEAR, desk.space, {"filter": "#"}, lambda *reply: desk.replies.append(reply))
    desk.node.harness.turn()
    assert desk.replies == []
    desk.node.harness.fail()
    ((status, description, _),) = desk.replies
    assert (status, description.startswith("not all is on disk")) == (503, True)
    desk.node.harness.advance(2 * PAUSE_S)
    desk.node.harness.commit()
    assert len(Desk(desk.node.restarted()).space.retained) == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "filter is a name or pattern"),
        ({}, "filter is a name or pattern"),
        ({"filter": ""}, "filter is a name or pattern"),
        ({"filter": 7}, "not 7"),
        ({"filter": "#", "offset": -1}, "offset is a number from 0 on"),
        ({"filter": "#", "offset": True}, "offset is a number from 0 on"),
        ({"name": "a"}, "has no argument 'name'"),
    ],
)
@pytest.mark.parametrize("operation", [LIST, CLEAR])
def test_a_wrong_argument_is_named(desk: Desk, operation: str, body: Any, words: str) -> None:
    with pytest.raises(EntityError, match=words) as caught:
        desk.ask(operation, body)
    assert caught.value.status == 400


def test_a_value_comes_back_with_its_address_though_nobody_has_asked_for_that_yet(desk: Desk) -> None:
    desk.retain("news/a")
    again = desk.node.restarted()
    assert [value.name for value in again.entities.spaces["ns/shop"].retained.match(("news", "a"))] == ["news/a"]
    again.delete(ADDRESS_TYPE, "ns/news")
    again.harness.commit()
    third = Desk(again.restarted())
    assert len(third.space.retained) == 0
