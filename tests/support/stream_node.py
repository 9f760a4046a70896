"""A node with one space in which streams, queues and topics are declared, shared by tests one after the other."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from enmasse.client.blocking import Connection, connect
from tests.support.node_process import NodeProcess

__all__ = ["StreamNode"]

SPACE = {"spaceType": "standard", "authentication": "none", "uid": "space-1", "generation": 1}


class StreamNode(NodeProcess):
    """A node process with the space ``default/demo``; killed, it comes back at the same port with the same data."""

    def __init__(self, data: Path, *arguments: str) -> None:
        super().__init__(data, "--name", "node-0", *arguments)
        self._numbers = itertools.count()
        self._connection: Connection | None = None
        self._manager: Any = None

    def start(self) -> Self:
        """Start it; a new one gets its space."""
        is_new = not self.data.exists()
        super().start()
        if is_new:
            self.manage(lambda m: m.create("io.enmasse.space", "default/demo", SPACE))
        return self

    def manage(self, act: Callable[[Any], Any]) -> Any:
        """Do something with the node's management, by one connection until ``disconnect``."""
        if self._connection is None:
            self._connection = connect(self.admin_url, patience=10)
            self._manager = self._connection.management()
        return act(self._manager)

    def disconnect(self) -> None:
        """Close the connection to management, and with it the thread of the blocking client."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _end(self, number: signal.Signals) -> int:
        self.disconnect()
        return super()._end(number)

    def create(self, address: str, kind: str = "stream", *, uid: str | None = None, partitions: int = 2) -> str:
        """Declare an address; its name."""
        attributes: dict[str, Any] = {
            "space": "default/demo",
            "address": address,
            "addressType": kind,
            "uid": uid or f"{address}-{next(self._numbers)}",
            "generation": 1,
        }
        if kind == "stream":
            attributes["partitions"] = partitions
        self.manage(lambda m: m.create("io.enmasse.address", f"default/demo.{address}", attributes))
        return address

    def delete(self, address: str) -> None:
        """Delete an address and what it has."""
        self.manage(lambda m: m.delete("io.enmasse.address", f"default/demo.{address}"))

    def clear(self) -> None:
        """Delete all addresses, and all spaces but the one that it began with."""

        def delete_all(manager: Any) -> None:
            for kind in ("io.enmasse.address", "io.enmasse.space"):
                for entity in manager.query(kind, ["name"]):
                    if entity["name"] != "default/demo":
                        manager.delete(kind, entity["name"])

        self.manage(delete_all)

    def connect(self) -> Connection:
        """A connection of a client, which is patient with a node that starts."""
        return connect(self.url, patience=10)
