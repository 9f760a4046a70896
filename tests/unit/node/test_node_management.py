"""``$management``: which request gets which status, body and correlation."""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

import pytest

from enmasse.message.outcomes import AmqpError, Rejected
from enmasse.message.sections import Properties, Sections, encode_message
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.management.management import Management
from enmasse.node.management.views import view_of
from enmasse.testing.ports import CoreHarness

LINK_TYPE = "io.enmasse.link"


class Reply(NamedTuple):
    to: str
    status: int
    description: str
    body: Any
    correlation: Any


class Desk:
    """Management over a storage in memory, asked as a client would."""

    def __init__(self) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}")
        self.links: list[dict[str, Any]] = [
            {"type": LINK_TYPE, "identity": "1/0/0", "name": "in", "credit": 7},
            {"type": LINK_TYPE, "identity": "1/0/1", "name": "out", "address": "orders"},
        ]
        self.replies: list[Reply] = []
        self.gone: set[str] = set()
        """Addresses of clients that have gone."""
        self.management = Management(
            self.entities,
            {LINK_TYPE: lambda: view_of(self.links)},
            self._answered,
            lambda to: to not in self.gone,
        )

    def _answered(self, to: str, payload: bytes) -> None:
        sections = Sections(payload)
        found = sections.application_properties
        properties = sections.properties
        assert properties.to == to
        self.replies.append(
            Reply(to, found["statusCode"], found["statusDescription"], sections.body, properties.correlation_id)
        )

    def request(self, body: Any = None, *, properties: Properties | None = None, **asked: Any) -> Reply:
        payload = encode_message(
            {} if body is None else body,
            properties=properties or Properties(reply_to="$dynamic/1", message_id="m1"),
            application_properties={key: value for key, value in asked.items() if value is not None},
        )
        self.management.serve(payload)
        self.harness.commit()
        return self.replies.pop()

    def find(self, address: str) -> Any:
        return self.entities.spaces["ns/shop"].find(address)

    def create(self, entity_type: str, name: str, **attributes: Any) -> Reply:
        return self.request(attributes, operation="CREATE", type=entity_type, name=name)


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    assert made.create(SPACE_TYPE, "ns/shop").status == 201
    assert made.create(ADDRESS_TYPE, "ns/q", space="ns/shop", address="q", addressType="queue").status == 201
    assert made.create(ADDRESS_TYPE, "ns/a", space="ns/shop", address="a", addressType="anycast").status == 201
    return made


def test_creating_answers_201_with_the_entity(desk: Desk) -> None:
    reply = desk.create(ADDRESS_TYPE, "ns/s", space="ns/shop", address="s", addressType="stream", partitions=2)
    assert (reply.status, reply.to, reply.correlation) == (201, "$dynamic/1", "m1")
    assert reply.body["partitions"] == 2
    assert reply.body["uid"]


def test_reading_changing_and_deleting_answer_200_200_and_204(desk: Desk) -> None:
    read = desk.request(operation="READ", type=ADDRESS_TYPE, name="ns/q")
    assert (read.status, read.body["address"], read.body["messagesStored"]) == (200, "q", 0)
    changed = desk.request({"maxBytes": 5_000}, operation="UPDATE", type=ADDRESS_TYPE, name="ns/q")
    assert (changed.status, changed.body["maxBytes"]) == (200, 5_000)
    deleted = desk.request(operation="DELETE", type=ADDRESS_TYPE, name="ns/q")
    assert (deleted.status, deleted.body) == (204, {})
    assert desk.request(operation="READ", type=ADDRESS_TYPE, name="ns/q").status == 404


def about_itself(desk: Desk, operation: str, **asked: Any) -> Any:
    """What management tells of itself, asked as the draft has it."""
    reply = desk.request(operation=operation, type="org.amqp.management", name="self", **asked)
    assert reply.status == 200, reply.description
    return reply.body


