"""Two nodes of one installation, each the home of a space, that hand connections over to each other."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from enmasse.client import blocking
from tests.support.node_process import NodeProcess

__all__ = ["Nodes", "two_nodes"]

INSTALLATION = "here"


class Nodes:
    """Some nodes, by name.

    Attributes:
        nodes: their processes.
        peers: the directory of their sockets.
    """

    def __init__(self, nodes: Sequence[NodeProcess], peers: Path) -> None:
        self.nodes = nodes
        self.peers = peers

    def manage(self, act: Any, *, of: Sequence[int] = ()) -> None:
        """Let something be done by the management of every node, or of some."""
        for number in of or range(len(self.nodes)):
            with blocking.connect(self.nodes[number].admin_url, timeout=30, patience=30) as admin:
                act(admin.management())

    def space(self, name: str, home: int, generation: int = 1, **attributes: Any) -> None:
        """Declare a space, which every node knows."""
        record = {"spaceType": "standard", "authentication": "none", **attributes}
        record |= {"home": f"node-{home}", "homeGeneration": generation, "uid": name}
        self.manage(lambda management: management.create("io.enmasse.space", name, record))

    def address(self, space: str, home: int, address: str, kind: str, **attributes: Any) -> None:
        """Declare an address at the home of its space."""
        record = {"space": space, "address": address, "addressType": kind, **attributes}
        self.manage(
            lambda management: management.create("io.enmasse.address", f"{space}.{address}", record), of=(home,)
        )

    def statistics(self, node: int) -> Mapping[str, Any]:
        """The statistics of a node."""
        with blocking.connect(self.nodes[node].admin_url, timeout=30, patience=30) as admin:
            (found,) = admin.management().query("io.enmasse.statistics")
        return found

    def connections(self, node: int) -> list[Mapping[str, Any]]:
        """The connections of clients at a node."""
        with blocking.connect(self.nodes[node].admin_url, timeout=30, patience=30) as admin:
            found = admin.management().query("io.enmasse.connection")
        return [row for row in found if row["space"] != "$admin"]


@contextmanager
def two_nodes(directory: Path, *arguments: str, count: int = 2) -> Iterator[Nodes]:
    """Nodes ``node-0``, ``node-1`` ... that know each other, without a space."""
    # Paths of sockets are short, those of tests long.
    peers = Path(tempfile.mkdtemp(prefix="enmasse-peers-"))
    secret = directory / "secret"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text(secrets.token_hex(32))
    nodes = [
        NodeProcess(
            directory / name, "--name", name, "--peers", str(peers), "--peers-secret", str(secret), *arguments
        )
        for name in (f"node-{number}" for number in range(count))
    ]
    try:
        for node in nodes:
            node.start()
        found = Nodes(nodes, peers)
        found.manage(lambda management: management.create("io.enmasse.installation", INSTALLATION, {}))
        yield found
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(peers, ignore_errors=True)
