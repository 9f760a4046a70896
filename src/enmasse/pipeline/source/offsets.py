"""Offsets of a stream and what a micro-batch may take: pure planning, nothing remembered.

Rules:
1. A position names the stream by its id, so that an address made anew is not a smaller number.
2. A batch is a range per partition between two positions; the same two give the same ranges.
3. What was stored once and is not any more is a gap; planning reports gaps, the caller decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from enmasse.pipeline.errors import DataLossError, OptionError
from enmasse.pipeline.source.bounds import EARLIEST, LATEST, Bounds, Moment


class PartitionState(NamedTuple):
    """The range of offsets and the size that the node reports of one partition."""

    low: int
    """The lowest offset that is still stored."""
    next: int
    """One above the highest stored offset."""
    bytes: int = 0
    """Bytes on the node's disk; 0 if the node does not report them."""

    @property
    def row_bytes(self) -> float:
        """Bytes that a row takes on average, with key, properties and some 20 bytes of its own."""
        return self.bytes / max(1, self.next - self.low)


@dataclass(frozen=True)
class StreamState:
    """The partitions of a stream, as the node reports them."""

    stream: str
    """The stream's id; another one means that the address was made anew."""
    partitions: Mapping[int, PartitionState]
    starts: Mapping[int, int] | None = None
    """By partition the first row of the frame in which a moment lies, if that was asked for."""

    @classmethod
    def parse(cls, body: Any) -> StreamState:
        """Return the state from an ``enmasse:offsets`` message.

        Raises:
            ValueError: the body is not such a message.
        """
        try:
            rows = body["partitions"]
            sizes = body.get("bytes") or [0] * len(rows)
            starts = body.get("starts")
            partitions = {
                int(number): PartitionState(int(low), int(after), int(size))
                for (number, low, after, *_), size in zip(rows, sizes, strict=True)
            }
            numbered = None if starts is None else dict(zip(partitions, map(int, starts), strict=True))
            return cls(str(body["stream"]), partitions, numbered)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a message of enmasse:offsets: {body!r}") from error


