"""Lists of management: an answer makes the rows of its page alone, whatever there is before and behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_types import CONNECTION_TYPE, LINK_TYPE, SESSION_TYPE, WILL_TYPE
from enmasse.node.management.management import Inspection, Management
from enmasse.node.management.session_views import sessions_of, wills_of
from enmasse.node.management.views import MAX_ROWS, View
from enmasse.testing.ports import CoreHarness
from enmasse.wire.mqtt.packets import Will
from tests.unit.node.mqtt_scene import V5, Scene

MANY = 30
PAGE = 7


class Site:
    """A space with many MQTT clients, each with a session, a will and a link; and what is asked of it."""

    def __init__(self) -> None:
        self.scene = Scene()
        for number in range(MANY):
            will = Will("topic/will", b"gone", delay_s=60)
            client = self.scene.client(V5, f"c{number}", is_clean=False, session_expiry_s=60, will=will)
            client.subscribed("topic/#", qos=1)
        space, connections = self.scene.space, self.scene.connections
        self.answers: list[Any] = []
        views: dict[str, Callable[[], View[Any]]] = {
            CONNECTION_TYPE: connections.connections_of,
            LINK_TYPE: connections.links_of,
            SESSION_TYPE: lambda: sessions_of(space),
            WILL_TYPE: lambda: wills_of(space),
        }
        entities = Entities(self.scene.harness.core, lambda: "id")
        entities.spaces[space.name] = space
        self.management = Management(
            entities, views, self._answered, lambda _to: True, Inspection(entities, connections).operations
        )

    def _answered(self, _to: str, payload: bytes) -> None:
        self.answers.append(Sections(payload).body)

    def ask(self, body: Any = None, **asked: Any) -> Any:
        self.management.serve(
            encode_message(body or {}, properties=Properties(reply_to="a"), application_properties=asked)
        )
        return self.answers.pop()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The rows that were made."""
    rows: list[Any] = []
    begin = View.__init__

    def counting(self: View[Any], things: Any, row: Callable[[Any], Any], names: Any) -> None:
        begin(self, things, lambda thing: rows.append(thing) or row(thing), names)  # type: ignore[func-returns-value]

    monkeypatch.setattr(View, "__init__", counting)
    return rows


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.mark.parametrize("kind", [CONNECTION_TYPE, LINK_TYPE, SESSION_TYPE, WILL_TYPE])
def test_a_query_makes_the_rows_of_its_page(site: Site, made: list[Any], kind: str) -> None:
    found = []
    for offset in range(0, MANY + PAGE, PAGE):
        made.clear()
        answer = site.ask(operation="QUERY", entityType=kind, offset=offset, count=PAGE)
        assert len(made) == len(answer["results"]) <= PAGE
        at = answer["attributeNames"].index("identity") if answer["results"] else 0
        found += [row[at] for row in answer["results"]]
    assert len(found) == len(set(found)) == MANY
    made.clear()
    assert site.ask(operation="READ", type=kind, identity=found[-1])["identity"] == found[-1]
    assert len(made) == 1


@pytest.mark.parametrize("operation", ["CONNECTIONS", "LINKS", "SESSIONS", "WILLS"])
def test_a_page_of_a_space_makes_one_row_more_at_most(
    site: Site, made: list[Any], operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enmasse.node.management.management.MAX_ROWS", PAGE)
    offset, has_more = 0, True
    while has_more:
        made.clear()
        page = site.ask({"offset": offset}, operation=operation, type="io.enmasse.space", name=site.scene.space.name)
        offset, has_more = offset + len(page["results"]), page["hasMore"]
        assert len(page["results"]) <= PAGE
        assert len(made) <= PAGE + 1
    assert offset == MANY


def test_an_answer_holds_no_more_than_a_page_whatever_is_asked() -> None:
    view = View(range(3 * MAX_ROWS), lambda number: {"name": str(number)}, lambda number: (str(number), None))
    replies: list[Any] = []
    entities = Entities(CoreHarness().core, lambda: "id")
    management = Management(
        entities,
        {LINK_TYPE: lambda: view},
        lambda _to, payload: replies.append(Sections(payload).body),
        lambda _to: True,
    )
    for asked in ({}, {"count": 2 * MAX_ROWS}):
        management.serve(
            encode_message(
                {},
                properties=Properties(reply_to="a"),
                application_properties={"operation": "QUERY", "entityType": LINK_TYPE, **asked},
            )
        )
        assert len(replies.pop()["results"]) == MAX_ROWS
