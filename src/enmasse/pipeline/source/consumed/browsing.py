"""Looking at what a queue or subscription has, without taking anything."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa

from enmasse.client import Receiver
from enmasse.client.background import Background
from enmasse.client.connection import Connection
from enmasse.errors import UnavailableError
from enmasse.pipeline.errors import OptionError, StreamUnavailableError
from enmasse.pipeline.patience import Patience
from enmasse.pipeline.source.consumed.batch_file import Row
from enmasse.pipeline.source.consumed.link import ADDRESS_TYPE, ANSWER_S, STORED, connected, translated
from enmasse.pipeline.source.consumed.options import ConsumedOptions
from enmasse.pipeline.source.consumed.rows import rows_to_batch

__all__ = ["browse", "check_browsable"]

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
    """See that there is something to look at.

    Raises:
        OptionError: the address keeps nothing.
    """
    if reason := _REASONS.get(options.kind):
        raise OptionError(f"spark.read cannot read {options.kind} {options.source.address!r}: {reason}")


def browse(options: ConsumedOptions) -> Iterator[pa.RecordBatch]:
    """What can be handed out now, in that order.

    Raises:
        StreamUnavailableError: the node stayed away.
        UnavailableError: the connection was lost in the middle.
        OptionError: the node refuses.
    """
    patience = Patience(options.source.retry_timeout_s)
    while True:
        try:
            look = _Look(options)
        except StreamUnavailableError:
            raise
        except UnavailableError as error:
            patience.wait(error)
        else:
            break
    try:
        at = 0
        while messages := look.next():
            now_us = time.time_ns() // 1000
            yield rows_to_batch(at, [Row(now_us, None, message) for message in messages], options.properties_of)
            at += len(messages)
    finally:
        look.close()


class _Look:
    """One look at an address, which ends with the messages that were there when it began."""

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
