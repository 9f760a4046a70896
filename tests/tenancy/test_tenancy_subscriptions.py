"""Durable subscriptions of one space, whose users are told apart: nobody takes another's."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.foreign_tools import require
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