def test_management_tells_its_types_attributes_and_operations(desk: Desk) -> None:
    types = about_itself(desk, "GET-TYPES")
    assert types == {SPACE_TYPE: [], ADDRESS_TYPE: [], LINK_TYPE: []}
    attributes = about_itself(desk, "GET-ATTRIBUTES")
    assert list(attributes) == list(types)
    for entity_type, name in (
        (SPACE_TYPE, "ns/shop"),
        (ADDRESS_TYPE, "ns/q"),
        (ADDRESS_TYPE, "ns/a"),
        (LINK_TYPE, "in"),
    ):
        shown = desk.request(operation="READ", type=entity_type, name=name).body
        assert set(shown) <= set(attributes[entity_type])
    operations = about_itself(desk, "GET-OPERATIONS")
    assert list(operations) == list(types)
    assert operations[LINK_TYPE] == {"READ": []}
    values = {"RETAINED": ["filter", "offset"], "CLEAR-RETAINED": ["filter", "offset"]}
    changes: dict[str, list[str]] = {"CREATE": [], "READ": [], "UPDATE": [], "DELETE": []}
    assert operations[SPACE_TYPE] == changes | values
    choice = ["selector", "search", "ids", "dryRun"]
    assert operations[ADDRESS_TYPE] == {
        **changes, "PURGE": choice, "MOVE": ["to", *choice], "REPLAY": choice,
    }  # fmt: skip
    assert about_itself(desk, "GET-MGMT-NODES") == []


def test_what_management_tells_of_itself_may_be_narrowed_to_a_type(desk: Desk) -> None:
    for operation in ("GET-TYPES", "GET-ATTRIBUTES", "GET-OPERATIONS"):
        assert list(about_itself(desk, operation, entityType=LINK_TYPE)) == [LINK_TYPE]
        for wrong in ("io.enmasse.teapot", 7):
            reply = desk.request(operation=operation, entityType=wrong)
            assert (reply.status, LINK_TYPE in reply.description) == (501, True)


def test_an_entity_can_be_named_by_its_identity(desk: Desk) -> None:
    assert desk.request(operation="READ", type=ADDRESS_TYPE, identity="ns/q").status == 200


@pytest.mark.parametrize(
    ("status", "asked", "body"),
    [
        (400, {"operation": "CREATE", "type": SPACE_TYPE}, {}),
        (400, {"operation": "CREATE", "type": ADDRESS_TYPE, "name": "ns/x"}, {"colour": "red"}),
        (400, {"operation": "CREATE", "type": ADDRESS_TYPE, "name": "ns/x"}, b"no map"),
        (400, {"operation": "QUERY", "entityType": ADDRESS_TYPE}, {"attributeNames": 7}),
        (400, {"operation": "QUERY", "entityType": ADDRESS_TYPE}, {"attributeNames": [["name"]]}),
        (404, {"operation": "READ", "type": ADDRESS_TYPE, "name": "ns/x"}, {}),
        (404, {"operation": "READ", "type": LINK_TYPE, "name": "x"}, {}),
        (404, {"operation": "READ", "type": ADDRESS_TYPE}, {}),
        (404, {"operation": "DELETE", "type": SPACE_TYPE, "name": "ns/x"}, {}),
        (409, {"operation": "CREATE", "type": SPACE_TYPE, "name": "ns/shop"}, {}),
        (409, {"operation": "UPDATE", "type": ADDRESS_TYPE, "name": "ns/q"}, {"partitions": 2}),
        (409, {"operation": "DELETE", "type": SPACE_TYPE, "name": "ns/shop"}, {}),
        (501, {"operation": "READ", "type": "io.enmasse.teapot", "name": "x"}, {}),
        (501, {"operation": "READ"}, {}),
        (501, {"operation": "PURGE", "type": SPACE_TYPE, "name": "ns/shop"}, {}),
        (501, {"operation": "PURGE", "type": LINK_TYPE, "name": "in"}, {}),
        (404, {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "ns/x"}, {}),
        (400, {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "ns/q"}, {"to": "x"}),
        (400, {"operation": "REPLAY", "type": ADDRESS_TYPE, "name": "ns/q"}, {"selector": 5}),
        (400, {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "ns/q"}, {}),
        (400, {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "ns/q"}, {"to": "q"}),
        (400, {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "ns/q"}, {"to": "a"}),
        (404, {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "ns/q"}, {"to": "nowhere"}),
        (400, {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "ns/a"}, {}),
        (501, {"type": ADDRESS_TYPE, "name": "ns/q"}, {}),
        (501, {"operation": "DELETE", "type": LINK_TYPE, "name": "in"}, {}),
        (501, {"operation": "QUERY", "entityType": "io.enmasse.teapot"}, {}),
    ],
)
def test_what_cannot_be_done_is_answered_with_the_status_that_says_why(
    desk: Desk, status: int, asked: dict[str, Any], body: Any
) -> None:
    reply = desk.request(body, **asked)
    assert reply.status == status
    assert reply.description
    assert reply.body == {}


