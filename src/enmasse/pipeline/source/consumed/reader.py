"""``format("enmasse")`` over addresses that are no streams, as Spark sees it.

Spark ends a planner's process by signals. If Spark itself is killed, the planner would notice only when it next
answers, and hold its folder and its messages until then: so it watches for that.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from enmasse.errors import UnavailableError
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import StreamUnavailableError
from enmasse.pipeline.source.consumed.browsing import browse, check_browsable, rows_to_batch
from enmasse.pipeline.source.consumed.link import Link, find_type
from enmasse.pipeline.source.consumed.options import ConsumedOptions, check_stream, place_of
from enmasse.pipeline.source.consumed.planner import ConsumedPlanner
from enmasse.pipeline.source.consumed.spool import BatchFile, Owner, Spool, read_rows
from enmasse.pipeline.workers.settling import settle

LOOK_S = 0.5

MAX_S = 5.0
"""Seconds to give back what is held. What was not given back by then is given back by the node, which sees us go."""

_watched = threading.Event()
_is_ending = False


def end_in_order() -> None:
    """Have this process leave by ``SystemExit`` on SIGTERM, or when its parent is gone."""
    if _watched.is_set() or threading.current_thread() is not threading.main_thread():
        return
    _watched.set()
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_watch, args=(os.getppid(),), name="enmasse-parent", daemon=True).start()


def _end(_number: int, _frame: FrameType | None) -> None:
    global _is_ending  # noqa: PLW0603  # of the process, as the signal is
    _is_ending = True
    # Spark sends two. Another exit in the middle of the first could leave a lock taken that nobody gives back.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent and not _is_ending:
        time.sleep(LOOK_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(MAX_S)
    os._exit(1)


class _FilePartition(InputPartition):
    """A file on its way to the task that reads it."""

    def __init__(self, folder: str, file: BatchFile) -> None:
        super().__init__(file.name)
        self.folder = folder
        self.file = file


class ConsumedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches of what an address gave; a batch read again gives the same rows.

    An offset is ``{"spool": id, "next": number}``.
    """

    def __init__(self, options: ConsumedOptions) -> None:
        self._options = options
        self._planner: ConsumedPlanner | None = None

    def __getstate__(self) -> Mapping[str, Any]:
        return {"_options": self._options, "_planner": None}

    def _plan(self, offset: Mapping[str, Any] | None = None) -> ConsumedPlanner:
        if self._planner is None:
            options = self._options
            source = options.source
            owner = Owner(source.address, source.space, options.checkpoint)
            spool = Spool(options.spool, owner)
            try:
                self._planner = ConsumedPlanner(
                    options, spool, lambda: Link(options), Backoff(source.retry_timeout_s)
                )
            except BaseException:
                spool.close()
                raise
            end_in_order()
        if offset is not None:
            self._planner.belongs(str(offset["spool"]))
        return self._planner

    def _offset(self, position: int) -> dict[str, Any]:
        return {"spool": self._plan().spool_id, "next": position}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``, or its default: what is taken must fit the spool."""
        return ReadMaxRows(self._options.max_rows)

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        return self._offset(self._plan().initial())

    def prepareForTriggerAvailableNow(self) -> None:
        """Take no more than what is there now."""
        self._plan().fix_target()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; waits a while for messages."""
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._offset(self._plan(start).latest(int(start["next"]), max_rows))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the files of a batch, one a task."""
        if start == end:
            return []
        files = self._plan(end).files(int(start["next"]), int(end["next"]))
        return [_FilePartition(str(self._options.spool), file) for file in files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one file."""
        assert isinstance(partition, _FilePartition)
        settle()
        rows = read_rows(Path(partition.folder), partition.file)
        yield rows_to_batch(partition.file.first, rows, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Accept what is below."""
        self._plan(end).committed(int(end["next"]))

    def stop(self) -> None:
        """Give back what is not committed."""
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.stop()


class BrowsingReader(DataSourceReader):
    """Browses a queue or subscription, and takes nothing."""

    def __init__(self, options: ConsumedOptions) -> None:
        self._options = options

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Return the messages that are there when it begins."""
        return browse(self._options)


_log = logging.getLogger(__name__)


def stream_reader(options: Mapping[str, str]) -> ConsumedStreamReader | None:
    """Return the reader of a streaming query over an address that is no stream; ``None`` if it is one.

    Raises:
        OptionError: an option is wrong.
        StreamUnavailableError: the node stayed away.
    """
    kind = _type_of(options)
    if kind == "stream":
        check_stream(options)
        return None
    chosen = ConsumedOptions.parse(options, kind)
    if chosen.is_lossy:
        _log.warning(
            "%s %r is read at most once: what is sent while the query does not run, or falls behind, is not seen",
            kind,
            chosen.source.address,
        )
    return ConsumedStreamReader(chosen)


def batch_reader(options: Mapping[str, str]) -> BrowsingReader | None:
    """Return the reader of a batch query over an address that is no stream; ``None`` if it is one.

    Raises:
        OptionError: an option is wrong, or the address keeps nothing.
        StreamUnavailableError: the node stayed away.
    """
    kind = _type_of(options)
    if kind == "stream":
        check_stream(options)
        return None
    chosen = ConsumedOptions.parse(options, kind, is_batch=True)
    check_browsable(chosen)
    return BrowsingReader(chosen)


def _type_of(options: Mapping[str, str]) -> str:
    source, kind = place_of(options)
    if kind:
        return kind
    backoff = Backoff(source.retry_timeout_s)
    while True:
        try:
            return find_type(source)
        except StreamUnavailableError:
            raise
        except UnavailableError as error:
            backoff.wait(error)
