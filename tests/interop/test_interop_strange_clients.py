"""Clients that follow the grammar and nothing else: random termini, filters, sections, flows and outcomes.

What they get is their affair; the node must not fail anywhere inside, which its log would show.
"""

from __future__ import annotations

import select
import socket
from random import Random
from typing import Any

import pytest

from enmasse.errors import LocalError
from enmasse.message.codec import encode
from enmasse.message.outcomes import Accepted, AmqpError, Modified, Rejected, Released
from enmasse.message.types import Array, Described, Symbol, Timestamp, UInt, ULong
from enmasse.wire.amqp.framing import AMQP_HEADER, amqp_frame
from enmasse.wire.amqp.performatives import (
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    Source,
    Target,
    Transfer,
)
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

BURSTS = 1500
HANDLES = 6
CONNECTIONS = 6

SCALARS: list[Any] = [
    None, True, False, 0, 1, -1, 1 << 31, -(1 << 63), UInt(0xFFFFFFFF), ULong(0), ULong((1 << 64) - 1), 1.5,
    float("nan"), "first", "next", "last", "", "#", "*", "::", "$management", "é", "x" * 300, Symbol("a"), Symbol(""),
    b"", b"\xff" * 10, Timestamp(-1), Timestamp(1 << 62), Array(0xA3, [Symbol("enmasse:frames"), Symbol("b")]),
]  # fmt: skip
FILTERS = [
    "enmasse:start",
    "enmasse:partition",
    "enmasse:from",
    "enmasse:to",
    "apache.org:selector-filter:string",
    "k",
]
CAPABILITIES: list[tuple[str, ...] | None] = [None, None, (), ("enmasse:frames",), ("enmasse:offsets",), ("queue",)]
STATES: list[Any] = [
    None, Accepted(), Released(), Rejected(AmqpError("a:b")), Modified(True, True, {Symbol("x"): 1}), Received(0, 0),
    Described(ULong(0x34), [b"t"]),
]  # fmt: skip


