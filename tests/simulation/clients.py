"""Clients of the simulation: links in memory that tell the accounts what they do and hear."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from enmasse.message.outcomes import ACCEPTED, Modified, Rejected
from enmasse.message.sections import Header, Properties, Sections, encode_message, header_of
from enmasse.testing.ports import MemoryConsumerPort, MemoryProducerPort
from tests.simulation.copies import FIRST_WALL_US

if TYPE_CHECKING:
    from tests.simulation.accounts import Account
    from tests.simulation.copies import Message
    from tests.simulation.world import World

__all__ = ["Receiver", "Sender", "attempts_of", "number_of", "payload_of"]

SELECTOR_FILTER = "apache.org:selector-filter:string"

_NUMBER = re.compile(rb"#(\d+):")
"""Nothing else in the messages of the simulation looks like it; decoding every body would take half the time."""


NAME = "x-opt-topic-name"
_NAME = NAME.encode()


def name_of(payload: bytes) -> str | None:
    """The name below a topic that a message carries."""
    return Sections(payload).message_annotations.get(NAME) if _NAME in payload else None


def payload_of(message: Message, padding: int, **annotations: Any) -> bytes:
    """The bytes of a message; its body starts with its number."""
    ttl = round(message.ttl * 1000) or None
    header = Header(durable=message.durable, priority=message.priority, ttl=ttl)
    properties = None
    if message.group is not None or message.key is not None:
        properties = Properties(group_id=message.group, subject=message.key)
    if message.date:
        annotations["x-opt-delivery-time"] = FIRST_WALL_US // 1000 + round(message.date * 1000)
    elif message.delay:
        annotations["x-opt-delivery-delay"] = round(message.delay * 1000)
    coloured = {"colour": message.colour} if message.colour is not None else None
    body = b"#%d:" % message.number + b"." * padding
    return encode_message(
        body,
        header=header,
        properties=properties,
        message_annotations=annotations or None,
        application_properties=coloured,
    )


def number_of(payload: bytes) -> int:
    """The number of a message from its bytes."""
    found = _NUMBER.search(payload)
    assert found is not None, payload
    return int(found[1])


_HEADER = b"\x00\x53\x70\xc0"
"""The header section as a short list, as nearly all are written."""


def attempts_of(payload: bytes) -> int:
    """How many failed deliveries a message tells."""
    return _attempts(payload[: 5 + payload[4]] if payload.startswith(_HEADER) else payload)


@lru_cache(maxsize=4096)
def _attempts(start: bytes) -> int:
    header = header_of(start)
    return header.delivery_count if header is not None else 0


class Sender(MemoryProducerPort):
    """A sender's link.

    Args:
        told: called with a message and the outcome that its sender heard.
    """

    def __init__(self, told: Callable[[Message, Any], None]) -> None:
        super().__init__()
        self.waiting: dict[int, Message] = {}
        """Messages without an outcome, by delivery id."""
        self._told = told
        self.target = ""
        """The address as it named it."""
        self.is_by_front = False
        """Whether it came by another node."""

    def settle(self, delivery_id: int, state: Any) -> None:
        """Hear an outcome."""
        super().settle(delivery_id, state)
        self._told(self.waiting.pop(delivery_id), state)

    def put(self, message: Message, payload: bytes) -> None:
        """Send one message, which may be answered before this returns."""
        if not message.settled:
            self.waiting[self._next_id] = message
        self.send(payload, settled=message.settled)

    def abandon(self) -> list[Message]:
        """The connection is lost: what has no outcome gets none."""
        left = list(self.waiting.values())
        for message in left:
            message.is_orphan = True
        return left


class Receiver(MemoryConsumerPort):
    """A receiver's link.

    Args:
        world: whose clock and journal stamp what happens.
        account: of the address.
        presettle: whether messages come settled.
        colour: which messages it selects; all without.
    """

    def __init__(self, world: World, account: Account, *, presettle: bool, colour: str | None = None) -> None:
        super().__init__()
        self.account = account
        self.presettle = presettle
        self.colour = colour
        self.is_blocked = False
        self.is_by_front = False
        """Whether it came by another node."""
        self.label = world.next_label()
        self._world = world

    @property
    def now(self) -> float:
        """The clock in seconds."""
        return self._world.node.now

    @property
    def filters(self) -> dict[str, Any]:
        """What its source asks for."""
        return {} if self.colour is None else {SELECTOR_FILTER: f"colour = '{self.colour}'"}

    def send(self, delivery: Any, payload: bytes, settled: bool, message_format: int = 0) -> None:
        """Take one message."""
        super().send(delivery, payload, settled, message_format)
        stamp = self._world.storage.submitted
        self._world.note("{}: {} goes to {}", self.account.name, number_of(payload), self.label)
        name, sent_to = name_of(payload), self._world.names.get(number_of(payload))
        if name != sent_to:
            self.account.problem(f"{number_of(payload)} was sent to {sent_to}, and its receiver reads {name}")
        self.account.delivered(number_of(payload), attempts_of(payload), self, stamp=stamp)

    def finish(self, at: int, state: Any) -> None:
        """Settle what lies at a place among the unsettled."""
        self._tell(number_of(self.unsettled[at].payload), state)
        self.settle(state, at=at)

    def _tell(self, number: int, state: Any) -> None:
        account, stamp = self.account, self._world.storage.submitted
        self._world.note("{}: {} is settled by {}: {}", account.name, number, self.label, state)
        if state is ACCEPTED:
            account.accepted(number, stamp)
        elif isinstance(state, Rejected):
            account.rejected(number, stamp, self.now)
        elif isinstance(state, Modified) and state.delivery_failed:
            account.failed(number, stamp, self.now)
        else:
            avoids = isinstance(state, Modified) and bool(state.undeliverable_here)
            account.released(number, self if avoids else None)

    def leave(self) -> None:
        """The link is gone: everything that it had counts as a failed attempt."""
        self._world.note("{}: receiver {} leaves", self.account.name, self.label)
        self.account.lose_receiver(self)
        for arrival in self.unsettled:
            self.account.failed(number_of(arrival.payload), self._world.storage.submitted, self.now)
        super().leave()
