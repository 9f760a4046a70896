"""The contract of protocols where grants cover a part of what a receiver names: it has that part, as grants are."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import httpx
import pytest

from enmasse.client import Connection, LinkRefusedError, Message, Receiver, connect
from enmasse.client.management import Management
from enmasse.identity.users import key_fields, make_keys
from enmasse.wire.mqtt.packets import Reason
from tests.support.mqtt_peer import Heard, MqttPeer
from tests.support.node_process import NodeProcess
from tests.support.polling import PATIENCE_S
from tests.support.stomp_peer import StompPeer

pytestmark = pytest.mark.slow

SPACE, HOST = "default/bank", "bank.default"
PASSWORD = "correct horse"
KEYS = {"SCRAM-SHA-256": key_fields(make_keys("SCRAM-SHA-256", PASSWORD, b"salt" * 4, 4_096))}
DENIED = "amqp:unauthorized-access"


class Client(Protocol):
    """A client of one protocol that receives from ``#``."""

    async def subscribe(self) -> None:
        """Receive; of who has subscribed before and gathers while it is away, again."""

    async def refused(self) -> None:
        """Try to receive, and be refused for want of a grant."""

    async def heard(self) -> str:
        """The next message's body; it is accepted."""

    async def leave(self) -> None:
        """Close the connection in order."""

    async def close(self) -> None:
        """Close it, however that went."""


class Amqp:
    """A client of AMQP."""

    def __init__(self, node: NodeProcess, user: str, *, durable: bool = False, shared: bool = False) -> None:
        self._node = node
        self._user = user
        self._options: dict[str, Any] = {"durable": durable, "capabilities": ("shared",) if shared else ()}
        self._stack = AsyncExitStack()
        self._receiver: Receiver

    async def _connect(self) -> Connection:
        proof: dict[str, Any] = {
            "user": self._user,
            "password": PASSWORD,
            "hostname": HOST,
            "container_id": self._user,
        }
        return await self._stack.enter_async_context(connect(self._node.url, reconnect=False, timeout=30, **proof))

    async def subscribe(self) -> None:
        connection = await self._connect()
        filters = {"enmasse:retained": "new"}
        self._receiver = await connection.receiver("#", name="all", filters=filters, **self._options)

    async def refused(self) -> None:
        connection = await self._connect()
        with pytest.raises(LinkRefusedError, match=DENIED):
            await connection.receiver("#", name="all", **self._options)
        await self.leave()

    async def heard(self) -> str:
        delivery = await self._receiver.receive(PATIENCE_S)
        assert delivery is not None
        delivery.accept()
        return str(delivery.message.body)

    async def leave(self) -> None:
        await self.close()

    async def close(self) -> None:
        await self._stack.aclose()


class Stomp:
    """A client of STOMP."""

    def __init__(self, node: NodeProcess, user: str, *, durable: bool = False) -> None:
        self._node = node
        self._user = user
        self._options = {"durable": "true"} if durable else {}
        self._stack = AsyncExitStack()
        self._peer: StompPeer

    async def _connect(self) -> None:
        proof = {"login": self._user, "passcode": PASSWORD, "host": HOST, "client_id": self._user}
        self._peer = await self._stack.enter_async_context(StompPeer(self._node.port, **proof))

    async def subscribe(self) -> None:
        await self._connect()
        self._peer.say(
            "SUBSCRIBE", id="all", destination="#", receipt="1", ack="client-individual", retained="new",
            **self._options,
        )  # fmt: skip
        await self._peer.receipt("1")

    async def refused(self) -> None:
        await self._connect()
        self._peer.say("SUBSCRIBE", id="all", destination="#", **self._options)
        assert (await self._peer.next("ERROR"))["condition"] == DENIED
        await self.close()

    async def heard(self) -> str:
        frame = await self._peer.next("MESSAGE")
        self._peer.say("ACK", id=frame["ack"])
        return frame.body.decode()

    async def leave(self) -> None:
        self._peer.say("DISCONNECT", receipt="bye")
        await self._peer.receipt("bye")
        await self.close()

    async def close(self) -> None:
        await self._stack.aclose()


