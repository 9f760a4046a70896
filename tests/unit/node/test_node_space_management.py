"""``$management`` of a space: its users see their own space, and act on it if they may; nothing of another."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from enmasse.identity.permissions import Grant
from enmasse.message.sections import Header, Properties, Sections, encode_message
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.management.entity_types import CONNECTION_TYPE, LINK_TYPE, SESSION_TYPE, WILL_TYPE
from enmasse.node.management.space_management import BURST, WAITING_BYTES, SpaceManagement
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import Source
from tests.unit.node.test_node_admission import Guarded, GuardedClient, person

VIEWER, MANAGER = Grant(("view",)), Grant(("manage",))
REFUSED = "amqp:unauthorized-access"


class Reply(NamedTuple):
    status: int
    description: str
    body: Any


class Site(Guarded):
    """Two spaces with users who view, manage, or do neither; the same address lies in both."""

    def __init__(self) -> None:
        super().__init__()
        self.address("orders", "queue", "ns/factory")
        self.connections.space_management = SpaceManagement(self.entities, self.connections, lambda: self.now)
        self.set_users(
            [
                person("viewer", "ns/shop", VIEWER),
                person("boss", "ns/shop", MANAGER, Grant(("send",), ("orders",))),
                person("worker", "ns/shop", Grant(("send", "recv"), ("#",))),
                person("flo", "ns/factory", Grant(("all",), ("#",))),
            ]
        )

    def requester(self, name: str) -> Requester:
        return Requester(self.user(name))


class Requester:
    """A client that asks its space."""

    def __init__(self, client: GuardedClient) -> None:
        self.client = client
        self.answers = client.receiver(Source(dynamic=True), name="answers")
        assert self.answers.link is not None
        source = self.answers.link.remote_attach
        assert source is not None
        assert isinstance(source.source, Source)
        self.reply_to = source.source.address
        link = client.sender("$management", name="requests").link
        assert isinstance(link, SendingLink)
        self.requests = link

    def send(self, body: Any = None, *, reply_to: str | None = None, **asked: Any) -> None:
        payload = encode_message(
            {} if body is None else body,
            properties=Properties(reply_to=reply_to or self.reply_to, message_id="m1"),
            application_properties={key: value for key, value in asked.items() if value is not None},
        )
        self.requests.send(b"m", payload, settled=True)
        self.client.go()

    def ask(self, body: Any = None, **asked: Any) -> Reply:
        before = len(self.answers.payloads)
        self.send(body, **asked)
        (payload,) = self.answers.payloads[before:]
        found = Sections(payload)
        assert found.properties.correlation_id == "m1"
        told = found.application_properties
        return Reply(told["statusCode"], told["statusDescription"], found.body)

    def query(self, kind: str, *names: str, **asked: Any) -> list[list[Any]]:
        reply = self.ask({"attributeNames": list(names)}, operation="QUERY", entityType=kind, **asked)
        assert reply.status == 200, reply.description
        found: list[list[Any]] = reply.body["results"]
        return found


@pytest.fixture
def site() -> Site:
    return Site()


def fill(site: Site, space: str, *bodies: bytes) -> None:
    sender = site.harness.sender(site.entities.spaces[space].find("orders"))
    site.harness.turn()
    for body in bodies:
        sender.send(encode_message(body, header=Header(durable=True)))
    site.harness.commit()
    sender.leave()


def test_who_may_view_sees_its_own_space_and_nothing_else(site: Site) -> None:
    fill(site, "ns/factory", b"1", b"2")
    site.user("flo@factory.ns")
    requester = site.requester("viewer@shop.ns")
    assert requester.query(ADDRESS_TYPE, "space", "address") == [
        ["ns/shop", name] for name in ("orders", "orders/eu", "stock", "replies", "news", "mine")
    ]
    assert requester.query(ADDRESS_TYPE, "address", offset=1, count=2) == [["orders/eu"], ["stock"]]
    assert requester.query(CONNECTION_TYPE, "space", "user") == [["ns/shop", "viewer"]]
    assert {row[0] for row in requester.query(LINK_TYPE, "space")} == {"ns/shop"}
    assert requester.query(SPACE_TYPE, "name") == [["ns/shop"]]
    assert requester.ask(operation="READ", type=ADDRESS_TYPE, name="orders").body["messagesStored"] == 0
    assert requester.ask(operation="READ", type=ADDRESS_TYPE, name="ns/shop.orders").status == 200
    for name in ("ns/factory.orders", "ns/open.stock", "nothing", "", "x" * 10_000):
        assert requester.ask(operation="READ", type=ADDRESS_TYPE, name=name).status == 404
    assert requester.ask(operation="READ", type=SPACE_TYPE, name="ns/factory").status == 404


@pytest.mark.parametrize("user", ["viewer", "boss"])
def test_a_user_is_told_of_what_it_may_ask_for_and_no_more(site: Site, user: str) -> None:
    requester = site.requester(f"{user}@shop.ns")
    types = [SPACE_TYPE, ADDRESS_TYPE, CONNECTION_TYPE, LINK_TYPE, SESSION_TYPE, WILL_TYPE]
    assert requester.ask(operation="GET-TYPES").body == {kind: [] for kind in types}
    attributes = requester.ask(operation="GET-ATTRIBUTES").body
    assert list(attributes) == types
    for kind in types:
        told = requester.ask({"attributeNames": []}, operation="QUERY", entityType=kind).body
        # There are sessions and wills for `test_node_wills` alone.
        assert told["results"] or kind in (SESSION_TYPE, WILL_TYPE)
        assert set(told["attributeNames"]) <= set(attributes[kind])
    operations = requester.ask(operation="GET-OPERATIONS").body
    assert list(operations) == types
    clears = {"CLEAR-RETAINED": ["filter", "offset"]} if user == "boss" else {}
    assert operations[SPACE_TYPE] == {"READ": [], "RETAINED": ["filter", "offset"], **clears}
    assert operations[LINK_TYPE] == {"READ": []}
    chosen = ["selector", "search", "ids", "dryRun"]
    acts = {"PURGE": chosen, "MOVE": ["to", *chosen], "REPLAY": chosen} if user == "boss" else {}
    assert operations[ADDRESS_TYPE] == {"READ": [], **acts}
    for kind in (CONNECTION_TYPE, SESSION_TYPE):
        assert operations[kind] == {"READ": []} | ({"DELETE": []} if user == "boss" else {})
    assert requester.ask(operation="GET-MGMT-NODES").body == []
    reply = requester.ask(operation="GET-ATTRIBUTES", entityType="io.enmasse.listener")
    assert (reply.status, "io.enmasse.user" in reply.description) == (501, False)


def test_who_may_only_view_changes_nothing(site: Site) -> None:
    fill(site, "ns/shop", b"1")
    requester = site.requester("viewer@shop.ns")
    for asked in (
        {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "orders"},
        {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "orders"},
        {"operation": "DELETE", "type": CONNECTION_TYPE, "name": "1"},
    ):
        reply = requester.ask(**asked)
        assert (reply.status, "lacks the permission 'manage'" in reply.description) == (403, True)
    for operation in ("CREATE", "UPDATE", "DELETE", "TRACE", "LIST", ""):
        for kind in (ADDRESS_TYPE, SPACE_TYPE, "io.enmasse.user", "io.enmasse.listener", ""):
            assert requester.ask(operation=operation, type=kind, name="ns/shop.orders").status == 501
    for kind in ("io.enmasse.user", "io.enmasse.listener", "io.enmasse.statistics", "io.enmasse.health"):
        assert requester.ask(operation="QUERY", entityType=kind).status == 501
        assert requester.ask(operation="READ", type=kind, name="x").status == 501
    assert site.entities.spaces["ns/shop"].find("orders").counts()["messagesStored"] == 1


def test_who_may_manage_acts_on_its_own_space(site: Site) -> None:
    fill(site, "ns/shop", b"1", b"2")
    fill(site, "ns/factory", b"3")
    requester = site.requester("boss@shop.ns")
    assert requester.ask({"to": "stock"}, operation="MOVE", type=ADDRESS_TYPE, name="orders").body == {"count": 2}
    assert requester.ask(operation="PURGE", type=ADDRESS_TYPE, name="ns/shop.stock").body == {"count": 2}
    assert requester.ask(operation="PURGE", type=ADDRESS_TYPE, name="ns/factory.orders").status == 404
    assert requester.ask({"to": 7}, operation="MOVE", type=ADDRESS_TYPE, name="orders").status == 400
    assert site.entities.spaces["ns/factory"].find("orders").counts()["messagesStored"] == 1


def test_who_may_manage_closes_connections_of_its_own_space(site: Site) -> None:
    flo, worker = site.user("flo@factory.ns"), site.user("worker@shop.ns")
    requester = site.requester("boss@shop.ns")
    numbers = {client: str(site.connections.numbers[client.binding]) for client in (flo, worker)}
    assert requester.ask(operation="DELETE", type=CONNECTION_TYPE, name=numbers[flo]).status == 404
    assert requester.ask(operation="DELETE", type=CONNECTION_TYPE, name=numbers[worker]).status == 204
    worker.go()
    assert worker.error is not None
    assert worker.error[0] == "amqp:connection:forced"
    assert flo.is_in


def test_others_are_not_let_to_the_desk(site: Site) -> None:
    client = site.user("worker@shop.ns")
    client.sender("$management", name="requests")
    assert client.refusals == [("requests", REFUSED, True)]
    client.receiver("$management", name="in")
    assert client.refusals[-1] == ("in", REFUSED, True)


def test_the_list_of_addresses_is_for_those_who_may_view(site: Site) -> None:
    worker = site.user("worker@shop.ns")
    worker.receiver("$addresses", name="list")
    assert worker.refusals == [("list", REFUSED, True)]
    viewer = site.user("viewer@shop.ns")
    assert viewer.receiver("$addresses", name="list").payloads
    viewer.receiver("orders", name="in")
    assert viewer.refusals == [("in", REFUSED, True)]


def test_everybody_may_manage_a_space_for_everybody(site: Site) -> None:
    requester = Requester(site.meet(hostname="open.ns", without_sasl=True))
    assert len(requester.query(ADDRESS_TYPE, "address")) == 6
    assert requester.ask(operation="PURGE", type=ADDRESS_TYPE, name="orders").status == 200


def test_a_permission_that_is_taken_away_is_gone_at_once(site: Site) -> None:
    requester = site.requester("boss@shop.ns")
    site.set_users([person("boss", "ns/shop", VIEWER)])
    assert requester.ask(operation="PURGE", type=ADDRESS_TYPE, name="orders").status == 403
    assert requester.query(SPACE_TYPE, "name") == [["ns/shop"]]
    site.set_users([person("boss", "ns/shop")])
    requester.client.go()
    assert requester.client.refusals == [("requests", REFUSED, True)]


def test_an_answer_goes_to_a_dynamic_address_and_nowhere_else(site: Site) -> None:
    requester = site.requester("viewer@shop.ns")
    for address in ("orders", "$management", "$dynamic/none"):
        requester.send(operation="QUERY", entityType=SPACE_TYPE, reply_to=address)
    assert requester.answers.payloads == []
    assert site.entities.spaces["ns/shop"].find("orders").counts()["messagesStored"] == 0


def test_what_is_malformed_is_dropped_or_answered(site: Site) -> None:
    requester = site.requester("viewer@shop.ns")
    requester.requests.send(b"m", b"\x00\x53\x77\xff", settled=True)
    requester.client.go()
    for asked in ({"offset": -1}, {"count": "many"}, {"count": True}):
        assert requester.ask(operation="QUERY", entityType=ADDRESS_TYPE, **asked).status == 400
    assert requester.ask({"attributeNames": [7]}, operation="QUERY", entityType=ADDRESS_TYPE).status == 400


def test_a_space_that_asks_too_often_is_told_to_wait(site: Site) -> None:
    requester = site.requester("viewer@shop.ns")
    statuses = [requester.ask(operation="READ", type=SPACE_TYPE, name="ns/shop").status for _ in range(BURST + 1)]
    assert statuses == [200] * BURST + [429]
    assert Requester(site.meet(hostname="open.ns", without_sasl=True)).query(SPACE_TYPE, "name") == [["ns/open"]]
    site.now += 1
    assert requester.query(SPACE_TYPE, "name") == [["ns/shop"]]


def test_who_does_not_fetch_answers_gets_none(site: Site) -> None:
    requester = site.requester("viewer@shop.ns")
    space = site.entities.spaces["ns/shop"]
    replies = space.addresses[requester.reply_to]
    replies.backlog_bytes = WAITING_BYTES  # type: ignore[attr-defined]  # as if that much waited
    requester.send(operation="READ", type=SPACE_TYPE, name="ns/shop")
    assert requester.answers.payloads == []


# Retained values


def retain(site: Site, space: str, address: str, *names: str) -> None:
    topic = site.entities.spaces[space].find(address)
    for name in names:
        sender = site.harness.sender(topic, name)
        site.harness.turn()
        sender.send(encode_message(b"v", header=Header(durable=True), message_annotations={"x-opt-retain": True}))
        sender.leave()
    site.harness.commit()


def test_who_may_view_sees_which_values_its_space_has_and_no_message(site: Site) -> None:
    site.address("states", "topic", "ns/factory")
    retain(site, "ns/shop", "news", "news/a", "news/b")
    retain(site, "ns/factory", "states", "states/x")
    requester = site.requester("viewer@shop.ns")
    reply = requester.ask({"filter": "#"}, operation="RETAINED", type=SPACE_TYPE)
    assert reply.status == 200
    assert [(value["name"], value["address"]) for value in reply.body["results"]] == [
        ("news/a", "news"), ("news/b", "news"),
    ]  # fmt: skip
    assert "message" not in reply.body["results"][0]
    named = requester.ask({"filter": "news/b"}, operation="RETAINED", type=SPACE_TYPE, name="ns/shop")
    assert [value["name"] for value in named.body["results"]] == ["news/b"]
    for name in ("ns/factory", "shop"):
        assert requester.ask({"filter": "#"}, operation="RETAINED", type=SPACE_TYPE, name=name).status == 404
    refused = requester.ask({"filter": "#"}, operation="CLEAR-RETAINED", type=SPACE_TYPE)
    assert (refused.status, "lacks the permission 'manage'" in refused.description) == (403, True)
    assert len(site.entities.spaces["ns/shop"].retained) == 2


def test_who_may_manage_clears_values_of_its_own_space(site: Site) -> None:
    site.address("states", "topic", "ns/factory")
    retain(site, "ns/shop", "news", "news/a", "news/b")
    retain(site, "ns/factory", "states", "states/x")
    requester = site.requester("boss@shop.ns")
    assert requester.ask({"filter": "+/a"}, operation="CLEAR-RETAINED", type=SPACE_TYPE).body == {
        "count": 1, "offset": None,
    }  # fmt: skip
    assert (
        requester.ask({"filter": "#"}, operation="CLEAR-RETAINED", type=SPACE_TYPE, name="ns/factory").status == 404
    )
    assert [len(site.entities.spaces[space].retained) for space in ("ns/shop", "ns/factory")] == [1, 1]
