"""What clients leave behind at a node, by every protocol, and how the next of their name would come to it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx

from enmasse.client import Connection, Message, connect
from enmasse.identity.users import key_fields, make_keys
from enmasse.message.composites import decode_composite
from enmasse.message.types import Described, Symbol, ULong
from enmasse.messaging.dynamic import Lifetime
from enmasse.messaging.owners import Holding
from enmasse.messaging.sessions.wills import WillState
from enmasse.messaging.space import Space
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.server import Server
from enmasse.node.users.fields import USER_TYPE
from enmasse.node.users.gate import GateOptions
from enmasse.wire.amqp.framing import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Flow,
    Open,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from enmasse.wire.mqtt.packets import Will
from tests.support.mqtt_peer import MqttPeer
from tests.support.polling import until_async
from tests.support.stomp_peer import StompPeer

SCRAM = "SCRAM-SHA-256"
PASSWORD = "the same for all of them"
KEYS = {SCRAM: key_fields(make_keys(SCRAM, PASSWORD, b"salt", 4096))}
ADDRESSES = {"news": "topic", "orders": "queue", "jobs": "queue", "graves": "queue"}
IDA, FEEDER = "ida", "feeder"
OLD, NEW = b"old", b"new"
LONG_S = 3_600


class RawAmqp:
    """A connection that says frames and hears them, and goes without a goodbye; an async context manager."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, caller: Caller, container: str = "office") -> None:
        self._caller = caller
        self._container = container
        self.payload = b""

    async def __aenter__(self) -> Self:
        caller = self._caller
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", caller.place.port)
        self._writer.write(SASL_HEADER)
        plain = f"\0{caller.name}\0{PASSWORD}".encode()
        self._writer.write(sasl_frame(SaslInit("PLAIN", plain, caller.host)))
        assert await self._reader.readexactly(8) == SASL_HEADER
        assert (await self.hear(SaslOutcome)).code == 0
        self._writer.write(AMQP_HEADER)
        assert await self._reader.readexactly(8) == AMQP_HEADER
        self.say(Open(self._container, hostname=caller.host), Begin(None, 0, 1_000, 1_000))
        await self.hear(Begin)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def say(self, *performatives: Any, payload: bytes = b"") -> None:
        for performative in performatives:
            self._writer.write(amqp_frame(0, performative, len(payload)) + payload)

    async def hear(self, *kinds: type[Any]) -> Any:
        """The next frame of these kinds, whose payload is in ``payload``; others are let go."""
        async with asyncio.timeout(60):
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                data = await self._reader.readexactly(size - 4)
                if size > 8:
                    performative, end = decode_composite(data, 4, len(data))
                    if isinstance(performative, kinds):
                        self.payload = data[end:]
                        return performative

    async def receiver(self, name: str, source: Source, credit: int = 1, **fields: Any) -> Attach:
        """Attach a receiver, with credit unless it was refused; a refusal has no source."""
        self.say(Attach(name, 0, True, source=source, target=Target(), **fields))
        answer: Attach = await self.hear(Attach)
        if answer.source is not None and credit:
            self.say(Flow(0, 1_000, 0, 1_000, handle=0, delivery_count=0, link_credit=credit))
        return answer


class Caller(NamedTuple):
    """Somebody who logs in at a space, as a user of it, or as nobody where it has none."""

    place: Place
    space: str
    name: str = IDA

    @property
    def host(self) -> str:
        return ".".join(reversed(self.space.split("/")))

    @property
    def login(self) -> str:
        return f"{self.name}@{self.host}"

    @property
    def mqtt(self) -> dict[str, Any]:
        return {"user_name": self.login, "password": PASSWORD.encode()}

    def http(self) -> httpx.AsyncClient:
        proof = base64.b64encode(f"{self.name}:{PASSWORD}".encode()).decode()
        base = f"http://localhost:{self.place.port}/v1/spaces/{self.host}/addresses/"
        return httpx.AsyncClient(
            base_url=base, timeout=60, trust_env=False, verify=False, headers={"Authorization": f"Basic {proof}"}
        )

    async def send(self, address: str, body: bytes) -> None:
        async with await self.amqp() as connection, await connection.sender(address) as sender:
            await sender.send(Message(body, durable=True))

    async def amqp(self) -> Connection:
        url = f"amqp://127.0.0.1:{self.place.port}"
        if self.place.server.gate.is_open(self.space):
            # SCRAM, which a client takes that has a password, is for users.
            return await connect(url, hostname=self.host, reconnect=False)
        return await connect(url, user=self.name, password=PASSWORD, hostname=self.host, reconnect=False)