class Http:
    """A client of HTTP that receives events, as a browser does."""

    def __init__(self, node: NodeProcess, user: str) -> None:
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{node.port}/v1/spaces/{HOST}/addresses/%23/",
            auth=(user, PASSWORD), timeout=PATIENCE_S, trust_env=False, headers={"accept": "text/event-stream"},
        )  # fmt: skip
        self._stack = AsyncExitStack()
        self._lines: AsyncIterator[str]

    async def subscribe(self) -> None:
        answer = await self._stack.enter_async_context(self._client.stream("GET", "events?max=100"))
        assert answer.status_code == 200, await answer.aread()
        self._lines = answer.aiter_lines()

    async def refused(self) -> None:
        answer = await self._client.get("events")
        assert (answer.status_code, answer.json()["condition"]) == (403, DENIED)

    async def heard(self) -> str:
        async for line in self._lines:
            if line.startswith("data:"):
                return str(json.loads(line.removeprefix("data:"))["body"])
        raise AssertionError("the events have ended")

    async def leave(self) -> None:
        await self.close()

    async def close(self) -> None:
        await self._stack.aclose()
        await self._client.aclose()


class Mqtt:
    """A client of MQTT."""

    def __init__(self, node: NodeProcess, user: str, *, durable: bool = False, text: str = "#") -> None:
        self._node = node
        self._user = user
        self._text = text
        self._expiry_s, self._qos = (600, 1) if durable else (0, 0)
        self._has_subscribed = False
        self._early: deque[Heard] = deque()
        self._stack = AsyncExitStack()
        self._peer: MqttPeer

    async def _connect(self) -> None:
        proof: dict[str, Any] = {"user_name": f"{self._user}@{HOST}", "password": PASSWORD.encode()}
        peer = MqttPeer(self._node.port, self._user, is_clean=False, session_expiry_s=self._expiry_s, **proof)
        self._peer = await self._stack.enter_async_context(peer)

    async def subscribe(self) -> None:
        await self._connect()
        if self._has_subscribed:
            return
        self._has_subscribed = True
        self._peer.subscribe(self._text, qos=self._qos)
        # Retained values may come before the answer.
        while (answer := await self._peer.next("suback", "publish")).kind == "publish":
            self._early.append(answer)
        assert answer.codes == [self._qos]

    async def refused(self) -> None:
        await self._connect()
        assert await self._peer.subscribed(self._text, qos=self._qos) == [Reason.NOT_AUTHORIZED]
        await self.leave()

    async def heard(self) -> str:
        message = self._early.popleft() if self._early else await self._peer.next("publish")
        if message.qos:
            self._peer.acknowledge(message)
            self._peer.flush()
        return message.payload.decode()

    async def leave(self) -> None:
        self._peer.leave()
        await self._peer.ended()
        await self.close()

    async def close(self) -> None:
        await self._stack.aclose()


