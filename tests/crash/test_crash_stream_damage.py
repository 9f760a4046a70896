"""A stream whose journal was damaged on disk: what is sound is read, what is not is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from enmasse.client import blocking
from enmasse.client.blocking import Message
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

SPACE = "default/damaged"
WAIT_S = 60.0


def declare(node: NodeProcess) -> None:
    with blocking.connect(node.admin_url) as connection:
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
        management.create(
            "io.enmasse.address", "default/log", {"space": SPACE, "address": "log", "addressType": "stream"}
        )


def damaged(node: NodeProcess) -> int:
    with blocking.connect(node.admin_url) as connection:
        found = connection.management().read("io.enmasse.address", "default/log")
        return int(found["damaged"])


def read(node: NodeProcess, count: int) -> list[tuple[int, bytes]]:
    """Offset and body of so many messages from the beginning."""
    found = []
    with blocking.connect(node.url) as connection:
        receiver = connection.receiver("log", filters={"enmasse:start": "first"}, credit=100)
        for _ in range(count):
            delivery = receiver.receive(timeout=WAIT_S)
            assert delivery is not None
            found.append((delivery.message.annotations["x-opt-offset"], bytes(delivery.message.body)))
        assert receiver.drain(timeout=WAIT_S) == 0
    return found


def flip(path: Path, text: bytes) -> int:
    """Change one bit wherever a text lies in a file; how often."""
    data = bytearray(path.read_bytes())
    count = 0
    at = data.find(text)
    while at >= 0:
        data[at] ^= 1
        count += 1
        at = data.find(text, at + 1)
    path.write_bytes(data)
    return count


def test_a_damaged_frame_costs_its_own_rows_and_shifts_no_offset(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node")
    node.start()
    try:
        declare(node)
        bodies = [b"the body of number %06d" % number for number in range(40)]
        with blocking.connect(node.url) as connection:
            sender = connection.sender("log")
            for body in bodies:
                sender.send(Message(body=body))
        node.stop()
        journal = tmp_path / "node" / "nodes" / "node-0" / "journal" / "data.mdb"
        for number in (7, 23):
            assert flip(journal, bodies[number])
        node.start()
        expected = [(offset, body) for offset, body in enumerate(bodies) if offset not in (7, 23)]
        assert read(node, 38) == expected
        assert damaged(node) == 2
        assert "damaged" in node.log
        # What comes now has the offset that it would have had.
        with blocking.connect(node.url) as connection:
            connection.sender("log").send(Message(body=b"one more"))
        assert read(node, 39)[-1] == (40, b"one more")
    finally:
        node.stop()
