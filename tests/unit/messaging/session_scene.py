"""A space with sessions, over a storage in memory, and clients that stand in for MQTT connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from enmasse.errors import RemoteError
from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import RETAINED, TOPIC_NAME, Header, Sections, encode_message
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.direct.anycast import Anycast
from enmasse.messaging.direct.multicast import Multicast
from enmasse.messaging.limits import SpaceLimits
from enmasse.messaging.log.numbers import LOG_COUNTER
from enmasse.messaging.patterns import Pattern
from enmasse.messaging.queues.queue import Queue
from enmasse.messaging.queues.topic import Topic
from enmasse.messaging.sessions.records import stored_sessions
from enmasse.messaging.sessions.session import NEVER, Session
from enmasse.messaging.sessions.session_filter import SessionFilter, SessionLink, SubscribeRequest
from enmasse.messaging.sessions.sessions import OpenRequest
from enmasse.messaging.sessions.wills import WillMessage
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.model.kinds.address_settings import AddressSettings
from enmasse.testing.ports import CoreHarness, MemoryProducerPort

KINDS: dict[str, Callable[..., Address]] = {"topic": Topic, "queue": Queue}
DIRECT: dict[str, Callable[..., Address]] = {"anycast": Anycast, "multicast": Multicast}


def message(body: Any, *, durable: bool = True, **header: Any) -> bytes:
    return encode_message(str(body).encode(), header=Header(durable=durable, **header))


class Published(NamedTuple):
    """A PUBLISH as the client got it."""

    packet_id: int
    body: str
    qos: int
    is_duplicate: bool
    filters: tuple[str, ...]

    @property
    def filter(self) -> str:
        """The filter, of which there is one."""
        (text,) = self.filters
        return text


class Port:
    """One link of a client's connection."""

    is_limited = False

    def __init__(self, client: Client, link: SessionLink) -> None:
        self.client = client
        self.link = link
        self.credit = 0
        self.is_detached = False

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        assert self.credit > 0
        found = self.filters(payload)
        if not found:
            if not settled:
                self.link.consumer.on_outcome(delivery, ACCEPTED)
            return
        qos = min(max(one.qos for one in found), 2 if Sections(payload).header.durable else 0)
        if qos == 0:
            self.client.got.append(Published(0, body_of(payload), 0, False, texts(found)))
            if not settled:
                self.link.consumer.on_outcome(delivery, ACCEPTED)
            return
        self.credit -= 1
        packet_id = self.client.session.outgoing.assign(self.link, delivery, payload, qos)
        if packet_id:
            self.publish(packet_id, payload, qos, False)

    def publish(self, packet_id: int, payload: bytes, qos: int, is_duplicate: bool) -> None:
        assert not self.is_detached
        self.client.put(Published(packet_id, body_of(payload), qos, is_duplicate, texts(self.filters(payload))))

    def filters(self, payload: bytes) -> list[SessionFilter]:
        """The filters that a message is sent for."""
        joint = self.link.joint
        if joint is None:
            return [self.link.filter]
        annotations = Sections(payload).message_annotations
        number = annotations.get(RETAINED)
        return joint.matching(annotations.get(TOPIC_NAME, joint.name), 0 if number in (None, True) else number)

    def admits(self, _size: int) -> bool:
        return True

    def follow(self, _delivery: Any) -> bool:
        return False

    def drained(self) -> None:
        pass

    def take_unsettled(self) -> list[Any]:
        return []

    def detach(self, error: Any = None) -> None:
        self.is_detached = True
        self.client.detached.append((self.link.source, str(error.condition)))
        self.link.ended(RemoteError(str(error.condition), error.description or ""))


