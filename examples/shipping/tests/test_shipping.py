"""The service as it is deployed: a process of its own, which knows nothing but a URL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from enmasse.client.blocking import Connection, Message, connect
from enmasse.testing.installation import Space


@pytest.fixture
def connection(space: Space) -> Iterator[Connection]:
    space.deadletter("refused")
    space.queue("orders", deadletter="refused")
    space.queue("parcels")
    url = space.url("amqp")
    with connect(url) as connection, subprocess.Popen([sys.executable, "shipping.py", url]) as service:
        yield connection
        service.terminate()


def test_an_order_becomes_a_parcel(connection: Connection) -> None:
    connection.sender("orders").send(Message(json.dumps({"id": 7, "to": "Rome"})))
    parcel = connection.receiver("parcels").receive(timeout=60)
    assert parcel is not None
    assert json.loads(parcel.message.body) == {"to": "Rome", "of": 7}


def test_an_order_may_come_by_http(connection: Connection, space: Space) -> None:
    url = f"{space.url('http')}/addresses/orders/messages"
    assert httpx.post(url, json={"id": 8, "to": "Oslo"}).status_code == 202
    parcel = connection.receiver("parcels").receive(timeout=60)
    assert parcel is not None
    assert json.loads(parcel.message.body) == {"to": "Oslo", "of": 8}


def test_an_order_without_an_address_is_refused(connection: Connection) -> None:
    connection.sender("orders").send(Message(json.dumps({"id": 9})))
    letter = connection.receiver("refused").receive(timeout=60)
    assert letter is not None
    assert json.loads(letter.message.body) == {"id": 9}