class Place:
    """A node in this process, whose users are told of as control tells it."""

    def __init__(self, directory: Path, tokens: Any = None) -> None:
        self.directory = directory
        self.tokens = tokens
        self.port = 0
        self.kept: dict[tuple[str, str], Any] = {}
        """What a client remembers of what it left, by space and what it is."""
        self._made = 0

    async def start(self) -> None:
        self.server = Server(self.directory, "node", gate=GateOptions(allow_insecure_plain=True), tokens=self.tokens)
        await self.server.load()
        self.port = await self.server.listen("127.0.0.1", 0)

    async def stop(self) -> None:
        await self.server.stop()

    def space(self, name: str) -> Space:
        return self.server.entities.spaces[name]

    async def _do(self, change: Callable[[Callable[[Any], None]], None]) -> None:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        change(done.set_result)
        assert await done is None

    async def make_space(self, name: str, authentication: str = "standard", **more: Any) -> None:
        entities = self.server.entities
        await self._do(
            lambda done: entities.create(SPACE_TYPE, name, {"authentication": authentication, **more}, done)
        )
        for address, kind in ADDRESSES.items():
            given = {"space": name, "address": address, "addressType": kind}
            await self._do(lambda done, g=given: entities.create(ADDRESS_TYPE, f"{name}.{g['address']}", g, done))  # type: ignore[misc]

    async def change_space(self, name: str, **attributes: Any) -> None:
        await self._do(lambda done: self.server.entities.update(SPACE_TYPE, name, attributes, done))

    async def remove_space(self, name: str) -> None:
        entities = self.server.entities
        for address in ADDRESSES:
            await self._do(lambda done, a=address: entities.delete(ADDRESS_TYPE, f"{name}.{a}", done))  # type: ignore[misc]
        await self._do(lambda done: entities.delete(SPACE_TYPE, name, done))

    def making(self, space: str, name: str = IDA, uid: str = "", **more: Any) -> Callable[[Any], None]:
        """What makes a user of a uid that no other has."""
        self._made += 1
        given = {
            "space": space,
            "spaceUid": self.space(space).uid,
            "username": name,
            "uid": uid or f"{space} {name} {self._made}",
            "scram": KEYS,
            "authorization": [{"operations": ["send", "recv"], "addresses": ["#"]}],
            **more,
        }
        return lambda done: self.server.stored_users.create(USER_TYPE, f"{space}.{name}", given, done)

    async def make_user(self, space: str, name: str = IDA, **more: Any) -> None:
        await self._do(self.making(space, name, **more))

    async def remove_user(self, space: str, name: str = IDA) -> None:
        await self._do(lambda done: self.server.stored_users.delete(USER_TYPE, f"{space}.{name}", done))

    async def replace_user(self, space: str, name: str = IDA) -> None:
        """Remove a user and make another of the name, with one write to the disk."""
        made, users = self.making(space, name), self.server.stored_users
        gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        users.delete(USER_TYPE, f"{space}.{name}", gone.set_result)
        await self._do(made)
        assert await gone is None

    def owned(self, space: str, owner: str) -> list[Holding]:
        """What there is of an owner, in any protocol."""
        return [one for one in self.space(space).holdings() if one.owner == owner]

    def owner(self, space: str, name: str = IDA) -> str:
        """The owner who has a name now."""
        return self.server.entities.owner_of(space, name)


# What is left behind


