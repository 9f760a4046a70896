"""Patterns of receivers across addresses: a contract for receivers of AMQP and STOMP, leases and events of HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from enmasse.client import LinkRefusedError, connect
from enmasse.client import Message as AmqpMessage
from enmasse.identity.permissions import Grant, Permissions
from enmasse.identity.users import User
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.node.patterns import matcher_of
from tests.support.polling import until_async
from tests.support.stomp_peer import StompPeer
from tests.unit.node.http_scene import OPEN, SHOP, Scene, basic, play, user

Message = tuple[str, str]
"""The body, and the name that the receiver is told."""


class Refused(Exception):  # noqa: N818  the answer, not a fault
    """A receiver is not attached."""


class Receiver:
    """A receiver of a pattern, in one protocol.

    Args:
        scene: where.
        stack: closes what it has opened.
        name: of its user; empty: nobody.
    """

    def __init__(self, scene: Scene, stack: AsyncExitStack, name: str = "") -> None:
        self.scene = scene
        self.stack = stack
        self.name = name

    @property
    def space(self) -> Any:
        return self.scene.server.entities.spaces[SHOP if self.name else OPEN]

    async def begin(self, pattern: str) -> None:
        """Attach.

        Raises:
            Refused: the answer.
        """
        raise NotImplementedError

    async def next(self) -> Message:
        """Return the next message, accepted."""
        raise NotImplementedError


class OfAmqp(Receiver):
    async def begin(self, pattern: str) -> None:
        login: dict[str, Any] = {"user": self.name, "password": f"{self.name}-secret"} if self.name else {}
        host = "shop.ns" if self.name else "open.ns"
        opening = connect(f"amqp://127.0.0.1:{self.scene.port}", hostname=host, reconnect=False, **login)
        client = await self.stack.enter_async_context(opening)
        try:
            self.receiver = await self.stack.enter_async_context(client.receiver(pattern))
        except LinkRefusedError as error:
            raise Refused(str(error)) from None

    async def next(self) -> Message:
        delivery = await self.receiver.receive(60)
        assert delivery is not None
        delivery.accept()
        return delivery.message.body.decode(), delivery.message.topic_name or ""


class OfStomp(Receiver):
    async def begin(self, pattern: str) -> None:
        login = {"login": self.name, "passcode": f"{self.name}-secret"} if self.name else {}
        peer = StompPeer(self.scene.port, host="shop.ns" if self.name else "open.ns", **login)
        self.peer = await self.stack.enter_async_context(peer)
        self.peer.say("SUBSCRIBE", id="1", destination=pattern, ack="client-individual", receipt="there")
        frame = await self.peer.next("RECEIPT", "ERROR")
        if frame.command == "ERROR":
            raise Refused(str(frame))

    async def next(self) -> Message:
        frame = await self.peer.next("MESSAGE")
        self.peer.say("ACK", id=frame["ack"])
        return frame.body.decode(), frame["destination"]


class OfHttp(Receiver):
    async def begin(self, pattern: str) -> None:
        options: dict[str, Any] = {"space": "shop.ns", "headers": basic(self.name)} if self.name else {}
        self.client = await self.stack.enter_async_context(self.scene.client(**options))
        self.path = pattern.replace("/", "%2F").replace("#", "%23").replace("+", "%2B")

    @staticmethod
    def message(document: dict[str, Any]) -> Message:
        return document["body"], document["annotations"]["x-opt-topic-name"]


class OfLeases(OfHttp):
    async def begin(self, pattern: str) -> None:
        await super().begin(pattern)
        self.known: set[Any] = set()
        await self.ask()

    async def ask(self) -> None:
        asked = self.client.post(f"{self.path}/receive", params={"wait": 60, "auto": "true"})
        self.answer = asyncio.ensure_future(asked)
        await until_async(lambda: self.answer.done() or bool({*self.space.crossing} - self.known))
        if self.answer.done() and not (await self.answer).is_success:
            raise Refused((await self.answer).text)
        self.known = {*self.space.crossing}
        self.stack.callback(self.answer.cancel)

    async def next(self) -> Message:
        answer = await self.answer
        found = [self.message(document) for document in answer.json()["messages"]]
        await self.ask()
        return found[0]


class OfEvents(OfHttp):
    async def begin(self, pattern: str) -> None:
        await super().begin(pattern)
        asked = self.client.stream("GET", f"{self.path}/events", headers={"Accept": "text/event-stream"})
        answer = await self.stack.enter_async_context(asked)
        if not answer.is_success:
            raise Refused((await answer.aread()).decode())
        self.lines = answer.aiter_lines()

    async def next(self) -> Message:
        async for line in self.lines:
            if line.startswith("data: "):
                document = json.loads(line.removeprefix("data: "))
                settled = {"leases": [document["lease"]]}
                assert (await self.client.post(f"{self.path}/settle", json=settled)).is_success
                return self.message(document)
        raise AssertionError("the events have ended")


@pytest.fixture(params=[OfAmqp, OfStomp, OfLeases, OfEvents], ids=["AMQP", "STOMP", "lease", "events"])
def kind(request: pytest.FixtureRequest) -> Callable[..., Receiver]:
    found: Callable[..., Receiver] = request.param
    return found


async def declare(scene: Scene, name: str, kind: str, space: str = OPEN, **attributes: Any) -> None:
    await scene.create(ADDRESS_TYPE, f"{space}.{name}", space=space, address=name, addressType=kind, **attributes)


async def changed(scene: Scene, name: str, **attributes: Any) -> None:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene.server.entities.update(ADDRESS_TYPE, f"{OPEN}.{name}", attributes, done.set_result)
    assert await done is None


async def deleted(scene: Scene, name: str, space: str = OPEN) -> None:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    scene.server.entities.delete(ADDRESS_TYPE, f"{space}.{name}", done.set_result)
    assert await done is None


async def heard(receiver: Receiver, *names: str) -> list[str]:
    """Send a message to each name, one after the other, and return the names that the receiver is told."""
    found = []
    options: dict[str, Any] = {"space": "shop.ns", "headers": basic("boss")} if receiver.name else {}
    async with receiver.scene.client(**options) as sender:
        for name in names:
            # The answer to what is multicast is its receiver's.
            sent = asyncio.ensure_future(sender.post(f"{name.replace('/', '%2F')}/messages", content=name.encode()))
            body, told = await receiver.next()
            assert (await sent).is_success, (await sent).text
            assert body == told
            found.append(told)
    return found


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("news/#", ["news", "news/uk", "news/uk/x", "news/all", "news/fr"]),
        ("news/+", ["news/uk", "news/all", "news/fr"]),
        ("*/uk", ["news/uk", "other/uk"]),
    ],
)
def test_a_pattern_stands_for_all_that_it_matches(
    tmp_path: Path, kind: Callable[..., Receiver], pattern: str, names: list[str]
) -> None:
    async def story(scene: Scene) -> None:
        for name in ("news/uk", "other/uk"):
            await declare(scene, name, "topic")
        await declare(scene, "news/all", "multicast")
        async with AsyncExitStack() as stack:
            receiver = kind(scene, stack)
            await receiver.begin(pattern)
            assert await heard(receiver, *names) == names
        await until_async(lambda: not receiver.space.crossing)
        assert not receiver.space.usage.receivers

    play(tmp_path, story)


def test_addresses_that_come_are_joined_and_those_that_go_are_left(
    tmp_path: Path, kind: Callable[..., Receiver]
) -> None:
    async def story(scene: Scene) -> None:
        await declare(scene, "news/uk", "topic")
        async with AsyncExitStack() as stack:
            receiver = kind(scene, stack)
            await receiver.begin("news/#")
            assert await heard(receiver, "news/uk", "news/de") == ["news/uk", "news/de"]
            await declare(scene, "news/de", "topic")
            await declare(scene, "news/all", "multicast")
            await declare(scene, "news/jobs", "queue")
            assert await heard(receiver, "news/all", "news/de") == ["news/all", "news/de"]
            for name in ("news/uk", "news/all"):
                await deleted(scene, name)
            assert await heard(receiver, "news/de", "news/uk") == ["news/de", "news/uk"]

    play(tmp_path, story)


def test_limits_of_each_address_hold(tmp_path: Path, kind: Callable[..., Receiver]) -> None:
    async def story(scene: Scene) -> None:
        async with AsyncExitStack() as stack:
            other = OfAmqp(scene, stack)
            await declare(scene, "news/uk", "topic", maxReceivers=1)
            await other.begin("news/uk")
            receiver = kind(scene, stack)
            with pytest.raises(Refused, match=r"'news/uk' .*has 1 receivers"):
                await receiver.begin("news/#")
            usage, sessions = receiver.space.usage, receiver.space.sessions
            await until_async(lambda: usage.links == 1)
            assert sum(usage.receivers.values()) == 1
            await deleted(scene, "news/uk")
            receiver = kind(scene, stack)
            await receiver.begin("news/#")
            before = sessions.unreached
            # The link that was there before the pattern reaches the new one has its only place.
            await other.begin("news/de/+")
            await declare(scene, "news/de", "topic", maxReceivers=1)
            assert sessions.unreached == before + 1
            assert usage.receivers[receiver.space.find("news/de")] == 1

    play(tmp_path, story)


def test_what_is_for_users_only_is_left_out_for_strangers(tmp_path: Path, kind: Callable[..., Receiver]) -> None:
    async def story(scene: Scene) -> None:
        await declare(scene, "news/uk", "topic", usersOnly=True)
        async with AsyncExitStack() as stack:
            receiver = kind(scene, stack)
            await receiver.begin("news/#")
            (consumer,) = receiver.space.crossing
            await declare(scene, "news/de", "topic", usersOnly=True)
            await declare(scene, "news/fr", "topic")
            assert set(consumer.ends) == {"news", "news/fr"}
            assert await heard(receiver, "news/fr") == ["news/fr"]
            (consumer,) = receiver.space.crossing
            await changed(scene, "news/uk", usersOnly=False)
            await changed(scene, "news/fr", usersOnly=True)
            await until_async(lambda: set(consumer.ends) == {"news", "news/uk"})
            assert await heard(receiver, "news/uk") == ["news/uk"]
            await changed(scene, "news", usersOnly=True)
            await changed(scene, "news/uk", usersOnly=True)
            await until_async(lambda: not receiver.space.crossing)
            with pytest.raises(Refused, match="users only"):
                await kind(scene, stack).begin("news/#")

    play(tmp_path, story)


def test_grants_are_asked_for_each_address(tmp_path: Path, kind: Callable[..., Receiver]) -> None:
    def may_receive(*addresses: str) -> User:
        return replace(user("reader"), permissions=Permissions([Grant(("recv",), addresses)], matcher_of))

    async def story(scene: Scene) -> None:
        for name in ("news/uk", "news/de"):
            await declare(scene, name, "topic", SHOP)
        await declare(scene, "news/all", "multicast", SHOP)
        scene.set_users(user("boss", "#"), may_receive("news/uk/#", "news/later"))
        async with AsyncExitStack() as stack:
            receiver = kind(scene, stack, "reader")
            await receiver.begin("news/#")
            assert await heard(receiver, "news/uk", "news/uk/x", "news/later") == [
                "news/uk",
                "news/uk/x",
                "news/later",
            ]
            await declare(scene, "news/later", "multicast", SHOP)
            assert await heard(receiver, "news/later") == ["news/later"]
            scene.set_users(user("boss", "#"), may_receive("news/de/+", "news/all"))
            (consumer,) = receiver.space.crossing
            await until_async(lambda: "news/all" in consumer.ends and "news/later" not in consumer.ends)
            assert await heard(receiver, "news/all", "news/de/x") == ["news/all", "news/de/x"]
            scene.set_users(user("boss", "#"), may_receive("other/#"))
            await until_async(lambda: not receiver.space.usage.receivers)
            assert not receiver.space.crossing

    play(tmp_path, story)


def test_leases_of_an_address_that_is_deleted_end_and_the_others_go_on(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await declare(scene, "news/uk", "topic")
        space = scene.server.entities.spaces[OPEN]
        leases = {}

        def attached(known: set[Any]) -> bool:
            return bool({*space.crossing} - known)

        async with scene.client() as client, scene.client() as sender:
            for name in ("news", "news/uk"):
                known = {*space.crossing}
                waiting = asyncio.ensure_future(client.post("news%2F%23/receive", params={"wait": 60}))
                await until_async(partial(attached, known))
                assert (await sender.post(f"{name.replace('/', '%2F')}/messages", content=b"x")).is_success
                (message,) = (await waiting).json()["messages"]
                leases[name] = message["lease"]
            assert len(space.crossing) == 2
            await deleted(scene, "news/uk")
            # The one without a lease has left, too.
            await until_async(lambda: len(space.crossing) == 1)
            answer = (await client.post("news%2F%23/settle", json={"leases": [*leases.values()]})).json()
            assert answer == {"settled": 1, "unknown": [leases["news/uk"]]}
            await until_async(lambda: not space.crossing)

    play(tmp_path, story)


def test_events_go_on_with_the_room_that_what_is_deleted_had(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await declare(scene, "news/uk", "topic")
        async with scene.client() as client, scene.client() as sender, scene.client() as reader:
            asked = reader.stream(
                "GET", "news%2F%23/events", params={"max": 1}, headers={"Accept": "text/event-stream"}
            )
            async with asked as answer:
                lines = (line async for line in answer.aiter_lines() if line.startswith("data: "))
                assert (await sender.post("news%2Fuk/messages", content=b"x")).is_success
                lease = json.loads((await anext(lines)).removeprefix("data: "))["lease"]
                assert (await sender.post("news/messages", content=b"y")).is_success
                await deleted(scene, "news/uk")
                assert json.loads((await anext(lines)).removeprefix("data: "))["body"] == "y"
                settled = (await client.post("news%2F%23/settle", json={"leases": [lease]})).json()
                assert settled == {"settled": 0, "unknown": [lease]}

    play(tmp_path, story)


def test_a_durable_subscription_has_one_topic_and_stays_with_it(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        async def has(client: Any, name: str, pattern: str, target: str) -> None:
            # The subscription goes on when the connection ends.
            receiver = await client.receiver(pattern, name=name, durable=True)
            await (await client.sender(target)).send(AmqpMessage(target))
            delivery = await receiver.receive(60)
            assert delivery is not None
            assert delivery.message.body == target
            delivery.accept()

        def opening() -> Any:
            url = f"amqp://127.0.0.1:{scene.port}"
            return connect(url, hostname="open.ns", reconnect=False, container_id="c")

        async with opening() as client:
            await has(client, "mine", "news/#", "news/uk")
        await declare(scene, "news/uk", "topic")
        async with opening() as client:
            with pytest.raises(LinkRefusedError, match="stands for 2 addresses"):
                await client.receiver("news/#", name="other", durable=True)
            # It stands for one of them alone.
            await has(client, "one", "+/fr", "news/fr")
            # What was there before goes on at its topic.
            await has(client, "mine", "news/#", "news/fr")

    play(tmp_path, story)