def stored(desk: Desk, address: str = "q") -> list[str]:
    """What an address stores, seen by a receiver that gives it back."""
    port = desk.harness.receiver(desk.find(address), 100)
    desk.harness.turn()
    found = [str(Sections(payload).body) for payload in port.payloads]
    port.release(len(port.unsettled))
    port.leave()
    desk.harness.turn()
    return found


def filled(desk: Desk) -> Desk:
    """Three messages of two colours in the queue."""
    sender = desk.harness.sender(desk.find("q"))
    desk.harness.turn()
    for number, colour in enumerate(("red", "blue", "red")):
        sender.send(encode_message(f"{number}", application_properties={"colour": colour}))
    desk.harness.commit()
    sender.leave()
    return desk


def test_messages_are_purged_all_or_selected_ones(desk: Desk) -> None:
    asked: dict[str, Any] = {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "ns/q"}
    reply = filled(desk).request({"selector": "colour = 'red'"}, **asked)
    assert (reply.status, reply.body) == (200, {"count": 2})
    assert stored(desk) == ["1"]
    assert desk.request(**asked).body == {"count": 1}
    assert desk.request({"selector": " "}, **asked).body == {"count": 0}


def test_an_operation_whose_client_has_gone_ends(desk: Desk) -> None:
    for _ in range(20):
        filled(desk)
    desk.gone.add("$dynamic/1")
    count = desk.request(operation="PURGE", type=ADDRESS_TYPE, name="ns/q").body["count"]
    assert 0 < count < 60
    assert len(stored(desk)) == 60 - count


def test_messages_with_a_text_in_them_are_counted_and_purged(desk: Desk) -> None:
    asked: dict[str, Any] = {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "ns/q"}
    assert filled(desk).request({"search": "RED", "dryRun": True}, **asked).body == {"count": 2}
    assert desk.request({"search": "red", "selector": "colour = 'blue'"}, **asked).body == {"count": 0}
    assert desk.request({"search": "2"}, **asked).body == {"count": 1}
    assert stored(desk) == ["0", "1"]
    assert desk.request({"search": 5}, **asked).status == 400
    assert desk.request({"search": ""}, **asked).body == {"count": 2}


def test_messages_are_moved_to_another_address(desk: Desk) -> None:
    assert desk.create(ADDRESS_TYPE, "ns/r", space="ns/shop", address="r", addressType="queue").status == 201
    asked: dict[str, Any] = {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "ns/q"}
    reply = filled(desk).request({"to": "r", "selector": "colour = 'red'"}, **asked)
    assert (reply.status, reply.body) == (200, {"count": 2})
    assert (stored(desk), stored(desk, "r")) == (["1"], ["0", "2"])


def test_dead_letters_are_sent_back_to_where_they_came_from(desk: Desk) -> None:
    made = desk.create(ADDRESS_TYPE, "ns/d", space="ns/shop", address="d", addressType="deadletter")
    assert made.status == 201
    changed = desk.request({"deadletter": "d"}, operation="UPDATE", type=ADDRESS_TYPE, name="ns/q")
    assert changed.status == 200
    filled(desk)
    port = desk.harness.receiver(desk.find("q"), 3)
    desk.harness.turn()
    port.settle(Rejected(AmqpError("app:bad", "cannot be read")), 3)
    port.leave()
    desk.harness.commit()
    assert (stored(desk), stored(desk, "d")) == ([], ["0", "1", "2"])
    asked: dict[str, Any] = {"operation": "REPLAY", "type": ADDRESS_TYPE, "name": "ns/d"}
    assert desk.request({"selector": "colour = 'blue'"}, **asked).body == {"count": 1}
    assert (stored(desk), stored(desk, "d")) == (["1"], ["0", "2"])


def test_what_could_not_be_sent_back_is_told(desk: Desk) -> None:
    filled(desk)
    reply = desk.request(operation="REPLAY", type=ADDRESS_TYPE, name="ns/q")
    assert (reply.status, "no original address; 0 messages were dealt with" in reply.description) == (409, True)
    assert stored(desk) == ["0", "1", "2"]


def test_a_selector_that_is_not_understood_is_refused_with_the_place(desk: Desk) -> None:
    filled(desk)
    reply = desk.request({"selector": "colour = "}, operation="PURGE", type=ADDRESS_TYPE, name="ns/q")
    assert (reply.status, "is not understood at character 10" in reply.description) == (400, True)
    assert stored(desk) == ["0", "1", "2"]