class Bank:
    """A node with a space of users, and the topic ``#``."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node

    async def prepare(self) -> None:
        async with connect(self.node.admin_url, timeout=30, patience=30) as admin:
            management = Management(admin)
            await management.create("io.enmasse.space", SPACE, {"authentication": "standard", "uid": "bank"})
            await management.create(
                "io.enmasse.address", f"{SPACE}.#", {"space": SPACE, "address": "#", "addressType": "topic"}
            )
        await self.grant("press", send=("#",))

    async def grant(self, user: str, *received: str, send: tuple[str, ...] = ()) -> None:
        """Have a user receive from these from now on; it is made unless it is there."""
        rights = [{"operations": ["recv"], "addresses": list(received)}] if received else []
        rights += [{"operations": ["send"], "addresses": list(send)}] if send else []
        attributes = {
            "space": SPACE, "spaceUid": "bank", "username": user, "uid": f"uid-of-{user}", "scram": KEYS,
            "authorization": rights,
        }  # fmt: skip
        async with connect(self.node.admin_url, timeout=30, patience=30) as admin:
            management, name = Management(admin), f"{SPACE}.{user}"
            if user in {one["username"] for one in await management.query("io.enmasse.user")}:
                await management.update("io.enmasse.user", name, attributes)
            else:
                await management.create("io.enmasse.user", name, attributes)

    async def send(self, *names: str, retain: bool = False) -> None:
        """Send to each of these names a message that says so."""
        proof: dict[str, Any] = {"user": "press", "password": PASSWORD, "hostname": HOST}
        annotations = {"x-opt-retain": True} if retain else {}
        async with connect(self.node.url, timeout=30, patience=30, **proof) as connection:
            for name in names:
                async with connection.sender(name) as sender:
                    await sender.send(Message(name, durable=True, annotations=annotations))


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with NodeProcess(tmp_path_factory.mktemp("node"), "--allow-insecure-plain") as node:
        found = Bank(node)
        asyncio.run(found.prepare())
        yield found


VOLATILE: dict[str, Callable[[NodeProcess, str], Client]] = {
    "amqp": Amqp,
    "amqp-shared": lambda node, user: Amqp(node, user, shared=True),
    "stomp": Stomp,
    "http": Http,
    "mqtt": Mqtt,
}
LASTING: dict[str, Callable[[NodeProcess, str], Client]] = {
    "amqp-durable": lambda node, user: Amqp(node, user, durable=True),
    "amqp-durable-shared": lambda node, user: Amqp(node, user, durable=True, shared=True),
    "stomp-durable": lambda node, user: Stomp(node, user, durable=True),
    "mqtt-session": lambda node, user: Mqtt(node, user, durable=True),
    "mqtt-shared": lambda node, user: Mqtt(node, user, durable=True, text=f"$share/{user}/#"),
}


@pytest.mark.parametrize("kind", [*VOLATILE, *LASTING])
def test_a_receiver_has_what_grants_cover_of_what_it_names(bank: Bank, kind: str) -> None:
    async def story() -> None:
        client = (VOLATILE | LASTING)[kind](bank.node, f"jo-{kind}")
        try:
            await _told(bank, kind, client)
        finally:
            await client.close()

    asyncio.run(story())


async def _told(bank: Bank, kind: str, client: Client) -> None:
    user, hall, other = f"jo-{kind}", f"hall-{kind}", f"other-{kind}"
    await bank.grant(user, send=(f"{hall}/#",))
    await client.refused()
    await bank.send(f"{other}/kept", f"{hall}/kept", retain=True)
    await bank.grant(user, f"{hall}/#")
    await client.subscribe()
    if kind not in ("http", "mqtt-shared"):
        # These two have no retained values.
        assert await client.heard() == f"{hall}/kept"
    await bank.send(f"{other}/1", f"{hall}/1")
    assert await client.heard() == f"{hall}/1"
    await bank.grant(user, f"{hall}/#", f"{other}/#")
    await bank.send(f"{other}/2", f"{hall}/2")
    assert await client.heard() == f"{other}/2"
    assert await client.heard() == f"{hall}/2"
    await bank.grant(user, f"{other}/#")
    await bank.send(f"{hall}/3", f"{other}/3")
    assert await client.heard() == f"{other}/3"
    await client.leave()
    if kind in VOLATILE:
        return
    await bank.send(f"{other}/away", f"{other}/narrow/away")
    await bank.grant(user, f"{hall}/#", f"{other}/narrow/#")
    if kind == "amqp-durable":
        # Grants are known again as a node starts.
        bank.node.stop()
        bank.node.start()
    await bank.send(f"{other}/4", f"{hall}/4")
    await client.subscribe()
    assert await client.heard() == f"{other}/narrow/away"
    assert await client.heard() == f"{hall}/4"
