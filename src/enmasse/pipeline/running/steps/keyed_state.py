"""Calls a pipeline's function with the rows of a key and its state, timer and time to live.

Spark pays for each key and batch. So keys are in buckets, and the states of all keys of a bucket are one value: a
table of Arrow with the columns ``key``, ``value``, ``timer_us`` and ``updated_us``.

Rules:
1. A key's bucket never changes: the number of buckets is part of the state.
2. The rows of a key come in the order of the stream, or the declared one; rows that are the same there in that of
   their content. Keys come in the order of their first rows, then those whose timers ran out. The present is the
   moment when the batch was made. So a batch that is repeated gives the same rows and states.
3. What a function changes of a state counts when all keys of its bucket are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd
import pyarrow as pa

from enmasse.model.sql.ddl import quote_identifier
from enmasse.pipeline.errors import FunctionError
from enmasse.pipeline.running.steps.functions import FunctionCall
from enmasse.pipeline.workers.settling import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

BUCKETS: Final = 8
"""More than the cores of a small machine, so that both halves of the work are about as large."""

BUCKET: Final = "__bucket"
KEY: Final = "__key"
"""Columns that rows have on their way to their buckets."""
MADE: Final = "__made"
"""A column that rows have on their way from there; it is true."""

_KEPT: Final = "kept BINARY"


class KeyState:
    """The state of a key, as a function sees it.

    Attributes:
        now: the time at which the batch was made; with timers by event time, the watermark.
        has_timed_out: whether the call is for the key's timer, without rows.
    """

    def __init__(
        self,
        value: dict[str, Any] | None,
        timer: datetime | None,
        now: datetime,
        *,
        has_timed_out: bool,
        timers: bool,
    ) -> None:
        self.now = now
        self.has_timed_out = has_timed_out
        self._value = value
        self._timer = timer
        self._has_timers = timers
        self._is_updated = False

    @property
    def exists(self) -> bool:
        """True if the key has a state."""
        return self._value is not None

    @property
    def value(self) -> dict[str, Any] | None:
        """The state by column; None: there is none."""
        return None if self._value is None else dict(self._value)

    @property
    def timer(self) -> datetime | None:
        """The time at which the function is called for the key though no row comes; None: it is not."""
        return self._timer

    @property
    def is_updated(self) -> bool:
        """True if there is another value than before."""
        return self._is_updated

    def update(self, value: Mapping[str, Any]) -> None:
        """Replace the state; columns that are left out are NULL."""
        self._value, self._is_updated = dict(value), True

    def remove(self) -> None:
        """Forget the key, with its timer."""
        self._value, self._timer, self._is_updated = None, None, True

    def set_timer(self, at: datetime | timedelta) -> None:
        """Have the function called at a moment, or so long from now, instead of when it was set to before.

        Raises:
            ValueError: the step has no timers, or the moment no time zone.
        """
        if not self._has_timers:
            raise ValueError("the step has no timers: declare state.timers")
        moment = self.now + at if isinstance(at, timedelta) else at
        if moment.tzinfo is None:
            raise ValueError(f"expected a moment with a time zone, such as state.now, got {moment!r}")
        self._timer = moment

    def delete_timer(self) -> None:
        """Have the function not called without rows."""
        self._timer = None


@dataclass(frozen=True)
class _Entry:
    value: dict[str, Any] | None
    timer_us: int | None
    updated_us: int


class KeyStates:
    """The states of the keys of a bucket.

    Args:
        kind: the columns of a state.
        kept: the bytes that ``to_bytes`` gave; None: nothing yet.
    """

    def __init__(self, kind: pa.StructType, kept: bytes | None = None) -> None:
        columns = [("key", pa.string()), ("value", kind), ("timer_us", pa.int64()), ("updated_us", pa.int64())]
        self._schema = pa.schema(columns)
        self._table = self._schema.empty_table()
        if kept is not None:
            with pa.ipc.open_stream(kept) as reader:
                self._table = reader.read_all()
        self._rows = {key: row for row, key in enumerate(self._table["key"].to_pylist())}
        self._timers: list[int | None] = self._table["timer_us"].to_pylist()
        self._changed: dict[str | None, _Entry | None] = {}

    def __len__(self) -> int:
        changed = sum((entry is not None) - (key in self._rows) for key, entry in self._changed.items())
        return len(self._rows) + changed

    def get(self, key: str | None) -> _Entry | None:
        """Return the state of a key; None: there is none."""
        if key in self._changed:
            return self._changed[key]
        if key not in self._rows:
            return None
        row = self._rows[key]
        value = self._table["value"][row].as_py()
        return _Entry(value, self._timers[row], self._table["updated_us"][row].as_py())

    def put(self, key: str | None, entry: _Entry) -> None:
        """Set the state of a key; one without value and timer is forgotten."""
        self._changed[key] = None if entry.value is None and entry.timer_us is None else entry

    def forget_before(self, moment_us: int) -> None:
        """Forget the keys whose state was not updated since a moment."""
        for key, updated_us in zip(self._rows, self._table["updated_us"].to_pylist(), strict=True):
            if updated_us < moment_us:
                self._changed[key] = None

    def due(self, until_us: int) -> list[str | None]:
        """Return the keys whose timers ran out, the earliest first."""
        found = [(timer, key or "", key) for key, timer in self._timers_by_key() if timer <= until_us]
        return [key for _, _, key in sorted(found, key=lambda one: one[:2])]

    def next_timer_us(self) -> int | None:
        """Return when the next timer runs out."""
        return min((timer for _, timer in self._timers_by_key()), default=None)

    def _timers_by_key(self) -> Iterator[tuple[str | None, int]]:
        for key, row in self._rows.items():
            if key not in self._changed and (timer := self._timers[row]) is not None:
                yield key, timer
        for key, entry in self._changed.items():
            if entry is not None and entry.timer_us is not None:
                yield key, entry.timer_us

    def to_bytes(self) -> bytes:
        """Return what a new object is made of.

        Raises:
            ValueError: a value is no state of the declared columns; with its key.
        """
        unchanged = [row for key, row in self._rows.items() if key not in self._changed]
        kept = self._table.take(pa.array(unchanged, pa.int64()))
        new = {key: entry for key, entry in self._changed.items() if entry is not None}
        columns = [
            pa.array(list(new), pa.string()),
            self._values_of(new),
            pa.array([entry.timer_us for entry in new.values()], pa.int64()),
            pa.array([entry.updated_us for entry in new.values()], pa.int64()),
        ]
        table = pa.concat_tables([kept, pa.table(columns, schema=self._schema)]).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_table(table)
        found: bytes = sink.getvalue().to_pybytes()
        return found

    def _values_of(self, entries: Mapping[str | None, _Entry]) -> pa.Array:
        kind = self._schema.field("value").type
        names = [kind.field(index).name for index in range(kind.num_fields)]
        for key, entry in entries.items():
            if unknown := [name for name in entry.value or () if name not in names]:
                raise ValueError(f"the state of {key} has {unknown[0]!r}, and state.schema has {', '.join(names)}")
        try:
            return pa.array([entry.value for entry in entries.values()], kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise ValueError(f"a state does not fit state.schema: {error}") from None


@dataclass(frozen=True)
class StatefulCall:
    """A function of a key's rows and state, with all that a worker needs to call it."""

    call: FunctionCall
    kind: pa.StructType
    """The columns of a state."""
    given: tuple[str, ...]
    """The columns of the rows that it gets."""
    order: tuple[str, ...]
    """Those that say which rows of a key come first."""
    timers: Literal["processingTime", "eventTime"] | None = None
    ttl_us: int | None = None

    def take(self, _bucket: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """Call it for a bucket; for ``applyInPandasWithState``.

        Raises:
            FunctionError: it raised, took too long, or gave what was not declared; the message says where.
        """
        settle()
        parts = [frame for frame in frames if len(frame)]
        rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*self.given, KEY])
        kept = state.get[0] if state.exists else None
        made_us = state.getCurrentProcessingTimeMs() * 1000
        now_us = max(0, state.getCurrentWatermarkMs()) * 1000 if self.timers == "eventTime" else made_us
        states = KeyStates(self.kind, kept)
        found = self.over(states, rows, now_us, made_us)
        self._keep(state, states, now_us)
        for rows_found in found:
            yield rows_found.assign(**{MADE: True})

    def _keep(self, state: GroupState, states: KeyStates, now_us: int) -> None:
        if not len(states):
            if state.exists:
                state.remove()
            return
        try:
            state.update((states.to_bytes(),))
        except ValueError as error:
            raise FunctionError(f"function {self.call.where}: {error}") from None
        timer_us = states.next_timer_us()
        if timer_us is None or self.timers is None:
            return
        # Spark knows milliseconds, and wants them to come.
        timer_ms, now_ms = -(-timer_us // 1000), now_us // 1000
        if self.timers == "eventTime":
            state.setTimeoutTimestamp(max(timer_ms, now_ms + 1))
        else:
            state.setTimeoutDuration(max(timer_ms - now_ms, 1))

    def over(self, states: KeyStates, rows: pd.DataFrame, now_us: int, made_us: int) -> list[pd.DataFrame]:
        """Call it for each key of a bucket.

        Args:
            states: the states of its keys; they are changed.
            rows: the rows of a batch.
            now_us: the time that timers go by, in microseconds.
            made_us: the time at which the batch was made.

        Returns:
            What it gave.
        """
        function = self.call.load()
        if self.ttl_us is not None:
            states.forget_before(made_us - self.ttl_us)
        given: list[pd.DataFrame] = []

        def call_for(key: str | None, its_rows: pd.DataFrame, *, has_timed_out: bool = False) -> None:
            entry = states.get(key) or _Entry(None, None, made_us)
            if has_timed_out:
                entry = replace(entry, timer_us=None)
            state = KeyState(
                entry.value,
                None if entry.timer_us is None else _moment(entry.timer_us),
                _moment(now_us),
                has_timed_out=has_timed_out,
                timers=self.timers is not None,
            )
            result = function(key, its_rows, state, **self.call.parameters)
            if result is not None:
                given.append(self.call.checked(result))
            updated_us = made_us if state.is_updated else entry.updated_us
            timer_us = None if state.timer is None else _micros(state.timer)
            states.put(key, _Entry(state.value, timer_us, updated_us))

        def call_for_all() -> None:
            for key, its_rows in self._by_key(rows):
                call_for(key, its_rows)
            for key in states.due(now_us) if self.timers is not None else ():
                call_for(key, rows[:0][list(self.given)], has_timed_out=True)

        self.call.run(call_for_all)
        return [frame for frame in given if len(frame)]

    def _by_key(self, rows: pd.DataFrame) -> Iterator[tuple[str | None, pd.DataFrame]]:
        order = list(self.order)
        if rows.duplicated(order).any():
            contents = [repr(row) for row in rows.itertuples(index=False, name=None)]
            rows = rows.iloc[sorted(range(len(rows)), key=contents.__getitem__)]
        rows = rows.sort_values(order, kind="stable", ignore_index=True)
        codes, keys = pd.factorize(rows[KEY], use_na_sentinel=False)
        own = rows[list(self.given)]
        for code, indices in pd.Series(range(len(rows))).groupby(codes).indices.items():
            key = keys[code]
            yield None if pd.isna(key) else str(key), own.iloc[indices].reset_index(drop=True)


def by_key(frame: DataFrame, call: StatefulCall, by: str, columns: str, mode: str) -> DataFrame:
    """Apply a function to the rows of each key of a stream.

    Args:
        frame: the stream.
        call: the function.
        by: the column that holds the key.
        columns: the columns that it gives, as DDL.
        mode: the output mode of the query, ``append`` or ``update``.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # workers need it not

    from enmasse.pipeline.naming import by_any_name  # noqa: PLC0415

    key = F.col(quote_identifier(by)).cast("string")
    keyed = frame.withColumn(KEY, key).withColumn(BUCKET, F.pmod(F.hash(KEY), F.lit(BUCKETS)))
    timeouts = {"processingTime": "ProcessingTimeTimeout", "eventTime": "EventTimeTimeout", None: "NoTimeout"}
    found = (
        by_any_name(keyed)
        .groupBy(BUCKET)
        .applyInPandasWithState(call.take, f"{columns}, {MADE} BOOLEAN", _KEPT, mode, timeouts[call.timers])
    )
    # Spark 4.3 gives these rows in a form that some steps behind it, such as a function in SQL, do not take. A
    # condition over a column whose values it cannot know has it make others of them.
    return found.where(MADE).select(*[F.col(quote_identifier(name)) for name in call.call.columns])


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=us)


def _micros(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
