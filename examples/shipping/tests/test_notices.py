"""Tests that share a space, as they leave it as they found it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from enmasse.client.blocking import Connection, Message, connect
from enmasse.testing.installation import Installation


@pytest.fixture(scope="module")
def connection(enmasse: Installation) -> Iterator[Connection]:
    with enmasse.space() as shop:
        shop.topic("notices")
        shop.subscription("for-customers", topic="notices")
        with connect(shop.url("amqp"), hostname=shop.host) as connection:
            yield connection


@pytest.mark.parametrize("text", ["we are closed on Monday", "we are open on Tuesday"])
def test_customers_get_each_notice(connection: Connection, text: str) -> None:
    connection.sender("notices").send(Message(text))
    with connection.receiver("for-customers") as receiver:
        notice = receiver.receive(timeout=60)
        assert notice is not None
        assert notice.message.body == text
        notice.accept()
