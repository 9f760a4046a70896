"""Durable subscriptions of one space, whose users are told apart: nobody takes another's."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from enmasse.client.message import Message
from tests.support.foreign_tools import require
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until
from tests.tenancy.tenants import EVERYTHING, document, path_of

if TYPE_CHECKING:
    from tests.tenancy.tenants import Tenants

pytestmark = pytest.mark.slow

PASSWORD = "the same for all of them"
USERS = {"ann": ["send", "recv"], "eve": ["send", "recv"], "chief": EVERYTHING}


@pytest.fixture(scope="module")
def users(tenants: Tenants) -> Iterator[Tenants]:
    """Blue's users, of whom only the chief may manage, and a topic of their own."""
    made: list[str] = []
    with tenants.http("blue") as http:
        password = {"type": "password", "password": base64.b64encode(PASSWORD.encode()).decode()}
        specs: list[tuple[str, str, dict[str, Any]]] = [
            ("addresses", "blue.gossip", {"address": "gossip", "type": "topic"})
        ]
        for name, operations in USERS.items():
            grant = {"operations": operations, "addresses": ["gossip"]}
            specs.append(
                (
                    "messagingusers",
                    f"blue.{name}",
                    {"username": name, "authentication": password, "authorization": [grant]},
                )
            )
        for plural, name, spec in specs:
            http.post(path_of(plural, "team-b"), json=document(plural, "team-b", name, spec=spec)).raise_for_status()
            made.append(path_of(plural, "team-b", name))
        until(lambda: all(http.get(path).json().get("status", {}).get("phase") == "Active" for path in made))
        yield tenants
        for path in made:
            http.delete(path).raise_for_status()


def test_the_next_of_a_name_has_nothing_of_the_former(users: Tenants) -> None:
    port = urlsplit(users.amqp).port
    assert port is not None
    mqtt: dict[str, Any] = {
        "user_name": "bob@blue.team-b",
        "password": PASSWORD.encode(),
        "is_clean": False,
        "session_expiry_s": 3_600,
    }

    def make() -> None:
        password = {"type": "password", "password": base64.b64encode(PASSWORD.encode()).decode()}
        grant = {"operations": ["recv"], "addresses": ["gossip"]}
        spec = {"username": "bob", "authentication": password, "authorization": [grant]}
        given = document("messagingusers", "team-b", "blue.bob", spec=spec)
        http.post(path_of("messagingusers", "team-b"), json=given).raise_for_status()
        path = path_of("messagingusers", "team-b", "blue.bob")
        until(lambda: http.get(path).json().get("status", {}).get("phase") == "Active")

    def say(body: bytes) -> None:
        with users.connect("blue", user="eve", password=PASSWORD) as connection:
            connection.sender("gossip").send(Message(body, durable=True))

    async def session() -> bool:
        """Open it, and return whether it was there."""
        async with MqttPeer(port, "bob's phone", **mqtt) as phone:
            is_present = bool(phone.connack and phone.connack.said.is_session_present)
            assert is_present or await phone.subscribed("gossip", qos=1) == [1]
            return is_present

    def come(body: bytes) -> tuple[bool, bytes]:
        """Return whether there was a session, and the first message of the durable subscription."""
        is_present = asyncio.run(session())
        with users.connect("blue", user="bob", password=PASSWORD, container_id="desk") as connection:
            receiver = connection.receiver("gossip", durable=True, name="mail")
            say(body)
            delivery = receiver.receive(timeout=60)
            assert delivery is not None
            return is_present, bytes(delivery.message.body)

    with users.http("blue") as http:
        make()
        assert come(b"1") == (False, b"1")
        assert come(b"2") == (True, b"1"), "which was not settled"
        http.delete(path_of("messagingusers", "team-b", "blue.bob")).raise_for_status()
        make()
        assert come(b"3") == (False, b"3")
        http.delete(path_of("messagingusers", "team-b", "blue.bob")).raise_for_status()


def test_a_durable_subscription_is_stolen_read_and_ended_by_no_other_user(users: Tenants) -> None:
    require("python-qpid-proton with SASL and TLS")
    from proton import Message, Terminus
    from proton.reactor import DurableSubscription, LinkOption, Selector
    from proton.utils import LinkDetached

    from tests.support.proton_blocking import ProtonClient, Subscriber

    class Nowhere(LinkOption):
        """A link without a source, as JMS clients attach to end a subscription."""

        def apply(self, link: Any) -> None:
            link.source.type = Terminus.UNSPECIFIED

    def client(user: str) -> ProtonClient:
        login = {"user": f"{user}@blue.team-b", "password": PASSWORD, "allowed_mechs": "SCRAM-SHA-256"}
        return ProtonClient(users.amqp, "office", allow_insecure_mechs=True, **login)

    durable = DurableSubscription()
    with client("ann") as ann, client("eve") as eve:
        mine = ann.receiver("gossip", durable, name="mail")
        attempts: list[list[LinkOption]] = [
            [durable],
            [durable, Selector("n = 1")],
            [Subscriber(2, "never", capabilities=("shared",))],
            [Nowhere()],
        ]
        for is_there in (True, False):
            for options in attempts:
                with pytest.raises(LinkDetached) as refused:
                    eve.receiver("" if isinstance(options[0], Nowhere) else "gossip", *options, name="mail")
                assert refused.value.condition in ("amqp:unauthorized-access", "amqp:not-found")
            eve.send("gossip", Message(body=f"for ann {is_there}", durable=True))
            if is_there:
                assert [message.body for message in mine.take(1)] == ["for ann True"]
                mine.detach()
        again = ann.receiver("gossip", durable, name="mail")
        assert [message.body for message in again.take(1)] == ["for ann False"]
        with client("chief") as chief:
            chief.receiver("gossip", durable, name="mail").close()
        eve.receiver("gossip", durable, name="mail").close()
