"""Events that the node sends of devices by itself, where their tenant wishes them."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.devices.stage import EMPTY, GREEN, eventually, flush, message_of
from tests.support.foreign_tools import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.devices.stage import Listening, Stage

pytestmark = pytest.mark.slow

CONNECTION = "application/vnd.eclipse-hono-dc-notification+json"


@pytest.fixture(autouse=True)
def needs() -> None:
    require("paho-mqtt", "python-qpid-proton")


@contextmanager
def wished(stage: Stage, name: str) -> Iterator[Listening]:
    """Have the tenant tell of something; what it tells is received."""
    tenant = stage.registry.get(f"/tenants/{GREEN}").json()
    with stage.application().listen("event") as events:
        try:
            stage.registry.put(f"/tenants/{GREEN}", json=tenant | {"ext": {name: True}}).raise_for_status()
            probe = stage.device()

            def is_told() -> bool:
                # The node is told a little later: then it tells of the first who comes.
                with stage.mqtt(probe) as client:
                    client.subscribe("command///req/#")
                    client.send("event", b"end")
                    bodies = [events.body(probe)]
                    while bodies[-1] != b"end":
                        bodies.append(events.body(probe))
                    return len(bodies) > 1

            eventually(is_told)
            yield events
        finally:
            stage.registry.put(f"/tenants/{GREEN}", json=tenant).raise_for_status()


def told(events: Listening, device: str) -> dict[str, Any]:
    message = events.next(device)
    assert message.content_type == CONNECTION
    assert message.durable
    found: dict[str, Any] = json.loads(bytes(message.body))
    return found


def test_connections_of_devices_are_told(stage: Stage) -> None:
    one, two = stage.device(), stage.device()
    with wished(stage, "connection-events") as events:
        with stage.mqtt(one):
            come = told(events, one)
            assert (come["cause"], come["source"]) == ("connected", "hono-mqtt")
            assert come["remote-id"]
        assert told(events, one) == come | {"cause": "disconnected"}
        with stage.mqtt(one, will="event") as client:
            assert told(events, one)["cause"] == "connected"
            client.cut()
            assert told(events, one)["cause"] == "disconnected"
        # Its will is ignored.
        assert stage.http(one).post("/event", content=b"after").status_code == 202
        assert events.body(one) == b"after"
        with stage.amqp(two) as connection:
            come = told(events, two)
            assert (come["cause"], come["source"]) == ("connected", "hono-amqp")
            assert come["remote-id"] == connection.conn.container
            stage.change(two, {"enabled": False})
            gone = told(events, two)
            assert gone == come | {"cause": "disconnected", "data": {"reason": "the device was disabled or deleted"}}


def test_devices_that_listen_for_commands_are_told(stage: Stage) -> None:
    one, two = stage.device(), stage.device()
    with wished(stage, "ttd-events") as events:
        with stage.mqtt(one) as client:
            client.subscribe("command///req/#")
            message = events.next(one)
            assert (message.content_type, bytes(message.body)) == (EMPTY, b"")
            assert (message.properties["ttd"], message.properties["orig_adapter"]) == (-1, "hono-mqtt")
            assert stage.application().command(one, "blink") == "accepted"
        assert events.next(one).properties["ttd"] == 0
        with stage.amqp(two) as connection:
            receiver = connection.create_receiver("command", credit=1)
            flush(connection)
            assert events.next(two).properties["ttd"] == -1
            receiver.close()
            assert events.next(two).properties["ttd"] == 0
            connection.create_sender(None).send(message_of("event", b"on"))
            assert events.body(two) == b"on"
