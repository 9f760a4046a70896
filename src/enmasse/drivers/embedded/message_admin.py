"""Driver of the messages of a node: it browses, follows, takes and sends them by links of its own in their space.

Rules:
1. For each request there is a connection within the address's space, as its administrator: nothing of another space
   can be reached by it.
2. Little is asked for at a time, and less of large messages, so that a page takes little memory.
3. A page ends after ``PAGE_BYTES``, and after ``MAX_READ`` messages of which none was wanted.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from enmasse.client import Outcome
from enmasse.control.errors import NodeRefusedError, NodeUnavailableError
from enmasse.control.ports import BrowsedMessage, Browsing, MessageChoice, MessagePage
from enmasse.errors import EnmasseError
from enmasse.message.errors import DecodeError
from enmasse.message.text_search import ID_ANNOTATION
from enmasse.message.types import Timestamp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from enmasse.client import Connection, Message, Receiver
    from enmasse.client.receiver import Delivery
    from enmasse.control.ports import AddressEntity
    from enmasse.drivers.embedded.node_admin import AmqpNodeAdmin

PAGE_BYTES = 4 << 20
"""Bytes of messages after which a page ends."""

MAX_READ = 5_000
"""Messages that are looked at for one page."""

BATCH = 4
"""Messages that may be on their way at a time: each may have 16 MiB."""

MAX_VISITS = 8
"""Requests that are served at a time; others wait."""

MAX_FOLLOWED = 64
"""Addresses that are followed at a time."""

_DRAIN_S = 15.0
_SEND_S = 10.0
_STREAM, _TOPIC = "stream", "topic"
_DIRECT = ("anycast", "multicast")
_START, _PARTITION = "enmasse:start", "enmasse:partition"
_IDS = "enmasse:ids"
_ID = "enmasse:id"
_OFFSET_ANNOTATION, _PARTITION_ANNOTATION = "x-opt-offset", "x-opt-partition"


class AmqpMessageAdmin:
    """The messages of one node.

    Args:
        node: its management.
    """

    def __init__(self, node: AmqpNodeAdmin) -> None:
        self._node = node
        self._visits = asyncio.Semaphore(MAX_VISITS)
        self._followed = 0

    async def purge(self, name: str, choice: MessageChoice) -> int:
        """Delete stored messages of an address; how many."""
        return await self._node.act_on_messages("PURGE", name, _arguments(choice))

    async def move(self, name: str, to: str, choice: MessageChoice) -> int:
        """Move messages of an address to another address of its space; how many."""
        return await self._node.act_on_messages("MOVE", name, {"to": to, **_arguments(choice)})

    async def replay(self, name: str, choice: MessageChoice) -> int:
        """Send dead letters back to the addresses that they came from; how many."""
        return await self._node.act_on_messages("REPLAY", name, _arguments(choice))

    async def browse(self, name: str, wanted: Browsing) -> MessagePage:
        """Return a page of what an address stores, and take nothing away."""
        address = await self._find(name)
        if address.address_type in (*_DIRECT, _TOPIC):
            hint = "; its subscriptions do" if address.address_type == _TOPIC else ""
            raise NodeRefusedError(
                400, f"'{address.address}' is of type {address.address_type}, which stores no messages{hint}"
            )
        async with self._visits, self._node.visit(address.space) as connection:
            if address.address_type == _STREAM:
                return await _StreamPage(connection, address, wanted).read()
            if wanted.offset is not None or wanted.time_ms is not None:
                raise NodeRefusedError(400, f"'{address.address}' is no stream: it has no offsets and times")
            return await _queue_page(connection, address, wanted)

    @asynccontextmanager
    async def follow(self, name: str, wanted: Browsing) -> AsyncIterator[AsyncIterator[BrowsedMessage]]:
        """Yield for the time of a block what comes to an address, and take nothing away."""
        address = await self._find(name)
        if address.address_type in _DIRECT:
            raise NodeRefusedError(
                400,
                f"'{address.address}' is of type {address.address_type}, which hands messages to receivers alone: "
                "whoever watched would take them",
            )
        if self._followed >= MAX_FOLLOWED:
            raise NodeUnavailableError(f"{MAX_FOLLOWED} addresses are followed already: try again later")
        self._followed += 1
        try:
            async with AsyncExitStack() as stack:
                connection = await stack.enter_async_context(self._node.visit(address.space))
                receiver = await stack.enter_async_context(_following(connection, address, wanted))
                yield _messages(receiver, wanted)
        finally:
            self._followed -= 1

    async def receive(self, name: str, limit: int, wait_s: float) -> list[BrowsedMessage]:
        """Take messages from an address; wait so long for the first."""
        address = await self._find(name)
        if address.address_type == _STREAM:
            raise NodeRefusedError(400, f"'{address.address}' is a stream, from which nothing is taken: browse it")
        async with (
            # Whoever waits holds nobody up.
            self._node.visit(address.space) as connection,
            connection.receiver(address.address, credit=0, default_outcome=Outcome.RELEASED) as receiver,
        ):
            receiver.grant(1)
            first = await receiver.receive(timeout=wait_s)
            if first is None:
                await receiver.drain(timeout=_DRAIN_S)
                first = receiver.receive_nowait()
            taken = [] if first is None else [first]
            if first is not None:
                _, _ = await _read(receiver, limit - 1, taken, PAGE_BYTES)
            for delivery in taken:
                await delivery.accept()
            return [_browsed(delivery) for delivery in taken]

    async def send(self, name: str, messages: Sequence[Message]) -> list[Outcome | EnmasseError]:
        """Send messages to an address; what became of each."""
        address = await self._find(name)
        async with (
            self._node.visit(address.space) as connection,
            connection.sender(address.address, resend=False) as sender,
        ):
            found = await asyncio.gather(
                *(sender.send(message, timeout=_SEND_S) for message in messages), return_exceptions=True
            )
        for result in found:
            if isinstance(result, BaseException) and not isinstance(result, EnmasseError):
                raise result
        return [result for result in found if isinstance(result, Outcome | EnmasseError)]

    async def _find(self, name: str) -> AddressEntity:
        found = await self._node.find_address(name)
        if found is None:
            raise NodeRefusedError(404, f"the node does not serve {name!r} (yet)")
        return found


def _arguments(choice: MessageChoice) -> dict[str, Any]:
    asked = {
        "selector": choice.selector,
        "search": choice.search or None,
        "ids": None if choice.ids is None else list(choice.ids),
    }
    return {key: value for key, value in asked.items() if value is not None} | (
        {"dryRun": True} if choice.is_dry else {}
    )


async def _read(receiver: Receiver, limit: int, found: list[Delivery], most_bytes: int) -> tuple[bool, int]:
    """Append up to so many messages more that are there now.

    Returns:
        Whether there are no more, and the bytes that were read.
    """
    largest, size, count, batch = 1, 0, 0, 1
    while count < limit and size < most_bytes:
        asked = max(1, min(batch, limit - count, (most_bytes - size) // largest))
        receiver.grant(asked)
        await receiver.drain(timeout=_DRAIN_S)
        came = 0
        while (delivery := receiver.receive_nowait()) is not None:
            came += 1
            size += len(delivery.payload)
            largest = max(largest, len(delivery.payload))
            found.append(delivery)
        count += came
        if came < asked:
            return True, size
        batch = min(batch * 2, BATCH)
    return False, size


def _browsed(delivery: Delivery) -> BrowsedMessage:
    size = len(delivery.payload)
    try:
        message = delivery.message
    except DecodeError:
        return BrowsedMessage("", size, None, delivery.payload)
    annotations = message.annotations
    name = str(annotations.pop(ID_ANNOTATION, ""))
    if _OFFSET_ANNOTATION in annotations and _PARTITION_ANNOTATION in annotations:
        name = f"{annotations[_PARTITION_ANNOTATION]}-{annotations[_OFFSET_ANNOTATION]}"
    return BrowsedMessage(name, size, message)


def _is_wanted(delivery: Delivery, wanted: Browsing) -> bool:
    return wanted.matches is None or wanted.matches(delivery.payload)


# Queues, subscriptions and dead letters


async def _queue_page(connection: Connection, address: AddressEntity, wanted: Browsing) -> MessagePage:
    filters = {key: value for key, value in {_START: wanted.after, _ID: wanted.id}.items() if value}
    found: list[BrowsedMessage] = []
    read, size, after = 0, 0, ""
    limit = 1 if wanted.id else wanted.limit
    async with connection.receiver(
        address.address,
        credit=0,
        browse=True,
        settled=True,
        selector=wanted.selector,
        filters=filters,
        capabilities=[_IDS],
    ) as receiver:
        while True:
            deliveries: list[Delivery] = []
            is_end, came = await _read(receiver, limit - len(found), deliveries, PAGE_BYTES - size)
            read, size = read + len(deliveries), size + came
            for delivery in deliveries:
                browsed = _browsed(delivery)
                after = browsed.id or after
                if _is_wanted(delivery, wanted):
                    found.append(browsed)
            if is_end or wanted.id:
                return MessagePage(found)
            if len(found) >= limit or size >= PAGE_BYTES or read >= MAX_READ:
                return MessagePage(found, after)


@asynccontextmanager
async def _following(connection: Connection, address: AddressEntity, wanted: Browsing) -> AsyncIterator[Receiver]:
    filters: dict[str, Any] = {}
    if address.address_type == _STREAM:
        filters[_START] = _first(wanted)
    elif address.address_type != _TOPIC:
        filters[_START] = "next"
    async with connection.receiver(
        address.address,
        credit=BATCH,
        prefetch_bytes=1 << 20,
        browse=address.address_type not in (_STREAM, _TOPIC),
        settled=True,
        selector=wanted.selector,
        filters=filters,
        capabilities=[_IDS] if address.address_type not in (_STREAM, _TOPIC) else [],
    ) as receiver:
        yield receiver


async def _messages(receiver: Receiver, wanted: Browsing) -> AsyncIterator[BrowsedMessage]:
    while (delivery := await receiver.receive()) is not None:
        browsed = _browsed(delivery)
        if _is_wanted(delivery, wanted):
            yield browsed


# Streams


def _first(wanted: Browsing, default: Any = "next") -> Any:
    if wanted.offset is not None:
        return wanted.offset
    return default if wanted.time_ms is None else Timestamp(wanted.time_ms)


_START_TEXT = re.compile(r"t?[0-9]{1,18}|")


def _write_start(start: Any) -> str:
    if isinstance(start, Timestamp):
        return f"t{int(start)}"
    return "" if start == "first" else str(start)


def _read_start(text: str) -> Any:
    if text.startswith("t"):
        return Timestamp(int(text[1:]))
    return int(text) if text else "first"


class _StreamPage:
    """Reads a page of a stream: of its partitions in turn, each from where the former page ended."""

    def __init__(self, connection: Connection, address: AddressEntity, wanted: Browsing) -> None:
        self._connection = connection
        self._address = address
        self._wanted = wanted
        self._starts: list[Any] = [_first(wanted, "first")] * max(address.partitions, 1)
        if wanted.after:
            self._starts = self._parse(wanted.after)

    def _parse(self, after: str) -> list[Any]:
        """Return the offsets of a token, one for each partition."""
        parts = after.split("-")
        if len(parts) != len(self._starts) or not all(_START_TEXT.fullmatch(part) for part in parts):
            raise NodeRefusedError(400, "continue: expected the token of a former page")
        return [_read_start(part) for part in parts]

    async def read(self) -> MessagePage:
        """Return the page."""
        wanted = self._wanted
        if wanted.selector is not None:
            raise NodeRefusedError(400, "a stream has no selectors: it gives its messages in order; use search")
        if wanted.id:
            return await self._read_one(wanted.id)
        count = len(self._starts)
        share, room = -(-wanted.limit // count), PAGE_BYTES // count
        pages = [await self._read_partition(index, share, room) for index in range(count)]
        mixed = [item for row in zip_longest(*(found for found, _ in pages)) for item in row if item is not None]
        token = "-".join(map(_write_start, self._starts))
        has_more = not all(is_end for _, is_end in pages)
        return MessagePage(mixed, token if has_more else "")

    async def _read_one(self, name: str) -> MessagePage:
        partition, _, offset = name.partition("-")
        if not (partition.isdecimal() and offset.isdecimal()) or int(partition) >= len(self._starts):
            raise NodeRefusedError(400, f"{name!r:.100} is no id of a message of a stream")
        self._starts[int(partition)] = int(offset)
        self._wanted = replace(self._wanted, matches=None)
        found, _ = await self._read_partition(int(partition), 1, PAGE_BYTES)
        return MessagePage([item for item in found if item.id == name])

    async def _read_partition(self, index: int, limit: int, room: int) -> tuple[list[BrowsedMessage], bool]:
        found: list[BrowsedMessage] = []
        read, size = 0, 0
        start = self._starts[index]
        async with self._connection.receiver(
            self._address.address, credit=0, settled=True, filters={_PARTITION: index, _START: start}
        ) as receiver:
            while True:
                deliveries: list[Delivery] = []
                is_end, came = await _read(receiver, limit - len(found), deliveries, room - size)
                read, size = read + len(deliveries), size + came
                for delivery in deliveries:
                    browsed = _browsed(delivery)
                    if browsed.message is not None and browsed.id:
                        self._starts[index] = int(browsed.id.partition("-")[2]) + 1
                    if _is_wanted(delivery, self._wanted):
                        found.append(browsed)
                if is_end:
                    break
                if len(found) >= limit or size >= room or read >= MAX_READ:
                    return found, False
        return found, True