class Strange:
    """One connection, and what it believes to have attached."""

    def __init__(self, random: Random, port: int, names: list[str]) -> None:
        self.random = random
        self.names = names
        self.handles: dict[int, bool] = {}
        """Handle to role, which is true for a receiver."""
        self.delivery_id = 0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        begin = Begin(None, 0, random.choice([1, 5, 1000]), 1000)
        opening = Open("strange", max_frame_size=random.choice([512, 65_536, 0xFFFFFFFF]))
        self.socket.sendall(AMQP_HEADER + amqp_frame(0, opening) + amqp_frame(0, begin))

    def value(self, depth: int = 0) -> Any:
        pick = self.random.randrange(8)
        if pick > 2 or depth > 2:
            return self.random.choice(SCALARS)
        if pick == 0:
            return [self.value(depth + 1) for _ in range(self.random.randrange(3))]
        if pick == 1:
            return {Symbol(f"k{n}"): self.value(depth + 1) for n in range(self.random.randrange(3))}
        return Described(self.random.choice([Symbol("d"), ULong(7)]), self.value(depth + 1))

    def address(self) -> Any:
        return self.value() if self.random.random() < 0.1 else self.random.choice(self.names)

    def filters(self) -> dict[Any, Any] | None:
        if self.random.random() < 0.4:
            return None
        names = self.random.sample(FILTERS, self.random.randrange(3))
        return {
            Symbol(name): self.random.choice([self.value(), Described(Symbol(name), self.value())]) for name in names
        }

    def attach(self, handle: int) -> Attach:
        random = self.random
        is_receiver = random.random() < 0.5
        source: Source | None = Source(
            self.address(),
            dynamic=random.random() < 0.1,
            filter=self.filters(),
            capabilities=random.choice(CAPABILITIES),
            durable=random.choice([0, 2]),
            default_outcome=random.choice(STATES),
            outcomes=random.choice([None, ("amqp:accepted:list",)]),
            distribution_mode=random.choice([None, "move", "copy"]),
        )
        target: Any = Target(self.address(), dynamic=random.random() < 0.1, capabilities=random.choice(CAPABILITIES))
        if random.random() < 0.05:
            source, target = None, random.choice([None, Coordinator()])
        properties = random.choice([None, "enmasse:partition", "enmasse:producer", "x"])
        return Attach(
            f"link-{handle}-{random.randrange(2)}",
            handle,
            is_receiver,
            3 if random.random() < 0.03 else random.randrange(3),
            random.randrange(2),
            source,
            target,
            initial_delivery_count=None if is_receiver else random.choice([0, 0xFFFFFFFF]),
            max_message_size=random.choice([None, 0, 10]),
            desired_capabilities=random.choice(CAPABILITIES),
            properties={Symbol(properties): self.value()} if properties else None,
        )

    def payload(self) -> bytes:
        random = self.random
        out = b""
        for code in sorted(random.sample(range(0x70, 0x79), random.randrange(5))):
            value: Any = {Symbol("x-opt-partition-key"): self.value(), Symbol("x-opt-sequence"): self.value()}
            if random.random() < 0.1:
                value = self.value()
            elif code == 0x70:
                value = [True, self.value(), self.value(), None, self.value()]
            elif code == 0x73:
                value = [self.value() for _ in range(random.randrange(14))]
            elif code == 0x75:
                value = b"x"
            out += b"\x00\x53" + bytes((code,)) + encode(value)
        if random.random() < 0.2:
            out = out[: random.randrange(len(out) + 1)] + random.randbytes(random.randrange(4))
        return out

    def next_frame(self) -> bytes:
        random = self.random
        pick = random.random()
        senders = [handle for handle, is_receiver in self.handles.items() if not is_receiver]
        receivers = [handle for handle, is_receiver in self.handles.items() if is_receiver]
        if pick < 0.3 or not self.handles:
            handle = random.randrange(HANDLES)
            if self.handles.pop(handle, None) is not None:
                return amqp_frame(0, Detach(handle, random.random() < 0.5))
            attach = self.attach(handle)
            self.handles[handle] = attach.role
            return amqp_frame(0, attach)
        if pick < 0.65 and senders:
            payload = self.payload()
            more = random.random() < 0.05
            transfer = Transfer(
                random.choice(senders), self.delivery_id, b"t", random.choice([0, 0, 0, 0, 0x454D4601, 5]),
                random.random() < 0.3, more, aborted=random.random() < 0.03,
            )  # fmt: skip
            self.delivery_id += not more
            return amqp_frame(0, transfer, len(payload)) + payload
        if pick < 0.85 and receivers:
            flow = Flow(
                None, random.choice([0, 1000, 1 << 31]), 0, 1000, random.choice(receivers),
                random.choice([None, 0, 5]), random.choice([0, 1, 10, 1000, 0xFFFFFFFF]),
                drain=random.random() < 0.2, echo=random.random() < 0.2,
            )  # fmt: skip
            return amqp_frame(0, flow)
        if pick < 0.98:
            last = random.choice([None, 10, 1 << 31])
            state = random.choice(STATES)
            disposition = Disposition(random.random() < 0.9, random.randrange(5), last, random.random() < 0.7, state)
            return amqp_frame(0, disposition)
        self.handles.clear()
        return amqp_frame(0, End()) + amqp_frame(0, Begin(None, 0, 1000, 1000))

    def act(self) -> bool:
        """Say a few things, and listen a little; whether the connection still stands."""
        said = b""
        for _ in range(self.random.randrange(1, 4)):
            try:
                said += self.next_frame()
            except LocalError:
                # Not even we can write this one.
                continue
        try:
            self.socket.sendall(said)
            if select.select([self.socket], [], [], 0.002)[0] and not self.socket.recv(1 << 20):
                return False
        except OSError:
            return False
        return self.random.random() > 0.01


@pytest.mark.parametrize("seed", [1, 2])
def test_strange_clients_fail_nothing_but_themselves(own_node: Any, seed: int) -> None:
    process: NodeProcess = own_node[0]
    addresses = own_node[1]()
    for kind in ("anycast", "multicast", "queue", "topic", "stream"):
        addresses.declare(kind, kind)
    addresses.declare("subscription", "sub", topic="topic")
    names = ["anycast", "multicast", "queue", "topic", "stream"] * 2 + [
        "sub",
        "topic/a",
        "topic::sub",
        "topic/#",
        "no",
    ]
    random = Random(seed)
    peers: list[Strange] = []
    for _ in range(BURSTS):
        while len(peers) < CONNECTIONS:
            peers.append(Strange(random, process.port, names))
        peer = random.choice(peers)
        if not peer.act():
            peer.socket.close()
            peers.remove(peer)
    for peer in peers:
        peer.socket.close()
    (statistics,) = addresses.query("io.enmasse.statistics")
    assert statistics["messagesIn"] > 50, "hardly anything got through"
    assert "ERROR" not in process.log, process.log
