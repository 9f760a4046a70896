"""A stream that is on disk alone is read without the node ever waiting for a page."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from enmasse.client import blocking
from enmasse.messaging.log.frame import Frame, encode_frame
from tests.support.node_process import NodeProcess

pytestmark = pytest.mark.slow

SPACE = "default/cold"
FRAME_FORMAT = 0x454D4601
FRAMES = 120
ROWS = 1_000
BODY = bytes(300)
HEAD = b"\x00\x53\x75\xb0" + len(BODY).to_bytes(4, "big")
WAIT_S = 60.0


def major_faults(pid: int) -> int:
    """Pages that a process had to wait for."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


def of_children(pid: int) -> int:
    """The same of the processes that it started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(major_faults(int(child)) for child in children)


def fill(node: NodeProcess) -> None:
    with blocking.connect(node.admin_url) as connection:
        management = connection.management()
        management.create("io.enmasse.space", SPACE, {"spaceType": "standard", "authentication": "none"})
        management.create(
            "io.enmasse.address", "default/log", {"space": SPACE, "address": "log", "addressType": "stream"}
        )
    frame = encode_frame(0, [0] * ROWS, [b"k"] * ROWS, [HEAD] * ROWS, [BODY] * ROWS)
    with blocking.connect(node.url) as connection:
        sender = connection.sender("log", capabilities=("enmasse:frames",), properties={"enmasse:partition": 0})
        for _ in range(FRAMES):
            sender.send_payload(frame, message_format=FRAME_FORMAT)


def let_go(path: Path) -> None:
    """Have the kernel keep nothing of a file in memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def test_the_node_waits_for_no_page_of_what_it_reads(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "node")
    node.start()
    try:
        fill(node)
        node.stop()
        let_go(tmp_path / "node" / "nodes" / "node-0" / "journal" / "data.mdb")
        node.start()
        before = major_faults(node.pid)
        offset = 0
        with blocking.connect(node.url) as connection:
            receiver = connection.receiver(
                "log", capabilities=("enmasse:frames",), filters={"enmasse:from": 0}, credit=8
            )
            while offset < FRAMES * ROWS:
                delivery = receiver.receive(timeout=WAIT_S)
                assert delivery is not None
                frame = Frame(delivery.payload)
                assert frame.first_offset == offset
                offset = frame.next_offset
        waited = major_faults(node.pid) - before
        if not of_children(node.pid):
            pytest.skip("this file system keeps every page in memory; run the tests on a disk")
        # Branches of the tree may be among them, never the frames' 10,000 pages.
        assert waited <= 20
    finally:
        node.stop()
