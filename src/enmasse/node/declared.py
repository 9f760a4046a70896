"""The records of addresses, packed: a node may have a hundred thousand that nobody uses at the moment."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from itertools import islice
from typing import Any

__all__ = ["DeclaredAddresses", "packed"]

Record = dict[str, Any]


def packed(record: Record) -> bytes:
    """Return a record as it is kept, in the journal and in memory."""
    return json.dumps(record, separators=(",", ":")).encode()


class DeclaredAddresses(MutableMapping[str, Record]):
    """Records of addresses by name, and the names by space and address.

    What is given out is a copy: to change a record, set it.
    """

    def __init__(self) -> None:
        self._packed: dict[str, bytes] = {}
        self._by_address: dict[str, dict[str, str]] = {}
        """Space to address to name."""
        self._fed: dict[str, dict[str, dict[str, None]]] = {}
        """Space to topic to the names of the subscriptions that it feeds."""
        self._order: list[str] | None = None
        """The names in order, until one comes or goes."""

    def __getitem__(self, name: str) -> Record:
        """One record."""
        record: Record = json.loads(self._packed[name])
        return record

    def __setitem__(self, name: str, record: Record) -> None:
        """Keep a record, or what it has become; its space, address and topic never change."""
        self.put(name, record, packed(record))

    def put(self, name: str, record: Record, value: bytes) -> None:
        """Keep a record that is packed already."""
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
        if record["addressType"] == "subscription":
            self._fed.setdefault(space, {}).setdefault(record["topic"], {})[name] = None

    def __delitem__(self, name: str) -> None:
        """Forget a record."""
        record = self[name]
        del self._packed[name]
        self._order = None
        space = record["space"]
        by_address = self._by_address[space]
        del by_address[record["address"]]
        if not by_address:
            del self._by_address[space]
        if record["addressType"] == "subscription":
            of_space = self._fed[space]
            of_topic = of_space[record["topic"]]
            del of_topic[name]
            if not of_topic:
                del of_space[record["topic"]]
            if not of_space:
                del self._fed[space]

    def __contains__(self, name: object) -> bool:
        """Whether there is such a record."""
        return name in self._packed

    def __iter__(self) -> Iterator[str]:
        """The names in the order of their creation."""
        return iter(self._packed)

    def __len__(self) -> int:
        """How many records there are."""
        return len(self._packed)

    def named(self, space: str, address: str) -> str | None:
        """The name of an address of a space, if it is declared."""
        return self._by_address.get(space, {}).get(address)

    def of_space(self, space: str) -> dict[str, str]:
        """Address to name, of a whole space; not to be changed."""
        return self._by_address.get(space, {})

    def fed_by(self, space: str, topic: str) -> list[str]:
        """The names of the subscriptions that a topic feeds."""
        return list(self._fed.get(space, {}).get(topic, ()))

    def page(self, page: slice) -> list[str]:
        """Some of the names, in order; the same order until one comes or goes."""
        if page.start in (None, 0) and page.stop is not None:
            return list(islice(self._packed, page.stop))
        if self._order is None:
            self._order = list(self._packed)
        return self._order[page]
