"""Reading one range of a stream: frames in, record batches out, through failures and gaps.

Rules:
1. Rows come in order of their offsets, each once, whatever is sent twice.
2. A lost connection costs time, never rows: reading goes on at the next offset.
3. Rows that cannot be read any more are a gap. A gap is an error, or it is logged and skipped.
4. Every offset was given to a row. One that no frame holds is gone: deleted meanwhile, or left out by
   the node because its frame is damaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Protocol

import pyarrow as pa

from enmasse.errors import UnavailableError
from enmasse.messaging.log.frame import Frame
from enmasse.pipeline.backoff import Backoff
from enmasse.pipeline.errors import DataLossError, StreamUnavailableError
from enmasse.pipeline.source.columns import frame_to_batch, value_of
from enmasse.pipeline.source.offsets import Gap, Span, StreamState

_log = logging.getLogger(__name__)


class StreamAccess(Protocol):
    """The part of a connection that reading uses."""

    def state(self) -> StreamState:
        """Return what is stored now.

        Raises:
            UnavailableError: the node cannot be reached.
        """

    def frames(self, partition: int, start: int, end: int) -> Generator[bytes, None, None]:
        """Frames that overlap ``start <= offset < end``, in order.

        Raises:
            UnavailableError: the node cannot be reached, or went away.
        """


def report_gap(gap: Gap, *, fail: bool) -> None:
    """Raise or log that rows cannot be read any more.

    Raises:
        DataLossError: if ``fail``.
    """
    if fail:
        raise DataLossError(f"{gap} are deleted or damaged; set failOnDataLoss to false to continue after them")
    _log.warning("%s are deleted or damaged and were skipped", gap)


def report_other(span: Span, found: str, *, fail: bool) -> None:
    """Raise or log that a range is one of another stream than the address is now.

    Raises:
        DataLossError: if ``fail``.
    """
    gone = f"the stream {span.stream} is gone: its address was deleted and made anew as {found}"
    if fail:
        raise DataLossError(f"{gone}; set failOnDataLoss to false to go on with the new one")
    _log.warning("%s; %s", gone, f"offsets {span.start} to {span.end - 1} of partition {span.partition} are skipped")


def read_span(
    span: Span,
    access: Callable[[], StreamAccess],
    *,
    fail_on_data_loss: bool,
    backoff: Backoff,
    properties_of: str = "",
    with_headers: bool = False,
    topic: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one range.

    Args:
        span: the range to read.
        access: gives a connection, a new one after the last was lost.
        fail_on_data_loss: whether a gap is an error.
        backoff: the time that the node may stay away.
        properties_of: the stream's address, if what precedes the body is wanted as columns.
        with_headers: whether the application properties are wanted in order and with their types.
        topic: not None, if the names are wanted that messages of topics were sent to; see ``frame_to_batch``.

    Raises:
        DataLossError: rows are missing and ``fail_on_data_loss``.
        StreamUnavailableError: the node stayed away.
        FrameError: a frame is damaged.
    """
    at = span.start
    while at < span.end:
        try:
            stream = access()
            state = stream.state()
            if state.stream != span.stream:
                report_other(span, state.stream, fail=fail_on_data_loss)
            if at < (to := _first_stored(span, at, state)):
                report_gap(Gap(span.partition, at, to), fail=fail_on_data_loss)
                at = to
                continue
            with closing(stream.frames(span.partition, at, span.end)) as frames:
                for data in frames:
                    frame = Frame(data)
                    if frame.next_offset <= at:
                        continue
                    if frame.first_offset > at:
                        to = min(frame.first_offset, span.end)
                        report_gap(Gap(span.partition, at, to), fail=fail_on_data_loss)
                        at = to
                    if at < span.end:
                        yield frame_to_batch(
                            frame,
                            span.partition,
                            at,
                            span.end,
                            value_of,
                            properties_of=properties_of,
                            with_headers=with_headers,
                            topic=topic,
                        )
                        at = min(frame.next_offset, span.end)
                    backoff.succeeded()
                    if at >= span.end:
                        break
            if at < span.end:
                # The node says that this was all.
                report_gap(Gap(span.partition, at, span.end), fail=fail_on_data_loss)
                at = span.end
        except StreamUnavailableError:
            raise
        except UnavailableError as error:
            backoff.wait(error)


def _first_stored(span: Span, at: int, state: StreamState) -> int:
    """Return the first offset from ``at`` on that can be read; the span's end if none can."""
    stored = state.partitions.get(span.partition)
    if state.stream != span.stream or stored is None or stored.next <= at:
        return span.end
    return min(max(at, stored.low), span.end)
