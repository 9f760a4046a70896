"""Takes what addresses of a node have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enmasse.client.blocking import Message
    from tests.support.stream_node import StreamNode

__all__ = ["take", "take_stream"]


def take(node: StreamNode, address: str, count: int, **options: Any) -> list[Message]:
    """The first messages of an address; and, of a queue, that there are no more."""
    with node.connect() as connection, connection.receiver(address, credit=count + 10, **options) as receiver:
        found: list[Message] = []
        for _ in range(count):
            delivery = receiver.receive(timeout=60)
            assert delivery is not None, f"{address} gave {len(found)} messages of {count}"
            found.append(delivery.message)
            delivery.accept()
        assert receiver.drain(timeout=60) == 0
        return found


def take_stream(node: StreamNode, address: str, count: int) -> list[Message]:
    return take(node, address, count, filters={"enmasse:start": "first"})
