"""``$addresses``: a space's list of addresses, told to whoever receives from there, at attach and at every change.

Rules:
1. The list comes in parts of one message each; ``last`` marks the end of it. A list is sent again from the start
   when something has changed, but never two at once and not too often: what changes meanwhile is in the next one.
2. A receiver with the capability ``enmasse:changes`` gets the list once, then what has changed. If it falls so far
   behind that this is no shorter, it gets the list again.
3. What a receiver has not taken yet is no message: nothing waits for it but the names of what changed.
4. A part is made when it is sent, and one receiver gets one part in a turn.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort
from enmasse.wire.amqp.sections import Properties, encode_message
from enmasse.wire.amqp.types import ULong

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.declared import DeclaredAddresses

__all__ = ["CHANGES", "AddressList"]

CHANGES = "enmasse:changes"

PART = 200
"""Addresses of one message: some 30 kB, and two milliseconds of the node's time."""

PAUSE_S = 0.1
"""At least between two lists, for each part that a list has: a list takes a fiftieth of a node's time at most."""

MAX_CHANGED = 10_000
"""Names that a receiver may have behind it; for more it gets the list."""

_FIELDS = ("name", "address", "addressType", "topic", "partitions", "uid", "generation")


class _Reader(Consumer):
    """A receiver's end."""

    __slots__ = ("_at", "_changed", "_is_draining", "_names", "_not_before", "_version", "wants_changes")
    address: AddressList

    def __init__(self, address: AddressList, port: ConsumerPort, *, wants_changes: bool) -> None:
        super().__init__(address, port, presettle=True)
        self.wants_changes = wants_changes
        self._names: list[str] | None = None
        """Of the list that is being sent."""
        self._at = 0
        self._version = -1
        """Of the list that was sent last."""
        self._changed: dict[str, None] | None = None
        """Addresses that are others by now; nothing if the whole list is needed."""
        self._not_before = 0.0
        self._is_draining = False

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what is new."""
        self.address.due()
        self._is_draining = drain

    @property
    def is_behind(self) -> bool:
        """Whether there is something to send."""
        return self._names is not None or self._version != self.address.version

    def changed(self, address: str) -> None:
        """An address is another one now, or gone."""
        if self._changed is not None:
            self._changed[address] = None
            if len(self._changed) > MAX_CHANGED:
                self._changed = None

    def pump(self, now: float) -> float | None:
        """Send one message, if that is possible; returns when to try again, if time alone helps."""
        again = self._pump(now)
        if self._is_draining and (again is None or again > now):
            self._is_draining = False
            self.port.drained()
        return again

    def _pump(self, now: float) -> float | None:
        if self.is_blocked or self.port.credit <= 0 or not self.is_behind:
            return None
        source = self.address
        if self._names is None:
            if self._changed is not None:
                self._tell_changes(self._changed)
                return now if self.is_behind else None
            if now < self._not_before:
                return self._not_before
            self._names = source.names()
            self._at = 0
            self._version = source.version
            if self.wants_changes:
                self._changed = {}
        part = self._names[self._at : self._at + PART]
        number, self._at = self._at // PART, self._at + PART
        is_last = self._at >= len(self._names)
        self._send("addresses", {"addresses": source.told(part)}, part=number, last=is_last)
        if is_last:
            self._names = None
            self._not_before = now + PAUSE_S * (number + 1)
        return now if self.is_behind else None

    def _tell_changes(self, names: dict[str, None]) -> None:
        part = list(names)[:PART]
        for name in part:
            del names[name]
        if not names:
            self._version = self.address.version
        found = self.address.told(part)
        there = {entry["address"] for entry in found}
        gone = [name for name in part if name not in there]
        self._send("changes", {"changed": found, "deleted": gone}, last=not names)

    def _send(self, subject: str, body: dict[str, Any], **marks: Any) -> None:
        properties = Properties(subject=subject, content_type="application/json")
        message = encode_message(
            json.dumps(body, separators=(",", ":")).encode(),
            properties=properties,
            application_properties={
                "version": ULong(max(self._version, 0)),
                **{key: ULong(value) if type(value) is int else value for key, value in marks.items()},
            },
        )
        self.deliveries += 1
        self.send(None, message, True, 0)


class AddressList(Address):
    """The list of one space.

    Args:
        core: whose turn it takes part in.
        space: the space's name.
        declared: all addresses of the node.
        version: of the list, higher than that of any earlier list of the space.
    """

    kind = "service"

    def __init__(self, core: Core, name: str, space: str, declared: DeclaredAddresses, version: int) -> None:
        super().__init__(core, name)
        self.version = version
        self._space = space
        self._declared = declared

    def changed(self, address: str) -> None:
        """An address of the space is another one now, or gone."""
        self.version += 1
        for reader in self.consumers:
            assert isinstance(reader, _Reader)
            reader.changed(address)
        if self.consumers:
            self.due()

    def names(self) -> list[str]:
        """The addresses of the space."""
        return list(self._declared.of_space(self._space))

    def told(self, addresses: list[str]) -> list[dict[str, Any]]:
        """What is told of addresses; those that are gone are left out."""
        found = []
        for address in addresses:
            name = self._declared.named(self._space, address)
            if name is not None:
                record = self._declared[name]
                entry = {key: record[key] for key in _FIELDS if key in record}
                entry["type"] = entry.pop("addressType")
                found.append(entry)
        return found

    def attach_consumer(self, port: ConsumerPort, options: AttachOptions) -> Consumer:
        """A receiver joins; messages come settled, as there are newer ones if one is lost."""
        options.presettle = True
        return self.add_consumer(_Reader(self, port, wants_changes=CHANGES in options.capabilities))

    def on_turn(self, now: float) -> None:
        """Send what is new, as far as receivers take it."""
        for reader in self.consumers:
            assert isinstance(reader, _Reader)
            again = reader.pump(now)
            if again is None:
                continue
            if again <= now:
                self.due()
            else:
                self.core.schedule(self, again)

    def on_deadline(self, now: float) -> None:
        """A list may be sent again."""
        self.due()
