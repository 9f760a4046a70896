"""The user-id of messages: their sender's own, or none, whatever protocol and type of address they come by."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enmasse.client import Connection, Message, connect
from enmasse.client.link import Opening
from enmasse.errors import RemoteError
from enmasse.message.errors import DecodeError
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.section_stream import MAX_PROPERTIES_BYTES, SectionStream
from enmasse.message.sections import Header, Properties, encode_message, user_id_of, user_id_shape
from enmasse.message.types import ULong
from enmasse.messaging.log.frame import Frame, encode_frame
from enmasse.messaging.streams.producers import FRAME_FORMAT, FRAMES_CAPABILITY
from enmasse.node.management.entity_fields import ADDRESS_TYPE
from enmasse.node.user_ids import UserIds
from enmasse.node.users.rights import Rights
from enmasse.testing.recorder import RecordingSink, Sent
from enmasse.wire.amqp.link import SendingLink
from enmasse.wire.amqp.performatives import Target, TransactionalState
from tests.support.stomp_peer import StompPeer
from tests.unit.node.coordinator_scene import Client, Node
from tests.unit.node.http_scene import OPEN, SHOP, Scene, play, user

OWN, OTHER = "ida", "jo"
KINDS = {"queue": "queue", "stream": "stream", "topic": "topic", "any": "anycast", "all": "multicast"}
UNAUTHORIZED = "amqp:unauthorized-access"

Way = Callable[["Place", str, str | None], Awaitable[str]]
"""Sends to an address a message with a user-id, or without, and returns why it was refused; empty: it was not."""


class Place:
    """A node with an address of every type, and a receiver at each, by whom nothing foreign is ever seen."""

    def __init__(self, scene: Scene, space: str) -> None:
        self.scene = scene
        self.space = space
        self.host = ".".join(reversed(space.split("/")))
        self.user = OWN if space == SHOP else "anonymous"
        self.login: dict[str, Any] = {"user": OWN, "password": f"{OWN}-secret"} if space == SHOP else {}
        self.connection: Connection | None = None
        self.client: httpx.AsyncClient | None = None
        self.seen: dict[str, list[bytes | None]] = {name: [] for name in KINDS}

    @asynccontextmanager
    async def amqp(self) -> AsyncIterator[Connection]:
        """The connection that all its messages of AMQP are sent by."""
        if self.connection is None:
            self.connection = await self.connect()
        yield self.connection

    @asynccontextmanager
    async def http(self) -> AsyncIterator[httpx.AsyncClient]:
        """The client that all its messages of HTTP are sent by."""
        if self.client is None:
            login = {"auth": (OWN, f"{OWN}-secret")} if self.login else {}
            self.client = self.scene.client(self.host, **login)
        yield self.client

    async def close(self) -> None:
        if self.connection is not None:
            await self.connection.close()
        if self.client is not None:
            await self.client.aclose()

    def connect(self) -> Opening[Connection]:
        return connect(f"amqp://127.0.0.1:{self.scene.port}", hostname=self.host, reconnect=False, **self.login)

    def stomp(self) -> StompPeer:
        login = {"login": OWN, "passcode": f"{OWN}-secret"} if self.login else {}
        return StompPeer(self.scene.port, host=self.host, **login)

    async def watch(self, connection: Connection) -> list[asyncio.Task[None]]:
        async def take(name: str) -> None:
            receiver = await connection.receiver(f"{name}-x", credit=100)
            started.release()
            async for delivery in receiver:
                self.seen[name].append(delivery.message.user_id)
                delivery.accept()

        started = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(take(name)) for name in KINDS]
        for _ in tasks:
            await started.acquire()
        return tasks


def message(user_id: str | None, **more: Any) -> Message:
    return Message("x", user_id=None if user_id is None else user_id.encode(), durable=True, **more)


async def link(place: Place, name: str, user_id: str | None) -> str:
    async with place.amqp() as connection, connection.sender(name) as sender:
        return (await sender.send(message(user_id))).condition or ""


async def relay(place: Place, name: str, user_id: str | None) -> str:
    async with place.amqp() as connection, connection.sender(None) as sender:
        return (await sender.send(message(user_id, to=name))).condition or ""


async def transaction(place: Place, name: str, user_id: str | None) -> str:
    async with place.amqp() as connection, connection.sender(name) as sender:
        try:
            async with connection.transaction() as txn:
                await sender.send(message(user_id), transaction=txn)
        except RemoteError as error:
            # The reason of a rollback is in its words.
            return UNAUTHORIZED if "user-id" in str(error) else error.condition
    return ""


async def stomp(place: Place, name: str, user_id: str | None) -> str:
    headers = {} if user_id is None else {"user_id": user_id}
    async with place.stomp() as peer:
        peer.send(name, receipt="r", **headers)
        frame = await peer.next("RECEIPT", "ERROR")
        return frame.headers.get("condition", "")


async def stomp_transaction(place: Place, name: str, user_id: str | None) -> str:
    headers = {} if user_id is None else {"user_id": user_id}
    async with place.stomp() as peer:
        peer.say("BEGIN", transaction="t")
        peer.send(name, transaction="t", **headers)
        peer.say("COMMIT", transaction="t", receipt="r")
        frame = await peer.next("RECEIPT", "ERROR")
        return frame.headers.get("condition", "")


def condition_of(answer: Any) -> str:
    if answer.status_code < 300:
        return ""
    assert answer.status_code == 403
    return str(answer.json()["condition"])


async def http(place: Place, name: str, user_id: str | None) -> str:
    headers = {} if user_id is None else {b"X-User-Id": user_id.encode()}
    async with place.http() as client:
        return condition_of(await client.post(f"{name}/messages", content=b"x", headers=headers))


async def http_lines(place: Place, name: str, user_id: str | None) -> str:
    line = {"body": "x"} | ({} if user_id is None else {"userId": user_id})
    kind = {"Content-Type": "application/x-ndjson"}
    async with place.http() as client:
        answer = await client.post(f"{name}/messages", content=json.dumps(line), headers=kind)
    found = answer.json()
    return "" if found.get("outcome") == "accepted" else str(found["condition"])


async def http_event(place: Place, name: str, user_id: str | None) -> str:
    headers = {b"Content-Type": b"application/cloudevents+json"}
    if user_id is not None:
        headers[b"X-User-Id"] = user_id.encode()
    event = {"specversion": "1.0", "id": "1", "source": "/t", "type": "t", "data": "x"}
    async with place.http() as client:
        return condition_of(await client.post(f"{name}/messages", content=json.dumps(event), headers=headers))


async def http_request(place: Place, name: str, user_id: str | None) -> str:
    headers = {"X-User-Id": user_id or ""}
    async with place.http() as client:
        return condition_of(await client.post(f"{name}/request", content=b"x", headers=headers))


WAYS: list[Way] = [link, relay, transaction, stomp, stomp_transaction, http, http_lines, http_event]
IN_TRANSACTIONS = (transaction, stomp_transaction)


@pytest.mark.parametrize("space", [SHOP, OPEN])
def test_a_user_id_is_the_senders_own_or_there_is_none_or_the_message_is_rejected(tmp_path: Path, space: str) -> None:
    async def story(scene: Scene) -> None:
        scene.set_users(user(OWN, "#"), user(OTHER, "#"))
        for name, kind in KINDS.items():
            await scene.create(ADDRESS_TYPE, f"{space}.{name}-x", space=space, address=f"{name}-x", addressType=kind)
        place = Place(scene, space)
        own = OWN if space == SHOP else "anonymous"
        async with place.connect() as watching:
            tasks = await place.watch(watching)
            expected: dict[str, list[bytes | None]] = {name: [] for name in KINDS}
            for way in WAYS:
                for name, kind in KINDS.items():
                    if way in IN_TRANSACTIONS and kind in ("anycast", "multicast"):
                        continue
                    if way in (stomp, stomp_transaction) and kind in ("multicast", "stream"):
                        continue  # each refusal ends a connection
                    for user_id in (None, own, OTHER, own.upper(), f"{own}x", "", "\uff49da"):
                        found = await way(place, f"{name}-x", user_id)
                        is_good = user_id in (None, own)
                        assert found == ("" if is_good else UNAUTHORIZED), (way.__name__, kind, user_id)
                        if is_good:
                            expected[name].append(None if user_id is None else user_id.encode())
            for user_id in (OTHER, ""):
                assert await http_request(place, "any-x", user_id) == UNAUTHORIZED
            while place.seen != expected:
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
        await place.close()

    play(tmp_path, story)


# What is unusual, in memory


@pytest.fixture
def client() -> Client:
    return Client(Node())


_numbers = count()


def put(client: Client, payload: bytes, target: str = "a", **options: Any) -> Any:
    """Send a message, which a receiver accepts if it comes to it; return the error of its outcome."""
    got = client.receiver(target, name=f"in-{next(_numbers)}")
    sink = client.sender(target, f"out-{next(_numbers)}")
    sent = sink.send(payload, **options)
    client.go()
    for _ in range(len(payload) >> 16):  # a window each
        client.go()
    for delivery in got.received:
        got.link.session.settle(delivery.delivery_id, ACCEPTED)  # type: ignore[union-attr]
    client.go()
    return getattr(getattr(sent.state, "error", None), "condition", None), len(got.received)


def properties(*fields: bytes, descriptor: bytes = b"\x53\x73") -> bytes:
    content = b"".join(fields)
    return b"\x00" + descriptor + bytes((0xC0, len(content) + 1, len(fields))) + content


NULL, JO = b"\x40", b"\xa0\x02jo"
DATA = b"\x00\x53\x75\xa0\x01x"
AS_ULONG = b"\x80" + bytes(7) + b"\x73"
AS_SYMBOL = b"\xa3\x14amqp:properties:list"
LONG = b"\x00\x53\x73\xd0\x00\x00\x00\x0c\x00\x00\x00\x02" + b"\x40\xb0\x00\x00\x00\x02jo"
NOTES = b"\x00\x53\x72\xc1\x01\x00"

FORGED = {
    "in a long list": LONG + DATA,
    "with a descriptor of eight bytes": properties(NULL, JO, descriptor=AS_ULONG) + DATA,
    "with a symbolic descriptor": properties(NULL, JO, descriptor=AS_SYMBOL) + DATA,
    "with a descriptor of another type": properties(NULL, JO, descriptor=b"\x52\x73") + DATA,
    "behind annotations": NOTES + properties(NULL, JO) + DATA,
    "behind a message-id": properties(b"\xa1\x04ID:1", JO) + DATA,
    "behind a number": properties(b"\x53\x07", JO) + DATA,
    "behind a uuid": properties(b"\x98" + bytes(16), JO) + DATA,
    "as a text": properties(NULL, b"\xa1\x02jo") + DATA,
    "as a symbol": properties(NULL, b"\xa3\x02jo") + DATA,
    "as a described value": properties(NULL, b"\x00\x53\x01" + JO) + DATA,
    "behind the body": properties(NULL) + DATA + properties(NULL, JO),
    "behind the application properties": b"\x00\x53\x74\xc1\x01\x00" + properties(NULL, JO) + DATA,
    "twice": properties(NULL, NULL) + properties(NULL, JO) + DATA,
    "first": properties(NULL, JO) + NOTES + DATA,
    "cut short": properties(NULL, JO)[:-1],
    "behind a section that there is not": b"\x00\x53\x01\x45" + properties(NULL, JO) + DATA,
}


@pytest.mark.parametrize("target", ["a", "q"])
@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_no_encoding_hides_a_user_id(client: Client, payload: bytes, target: str) -> None:
    condition, received = put(client, payload, target)
    assert condition in (UNAUTHORIZED, "amqp:decode-error")
    assert received == 0


@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_nor_does_a_settled_message_or_a_transaction(client: Client, payload: bytes) -> None:
    assert put(client, payload, settled=True) == (None, 0)
    assert client.node["a"].counts()["dropped"] == 1
    sink = client.sender("q", "posting")
    assert isinstance(sink.link, SendingLink)
    txn = client.declare()
    sink.link.send_in_transaction(Sent(sink), payload, False, 0, TransactionalState(txn))
    client.go()
    (told,) = client.diary.calls("retired")
    assert told[1].outcome.error.condition in (UNAUTHORIZED, "amqp:decode-error")


@pytest.mark.parametrize("payload", FORGED.values(), ids=FORGED)
def test_nor_does_a_large_message_that_is_passed_on_while_it_comes(client: Client, payload: bytes) -> None:
    large = payload.replace(DATA, b"\x00\x53\x75\xb0\x00\x20\x00\x00" + bytes(1 << 21))
    condition, received = put(client, large)
    assert condition in (UNAUTHORIZED, "amqp:decode-error")
    assert received == 0


@pytest.mark.parametrize("size", [40, 1 << 21])
@pytest.mark.parametrize("payload", [b"\x2a", b"\0", b"\x40"])
def test_what_is_no_message_has_no_user_id(client: Client, payload: bytes, size: int) -> None:
    assert put(client, payload * size) == (None, 1)
    assert put(client, payload * 40, "q")[0] == "amqp:decode-error"


def test_a_large_message_with_its_senders_own_name_passes(client: Client) -> None:
    own = encode_message(bytes(1 << 21), properties=Properties(user_id=b"anonymous"))
    assert put(client, own) == (None, 1)


def test_who_was_refused_often_goes_on_sending(client: Client) -> None:
    forged = encode_message("x", properties=Properties(user_id=b"jo", to="q"))
    good = encode_message("x", properties=Properties(to="q"))
    for target in ("q", "a", None, "$lwt"):
        client.receiver("a", name=f"in-{target}")
        sink = client.sender(Target(address=target), f"to-{target}")
        for _ in range(250):
            sent = sink.send(forged)
            client.go()
            assert sent.state.error.condition == UNAUTHORIZED
        sent = sink.send(good)
        client.go()
        assert getattr(sent.state, "error", None) is None
        assert sink.link.credit > 0  # type: ignore[union-attr]


def test_what_is_known_of_a_sender_lets_nothing_else_pass() -> None:
    def made(number: int, user_id: bytes | None, **more: Any) -> bytes:
        return encode_message(f"body {number}", properties=Properties(f"ID:{number:03}", user_id, "q", **more))

    known = UserIds(Rights())
    for user_id in (None, b"anonymous"):
        for number in range(20):
            assert known.problem(made(number, user_id)) is None
        forged = (
            made(20, b"jonathan2"),
            made(20, b"jo"),
            made(20, user_id) + properties(NULL, JO),
            made(20, user_id) + b"\x00",
            made(20, user_id)[:-1],
        )
        for payload in forged:
            assert known.problem(payload) is not None
        assert known.problem(made(21, user_id, subject="of another length")) is None


@given(
    message_id=st.none() | st.text(max_size=300) | st.binary(max_size=300) | st.uuids() | st.integers(0, 1 << 63),
    user_id=st.none() | st.binary(max_size=300),
    header=st.booleans(),
    body=st.binary(max_size=300) | st.text(max_size=300) | st.integers(0, 5),
    other=st.none() | st.binary(max_size=5),
)
def test_the_user_id_is_found_whatever_is_around_it(
    message_id: Any, user_id: bytes | None, header: bool, body: Any, other: bytes | None
) -> None:
    kind = ULong(message_id) if isinstance(message_id, int) else message_id

    def made(user_id: bytes | None) -> bytes:
        given = Properties(message_id=kind, user_id=user_id, subject="s")
        return encode_message(body, header=Header(durable=True) if header else None, properties=given)

    payload = made(user_id)
    assert user_id_of(payload) == user_id
    stream = SectionStream()
    for at in range(0, len(payload), 7):
        stream.feed(payload[at : at + 7])
    stream.end()
    assert stream.user_id == user_id
    shape = user_id_shape(payload)
    if shape is not None:
        assert shape.fits(payload, len(payload)) or isinstance(body, int)
        assert not shape.fits(made(other), len(made(other))) or other == user_id


def test_long_properties_of_what_comes_in_pieces_are_refused() -> None:
    with pytest.raises(DecodeError, match="properties"):
        SectionStream().feed(encode_message("x", properties=Properties(subject="s" * (MAX_PROPERTIES_BYTES + 1))))


def test_the_messages_in_a_frame_are_looked_at_too(client: Client) -> None:
    def frame(*messages: tuple[bytes, bytes], whole: Sequence[int] = ()) -> bytes:
        heads, bodies = [head for head, _ in messages], [body for _, body in messages]
        return encode_frame(0, [0] * len(messages), [b""] * len(messages), heads, bodies, whole=whole)

    def cut(*fields: bytes, body: bytes = b"x", size: int = 1) -> tuple[bytes, bytes]:
        return properties(*fields) + b"\x00\x53\x75\xa0" + bytes((size,)), body

    frames = client.session.attach_sender(
        "frames", RecordingSink(), Target(address="s"), desired_capabilities=(FRAMES_CAPABILITY,)
    )
    client.go()
    own = b"\xa0\x09anonymous"
    stored = 0
    for payload, is_good in (
        (frame(cut(NULL, NULL), cut(b"\xa1\x01a", own), cut(body=b"xy", size=2)), True),
        (frame(*[cut(NULL, NULL)] * 50, cut(NULL, JO)), False),
        (frame(cut(NULL, NULL, body=DATA + properties(NULL, JO), size=1)), False),
        (frame((properties(NULL, JO) + DATA, b""), whole=[1]), False),
        (frame((properties(NULL, own) + DATA, b""), whole=[1]), True),
        (frame((properties(NULL, JO, descriptor=AS_SYMBOL) + DATA, b""), whole=[1]), False),
    ):
        sink = frames.sink
        sent = Sent(sink)
        sink.link = frames
        frames.send(sent, payload, False, FRAME_FORMAT)
        client.go()
        assert (getattr(sent.state, "error", None) is None) is is_good
        stored += len(Frame(payload, verify=False).cells(Frame(payload, verify=False).heads)) if is_good else 0
        assert client.node.stored("s") == stored
