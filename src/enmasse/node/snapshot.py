"""What a node's journal holds of its configuration, and of logs that may be nobody's any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from enmasse.messaging.log import TABLES_OF_LOGS, delete_log, log_range
from enmasse.messaging.storage import Operation, Table
from enmasse.node.declared import packed
from enmasse.node.entity_fields import ADDRESS_TYPE, SPACE_TYPE

if TYPE_CHECKING:
    from enmasse.messaging.core import Core
    from enmasse.node.entity_fields import Record

__all__ = ["DELETE_STEP", "Snapshot"]

DELETE_STEP = 64
"""Records deleted with one batch: their frames are read on the way, tens of megabytes at most."""

LOAD_STEP_BYTES = 1 << 20

_PREFIX = {SPACE_TYPE: b"s", ADDRESS_TYPE: b"a"}


class Snapshot:
    """The records of spaces and addresses in the journal.

    Args:
        core: whose journal it is.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @staticmethod
    def put(entity_type: str, record: Record) -> Operation:
        """What keeps a record."""
        return Operation(Table.ENTITY, _PREFIX[entity_type] + record["name"].encode(), packed(record))

    @staticmethod
    def removal(entity_type: str, name: str) -> Operation:
        """What forgets a record."""
        return Operation(Table.ENTITY, _PREFIX[entity_type] + name.encode(), None)

    def records(self, entity_type: str) -> Iterator[tuple[Record, bytes]]:
        """The records of a type, and how the journal holds them."""
        first = _PREFIX[entity_type]
        last = bytes([first[0] + 1])
        while found := self._core.storage.scan(Table.ENTITY, first, last, LOAD_STEP_BYTES):
            values = [value for _, value in found]
            # One text is decoded in half the time of many.
            yield from zip(json.loads(b"[" + b",".join(values) + b"]"), values, strict=True)
            first = found[-1][0] + b"\0"

    def logs(self) -> list[int]:
        """The numbers of all logs of which the journal holds anything."""
        found: set[int] = set()
        for table in TABLES_OF_LOGS:
            log = 0
            while records := self._core.storage.scan(table, log_range(log)[0], b"\xff" * 16, 1):
                log = int.from_bytes(records[0][0][:4], "big")
                found.add(log)
                log += 1
        return sorted(found)

    def clear(self, log: int) -> None:
        """Delete what a log stored, step by step."""
        operations = list(islice(delete_log(self._core.storage, log), DELETE_STEP))
        if operations:
            self._core.store(operations, lambda _reason: self.clear(log))
