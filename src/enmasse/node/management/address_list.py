"""``$addresses``: sends a space's list of addresses to its receivers, at attach and at every change.

Rules:
1. The list comes in parts of one message each; ``last`` marks the end of it. A list is sent again from the start
   when something has changed, but never two at once and not too often: what changes meanwhile is in the next one.
2. A receiver with the capability ``enmasse:changes`` gets the list once, then the changes. If it falls so far behind
   that they are no shorter than the list, it gets the list again.
3. Nothing is stored for a slow receiver but the names of addresses that have changed.
4. A part is made when it is sent, and each receiver gets one part in a turn.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from enmasse.message.sections import Properties, encode_message
from enmasse.message.types import ULong
from enmasse.messaging.address import Address, AttachOptions
from enmasse.messaging.delivery import Consumer, ConsumerPort

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.management.records import AddressRecords


CHANGES = "enmasse:changes"

PART = 200
"""The addresses of one message: some 30 kB, and two milliseconds of the node's time."""

PAUSE_S = 0.1
"""Seconds between two lists for each part of a list, so that a list takes a fiftieth of the node's time at most."""

MAX_CHANGED = 10_000
"""The most names that wait for a receiver; beyond that it gets the list."""

_FIELDS = ("name", "address", "addressType", "topic", "partitions", "uid", "generation")


class _Reader(Consumer):
    """The end of a receiver's link."""

    __slots__ = ("_at", "_changed", "_is_draining", "_names", "_not_before", "_version", "wants_changes")
    address: AddressList

    def __init__(self, address: AddressList, port: ConsumerPort, *, wants_changes: bool) -> None:
        super().__init__(address, port, presettle=True)
        self.wants_changes = wants_changes
        self._names: list[str] | None = None
        """The addresses of the list that is being sent."""
        self._at = 0
        self._version = -1
        """The version that was sent last."""
        self._changed: dict[str, None] | None = None
        """Addresses that have changed since; None if the whole list is needed."""
        self._not_before = 0.0
        self._is_draining = False

    def on_credit(self, gained: int, drain: bool) -> None:
        """Send what is new at the end of the turn."""
        self.address.due()
        self._is_draining = drain

    @property
    def is_behind(self) -> bool:
        """True if there is something to send."""
        return self._names is not None or self._version != self.address.version

    def changed(self, address: str) -> None:
        """Note that an address has changed or was deleted."""
        if self._changed is not None:
            self._changed[address] = None
            if len(self._changed) > MAX_CHANGED:
                self._changed = None

    def pump(self, now: float) -> float | None:
        """Send one message if possible; return when to try again, if nothing but time is needed."""
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
                self._send_changes(self._changed)
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
        self._send("addresses", {"addresses": source.entries(part)}, part=number, last=is_last)
        if is_last:
            self._names = None
            self._not_before = now + PAUSE_S * (number + 1)
        return now if self.is_behind else None

    def _send_changes(self, names: dict[str, None]) -> None:
        part = list(names)[:PART]
        for name in part:
            del names[name]
        if not names:
            self._version = self.address.version
        found = self.address.entries(part)
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
    """The address ``$addresses`` of one space.

    Args:
        core: the messaging core.
        space: the space's name.
        declared: the records of all addresses of the node.
        version: the list's first version, higher than any that the space had before.
    """

    kind = "service"

    def __init__(self, core: Core, name: str, space: str, declared: AddressRecords, version: int) -> None:
        super().__init__(core, name)
        self.version = version
        self._space = space
        self._declared = declared

    def changed(self, address: str) -> None:
        """Note that an address of the space has changed or was deleted."""
        self.version += 1
        for reader in self.consumers:
            assert isinstance(reader, _Reader)
            reader.changed(address)
        if self.consumers:
            self.due()

    def names(self) -> list[str]:
        """Return the names of the space's addresses."""
        return list(self._declared.of_space(self._space))

    def entries(self, addresses: list[str]) -> list[dict[str, Any]]:
        """Return the entries of addresses in the list, without those that do not exist any more."""
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
        """Attach a receiver; its messages are settled, as a newer one follows any that is lost."""
        options.presettle = True
        return self.add_consumer(_Reader(self, port, wants_changes=CHANGES in options.capabilities))

    def on_turn(self, now: float) -> None:
        """Send what is new, as far as receivers have credit."""
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
        """Send a list that had to wait for ``PAUSE_S``."""
        self.due()
