"""Spaces whose users an OpenID provider knows: a node, a provider and clients over sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import Connection, LinkRefusedError, Message, Outcome, connect
from enmasse.errors import EnmasseError
from enmasse.net.loop import run
from enmasse.node.errors import EntityError
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.server import Server
from enmasse.node.users.fields import USER_TYPE
from enmasse.node.users.gate import GateOptions
from tests.support.polling import until_async
from tests.unit.net.providers import CERTS, TOKEN, Provider

SPACE = "default/shop"


class Scene:
    """A node whose space ``shop`` has a queue ``orders`` and users that a provider knows."""

    def __init__(self, server: Server, provider: Provider, port: int) -> None:
        self.server = server
        self.provider = provider
        self.url = f"amqp://127.0.0.1:{port}"

    async def change(self, verb: str, kind: str, name: str, **attributes: Any) -> None:
        """Tell the node of an entity, as its management would."""
        stored: asyncio.Future[EntityError | None] = asyncio.get_running_loop().create_future()
        home = self.server.stored_users if kind == USER_TYPE else self.server.entities
        arguments = (kind, name) if verb == "delete" else (kind, name, attributes)
        getattr(home, verb)(*arguments, stored.set_result)
        assert await stored is None

    def oidc(self, **changed: Any) -> dict[str, Any]:
        fields = {"issuer": self.provider.issuer, "audience": "messaging", "clientId": "messaging", "leeway": 0}
        return {**fields, "passwordGrant": True, **changed}

    async def agree(self, **changed: Any) -> None:
        await self.change("update", SPACE_TYPE, SPACE, oidc=self.oidc(**changed))

    async def user(self, name: str, *addresses: str, verb: str = "create") -> None:
        grants = [{"operations": ["send", "recv"], "addresses": list(addresses)}] if addresses else []
        await self.change(
            verb, USER_TYPE, f"{SPACE}.{name}", space=SPACE, spaceUid="s1", username=name, authorization=grants
        )

    async def connect(self, **given: Any) -> Connection:
        return await connect(self.url, hostname="shop.default", reconnect=False, allow_insecure_plain=True, **given)

    async def refusal(self, **given: Any) -> str:
        with pytest.raises(EnmasseError) as caught:
            await self.connect(**given)
        return f"{type(caught.value).__name__}: {caught.value}"

    async def sends(self, connection: Connection, address: str = "orders") -> bool:
        try:
            sender = await connection.sender(address)
        except LinkRefusedError:
            return False
        return await sender.send(Message("hello")) == Outcome.ACCEPTED


def play(directory: Path, story: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        server = Server(directory, "node", gate=GateOptions(allow_insecure_plain=True))
        await server.load()
        async with asyncio.timeout(60), Provider() as provider:
            try:
                scene = Scene(server, provider, await server.listen("127.0.0.1", 0))
                await scene.change(
                    "create", SPACE_TYPE, SPACE, authentication="external", oidc=scene.oidc(), uid="s1"
                )
                queue = {"space": SPACE, "address": "orders", "addressType": "queue"}
                await scene.change("create", ADDRESS_TYPE, "default/shop.orders", **queue)
                await story(scene)
            finally:
                await server.stop()

    run(main())


def test_tokens_and_passwords_lead_to_the_rights_of_messaging_users(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        provider = scene.provider
        assert "ConnectionDeniedError" in await scene.refusal(token=provider.token()), "nobody has granted anything"
        await scene.user("ida", "orders", "gadgets/${username}")
        for sasl, user in (("OAUTHBEARER", None), ("XOAUTH2", "ida"), ("XOAUTH2", "ida@shop.default")):
            async with await scene.connect(token=provider.token(), user=user, sasl=[sasl]) as connection:
                assert await scene.sends(connection)
                assert not await scene.sends(connection, "gadgets/jo")
        async with await scene.connect(user="ida", password="adi") as connection:
            assert await scene.sends(connection)
        for bad in (
            {"token": provider.token("rsa-other")},
            {"token": provider.token(aud="account")},
            {"token": provider.token(preferred_username="jo")},
            {"token": provider.token(), "user": "jo"},
            {"user": "ida", "password": "guess"},
            {"user": "jo", "password": "oj"},
        ):
            assert "ConnectionDeniedError" in await scene.refusal(**bad)

    play(tmp_path, story)


def test_an_outage_of_the_provider_disturbs_nobody_who_is_known(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        provider = scene.provider
        await scene.user("ida", "orders")
        await scene.user("jo", "orders")
        live = await scene.connect(user="ida", password="adi")
        token = await scene.connect(token=provider.token())
        await provider.stop()
        assert await scene.sends(live)
        assert await scene.sends(token)
        async with await scene.connect(token=provider.token(preferred_username="jo")) as connection:
            assert await scene.sends(connection), "its key is known"
        async with await scene.connect(user="ida", password="adi") as connection:
            assert await scene.sends(connection), "it was right a moment ago"
        refusal = await scene.refusal(user="jo", password="oj")
        assert "try again later" in refusal
        assert "ConnectionDeniedError" not in refusal
        await provider.start()
        async with await scene.connect(user="jo", password="oj") as connection:
            assert await scene.sends(connection)
        for connection in (live, token):
            await connection.close()

    play(tmp_path, story)


def test_a_connection_ends_with_its_token_and_with_the_rights_of_its_user(tmp_path: Path) -> None:
    async def ended(connection: Connection) -> str:
        try:
            receiver = await connection.receiver("orders")
            await receiver.receive()
        except EnmasseError as error:
            return str(error)
        return "it goes on"

    async def story(scene: Scene) -> None:
        provider = scene.provider
        await scene.user("ida", "orders")
        await scene.user("jo", "orders")
        short = await scene.connect(token=provider.token(exp=int(time.time()) + 2))
        password = await scene.connect(user="jo", password="oj")
        assert "the token has expired" in await ended(short)
        assert "ConnectionDeniedError" in await scene.refusal(token=provider.token(exp=int(time.time()) - 1))
        assert await scene.sends(password)
        await scene.user("jo", verb="update")
        assert not await scene.sends(password)
        await scene.change("delete", USER_TYPE, f"{SPACE}.jo")
        assert "authenticate again" in await ended(password)
        other = await scene.connect(token=provider.token())
        await scene.agree(issuer="https://id.example.com/realms/other")
        assert "authenticate again" in await ended(other)
        for connection in (short, password, other):
            await connection.close()

    play(tmp_path, story)


def test_groups_and_scopes_grant_what_the_settings_say(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        token = scene.provider.token(groups=["send_orders", "recv_%23"], scope="openid")
        assert "ConnectionDeniedError" in await scene.refusal(token=token)
        await scene.agree(groupGrants=True)
        async with await scene.connect(token=token) as connection:
            assert await scene.sends(connection)
            assert not await scene.sends(connection, "stock")
            await scene.user("ida")
            assert not await scene.sends(connection), "a MessagingUser decides alone"
        await scene.agree(grants=[{"scope": "openid", "operations": ["send"], "addresses": ["orders"]}])
        async with await scene.connect(token=scene.provider.token(preferred_username="eve", scope="openid")) as eve:
            assert await scene.sends(eve)

    play(tmp_path, story)


def test_a_storm_of_logins_asks_the_provider_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.user("ida", "orders")
        together = await asyncio.gather(*(scene.connect(user="ida", password="adi") for _ in range(30)))
        assert scene.provider.count(TOKEN) == 1
        assert scene.provider.count(CERTS) == 1
        again = await scene.connect(user="ida", password="adi")
        assert scene.provider.count(TOKEN) == 1, "it is remembered"
        assert "ConnectionDeniedError" in await scene.refusal(user="ida", password="guess")
        assert scene.provider.count(TOKEN) == 2
        for connection in (*together, again):
            await connection.close()
        await scene.agree(passwordGrant=False)
        assert "none of PLAIN" in await scene.refusal(user="ida", password="adi", sasl=["PLAIN"])
        assert scene.provider.count(TOKEN) == 2

    play(tmp_path, story)


def test_management_never_tells_the_secret_of_a_client(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        entities = scene.server.entities
        await scene.agree(clientSecret="hunter2")
        told = str(entities.read(SPACE_TYPE, SPACE))
        assert "hunter2" not in told
        assert scene.provider.issuer in told
        await scene.change("update", SPACE_TYPE, SPACE, maxBytes=10)
        assert entities.records[SPACE_TYPE][SPACE]["oidc"]["clientSecret"] == "hunter2", "another change keeps it"
        for wrong in ("hunter2", {"clientSecret": ["hunter2"]}, {"issuer": "hunter2"}, {"hunter": "hunter2"}):
            with pytest.raises(EntityError) as caught:
                entities.update(SPACE_TYPE, SPACE, {"oidc": wrong}, lambda _error: None)
            assert caught.value.status == 400
            assert "hunter2" not in str(caught.value)

    play(tmp_path, story)


def test_whose_provider_is_not_known_lets_nobody_in(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await scene.user("ida", "orders")
        await scene.change("update", SPACE_TYPE, SPACE, oidc=None)
        assert "ConnectionDeniedError" in await scene.refusal(token=scene.provider.token())
        assert await scene.refusal(user="ida", password="adi")
        assert await scene.refusal()

    play(tmp_path, story)


def test_a_subscription_is_of_issuer_and_subject_and_goes_with_what_let_them_in(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        server, provider = scene.server, scene.provider
        await scene.change(
            "create", ADDRESS_TYPE, "default/shop.news", space=SPACE, address="news", addressType="topic"
        )
        space = server.entities.spaces[SPACE]

        async def subscribes(**claims: Any) -> bool:
            async with await scene.connect(token=provider.token(**claims), container_id="office") as connection:
                try:
                    await connection.receiver("news", durable=True, name="mail")
                except LinkRefusedError:
                    return False
                return True

        async def is_gone() -> None:
            await until_async(lambda: list(space.holdings()) == [])

        await scene.user("ida", "news")
        assert await subscribes()
        assert [one.owner for one in space.holdings()] == [f"oidc:{provider.issuer} u-1"]
        assert not await subscribes(sub="u-2"), "another person has the name now"
        await scene.user("jo", "news")
        assert await subscribes(preferred_username="jo"), "the same person by another name"
        await scene.agree(groupGrants=True)
        assert await subscribes(preferred_username="jo")
        assert len(list(space.holdings())) == 1
        await scene.change("delete", USER_TYPE, f"{SPACE}.ida")
        assert len(list(space.holdings())) == 1
        await scene.change("delete", USER_TYPE, f"{SPACE}.jo")
        await is_gone()
        assert await subscribes(sub="u-2", groups=["recv_news"])
        await scene.agree(issuer="https://id.example.com/realms/other")
        await is_gone()

    play(tmp_path, story)
