"""The records of spaces and addresses, in memory and in the journal.

Addresses' records are kept packed in memory (``AddressRecords``): a node may have a hundred thousand addresses that
nobody uses at the moment. ``Snapshot`` reads and writes records in the journal, and finds logs that no address owns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import TYPE_CHECKING

from enmasse.messaging.address_types import ADDRESS_TYPES
from enmasse.messaging.log.layout import TABLES_OF_LOGS, delete_log, log_range
from enmasse.messaging.storage import Operation, Table
from enmasse.node.entity_records import Record
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE

if TYPE_CHECKING:
    from enmasse.messaging.core import Core


def packed(record: Record) -> bytes:
    """Return a record packed as it is kept in the journal and in memory."""
    return json.dumps(record, separators=(",", ":")).encode()


def _is_fed(record: Record) -> bool:
    """Return true if a topic, named by the record, feeds the address."""
    return ADDRESS_TYPES[record["addressType"]].needs_topic


class AddressRecords(MutableMapping[str, Record]):
    """Records of addresses by name, and the names by space and address.

    Reading returns a copy: to change a record, set it.
    """

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._by_address: dict[str, dict[str, str]] = {}
        """The name by space and address."""
        self._fed: dict[str, dict[str, dict[str, None]]] = {}
        """The names of the subscriptions that a topic feeds, by space and topic."""
        self._order: list[str] | None = None
        """The names in order; None after one was added or deleted."""

    def __getitem__(self, name: str) -> Record:
        """Return a copy of one record."""
        record: Record = json.loads(self._packed[name])
        return record

    def __setitem__(self, name: str, record: Record) -> None:
        """Add or replace a record; its space, address and topic never change."""
        self.put(name, record, packed(record))

    def put(self, name: str, record: Record, value: bytes) -> None:
        """Add or replace a record that is packed already."""
        is_new = name not in self._packed
        self._packed[name] = value
        if not is_new:
            return
        self._order = None
        space = record["space"]
        by_address = self._by_address.get(space)
        if by_address is None:
            by_address = self._by_address[space] = {}
        by_address[record["address"]] = name
        if _is_fed(record):
            self._fed.setdefault(space, {}).setdefault(record["topic"], {})[name] = None

    def __delitem__(self, name: str) -> None:
        """Delete a record."""
        record = self[name]
        del self._packed[name]
        self._order = None
        space = record["space"]
        by_address = self._by_address[space]
        del by_address[record["address"]]
        if not by_address:
            del self._by_address[space]
        if _is_fed(record):
            of_space = self._fed[space]
            of_topic = of_space[record["topic"]]
            del of_topic[name]
            if not of_topic:
                del of_space[record["topic"]]
            if not of_space:
                del self._fed[space]

    def __contains__(self, name: object) -> bool:
        """Return true if there is such a record."""
        return name in self._packed

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in the order of their creation."""
        return iter(self._packed)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._packed)

    def named(self, space: str, address: str) -> str | None:
        """Return the entity's name of an address of a space, if it is declared."""
        return self._by_address.get(space, {}).get(address)

    def of_space(self, space: str) -> dict[str, str]:
        """Return the names of a space's entities by address; not to be changed."""
        return self._by_address.get(space, {})

    def types_of(self, space: str) -> Iterator[tuple[str, str]]:
        """Iterate over the addresses of a space, with their types."""
        for address, name in list(self.of_space(space).items()):
            yield address, self[name]["addressType"]

    def companions(self, record: Record) -> list[str]:
        """Return the names of the addresses that have to exist along with one: a topic and its subscriptions."""
        space = record["space"]
        if _is_fed(record):
            topic = self.named(space, record["topic"])
            return [] if topic is None else [topic]
        return list(self._fed.get(space, {}).get(record["address"], ()))

    def page(self, page: slice) -> list[str]:
        """Return a page of the names; the order is stable until one is added or deleted."""
        if page.start in (None, 0) and page.stop is not None:
            return list(islice(self._packed, page.stop))
        if self._order is None:
            self._order = list(self._packed)
        return self._order[page]


DELETE_STEP = 64
"""The records that one batch deletes: their frames are read on the way, tens of megabytes at most."""

LOAD_STEP_BYTES = 1 << 20

_PREFIX = {SPACE_TYPE: b"s", ADDRESS_TYPE: b"a"}


class Snapshot:
    """The records of spaces and addresses in the journal.

    Args:
        core: the messaging core with the journal.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @staticmethod
    def put(entity_type: str, record: Record) -> Operation:
        """Return the operation that stores a record."""
        return Operation(Table.ENTITY, _PREFIX[entity_type] + record["name"].encode(), packed(record))

    @staticmethod
    def removal(entity_type: str, name: str) -> Operation:
        """Return the operation that deletes a record."""
        return Operation(Table.ENTITY, _PREFIX[entity_type] + name.encode(), None)

    def records(self, entity_type: str) -> Iterator[tuple[Record, bytes]]:
        """Iterate over the records of a type, each with its packed form."""
        first = _PREFIX[entity_type]
        last = bytes([first[0] + 1])
        while found := self._core.storage.scan(Table.ENTITY, first, last, LOAD_STEP_BYTES):
            values = [value for _, value in found]
            # One text is decoded in half the time of many.
            yield from zip(json.loads(b"[" + b",".join(values) + b"]"), values, strict=True)
            first = found[-1][0] + b"\0"

    def logs(self) -> list[int]:
        """Return the numbers of all logs of which the journal holds anything."""
        found: set[int] = set()
        for table in TABLES_OF_LOGS:
            log = 0
            while records := self._core.storage.scan(table, log_range(log)[0], b"\xff" * 16, 1):
                log = int.from_bytes(records[0][0][:4], "big")
                found.add(log)
                log += 1
        return sorted(found)

    def clear(self, log: int) -> None:
        """Delete everything that a log stored, step by step."""
        operations = list(islice(delete_log(self._core.storage, log), DELETE_STEP))
        if operations:
            self._core.store(operations, lambda _reason: self.clear(log))
