"""What tests of queries over queues have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.foreign_tools import require

require("python-qpid-proton")

from proton import Message
from proton.utils import BlockingConnection

if TYPE_CHECKING:
    from tests.support.stream_node import StreamNode

__all__ = ["counts", "numbers", "send"]


def send(node: StreamNode, address: str, *bodies: bytes, numbered: bool = True, **fields: Any) -> None:
    connection = BlockingConnection(node.url, timeout=30)
    try:
        sender = connection.create_sender(address)
        for body in bodies:
            more = {"id": f"id-{body.decode()}", **fields} if numbered else fields
            sender.send(Message(body=body, durable=True, inferred=True, **more))
    finally:
        connection.close()


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


def counts(node: StreamNode, address: str) -> dict[str, Any]:
    found: dict[str, Any] = node.manage(lambda m: m.read("io.enmasse.address", f"default/demo.{address}"))
    return found
