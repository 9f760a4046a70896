"""Entities over a storage in memory, and messages in their addresses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from enmasse.message.outcomes import ACCEPTED
from enmasse.message.sections import Header, Sections, encode_message
from enmasse.messaging.space import Space
from enmasse.messaging.storage import Table
from enmasse.node.errors import EntityError
from enmasse.node.management.entities import Entities
from enmasse.node.management.entity_fields import ADDRESS_TYPE, SPACE_TYPE
from enmasse.testing.ports import CoreHarness, MemoryConsumerPort

LOG_TABLES = (Table.FRAME, Table.SETTLED, Table.MARK, Table.PRODUCER, Table.HOLDER)


class Node:
    """Entities over a storage in memory; every request is answered into ``answers``."""

    def __init__(self, harness: CoreHarness | None = None) -> None:
        self.harness = harness or CoreHarness()
        ids = count(1)
        self.closed: list[Space] = []
        self.entities = Entities(self.harness.core, lambda: f"id{next(ids)}", self.closed.append)
        self.entities.load()
        self.answers: list[EntityError | None] = []

    def space(self, name: str = "ns/shop") -> None:
        self.create(SPACE_TYPE, name)

    def address(self, name: str, kind: str, space: str = "ns/shop", **attributes: Any) -> None:
        """Create an address whose object name is ``ns/`` and its address."""
        self.create(
            ADDRESS_TYPE,
            f"ns/{name}",
            **{"space": space, "address": name, "addressType": kind, **attributes},
        )

    def create(self, entity_type: str, name: str, **attributes: Any) -> None:
        self.entities.create(entity_type, name, attributes, self.answers.append)
        self.harness.commit()
        assert self.answers.pop() is None

    def delete(self, entity_type: str, name: str) -> None:
        self.entities.delete(entity_type, name, self.answers.append)
        self.harness.commit()
        assert self.answers.pop() is None

    def update(self, name: str, **attributes: Any) -> None:
        self.entities.update(ADDRESS_TYPE, name, attributes, self.answers.append)
        self.harness.commit()
        assert self.answers.pop() is None

    def find(self, address: str, space: str = "ns/shop") -> Any:
        return self.entities.spaces[space].find(address)

    def fill(self, address: str, *bodies: int) -> None:
        """Send durable messages that are stored."""
        sender = self.harness.sender(self.find(address))
        self.harness.turn()
        for body in bodies:
            sender.send(encode_message(b"%d" % body, header=Header(durable=True)))
        self.harness.commit()
        assert [state for _, state in sender.outcomes] == [ACCEPTED] * len(bodies)
        sender.leave()

    def receiver(self, address: str, credit: int = 100, **options: Any) -> MemoryConsumerPort:
        port = self.harness.receiver(self.find(address), credit, **options)
        self.harness.turn()
        while self.harness.storage.waiting_reads:
            self.harness.storage.answer_reads()
            self.harness.turn()
        # What an earlier life left is handed out once that is on disk.
        self.harness.commit()
        return port

    def restarted(self) -> Node:
        return Node(self.harness.restarted())

    def log_records(self) -> list[tuple[Table, bytes]]:
        return [(table, key) for table in LOG_TABLES for key, _ in self.harness.storage.scan_all(table)]


def bodies(port: MemoryConsumerPort) -> list[int]:
    return [int(Sections(payload).body) for payload in port.payloads]


def refused(status: int, call: Callable[[], Any]) -> str:
    with pytest.raises(EntityError) as refusal:
        call()
    assert refusal.value.status == status
    return refusal.value.description