def test_a_change_that_could_not_be_stored_is_answered_503(desk: Desk) -> None:
    payload = encode_message(
        {},
        properties=Properties(reply_to="r"),
        application_properties={"operation": "CREATE", "type": SPACE_TYPE, "name": "ns/b"},
    )
    desk.management.serve(payload)
    desk.harness.fail()
    (reply,) = desk.replies
    assert (reply.status, "the disk is full" in reply.description) == (503, True)


def test_a_query_gives_the_attributes_asked_for_row_by_row(desk: Desk) -> None:
    reply = desk.request({"attributeNames": ["name", "credit"]}, operation="QUERY", entityType=LINK_TYPE)
    assert reply.status == 200
    assert reply.body == {"attributeNames": ["name", "credit"], "results": [["in", 7], ["out", None]]}


@pytest.mark.parametrize("body", [{}, {"attributeNames": []}, b"no map"])
def test_a_query_that_names_no_attributes_gives_them_all(desk: Desk, body: Any) -> None:
    reply = desk.request(body, operation="QUERY", entityType=LINK_TYPE)
    assert reply.body["attributeNames"] == ["type", "identity", "name", "credit", "address"]
    assert reply.body["results"][1] == [LINK_TYPE, "1/0/1", "out", None, "orders"]


def test_a_query_of_addresses_has_their_counters(desk: Desk) -> None:
    names = ["name", "address", "messagesStored"]
    reply = desk.request({"attributeNames": names}, operation="QUERY", entityType=ADDRESS_TYPE)
    assert reply.body["results"] == [["ns/q", "q", 0], ["ns/a", "a", 0]]


def test_what_can_only_be_read_is_found_by_name_or_identity(desk: Desk) -> None:
    for key in ("in", "1/0/0"):
        assert desk.request(operation="READ", type=LINK_TYPE, name=key).body == desk.links[0]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (Properties(reply_to="r", message_id="m", correlation_id="c"), "c"),
        (Properties(reply_to="r", message_id="m"), "m"),
        (Properties(reply_to="r", message_id=17), 17),
        (Properties(reply_to="r", message_id="m", correlation_id=0), 0),
        (Properties(reply_to="r"), None),
    ],
)
def test_an_answer_names_its_request(desk: Desk, properties: Properties, expected: Any) -> None:
    reply = desk.request(operation="QUERY", properties=properties)
    assert (reply.to, reply.correlation) == ("r", expected)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00\x53\x77garbage",
        encode_message({}, application_properties={"operation": "QUERY"}),
        encode_message({}, properties=Properties(message_id="m"), application_properties={"operation": "QUERY"}),
    ],
    ids=["empty", "garbage", "no properties", "no reply-to"],
)
def test_a_request_without_a_way_back_is_dropped(desk: Desk, payload: bytes) -> None:
    desk.management.serve(payload)
    desk.harness.commit()
    assert desk.replies == []


def test_a_query_may_ask_for_a_page(desk: Desk) -> None:
    def names(**asked: Any) -> list[str]:
        body = {"attributeNames": ["name"]}
        return [
            row[0] for row in desk.request(body, operation="QUERY", entityType=ADDRESS_TYPE, **asked).body["results"]
        ]

    assert names() == ["ns/q", "ns/a"]
    assert names(count=1) == ["ns/q"]
    assert names(offset=1, count=5) == ["ns/a"]
    assert names(offset=2) == []
    assert desk.request({}, operation="QUERY", entityType=LINK_TYPE, offset=1).body["results"][0][1] == "1/0/1"
    assert desk.request({}, operation="QUERY", entityType=LINK_TYPE, count="1").status == 400
    assert desk.request({}, operation="QUERY", entityType=LINK_TYPE, offset=-1).status == 400


def test_the_values_of_a_space_are_listed_and_cleared_by_its_name(desk: Desk) -> None:
    for operation, answer in (("RETAINED", {"results": []}), ("CLEAR-RETAINED", {"count": 0})):
        reply = desk.request({"filter": "#"}, operation=operation, type=SPACE_TYPE, name="ns/shop")
        assert (reply.status, reply.body) == (200, answer | {"offset": None})
        assert desk.request({"filter": "#"}, operation=operation, type=SPACE_TYPE, name="ns/no").status == 404
        assert desk.request({}, operation=operation, type=SPACE_TYPE, name="ns/shop").status == 400
