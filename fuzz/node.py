"""Target of a whole node without sockets: a client's bytes on the way to addresses of every kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from enmasse.node.amqp.binding import Binding
from enmasse.node.connections.client_connection import ClientConnection
from enmasse.node.connections.connections import Connections
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.node.ports import ServedHosts
from enmasse.node.users.gate import Gate
from enmasse.testing.ports import CoreHarness
from enmasse.wire.amqp.performatives import Attach, Begin, Flow, Open, Source, Transfer
from enmasse.wire.amqp.performatives import Target as LinkTarget
from fuzz.engines import check_output, cut, headed
from fuzz.mutation import mutate_conversation
from fuzz.target import Target
from fuzz.vocabulary import ADDRESSES, MESSAGES, PERFORMATIVES, frame_of, hello

__all__ = ["NODE_TARGET", "World", "converse"]

SPACE = "fuzz/space"
KINDS = {"any": "anycast", "all": "multicast", "queue": "queue", "topic": "topic", "stream": "stream"}


class Shell:
    """The socket of a connection, as far as the account of connections looks at it."""

    bytes_in = bytes_out = 0
    peer = "127.0.0.1:1"
    transport = SimpleNamespace(get_extra_info={"sockname": ("127.0.0.1", 1)}.get)


class World:
    """A node's entities and one connection, over a storage in memory.

    Args:
        protocol: what the connection speaks.
        check: takes what its engine says, and sees that it makes sense.
    """

    def __init__(
        self, protocol: type[ClientConnection] = Binding, check: Callable[[Any], object] = check_output
    ) -> None:
        self._check = check
        self.harness = CoreHarness()
        ids = count(1)
        self.connections = Connections(lambda: 1_700_000_000_000)
        entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.connections.close_space)
        entities.load()
        hosts = frozenset(("here",))
        gate = Gate(None, lambda: 0.0)
        self.connections.hosts = ServedHosts(hosts, lambda _host: False, lambda: entities.spaces, gate)
        answers: list[Any] = []
        entities.create(SPACE_TYPE, SPACE, {}, answers.append)
        self.harness.commit()
        for name, kind in KINDS.items():
            asked = {"space": SPACE, "address": name, "addressType": kind}
            entities.create(ADDRESS_TYPE, f"{SPACE}.{name}", asked, answers.append)
        self.harness.commit()
        assert not any(answers), answers
        connection = protocol(
            self.connections,
            spaces=lambda: entities.spaces,
            fixed=entities.spaces[SPACE],
            default=None,
            url="amqp://here:1",
            peer=Shell.peer,
        )
        self.engine = connection.make_engine("node", 0.0)
        self.connections.connected(connection, Shell())  # type: ignore[arg-type]

    def go_on(self) -> None:
        """Have the turn run, what is stored committed, and what the engine says taken."""
        self.harness.commit()
        self._check(self.engine)
        assert not self.harness.faults, self.harness.faults


def run_node(data: bytes) -> None:
    """A client may say anything: no address is at fault, and nothing stays behind when it is gone."""
    if data:
        converse(World(), data, hello(Open("fuzz"), Begin(incoming_window=100, outgoing_window=100)))


def converse(world: World, data: bytes, greeting: bytes) -> None:
    """Have a client say an input, after a greeting if its first byte says so, and leave."""
    if data[0] & 8:
        world.engine.receive(greeting, 0.0)
    pieces = cut(data[0], data[1:])
    turn = 1 + len(pieces) // 8
    for number, piece in enumerate(pieces):
        world.engine.receive(piece, world.harness.clock.now)
        if number % turn == turn - 1:
            world.go_on()
    world.go_on()
    world.harness.advance(1.0)
    world.go_on()
    world.engine.lost()
    world.go_on()
    assert not world.connections.numbers, "a connection that is gone is still counted"


def _seeds() -> Sequence[bytes]:
    conversations = [frame_of(item, 0, b"payload" if isinstance(item, Transfer) else b"") for item in PERFORMATIVES]
    for name in ADDRESSES:
        links = b"".join(
            frame_of(item)
            for item in (
                Attach("in", 0, False, source=Source(), target=LinkTarget(name or None), initial_delivery_count=0),
                Attach("out", 1, True, source=Source(name), target=LinkTarget()),
                Flow(0, 100, 0, 100, 1, 0, 10),
            )
        )
        conversations += [links + frame_of(Transfer(0, 0, b"t", 0, False), 0, payload) for payload in MESSAGES]
    return headed(conversations, 8, 15)


NODE_TARGET = Target("node", run_node, _seeds, 2048, mutate_conversation)
