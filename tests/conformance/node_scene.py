"""A node in memory, and peers that speak to it frame by frame."""

from __future__ import annotations

from itertools import count
from typing import Any

from enmasse.message.sections import Header, Sections, encode_message
from enmasse.node.amqp.binding import Binding
from enmasse.node.connections.connections import Connections
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.testing.ports import CoreHarness
from enmasse.wire.amqp.connection import Connection
from enmasse.wire.amqp.performatives import Attach, Disposition, Flow, Open, Source, Target, Transfer
from tests.support.raw_peer import Frame, RawPeer

__all__ = ["Node", "NodePeer", "body_of", "durable", "message"]

SPACE = "ns/shop"

KINDS = {"q": "queue", "r": "queue", "s": "stream", "t": "topic", "a": "anycast", "m": "multicast"}


class _Shell:
    """The socket of a connection, as far as anybody looks at it."""

    bytes_in = bytes_out = 0
    peer = "127.0.0.1:1"
    is_secure = False
    server_name: str | None = None
    peer_names: tuple[str, ...] = ()
    slot = None
    is_stalled = False


class Node:
    """Queues q and r, stream s, topic t, anycast a and multicast m, over a storage in memory."""

    def __init__(self, **attributes: Any) -> None:
        self.harness = CoreHarness()
        ids = count(1)
        self.connections = Connections(lambda: 1_700_000_000_000)
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.connections.close_space)
        self.entities.load()
        self.answers: list[Any] = []
        self.entities.create(SPACE_TYPE, SPACE, {}, self.answers.append)
        self.harness.commit()
        for name, kind in KINDS.items():
            self.address(name, kind, **(attributes.get(name) or {}))

    def address(self, name: str, kind: str, **attributes: Any) -> None:
        """Add an address."""
        asked = {"space": SPACE, "address": name, "addressType": kind, **attributes}
        self.entities.create(ADDRESS_TYPE, f"{SPACE}.{name}", asked, self.answers.append)
        self.harness.commit()
        assert self.answers[-1] is None, self.answers[-1]

    def delete(self, name: str) -> None:
        """Delete an address."""
        self.entities.delete(ADDRESS_TYPE, f"{SPACE}.{name}", self.answers.append)
        self.harness.commit()
        assert self.answers[-1] is None, self.answers[-1]

    @property
    def names(self) -> set[str]:
        """The addresses of the space."""
        return set(self.entities.spaces[SPACE].addresses)

    def stored(self, name: str) -> int:
        """How many messages an address holds."""
        stored: int = self.entities.spaces[SPACE].addresses[name].counts()["messagesStored"]
        return stored

    def peer(self, container: str = "c", **fields: Any) -> NodePeer:
        """A peer with a session on channel 0."""
        return NodePeer(self, container, **fields)


class NodePeer(RawPeer):
    """A client's connection to the node; whatever it hears, the node has committed."""

    def __init__(self, node: Node, container: str, **fields: Any) -> None:
        self.node = node
        binding = Binding(
            node.connections,
            spaces=lambda: node.entities.spaces,
            fixed=None,
            default=None,
            url="amqp://here:1",
            peer=_Shell.peer,
        )
        binding.engine = Connection(binding, container_id="node", is_server=True, now=node.harness.clock.now)
        node.connections.connected(binding, _Shell())  # type: ignore[arg-type]
        super().__init__(binding.engine, node.harness.clock)
        self._ids = count(0)
        self.greet(open_with=Open(container, **fields))
        self.begin()

    def hear_uncommitted(self) -> list[Frame]:
        """What the node has put out without a commit."""
        self.node.harness.turn()
        return super().hear()

    def hear(self) -> list[Frame]:
        """Run turns and commit, then see the frames that the node has put out since the last time."""
        frames = []
        for _ in range(4):
            self.node.harness.commit()
            frames += super().hear()
            # The socket takes whatever there is.
            self.engine.resume_output()
        return frames

    def cut(self) -> None:
        """Lose the connection."""
        self.engine.lost()
        self.node.harness.commit()

    def sender(self, target: Target | str, name: str = "in", handle: int = 0, **fields: Any) -> Attach:
        """Attach a link on which this peer sends; the node's attach."""
        made = Target(target) if isinstance(target, str) else target
        return self.attach_sender(name, handle, target=made, **fields)

    def receiver(
        self, source: Source | str, credit: int = 10, name: str = "out", handle: int = 1, **fields: Any
    ) -> Attach:
        """Attach a link on which this peer receives, and grant credit; the node's attach."""
        made = Source(source) if isinstance(source, str) else source
        attach = self.attach_receiver(name, handle, source=made, **fields)
        if credit:
            self.grant(credit, handle)
        return attach

    def grant(self, credit: int, handle: int = 1, *, count: int = 0, **fields: Any) -> None:
        """Grant credit as a receiver that has seen ``count`` deliveries."""
        self.say(
            Flow(
                next_incoming_id=None,
                incoming_window=10_000,
                outgoing_window=10_000,
                handle=handle,
                delivery_count=count,
                link_credit=credit,
                **fields,
            )
        )

    def send(self, payload: bytes, *, tag: bytes | None = None, handle: int = 0, **fields: Any) -> int:
        """Send one transfer of a new delivery; its id."""
        number = next(self._ids)
        made = {"delivery_tag": b"t%d" % number if tag is None else tag, **fields}
        self.say(Transfer(handle, number, **made), payload=payload)
        return number

    def deliver(self, payload: bytes, **fields: Any) -> Any:
        """Send one message and return its outcome."""
        self.hear()
        number = self.send(payload, **fields)
        found = [told for told in self.hear_all(Disposition) if told.role and told.first <= number]
        return found[-1].state if found else None

    def transfers(self) -> list[tuple[Transfer, bytes]]:
        """What the node has sent, with its payload."""
        return [
            (found.performative, found.payload) for found in self.hear() if isinstance(found.performative, Transfer)
        ]

    def bodies(self) -> list[Any]:
        """The bodies of what the node has sent."""
        return [body_of(payload) for _, payload in self.transfers()]

    def settle(self, delivery_id: int | None, state: Any = None) -> None:
        """Settle what the node has sent."""
        assert delivery_id is not None
        self.say(Disposition(True, delivery_id, settled=True, state=state))
        self.node.harness.commit()


def message(body: Any = "m", **sections: Any) -> bytes:
    """A message."""
    return encode_message(body, **sections)


def durable(body: Any = "m", **header: Any) -> bytes:
    """A durable message."""
    return encode_message(body, header=Header(durable=True, **header))


def body_of(payload: bytes) -> Any:
    """The body of a message."""
    return Sections(payload).body