@dataclass(frozen=True)
class Position:
    """The next offset to read in each partition of one stream."""

    stream: str
    next: Mapping[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in its checkpoint."""
        return {"stream": self.stream, **{str(number): at for number, at in sorted(self.next.items())}}

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> Position:
        """Return a position from what Spark kept.

        Raises:
            OptionError: the checkpoint belongs to another kind of source.
        """
        try:
            return cls(str(offset["stream"]), {int(k): int(v) for k, v in offset.items() if k != "stream"})
        except (KeyError, TypeError, ValueError) as error:
            raise OptionError(f"the checkpoint holds {offset!r}, which is no offset of a stream") from error


class Span(NamedTuple):
    """A range of one partition, read by one task."""

    stream: str
    partition: int
    start: int
    end: int
    """Exclusive."""


class Gap(NamedTuple):
    """Offsets that are not stored any more."""

    partition: int
    start: int
    end: int
    """Exclusive."""

    def __str__(self) -> str:
        return f"partition {self.partition}: offsets {self.start} to {self.end - 1}"


def resolve_bounds(
    name: str, bounds: Bounds, state: StreamState, moments: Mapping[Moment, Mapping[int, int]] | None = None
) -> Position:
    """Turn ``earliest``, ``latest``, offsets and moments by partition into a position.

    A partition that is not named begins at its low-water mark, and ends at its end.

    Args:
        name: the name of the option, for the message of an error.
        bounds: the value of the option.
        state: of the stream.
        moments: the offsets, by partition, of every moment among the bounds.

    Raises:
        OptionError: a partition does not exist.
    """
    default = LATEST if name.startswith("ending") else EARLIEST
    named = bounds if isinstance(bounds, Mapping) else dict.fromkeys(state.partitions, bounds)
    if unknown := sorted(set(named) - set(state.partitions)):
        raise OptionError(f"option {name} names partition {unknown[0]}; the stream has {sorted(state.partitions)}")
    at = {}
    for number, partition in state.partitions.items():
        bound = named.get(number, default)
        if isinstance(bound, Moment):
            at[number] = (moments or {})[bound].get(number, partition.next)
        elif isinstance(bound, int):
            at[number] = bound
        else:
            at[number] = partition.next if bound == LATEST else partition.low
    return Position(state.stream, at)


def find_gaps(start: Position, state: StreamState) -> list[Gap]:
    """Return what cannot be read from ``start`` on, in order of partitions.

    Raises:
        DataLossError: nothing can, for the stream is another one.
    """
    if start.stream != state.stream:
        raise DataLossError(
            f"the stream {start.stream} is gone: its address was deleted and made anew as {state.stream}; "
            "set failOnDataLoss to false to go on with the new one from its start"
        )
    gaps = []
    for number, at in sorted(start.next.items()):
        partition = state.partitions.get(number)
        if partition is None:
            gaps.append(Gap(number, 0, at))
        elif at < partition.low:
            gaps.append(Gap(number, at, partition.low))
        elif at > partition.next:
            gaps.append(Gap(number, partition.next, at))
    return gaps


def plan_end(
    start: Position,
    state: StreamState,
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    target: Position | None = None,
) -> Position:
    """Return where the next batch ends.

    Args:
        start: the start of the batch.
        state: the state of the stream.
        max_rows: rows to admit at most, spread in proportion to the partitions' backlogs.
        max_bytes: the same in bytes, a row counted as the mean of its partition; one row is always admitted.
        target: never go beyond this; for a query that ends.
    """
    known = start.next if start.stream == state.stream else {}
    begins: dict[int, int] = {}
    backlog: dict[int, int] = {}
    for number, partition in state.partitions.items():
        after = partition.next
        if target is not None and target.stream == state.stream:
            after = min(after, target.next.get(number, 0))
        # Past the end: the node lost rows and gives their offsets again.
        begins[number] = min(max(known.get(number, 0), partition.low), partition.next)
        backlog[number] = max(0, after - begins[number])
    total = sum(backlog.values())
    if max_bytes is not None:
        size = sum(rows * state.partitions[number].row_bytes for number, rows in backlog.items())
        if size > max_bytes:
            max_rows = min(max_rows or total, max(1, int(total * max_bytes / size)))
    if max_rows is None or total <= max_rows:
        taken = backlog
    else:
        taken = {number: rows * max_rows // total for number, rows in backlog.items()}
        left = max_rows - sum(taken.values())
        # Largest remainder first, so that a small backlog is not starved for ever.
        for number in sorted(backlog, key=lambda n: (-(backlog[n] * max_rows % total), n))[:left]:
            taken[number] += 1
    return Position(
        state.stream,
        {
            # With nothing to take the start stays as it is, gap or not, unless it lies past the end.
            number: begins[number] + rows if rows else min(known.get(number, begins[number]), partition.next)
            for (number, rows), partition in zip(taken.items(), state.partitions.values(), strict=True)
        },
    )


def plan_spans(
    start: Position, end: Position, state: StreamState, *, min_partitions: int = 0, max_rows: int | None = None
) -> list[Span]:
    """Return the ranges to read between two positions, cut into at least ``min_partitions`` where they can be.

    None has more than ``max_rows``.

    What lies below the low-water mark is left out; ``find_gaps`` reports it.
    """
    ranges = []
    for number, to in sorted(end.next.items()):
        partition = state.partitions.get(number)
        if partition is None or end.stream != state.stream:
            continue
        begin = start.next.get(number, 0) if start.stream == end.stream else 0
        begin = max(begin, partition.low)
        if begin < to:
            ranges.append(Span(end.stream, number, begin, to))
    if len(ranges) < min_partitions:
        ranges = list(_split(ranges, min_partitions))
    if max_rows is None:
        return ranges
    return [
        span._replace(start=at, end=min(at + max_rows, span.end))
        for span in ranges
        for at in range(span.start, span.end, max_rows)
    ]


def _split(ranges: list[Span], wanted: int) -> Iterable[Span]:
    total = sum(span.end - span.start for span in ranges)
    for span in ranges:
        rows = span.end - span.start
        pieces = min(rows, max(1, round(wanted * rows / total)))
        cuts = [span.start + rows * piece // pieces for piece in range(pieces + 1)]
        for begin, to in pairwise(cuts):
            yield span._replace(start=begin, end=to)
