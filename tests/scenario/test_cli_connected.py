"""Who is connected, by which links, what flows, and how to send somebody out."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

from enmasse.client.blocking import connect
from enmasse.client.message import Message
from tests.support.polling import until

if TYPE_CHECKING:
    from tests.support.installation import Installation

pytestmark = pytest.mark.slow


def test_connections_and_links_are_listed_and_closed(own: Installation) -> None:
    own.ok("create", "space", "shop")
    own.ok("create", "address", "orders", "--type", "queue")
    own.ok("create", "space", "other")
    with connect(own.url("amqp"), container_id="till-1", hostname="shop.default", reconnect=False) as connection:
        sender = connection.sender("orders")
        for number in range(3):
            sender.send(Message(str(number)))
        table = own.ok("get", "connections", "--space", "shop").splitlines()
        assert " ".join(table[0].split()) == "NAME CONTAINER HOST USER SENDERS RECEIVERS IN OUT AGE NOT READ"
        assert "till-1" in table[1]
        (link,) = json.loads(own.ok("get", "links", "-s", "shop", "-o", "json"))["items"]
        assert (link["role"], link["address"], link["deliveries"]) == ("sender", "orders", 3)
        assert own.run("get", "connections", "-s", "other").err == "There are no connections.\n"
        top = own.ok("top", "--count", "1", "--space", "shop").splitlines()
        assert [line.split()[:3] for line in top[1:]] == [["default/shop", "orders", "queue"]]

        name = json.loads(own.ok("get", "connections", "-s", "shop", "-o", "json"))["items"][0]["name"]
        elsewhere = own.run("delete", "connection", name, "--space", "other")
        assert (elsewhere.code, f"has no connection {name}" in elsewhere.err) == (3, True)
        assert own.ok("delete", "connection", name, "--space", "shop") == f"connection/{name} closed\n"
        until(lambda: not own.run("get", "connections", "-s", "shop").out)
    unknown = own.run("get", "connections", "--space", "nowhere")
    assert unknown.code == 3


def test_a_space_with_a_port_of_its_own_need_not_be_named(own: Installation) -> None:
    own.ok("create", "space", "other")
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    plan = json.loads(own.ok("get", "spaceplan", "standard-unlimited", "-o", "json"))
    plan["metadata"] = {"name": "with-ports", "namespace": plan["metadata"]["namespace"]}
    plan["spec"]["ports"] = {"first": port, "last": port}
    space = {
        "apiVersion": "enmasse.io/v1beta1",
        "kind": "AddressSpace",
        "metadata": {"name": "shop"},
        "spec": {
            "plan": "with-ports",
            "endpoints": [{"name": "messaging", "service": "messaging", "port": port}],
        },
    }
    plan.pop("status", None)
    own.ok("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": [plan, space]}))
    own.ok("create", "address", "orders", "--type", "queue", "--space", "shop")
    with connect(f"amqp://127.0.0.1:{port}", reconnect=False, patience=20) as connection:
        connection.sender("orders").send(Message("without a name"))
    told = json.loads(own.ok("get", "space", "shop", "-o", "json"))["status"]["endpointStatuses"]
    assert told[0]["servicePorts"]["amqp"] == port
    own.ok("delete", "space", "shop")
    own.ok("delete", "spaceplan", "with-ports")
