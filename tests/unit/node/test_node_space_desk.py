"""``$management`` of a space: its users see their own space, and act on it if they may; nothing of another."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from enmasse.identity.permissions import Grant
from enmasse.node.entities import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.entity_types import CONNECTION_TYPE, LINK_TYPE
from enmasse.node.space_desk import BURST, WAITING_BYTES, SpaceDesk
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import Source
from enmasse.wire.amqp.sections import Header, Properties, Sections, encode_message
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
        self.connections.desk = SpaceDesk(self.entities, self.connections, lambda: self.now)
        self.set_users(
            [
                person("viewer", "ns/shop", VIEWER),
                person("boss", "ns/shop", MANAGER, Grant(("send",), ("orders",))),
                person("worker", "ns/shop", Grant(("send", "recv"), ("#",))),
                person("flo", "ns/factory", Grant(("all",), ("#",))),
            ]
        )

    def desk(self, name: str) -> Desk:
        return Desk(self.user(name))


class Desk:
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
    desk = site.desk("viewer@shop.ns")
    assert desk.query(ADDRESS_TYPE, "space", "address") == [
        ["ns/shop", name] for name in ("orders", "orders/eu", "stock", "replies", "news", "mine")
    ]
    assert desk.query(ADDRESS_TYPE, "address", offset=1, count=2) == [["orders/eu"], ["stock"]]
    assert desk.query(CONNECTION_TYPE, "space", "user") == [["ns/shop", "viewer"]]
    assert {row[0] for row in desk.query(LINK_TYPE, "space")} == {"ns/shop"}
    assert desk.query(SPACE_TYPE, "name") == [["ns/shop"]]
    assert desk.ask(operation="READ", type=ADDRESS_TYPE, name="orders").body["messagesStored"] == 0
    assert desk.ask(operation="READ", type=ADDRESS_TYPE, name="ns/shop.orders").status == 200
    for name in ("ns/factory.orders", "ns/open.stock", "nothing", "", "x" * 10_000):
        assert desk.ask(operation="READ", type=ADDRESS_TYPE, name=name).status == 404
    assert desk.ask(operation="READ", type=SPACE_TYPE, name="ns/factory").status == 404


@pytest.mark.parametrize("user", ["viewer", "boss"])
def test_a_user_is_told_of_what_it_may_ask_for_and_no_more(site: Site, user: str) -> None:
    desk = site.desk(f"{user}@shop.ns")
    types = [SPACE_TYPE, ADDRESS_TYPE, CONNECTION_TYPE, LINK_TYPE]
    assert desk.ask(operation="GET-TYPES").body == {kind: [] for kind in types}
    attributes = desk.ask(operation="GET-ATTRIBUTES").body
    assert list(attributes) == types
    for kind in types:
        told = desk.ask({"attributeNames": []}, operation="QUERY", entityType=kind).body
        assert told["results"]
        assert set(told["attributeNames"]) <= set(attributes[kind])
    operations = desk.ask(operation="GET-OPERATIONS").body
    assert list(operations) == types
    assert operations[SPACE_TYPE] == operations[LINK_TYPE] == {"READ": []}
    acts = {"PURGE": ["selector"], "MOVE": ["to", "selector"], "REPLAY": ["selector"]} if user == "boss" else {}
    assert operations[ADDRESS_TYPE] == {"READ": [], **acts}
    assert operations[CONNECTION_TYPE] == {"READ": []} | ({"DELETE": []} if user == "boss" else {})
    assert desk.ask(operation="GET-MGMT-NODES").body == []
    reply = desk.ask(operation="GET-ATTRIBUTES", entityType="io.enmasse.listener")
    assert (reply.status, "io.enmasse.user" in reply.description) == (501, False)


def test_who_may_only_view_changes_nothing(site: Site) -> None:
    fill(site, "ns/shop", b"1")
    desk = site.desk("viewer@shop.ns")
    for asked in (
        {"operation": "PURGE", "type": ADDRESS_TYPE, "name": "orders"},
        {"operation": "MOVE", "type": ADDRESS_TYPE, "name": "orders"},
        {"operation": "DELETE", "type": CONNECTION_TYPE, "name": "1"},
    ):
        reply = desk.ask(**asked)
        assert (reply.status, "lacks the permission 'manage'" in reply.description) == (403, True)
    for operation in ("CREATE", "UPDATE", "DELETE", "TRACE", "LIST", ""):
        for kind in (ADDRESS_TYPE, SPACE_TYPE, "io.enmasse.user", "io.enmasse.listener", ""):
            assert desk.ask(operation=operation, type=kind, name="ns/shop.orders").status == 501
    for kind in ("io.enmasse.user", "io.enmasse.listener", "io.enmasse.statistics", "io.enmasse.health"):
        assert desk.ask(operation="QUERY", entityType=kind).status == 501
        assert desk.ask(operation="READ", type=kind, name="x").status == 501
    assert site.entities.spaces["ns/shop"].find("orders").counts()["messagesStored"] == 1


def test_who_may_manage_acts_on_its_own_space(site: Site) -> None:
    fill(site, "ns/shop", b"1", b"2")
    fill(site, "ns/factory", b"3")
    desk = site.desk("boss@shop.ns")
    assert desk.ask({"to": "stock"}, operation="MOVE", type=ADDRESS_TYPE, name="orders").body == {"count": 2}
    assert desk.ask(operation="PURGE", type=ADDRESS_TYPE, name="ns/shop.stock").body == {"count": 2}
    assert desk.ask(operation="PURGE", type=ADDRESS_TYPE, name="ns/factory.orders").status == 404
    assert desk.ask({"to": 7}, operation="MOVE", type=ADDRESS_TYPE, name="orders").status == 400
    assert site.entities.spaces["ns/factory"].find("orders").counts()["messagesStored"] == 1


def test_who_may_manage_closes_connections_of_its_own_space(site: Site) -> None:
    flo, worker = site.user("flo@factory.ns"), site.user("worker@shop.ns")
    desk = site.desk("boss@shop.ns")
    numbers = {client: str(site.connections.numbers[client.binding]) for client in (flo, worker)}
    assert desk.ask(operation="DELETE", type=CONNECTION_TYPE, name=numbers[flo]).status == 404
    assert desk.ask(operation="DELETE", type=CONNECTION_TYPE, name=numbers[worker]).status == 204
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
    desk = Desk(site.meet(hostname="open.ns", without_sasl=True))
    assert len(desk.query(ADDRESS_TYPE, "address")) == 6
    assert desk.ask(operation="PURGE", type=ADDRESS_TYPE, name="orders").status == 200


def test_a_permission_that_is_taken_away_is_gone_at_once(site: Site) -> None:
    desk = site.desk("boss@shop.ns")
    site.set_users([person("boss", "ns/shop", VIEWER)])
    assert desk.ask(operation="PURGE", type=ADDRESS_TYPE, name="orders").status == 403
    assert desk.query(SPACE_TYPE, "name") == [["ns/shop"]]
    site.set_users([person("boss", "ns/shop")])
    desk.client.go()
    assert desk.client.refusals == [("requests", REFUSED, True)]


def test_an_answer_goes_to_a_dynamic_address_and_nowhere_else(site: Site) -> None:
    desk = site.desk("viewer@shop.ns")
    for address in ("orders", "$management", "$dynamic/none"):
        desk.send(operation="QUERY", entityType=SPACE_TYPE, reply_to=address)
    assert desk.answers.payloads == []
    assert site.entities.spaces["ns/shop"].find("orders").counts()["messagesStored"] == 0


def test_what_is_malformed_is_dropped_or_answered(site: Site) -> None:
    desk = site.desk("viewer@shop.ns")
    desk.requests.send(b"m", b"\x00\x53\x77\xff", settled=True)
    desk.client.go()
    for asked in ({"offset": -1}, {"count": "many"}, {"count": True}):
        assert desk.ask(operation="QUERY", entityType=ADDRESS_TYPE, **asked).status == 400
    assert desk.ask({"attributeNames": [7]}, operation="QUERY", entityType=ADDRESS_TYPE).status == 400


def test_a_space_that_asks_too_often_is_told_to_wait(site: Site) -> None:
    desk = site.desk("viewer@shop.ns")
    statuses = [desk.ask(operation="READ", type=SPACE_TYPE, name="ns/shop").status for _ in range(BURST + 1)]
    assert statuses == [200] * BURST + [429]
    assert Desk(site.meet(hostname="open.ns", without_sasl=True)).query(SPACE_TYPE, "name") == [["ns/open"]]
    site.now += 1
    assert desk.query(SPACE_TYPE, "name") == [["ns/shop"]]


def test_who_does_not_fetch_answers_gets_none(site: Site) -> None:
    desk = site.desk("viewer@shop.ns")
    space = site.entities.spaces["ns/shop"]
    replies = space.addresses[desk.reply_to]
    replies.backlog_bytes = WAITING_BYTES  # type: ignore[attr-defined]  # as if that much waited
    desk.send(operation="READ", type=SPACE_TYPE, name="ns/shop")
    assert desk.answers.payloads == []