class Client:
    """A client and its connection.

    Attributes:
        got: what it was sent, in order.
        unacknowledged: by packet id, what it has not acknowledged.
        known: packet ids of QoS 2 messages that it has, until PUBREL.
        received: bodies as a client with QoS 2 gives them to its program: each once.
        pubrels: packet ids of the PUBRELs it was sent.
    """

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.got: list[Published] = []
        self.pubrels: list[int] = []
        self.known: set[int] = set()
        self.received: list[str] = []
        self.ports: dict[SessionLink, Port] = {}
        self.links: list[SessionLink] = []
        self.detached: list[tuple[str, str]] = []
        self.ended: list[str] = []
        self.is_taken_over = False
        self.answers: list[str | None] = []
        self.session: Session
        self.credit = 100
        self.acknowledges = False

    def open(
        self,
        *,
        expiry_s: int = NEVER,
        is_clean: bool = False,
        user: str = "anna",
        may_manage: bool = False,
        allowed: Callable[[str], bool] | None = None,
        parts: Callable[[str], Sequence[Pattern]] = lambda _filter: (),
        will: WillMessage | None = None,
        receive_maximum: int = 100,
        waits: bool = True,
    ) -> Client:
        def done(problem: str | None) -> None:
            self.answers.append(problem)

        grants = allowed or (lambda _name: True)
        self.session = self.scene.space.sessions.open(
            OpenRequest(
                client_id=self.name,
                owner=f"user:{user}",
                user=user,
                may_manage=may_manage,
                is_clean=is_clean,
                expiry_s=expiry_s,
                receive_maximum=receive_maximum,
                may_receive=grants,
                may_send=grants,
                will=will,
                parts=parts,
            ),
            self,
            done,
        )
        if waits:
            self.scene.harness.commit()
            assert self.answers == [None]
            self.session.resume()
            self.scene.harness.commit()
        return self

    def subscribe(self, text: str, qos: int = 1, **options: Any) -> int:
        granted = self.session.subscribe(SubscribeRequest(text, qos, **options))
        self.scene.harness.commit()
        return granted

    def leave(self, *, clean: bool = False, expiry_s: int | None = None, is_node_gone: bool = False) -> None:
        self.session.detach(self, is_clean_close=clean, expiry_s=expiry_s, is_node_gone=is_node_gone)
        self.scene.harness.commit()

    # The holder of a session

    def make_port(self, link: SessionLink) -> Port:
        return self.ports.setdefault(link, Port(self, link))

    def joined(self, link: SessionLink) -> None:
        self.links.append(link)
        port = self.ports[link]
        port.credit = self.credit
        link.consumer.on_credit(self.credit, False)

    def left(self, link: SessionLink) -> None:
        self.ports.pop(link, None)
        if link in self.links:
            self.links.remove(link)

    def taken_over(self) -> None:
        self.is_taken_over = True

    deleted = taken_over

    def changed(self, link: SessionLink) -> None:
        pass

    def filter_ended(self, text: str, error: RemoteError) -> None:
        self.ended.append(text)

    def put_pubrel(self, packet_id: int) -> None:
        self.pubrels.append(packet_id)

    # What the client does

    def put(self, published: Published) -> None:
        self.got.append(published)
        if published.qos == 2:
            if published.packet_id not in self.known:
                self.known.add(published.packet_id)
                self.received.append(published.body)
        else:
            self.received.append(published.body)
        if self.acknowledges:
            self.acknowledge(published)

    def acknowledge(self, published: Published) -> None:
        """Say PUBACK, or PUBREC."""
        if published.qos == 1:
            assert self.session.outgoing.acknowledge(published.packet_id)
        else:
            packet_id = published.packet_id
            assert self.session.outgoing.receive(packet_id, lambda: self.pubrels.append(packet_id))

    def complete(self) -> None:
        """Say PUBCOMP to every PUBREL."""
        pubrels, self.pubrels = self.pubrels, []
        for packet_id in pubrels:
            self.known.discard(packet_id)
            self.session.outgoing.complete(packet_id)

    @property
    def bodies(self) -> list[str]:
        return [published.body for published in self.got]


def texts(filters: list[SessionFilter]) -> tuple[str, ...]:
    return tuple(one.text for one in filters)


def body_of(payload: bytes) -> str:
    body = Sections(payload).body
    assert isinstance(body, bytes)
    return body.decode()


class Scene:
    """A space with addresses as they are declared, by name."""

    def __init__(
        self,
        addresses: dict[str, str] | None = None,
        harness: CoreHarness | None = None,
        *,
        options: dict[str, dict[str, Any]] | None = None,
        limits: SpaceLimits | None = None,
        max_bytes: int = 0,
        overlapping: str = "once",
    ) -> None:
        self.declared = {"news": "topic"} if addresses is None else addresses
        self.options = options or {}
        self.harness = harness or CoreHarness()
        self.limits = limits or SpaceLimits()
        self.max_bytes = max_bytes
        self.overlapping = overlapping
        core = self.harness.core
        # As a node does it; addresses have the numbers below.
        counter = self.harness.storage.get(Table.ENTITY, LOG_COUNTER)
        core.log_numbers.next = 1_000 if counter is None else int.from_bytes(counter, "big")
        stored = list(stored_sessions(self.harness.storage))
        self.space = Space(core, "ns/shop", lambda: "id", max_bytes=max_bytes)
        self.space.limit(self.limits)
        self.space.copies_overlapping = overlapping == "each"
        self._logs = 0
        made = [self.make(name, kind) for name, kind in self.declared.items()]
        for address in made:
            self.space.add(address)
        for address in made:
            address.load()
        self.space.sessions.load(one for one in stored if one.space == self.space.name)
        self.space.sessions.clear(address for address in made if isinstance(address, Topic))
        self.harness.turn()
        self._senders: dict[str, MemoryProducerPort] = {}

    def make(self, name: str, kind: str) -> Address:
        self._logs += 1
        if kind in DIRECT:
            return DIRECT[kind](self.harness.core, name)
        settings = AddressSettings(**self.options.get(name, {}))
        return KINDS[kind](self.harness.core, name, self._logs, options=settings)

    def declare(self, name: str, kind: str = "topic") -> Address:
        self.declared[name] = kind
        address = self.make(name, kind)
        self.space.add(address)
        address.load()
        self.harness.commit()
        return address

    def client(self, name: str = "device", **options: Any) -> Client:
        return Client(self, name).open(**options)

    def send(self, name: str, *bodies: Any, durable: bool = True, origin: Session | None = None) -> None:
        port = MemoryProducerPort()
        address = self.space.find_target(name)
        port.sink = address.attach_producer(port, name, AttachOptions(origin=origin))
        self.harness.turn()
        for body in bodies:
            port.send(message(body, durable=durable))
        self.harness.commit()
        assert [state for _, state in port.outcomes] == [ACCEPTED] * len(bodies), port.outcomes
        port.leave()
        self.harness.commit()

    def restart(self, through: int = 0, *, away_s: float = 0.0) -> Scene:
        """The node dies, and another one starts over what is on disk, after some time by the wall clock."""
        harness = self.harness.restarted(through)
        harness.wall_shift_s = self.harness.wall_shift_s + self.harness.clock.now + away_s
        return Scene(
            self.declared, harness, options=self.options, limits=self.limits, max_bytes=self.max_bytes,
            overlapping=self.overlapping,
        )  # fmt: skip
