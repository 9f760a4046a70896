"""MQTT clients of a node without sockets, with an address of every type."""

from __future__ import annotations

from typing import Any

from enmasse.node.connections.connections import Connections
from enmasse.node.connections.logs import EventLog
from enmasse.node.mqtt.connection import MqttConnection
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort
from enmasse.wire.mqtt.packets import Connect, Filter, Version
from tests.support.mqtt_peer import Heard, MqttVoice
from tests.unit.node.entities_scene import Node
from tests.unit.node.stomp_scene import KINDS, Shell

__all__ = ["KINDS", "V3", "V5", "Client", "Filter", "Heard", "Scene"]

V3, V5 = Version.V3_1_1, Version.V5


class Client(MqttVoice):
    """One client of the node.

    Args:
        scene: where.
        version: of the protocol.
        client_id: its name.
        options: of its CONNECT.
    """

    def __init__(self, scene: Scene, version: Version, client_id: str, **options: Any) -> None:
        super().__init__(Connect(version, client_id, **options), scene.now)
        self._scene = scene
        self.connection = MqttConnection(
            scene.connections,
            spaces=lambda: scene.node.entities.spaces,
            fixed=None,
            default=None,
            url="amqp://here:1",
            peer=Shell.peer,
            **scene.options,
        )
        self.node_engine = self.connection.make_engine("node", scene.now)
        scene.connections.connected(self.connection, Shell())  # type: ignore[arg-type]
        scene.clients.append(self)
        self.connack: Heard | None = None

    def exchange(self) -> bool:
        """Carry what either end has to say to the other, and tell whether that was anything."""
        is_read = not self.is_held()
        ours = b"".join(bytes(chunk) for chunk in self.engine.pending_output()) if is_read else b""
        is_read = is_read and bool(ours or self.node_engine.has_more)
        if is_read:
            self.node_engine.receive(ours, self._scene.now)
        theirs = b"".join(bytes(chunk) for chunk in self.node_engine.pending_output())
        if theirs:
            self.engine.receive(theirs, self._scene.now)
        return is_read or bool(theirs)

    def is_held(self) -> bool:
        """Whether the node leaves unread what it says."""
        return self.node_engine.is_held

    @property
    def is_cut(self) -> bool:
        """Whether the node has ended the connection."""
        return self.node_engine.closed or not self.node_engine.is_open

    def told(self) -> list[Heard]:
        """What it was told since it last asked, once the turn is over and everything stored."""
        self._scene.go_on()
        found = list(self.heard)
        self.heard.clear()
        return found

    def one(self, kind: str) -> Heard:
        """The only thing that it was told since it last asked."""
        heard = self.told()
        assert [one.kind for one in heard] == [kind], heard
        return heard[0]

    def subscribed(self, *filters: str | Filter, qos: int = 0, identifier: int = 0) -> list[int]:
        """Subscribe, and return the codes; what else it was told stays."""
        self.subscribe(*filters, qos=qos, identifier=identifier)
        self._scene.go_on()
        (found,) = [one for one in self.heard if one.kind == "suback"]
        self.heard.remove(found)
        return found.codes

    def messages(self) -> list[Heard]:
        """The messages that it was sent since it last asked, acknowledged to the end, and nothing else."""
        found = []
        while heard := self.told():
            for one in heard:
                assert one.kind in ("publish", "pubrel"), one
                if one.kind == "pubrel":
                    self.engine.put_pubcomp(one.packet_id)
                    continue
                found.append(one)
                if one.qos:
                    self.acknowledge(one)
        return found

    def bodies(self) -> list[bytes]:
        """The payloads of these."""
        return [message.payload for message in self.messages()]

    def answer(self, topic: str, payload: bytes = b"x", qos: int = 1, **options: Any) -> int | None:
        """Publish with QoS 1 or 2, to the end, and return the reason code; None if there is no answer."""
        packet_id = self.publish(topic, payload, qos, **options)
        found = None
        for one in self.told():
            if one.kind in ("puback", "pubrec") and one.packet_id == packet_id:
                found = one.reason
                if one.kind == "pubrec" and one.reason < 0x80:
                    self.engine.put_pubrel(packet_id)
                    assert self.one("pubcomp").packet_id == packet_id
            else:
                self.heard.append(one)
        return found


class Scene:
    """A node and its clients."""

    def __init__(self, **options: Any) -> None:
        self.node = Node()
        self.node.space()
        for name, kind in KINDS.items():
            self.node.address(name, kind, **options.get(name, {}))
        self._begin()

    def restart(self) -> None:
        """The node dies, and another one starts over what is on disk."""
        shift_s = self.harness.wall_shift_s + self.harness.clock.now
        self.node = self.node.restarted()
        self.node.harness.wall_shift_s = shift_s
        self._begin()
        self.go_on()

    def _begin(self) -> None:
        self.harness = self.node.harness
        self.connections = Connections(lambda: 1_700_000_000_000)
        self.clients: list[Client] = []
        self.options: dict[str, Any] = {"events": EventLog()}
        """Of the connections of clients that come."""
        self._count = 0

    @property
    def now(self) -> float:
        """The clock."""
        return float(self.harness.clock.now)

    @property
    def space(self) -> Any:
        """The space."""
        return next(iter(self.node.entities.spaces.values()))

    def connecting(self, version: Version = V5, client_id: str | None = None, **options: Any) -> Client:
        """A client that has connected, and may have been refused."""
        self._count += 1
        name = f"client-{self._count}" if client_id is None else client_id
        client = Client(self, version, name, **options)
        heard = client.told()
        assert heard[0].kind == "connack", heard
        client.connack = heard[0]
        client.heard.extend(heard[1:])
        return client

    def client(self, version: Version = V5, client_id: str | None = None, **options: Any) -> Client:
        """A client that is connected."""
        client = self.connecting(version, client_id, **options)
        assert client.connack is not None
        assert client.connack.reason == 0, client.connack
        return client

    def go_on(self) -> None:
        """Have turns run, and what is to be stored committed."""
        self.harness.commit()
        while sum(client.exchange() for client in self.clients):  # all of them
            self.harness.commit()
        assert not self.harness.faults, self.harness.faults

    def amqp_sender(self, address: str) -> MemoryProducerPort:
        """A sender of another protocol."""
        port: MemoryProducerPort = self.harness.sender(self.space.find(address), address)
        return port

    def amqp_receiver(self, address: str, credit: int = 100, **options: Any) -> MemoryConsumerPort:
        """A receiver of another protocol."""
        port: MemoryConsumerPort = self.harness.receiver(self.space.find(address), credit, **options)
        return port