async def leave_mqtt(caller: Caller, client_id: str, wanted: str) -> None:
    async with MqttPeer(caller.place.port, client_id, session_expiry_s=LONG_S, **caller.mqtt) as peer:
        assert await peer.subscribed(wanted, qos=1) == [1]
        peer.leave()
    session = caller.place.space(caller.space).sessions.get(client_id)
    assert session is not None
    await until_async(lambda: session.holder is None)


async def leave_session(caller: Caller) -> None:
    await leave_mqtt(caller, "phone", "news")


async def leave_share(caller: Caller) -> None:
    await leave_mqtt(caller, "worker", "$share/team/news")


async def first_body(peer: MqttPeer, caller: Caller) -> bytes:
    """The first message that a client is sent, where there is always one."""
    await Caller(caller.place, caller.space, FEEDER).send("news", NEW)
    return (await peer.message()).payload


async def find_session(caller: Caller) -> bool:
    options = {"is_clean": False, "session_expiry_s": LONG_S, **caller.mqtt}
    async with MqttPeer(caller.place.port, "phone", **options) as peer:
        assert peer.connack is not None
        is_present = bool(peer.connack.said.is_session_present)
        if not is_present:
            await peer.subscribed("news", qos=1)
        assert (await first_body(peer, caller) == OLD) is is_present
        return is_present


async def find_share(caller: Caller) -> bool:
    async with MqttPeer(caller.place.port, "another", **caller.mqtt) as peer:
        await peer.subscribed("$share/team/news", qos=1)
        return await first_body(peer, caller) == OLD


async def leave_stomp(caller: Caller) -> None:
    async with StompPeer(
        caller.place.port, login=caller.name, passcode=PASSWORD, host=caller.host, client_id="desk"
    ) as peer:
        await peer.subscribe("news", durable_subscription_name="mail", ack="client-individual")


async def find_stomp(caller: Caller) -> bool:
    async with StompPeer(
        caller.place.port, login=caller.name, passcode=PASSWORD, host=caller.host, client_id="desk"
    ) as peer:
        await peer.subscribe("news", durable_subscription_name="mail", ack="client-individual")
        await Caller(caller.place, caller.space, FEEDER).send("news", NEW)
        return (await peer.next("MESSAGE")).body == OLD


LASTING = Source("news", durable=2, expiry_policy=Symbol("never"))
RESUMED = Source("orders", durable=2, timeout=LONG_S)
FLEETING = Source(
    dynamic=True,
    capabilities=(Symbol("temporary-queue"),),
    dynamic_node_properties={Symbol("lifetime-policy"): Described(ULong(Lifetime.NO_LINKS_OR_MESSAGES.value), [])},
)


async def leave_amqp(caller: Caller) -> None:
    async with RawAmqp(caller) as peer:
        await peer.receiver("mail", LASTING)


async def find_amqp(caller: Caller) -> bool:
    async with RawAmqp(caller) as peer:
        assert (await peer.receiver("mail", LASTING)).source is not None
        await Caller(caller.place, caller.space, FEEDER).send("news", NEW)
        await peer.hear(Transfer)
        return OLD in peer.payload


async def leave_unsettled(caller: Caller) -> None:
    await Caller(caller.place, caller.space, FEEDER).send("orders", OLD)
    async with RawAmqp(caller) as peer:
        await peer.receiver("take", RESUMED)
        caller.place.kept[caller.space, "tag"] = (await peer.hear(Transfer)).delivery_tag


async def find_unsettled(caller: Caller) -> bool:
    tag = caller.place.kept[caller.space, "tag"]
    async with RawAmqp(caller) as peer:
        answer = await peer.receiver("take", RESUMED, credit=0, unsettled={tag: None})
        return tag in (answer.unsettled or {})


async def leave_reply(caller: Caller) -> None:
    async with RawAmqp(caller) as peer:
        source = (await peer.receiver("replies", FLEETING, credit=0)).source
        assert source is not None
        caller.place.kept[caller.space, "reply"] = source.address
        await Caller(caller.place, caller.space, FEEDER).send(str(source.address), OLD)


