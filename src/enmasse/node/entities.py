"""What a node was told to serve: spaces and addresses, kept in its journal.

The records are the node's configuration snapshot: with them it starts and serves without the control
process. A change is answered once it is on disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from enmasse.messaging.address import Address
from enmasse.messaging.core import LOG_COUNTER
from enmasse.messaging.log import TABLES_OF_LOGS, delete_log, log_range
from enmasse.messaging.queue import Queue
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Operation, Table
from enmasse.messaging.stream import Stream
from enmasse.messaging.subscription import Subscription
from enmasse.messaging.topic import Topic
from enmasse.model.entity_digest import entity_digest
from enmasse.node.address_factory import configure_address, make_address
from enmasse.node.entity_fields import ADDRESS_TYPE, FIELDS, SPACE_TYPE, Record, check_address, checked, home_of
from enmasse.node.errors import EntityError

if TYPE_CHECKING:
    from enmasse.messaging.core import Core

__all__ = ["ADDRESS_TYPE", "SPACE_TYPE", "Entities"]

DELETE_STEP = 64
"""Records deleted with one batch: their frames are read on the way, tens of megabytes at most."""

_PREFIX = {SPACE_TYPE: b"s", ADDRESS_TYPE: b"a"}

Done = Callable[[EntityError | None], None]


class Entities:
    """The spaces and addresses of a node.

    Args:
        core: the messaging core that they live in.
        new_id: gives unguessable names.
        space_closed: hears of a space that is deleted.
    """

    def __init__(
        self, core: Core, new_id: Callable[[], str], space_closed: Callable[[Space], None] = lambda _space: None
    ) -> None:
        self.core = core
        self.spaces: dict[str, Space] = {}
        self.records: dict[str, dict[str, Record]] = {SPACE_TYPE: {}, ADDRESS_TYPE: {}}
        """Type to name to attributes."""
        self.changes = 0
        """Entities created, changed and deleted since the start."""
        self._addresses: dict[str, Address] = {}
        self._new_id = new_id
        self._space_closed = space_closed
        self.space_changed: Callable[[Space], None] = lambda _space: None
        """Hears of a space whose authentication is another one now."""
        self._coming: dict[tuple[str, str], Record] = {}
        self._changing: dict[tuple[str, str], Record] = {}
        """What entities will be once the change on its way is on disk."""
        self._leaving: dict[tuple[str, str], Record] = {}

    # Loading

    def load(self) -> None:
        """Take up what the journal holds, messages included."""
        storage = self.core.storage
        counter = storage.get(Table.ENTITY, LOG_COUNTER)
        if counter is not None:
            self.core.next_log = int.from_bytes(counter, "big")
        for entity_type in (SPACE_TYPE, ADDRESS_TYPE):
            prefix = _PREFIX[entity_type]
            for key, value in storage.scan_all(Table.ENTITY):
                if key.startswith(prefix):
                    record = json.loads(value)
                    self.records[entity_type][record["name"]] = record
                    self._build(entity_type, record)
        for address in self._addresses.values():
            self._load(address)
        self._sweep()

    @staticmethod
    def _load(address: Address) -> None:
        """Have an address take up what the journal holds of it; all of its space are there by then."""
        if isinstance(address, Queue | Topic | Subscription | Stream):
            address.load()

    def _sweep(self) -> None:
        """Delete what an interrupted deletion left behind."""
        known = {record.get("log") for record in self.records[ADDRESS_TYPE].values()}
        for address in self._addresses.values():
            if isinstance(address, Topic):
                known |= address.subscribing.logs
        for log in sorted(self._stored_logs() - known):
            self._clear(log)

    def _stored_logs(self) -> set[int]:
        """The numbers of all logs of which the journal holds anything."""
        found: set[int] = set()
        for table in TABLES_OF_LOGS:
            log = 0
            while records := self.core.storage.scan(table, log_range(log)[0], b"\xff" * 16, 1):
                log = int.from_bytes(records[0][0][:4], "big")
                found.add(log)
                log += 1
        return found

    def _clear(self, log: int) -> None:
        """Delete what a log stored, step by step."""
        operations = list(islice(delete_log(self.core.storage, log), DELETE_STEP))
        if operations:
            self.core.store(operations, lambda _reason: self._clear(log))

    def _build(self, entity_type: str, record: Record) -> None:
        if entity_type == SPACE_TYPE:
            limit = record.get("maxBytes", 0)
            self.spaces[record["name"]] = Space(self.core, record["name"], self._new_id, max_bytes=limit)
            return
        address = make_address(self.core, record)
        self._addresses[record["name"]] = address
        space = self.spaces[record["space"]]
        space.add(address)
        space.rehome(address, home_of(record))

    # Changing

    def create(self, entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Add a space or an address; ``done`` is called once it can be used.

        Raises:
            EntityError: 400 what is wrong with the attributes, 404 no such space, 409 the name or
                the address exists.
        """
        record = checked(entity_type, name, attributes)
        key = (entity_type, name)
        if name in self.records[entity_type] or key in self._coming or key in self._leaving:
            raise EntityError(409, f"{entity_type} {name!r} exists already")
        operations = []
        if entity_type == ADDRESS_TYPE:
            self._check_place(name, record)
            record["log"], counter = self.core.new_log()
            operations.append(counter)
        record.setdefault("uid", self._new_id())
        operations.append(_put(entity_type, record))
        self._coming[key] = record

        def stored(reason: str | None) -> None:
            del self._coming[key]
            if reason is None:
                self.changes += 1
                self.records[entity_type][name] = record
                self._build(entity_type, record)
                if entity_type == ADDRESS_TYPE:
                    self._load(self._addresses[name])
            done(None if reason is None else EntityError(503, f"{name!r} was not stored: {reason}"))

        self.core.store(operations, stored)

    def _check_place(self, name: str, record: Record) -> None:
        """See that an address fits in its space."""
        check_address(name, record)
        space = record["space"]
        if space not in self.spaces:
            raise EntityError(404, f"there is no space {space!r}")
        for other in self._addresses_of(space):
            if other["address"] == record["address"]:
                raise EntityError(409, f"address {record['address']!r} exists already, as {other['name']!r}")

    def _addresses_of(self, space: str) -> list[Record]:
        """The addresses of a space, those included that are on their way to the disk or from it."""
        moving = [*self._coming.items(), *self._leaving.items()]
        moving_addresses = [record for (kind, _), record in moving if kind == ADDRESS_TYPE]
        return [r for r in [*self.records[ADDRESS_TYPE].values(), *moving_addresses] if r["space"] == space]

    def update(self, entity_type: str, name: str, attributes: dict[str, Any], done: Done) -> None:
        """Change what may change; see ``create``. A null brings an attribute back to its default.

        Raises:
            EntityError: 400 what is wrong with the attributes, 404 it does not exist, 409 an attribute
                that is fixed for ever would change.
        """
        key = (entity_type, name)
        before = self._changing.get(key) or self._existing(entity_type, name)
        fields = FIELDS[entity_type]
        given = {k: v for k, v in attributes.items() if v is not None or k not in fields or fields[k].is_changeable}
        after = checked(entity_type, name, {**_public(before), **given})
        for attribute, field in fields.items():
            if before.get(attribute) != after.get(attribute) and not field.is_changeable:
                raise EntityError(
                    409, f"attribute {attribute} of {name!r} cannot be changed; delete it and make it anew"
                )
        if entity_type == ADDRESS_TYPE:
            check_address(name, after)
        record = {**after, "log": before["log"]} if "log" in before else after
        self._changing[key] = record

        def stored(reason: str | None) -> None:
            if self._changing.get(key) is record:
                del self._changing[key]
            if name not in self.records[entity_type]:
                done(EntityError(404, f"{name!r} was deleted meanwhile"))
                return
            if reason is None:
                self.changes += 1
                self._apply(entity_type, record)
            done(None if reason is None else EntityError(503, f"{name!r} was not stored: {reason}"))

        self.core.store([_put(entity_type, record)], stored)

    def _apply(self, entity_type: str, record: Record) -> None:
        name = record["name"]
        before = self.records[entity_type][name]
        self.records[entity_type][name] = record
        if entity_type == SPACE_TYPE:
            self.spaces[name].configure(max_bytes=record.get("maxBytes", 0))
            if before.get("authentication") != record.get("authentication"):
                self.space_changed(self.spaces[name])
        else:
            configure_address(self._addresses[name], record)
            self.spaces[record["space"]].rehome(self._addresses[name], home_of(record))

    def delete(self, entity_type: str, name: str, done: Done) -> None:
        """Remove a space or an address with all that it stores; its links are detached at once.

        Raises:
            EntityError: 404 it does not exist, 409 the space still has addresses.
        """
        record = self._existing(entity_type, name)
        if entity_type == SPACE_TYPE:
            left = [a["name"] for a in self._addresses_of(name)]
            if left:
                raise EntityError(409, f"space {name!r} still has {len(left)} addresses, such as {left[0]!r}")
            space = self.spaces.pop(name)
            space.close()
            self._space_closed(space)
        else:
            address = self._addresses.pop(name)
            self.spaces[record["space"]].remove(address)
        del self.records[entity_type][name]
        self._changing.pop((entity_type, name), None)
        self._leaving[entity_type, name] = record

        def stored(reason: str | None) -> None:
            del self._leaving[entity_type, name]
            if reason is not None:
                # Still on disk: serve it again, as a restart would.
                self.records[entity_type][name] = record
                self._build(entity_type, record)
                if entity_type == ADDRESS_TYPE:
                    self._load(self._addresses[name])
                done(EntityError(503, f"{name!r} was not deleted: {reason}"))
                return
            self.changes += 1
            # Every batch that could hold frames of it is committed now.
            log = record.get("log")
            if log is not None:
                self._clear(log)
            done(None)

        key = _PREFIX[entity_type] + name.encode()
        self.core.store([Operation(Table.ENTITY, key, None)], stored)

    def _existing(self, entity_type: str, name: str) -> dict[str, Any]:
        record = self.records[entity_type].get(name)
        if record is None:
            raise EntityError(404, f"there is no {entity_type} {name!r}")
        return record

    # Reading

    def find(self, name: str) -> tuple[Space, Address]:
        """An address by the name of its entity, and its space.

        Raises:
            EntityError: 404 it does not exist.
        """
        record = self._existing(ADDRESS_TYPE, name)
        return self.spaces[record["space"]], self._addresses[name]

    def read(self, entity_type: str, name: str) -> dict[str, Any]:
        """One entity's attributes and counters.

        Raises:
            EntityError: 404 it does not exist.
        """
        record = self._existing(entity_type, name)
        attributes = {"type": entity_type, "identity": name, **_public(record), "digest": entity_digest(record)}
        address = self._addresses.get(name) if entity_type == ADDRESS_TYPE else None
        if address is not None:
            attributes |= address.counts()
        elif entity_type == SPACE_TYPE:
            space = self.spaces[name]
            attributes |= {"dynamicAddresses": len(space.dynamic), "unroutable": space.unroutable}
        return attributes

    def read_all(self, entity_type: str, page: slice = slice(None)) -> list[dict[str, Any]]:
        """The entities of a type, or some of them in the order of their creation, as ``read`` gives them."""
        return [self.read(entity_type, name) for name in list(self.records[entity_type])[page]]

    def tell(self, entity_type: str, names: list[str], page: slice) -> list[list[Any]]:
        """What identifies the entities of a type, as rows, and their digests, which change with any attribute."""
        return [
            [entity_digest(record) if name == "digest" else record.get(name) for name in names]
            for record in list(self.records[entity_type].values())[page]
        ]


def _public(record: Record) -> dict[str, Any]:
    """A record without what only the node itself knows."""
    return {key: value for key, value in record.items() if key != "log"}


def _put(entity_type: str, record: Record) -> Operation:
    key = _PREFIX[entity_type] + record["name"].encode()
    return Operation(Table.ENTITY, key, json.dumps(record).encode())
