"""Several streams as one source: ``subscribe`` with more than one address, and the column ``address``.

Rules:
1. An offset has a position for each address. One that joins begins, in its first batch, without rows, so that where
   it began stands in the checkpoint before anything of it is read.
2. An address that is not read any more keeps its position, and goes on there when it comes back.
3. A thread for each address waits for its news, so that one look waits for all of them at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from enmasse.errors import EnmasseError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.source.frames_client import Connections
from enmasse.pipeline.source.offsets import Position, Span
from enmasse.pipeline.source.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable

    from enmasse.pipeline.source.options import SourceOptions

    Read = Callable[[SourceOptions, Span], Iterator[pa.RecordBatch]]

_WAIT_S: Final = 30.0
_ADDRESS: Final = "address"


class SeveralPartition(InputPartition):
    """A range of one of the streams on its way to the task that reads it."""

    def __init__(self, address: str, span: Span) -> None:
        super().__init__((address, *span))
        self.address = address
        self.span = span


class SeveralStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches over several streams, and reads their ranges.

    Args:
        options: by address.
        read: reads a range of a stream.
    """

    def __init__(self, options: Mapping[str, SourceOptions], read: Read) -> None:
        self._options = dict(options)
        self._read = read
        self._watched: dict[str, _Watched] = {}
        self._news = threading.Event()
        self._first = 0
        self._has_looked = False
        self._is_ending = False

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_options": self._options, "_read": self._read}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger`` or ``maxBytesPerTrigger`` over all streams, else everything."""
        one = next(iter(self._options.values()))
        if one.max_rows is not None:
            return ReadMaxRows(one.max_rows)
        return ReadAllAvailable() if one.max_bytes is None else ReadMaxBytes(one.max_bytes)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        return {name: self._planner(name).initial().to_json() for name in self._options}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of a query that ends."""
        self._is_ending = True
        for name in self._options:
            self._planner(name).fix_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; waits a while for news of any of them, but not when it first looks."""
        one = next(iter(self._options.values()))
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        max_bytes = None if isinstance(limit, ReadAllAvailable) else one.max_bytes
        until = time.monotonic() + (one.poll_timeout_s if self._has_looked else 0.0)
        self._has_looked = True
        while True:
            self._news.clear()
            end = self._ends(start, max_rows, max_bytes)
            left_s = until - time.monotonic()
            if end != start or self._is_ending or left_s <= 0:
                return end
            for name in self._options:
                self._watched[name].watch()
            self._news.wait(left_s)

    def _ends(self, start: Mapping[str, Any], max_rows: int | None, max_bytes: int | None) -> dict[str, Any]:
        end = dict(start)
        # Another one is asked first each time, so that none is starved by a limit.
        names = list(self._options)
        self._first = (self._first + 1) % len(names)
        for name in [*names[self._first :], *names[: self._first]]:
            planner = self._planner(name)
            if name not in start:
                end[name] = planner.initial().to_json()
                continue
            if max_rows is not None and max_rows <= 0:
                continue
            begin = Position.from_json(start[name])
            share = None if max_bytes is None else max(1, max_bytes // len(names))
            reached = planner.plan(begin, max_rows, share)
            if max_rows is not None:
                max_rows -= sum(at - begin.next.get(number, 0) for number, at in reached.next.items())
            end[name] = reached.to_json()
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the streams as last seen, for the query's progress."""
        found = {}
        for name, watched in self._watched.items():
            if (state := watched.planner.state) is not None:
                ends = {number: partition.next for number, partition in state.partitions.items()}
                found[name] = Position(state.stream, ends).to_json()
        return found or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the ranges of a batch, one a task."""
        found = []
        for name in self._options:
            if name in start and start[name] != end.get(name):
                begin, to = Position.from_json(start[name]), Position.from_json(end[name])
                found += [SeveralPartition(name, span) for span in self._planner(name).spans(begin, to)]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range, with their address."""
        return read_several(self._options, self._read, partition)

    def stop(self) -> None:
        """Close the planner's connections."""
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()

    def _planner(self, name: str) -> Planner:
        if name not in self._watched:
            self._watched[name] = _Watched(self._options[name], self._news)
        return self._watched[name].planner


class _Watched:
    """The planner of one stream, and the thread that waits for its news."""

    def __init__(self, options: SourceOptions, news: threading.Event) -> None:
        self._options = options
        self._news = news
        self._asking, self._waiting = Connections(), Connections()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.planner = Planner(
            options, lambda: self._asking.get(options.url, options), Backoff(options.retry_timeout_s)
        )

    def watch(self) -> None:
        """Wait for news, if that is not done already."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._wait, daemon=True)
            self._thread.start()

    def _wait(self) -> None:
        while not self._is_closed:
            try:
                found = self._waiting.get(self._options.url, self._options).wait(_WAIT_S)
            except EnmasseError:
                self.planner.state = None  # whoever plans asks anew, and says what is wrong or how long it may be so
                self._news.set()
                return
            if found is not None:
                self.planner.state = found
                self._news.set()

    def close(self) -> None:
        self._is_closed = True
        self._asking.close()
        self._waiting.close()


class SeveralReader(DataSourceReader):
    """Reads several streams from their starting to their ending offsets.

    Args:
        readers: by address.
        options: by address.
        read: reads a range of a stream.
    """

    def __init__(
        self, readers: Mapping[str, DataSourceReader], options: Mapping[str, SourceOptions], read: Read
    ) -> None:
        self._readers = dict(readers)
        self._options = dict(options)
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges, one a task."""
        return [
            SeveralPartition(name, part.span)  # type: ignore[attr-defined]  # of our own readers
            for name, reader in self._readers.items()
            for part in reader.partitions()
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one range, with their address."""
        return read_several(self._options, self._read, partition)


def read_several(
    options: Mapping[str, SourceOptions], read: Read, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range of one of several streams, with its address, the last column unless it is there."""
    assert isinstance(partition, SeveralPartition)
    for batch in read(options[partition.address], partition.span):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns[_ADDRESS] = pa.repeat(pa.scalar(partition.address, pa.string()), batch.num_rows)
        yield pa.RecordBatch.from_pydict(columns)