async def find_reply(caller: Caller) -> bool:
    async with RawAmqp(caller) as peer:
        answer = await peer.receiver("again", Source(caller.place.kept[caller.space, "reply"]))
        return answer.source is not None


async def leave_lease(caller: Caller) -> None:
    await Caller(caller.place, caller.space, FEEDER).send("graves", OLD)
    async with caller.http() as http:
        answer = await http.post("graves/receive", params={"wait": 10, "lease": LONG_S})
        caller.place.kept[caller.space, "lease"] = answer.json()["messages"][0]["lease"]


async def find_lease(caller: Caller) -> bool:
    async with caller.http() as http:
        asked = {"leases": [caller.place.kept[caller.space, "lease"]], "outcome": "release"}
        answer = (await http.post("graves/settle", json=asked)).raise_for_status()
        return bool(answer.json()["settled"])


async def leave_key(caller: Caller) -> None:
    async with caller.http() as http:
        answer = await http.post("jobs/messages", content=OLD, headers={"Idempotency-Key": "the first"})
        answer.raise_for_status()


async def find_key(caller: Caller) -> bool:
    """Send again, and tell whether that was known to have come."""
    queue = caller.place.space(caller.space).find("jobs")
    before = queue.counts()["messagesStored"]
    await leave_key(caller)
    return bool(queue.counts()["messagesStored"] == before)


async def leave_wills(caller: Caller) -> None:
    """Leave a session with a will, and a link with one, which wait to be sent."""
    will = Will("news", b"gone", delay_s=LONG_S)
    async with MqttPeer(caller.place.port, "sensor", session_expiry_s=LONG_S, will=will, **caller.mqtt):
        pass
    given = {Symbol("enmasse:will"): {"to": "news", "body": "gone", "delay": LONG_S}}
    async with RawAmqp(caller) as peer:
        peer.say(Attach("status", 0, False, source=Source(), target=Target("jobs"), properties=given,
                        initial_delivery_count=0))  # fmt: skip
        await peer.hear(Attach)
        wills = caller.place.space(caller.space).sessions.wills
        await until_async(lambda: len(wills) == 2)
    await until_async(lambda: {will.state for will in wills.all} == {WillState.WAITING})


async def find_wills(caller: Caller) -> bool:
    """Come back in time, and tell whether that took over what was there."""
    wills = caller.place.space(caller.space).sessions.wills
    before = len(wills)
    options = {"is_clean": False, "session_expiry_s": LONG_S, **caller.mqtt}
    async with MqttPeer(caller.place.port, "sensor", **options):
        pass
    async with RawAmqp(caller) as peer:
        peer.say(Attach("status", 0, False, source=Source(), target=Target("jobs"), initial_delivery_count=0))
        await peer.hear(Attach)
        peer.say(Detach(0, closed=True))
        await peer.hear(Detach)
    return before - len(wills) == 2


class Left(NamedTuple):
    """Something that clients leave behind.

    Attributes:
        leave: leaves it.
        find: tells whether a client comes to it.
        is_lasting: true if it outlives the node's process.
    """

    leave: Callable[[Caller], Awaitable[None]]
    find: Callable[[Caller], Awaitable[bool]]
    is_lasting: bool = True


LEFT = {
    "a session of MQTT": Left(leave_session, find_session),
    "a shared subscription of MQTT": Left(leave_share, find_share),
    "a durable subscription of STOMP": Left(leave_stomp, find_stomp),
    "a durable subscription of AMQP": Left(leave_amqp, find_amqp),
    "wills": Left(leave_wills, find_wills),
    "an idempotency key of HTTP": Left(leave_key, find_key),
    "a lease of HTTP": Left(leave_lease, find_lease, is_lasting=False),
    "unsettled deliveries of AMQP": Left(leave_unsettled, find_unsettled, is_lasting=False),
    "a dynamic address of AMQP": Left(leave_reply, find_reply, is_lasting=False),
}
