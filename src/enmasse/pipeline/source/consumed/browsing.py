"""Reads what a queue or subscription has without taking anything, as the columns that streams have too."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from enmasse.client import Receiver
from enmasse.client.background import Background
from enmasse.client.connection import Connection
from enmasse.errors import UnavailableError
from enmasse.message.errors import DecodeError
from enmasse.message.sections import key_and_subject
from enmasse.messaging.log.frame import Frame, encode_frame, split_payload
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import OptionError, StreamUnavailableError
from enmasse.pipeline.source.columns import frame_to_batch, value_of
from enmasse.pipeline.source.consumed.link import ADDRESS_TYPE, ANSWER_S, STORED, connected, translated
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.spool import Row

PARTITION = 0
"""There is one only."""


def rows_to_batch(first: int, rows: Sequence[Row], options: ConsumedOptions) -> pa.RecordBatch:
    """Return the rows as Spark takes them.

    Args:
        first: the offset of the first one.
        rows: at least one.
        options: those of the query, which say what is wanted beside key and value.
    """
    heads, bodies, whole = [], [], []
    for index, row in enumerate(rows):
        head, body, is_whole = split_payload(row.message)
        heads.append(head)
        bodies.append(body)
        if is_whole:
            whole.append(index)
    keys = [_key_of(row.message) for row in rows]
    frame = Frame(encode_frame(first, [row.timestamp_us for row in rows], keys, heads, bodies, whole=whole))
    return frame_to_batch(
        frame,
        PARTITION,
        first,
        first + len(rows),
        value_of,
        properties_of=options.properties_of,
        with_headers=options.source.include_headers,
        topic=options.topic,
    )


def _key_of(message: bytes) -> bytes:
    """Return what would be its key in a stream."""
    try:
        key, subject = key_and_subject(message)
    except DecodeError:
        return b""
    found = subject if key is None else key
    return found.encode() if isinstance(found, str) else found if isinstance(found, bytes) else b""


ROWS = 10_000
"""Spark's own batch size."""
BYTES = 4 << 20
"""Bounds a worker's memory when messages are large."""

_REASONS = {
    "topic": "a topic stores nothing; read one of its subscriptions",
    "anycast": "it stores nothing; read it as a stream (readStream)",
    "multicast": "it stores nothing; read it as a stream (readStream)",
}


def check_browsable(options: ConsumedOptions) -> None:
    """Check that there is something to browse.

    Raises:
        OptionError: the address keeps nothing.
    """
    if reason := _REASONS.get(options.kind):
        raise OptionError(f"spark.read cannot read {options.kind} {options.source.address!r}: {reason}")


def browse(options: ConsumedOptions) -> Iterator[pa.RecordBatch]:
    """Yield what can be handed out now, in that order.

    Raises:
        StreamUnavailableError: the node stayed away.
        UnavailableError: the connection was lost in the middle.
        OptionError: the node refuses.
    """
    backoff = Backoff(options.source.retry_timeout_s)
    while True:
        try:
            browse = _Browse(options)
        except StreamUnavailableError:
            raise
        except UnavailableError as error:
            backoff.wait(error)
        else:
            break
    try:
        at = 0
        while messages := browse.next():
            now_us = time.time_ns() // 1000
            rows = [Row(now_us, None, message) for message in messages]
            yield rows_to_batch(at, rows, options)
            at += len(messages)
    finally:
        browse.close()


class _Browse:
    """One pass over an address, which ends with the messages that were there when it began."""

    def __init__(self, options: ConsumedOptions) -> None:
        self._options = options
        self._background = Background.acquire()
        self._connection: Connection | None = None
        try:
            self._receiver = self._background.run(self._open())
        except BaseException:
            self.close()
            raise
        self._left = int(self._receiver.remote_properties.get(STORED, 0))

    async def _open(self) -> Receiver:
        source = self._options.source
        async with translated(source):
            self._connection = await connected(source)
            return await self._connection.receiver(
                source.address,
                browse=True,
                settled=True,
                credit=ROWS,
                prefetch_bytes=BYTES,
                capabilities=(ADDRESS_TYPE,),
                timeout=ANSWER_S,
            )
        raise AssertionError

    def next(self) -> list[bytes]:
        """More of what is there; nothing at the end."""

        async def gather() -> list[bytes]:
            async with translated(self._options.source):
                found: list[bytes] = []
                size = 0
                while len(found) < min(ROWS, self._left) and size < BYTES:
                    delivery = self._receiver.receive_nowait()
                    if delivery is None:
                        if not await self._receiver.drain(ANSWER_S):
                            break
                        continue
                    found.append(delivery.payload)
                    size += len(delivery.payload)
                return found
            raise AssertionError

        found = self._background.run(gather()) if self._left else []
        self._left -= len(found)
        return found

    def close(self) -> None:
        """Close the connection."""

        async def end() -> None:
            if self._connection is not None:
                await self._connection.close()

        try:
            self._background.run(end())
        finally:
            self._background.release()
