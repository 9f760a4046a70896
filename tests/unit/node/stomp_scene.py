"""STOMP clients of a node without sockets, with an address of every type."""

from __future__ import annotations

from typing import Any

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import encode_message
from enmasse.node.connections.connections import Connections
from enmasse.node.stomp.connection import StompConnection
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort
from enmasse.wire.stomp.frames import encode_frame
from enmasse.wire.stomp.trace import Splitter
from tests.support.stomp_peer import StompFrame as Frame
from tests.support.stomp_peer import named
from tests.unit.node.entities_scene import Node

KINDS = {"any": "anycast", "all": "multicast", "queue": "queue", "topic": "topic", "stream": "stream"}


class Shell:
    """The socket of a connection, as far as the account of connections looks at it."""

    bytes_in = bytes_out = 0
    peer = "127.0.0.1:1"
    slot = None
    is_stalled = False
    tls = via = ""

    def reset_later(self, _seconds: float) -> None:
        """Do nothing: there is no socket."""


class Client:
    """One client of the node.

    Args:
        scene: where.
        headers: of its CONNECT, beside the version.
    """

    def __init__(self, scene: Scene, version: str = "1.2", **headers: str) -> None:
        self._scene = scene
        self._splitter = Splitter()
        self._written = bytearray()
        self.connection = StompConnection(
            scene.connections,
            spaces=lambda: scene.node.entities.spaces,
            fixed=None,
            default=None,
            url="amqp://here:1",
            peer=Shell.peer,
        )
        self.engine = self.connection.make_engine("node", scene.now)
        scene.connections.connected(self.connection, Shell())  # type: ignore[arg-type]
        self.say("CONNECT", accept_version=version, **headers)
        scene.clients.append(self)
        self.said = self.told()
        """What it was answered."""

    def say(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send a frame; underscores of names are hyphens."""
        self.engine.receive(encode_frame(command, named(headers), body, self.engine.version), self._scene.now)

    def is_held(self) -> bool:
        """Whether the node leaves unread what it says."""
        return self.engine.is_held

    def told(self) -> list[Frame]:
        """What it was told since it last asked, once the turn is over and everything stored."""
        self._scene.go_on()
        found = self._splitter.feed(bytes(self._written))
        self._written.clear()
        assert not self._splitter.is_lost
        return [Frame(frame) for frame in found]

    def write(self) -> bool:
        """Write what the engine has put out, and tell whether that was anything."""
        chunks = self.engine.pending_output()
        for chunk in chunks:
            self._written += chunk
        return bool(chunks)

    def one(self, command: str) -> Frame:
        """The only thing that it was told since it last asked."""
        frames = self.told()
        assert [frame.command for frame in frames] == [command], frames
        return frames[0]

    def send(self, destination: str, body: bytes = b"x", /, **headers: str) -> None:
        """Send a message."""
        self.say("SEND", body, destination=destination, content_length=str(len(body)), **headers)

    def subscribe(self, destination: str, name: str = "0", /, **headers: str) -> None:
        """Subscribe, and have it done."""
        self.say("SUBSCRIBE", id=name, destination=destination, receipt="subscribed", **headers)
        frames = self.told()
        assert "subscribed" in [frame.headers.get("receipt-id") for frame in frames], frames

    def bodies(self) -> list[bytes]:
        """The bodies of the messages that it was sent since it last asked, and nothing else."""
        frames = self.told()
        assert {frame.command for frame in frames} <= {"MESSAGE"}, frames
        return [frame.body for frame in frames]


class Scene:
    """A node and its clients."""

    def __init__(self, **options: Any) -> None:
        self.node = Node()
        self.node.space()
        for name, kind in KINDS.items():
            self.node.address(name, kind, **options.get(name, {}))
        self.harness = self.node.harness
        self.connections = Connections(lambda: 1_700_000_000_000)
        self.clients: list[Client] = []

    @property
    def now(self) -> float:
        """The clock."""
        return float(self.harness.clock.now)

    def client(self, version: str = "1.2", **headers: str) -> Client:
        """A client that is connected."""
        client = Client(self, version, **headers)
        assert [frame.command for frame in client.said] == ["CONNECTED"], client.said
        return client

    def go_on(self) -> None:
        """Have turns run, and what is to be stored committed."""
        self.harness.commit()
        while sum(client.write() for client in self.clients):  # all of them
            self.harness.commit()
        assert not self.harness.faults, self.harness.faults

    def amqp_sender(self, address: str) -> MemoryProducerPort:
        """A sender of another protocol."""
        port: MemoryProducerPort = self.harness.sender(self.node.find(address), address)
        return port

    def amqp_receiver(self, address: str, credit: int = 100, **options: Any) -> MemoryConsumerPort:
        """A receiver of another protocol."""
        port: MemoryConsumerPort = self.harness.receiver(self.node.find(address), credit, **options)
        return port


__all__ = ["ACCEPTED", "KINDS", "Client", "Frame", "Scene", "encode_message"]
