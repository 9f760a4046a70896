"""Functions of a key's rows and state, over buckets without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from enmasse.pipeline.errors import FunctionError
from enmasse.pipeline.running.steps.functions import FunctionCall
from enmasse.pipeline.running.steps.keyed_state import KEY, KeyStates, StatefulCall

SECOND = 1_000_000
KIND = pa.struct([("count", pa.int64()), ("last", pa.timestamp("us", "UTC"))])
COUNTING = """
import pandas as pd
from datetime import timedelta

def count(key, rows, state, quiet_s=10):
    if state.has_timed_out:
        found = state.value
        state.remove()
        return pd.DataFrame({"device": [key], "count": [-found["count"]]})
    before = state.value or {"count": 0}
    state.update({"count": before["count"] + len(rows), "last": state.now})
    QUIET
    return pd.DataFrame({"device": [key], "count": [state.value["count"]]})
"""
TIMED = COUNTING.replace("QUIET", "state.set_timer(timedelta(seconds=quiet_s))")
PLAIN = COUNTING.replace("QUIET", "")


class Bucket:
    """The states of a bucket, kept from batch to batch as Spark does."""

    def __init__(self, source: str = PLAIN, **options: Any) -> None:
        call = FunctionCall("counting", "count", {"counting": source}, ("device", "count"), 30.0)
        self.call = StatefulCall(call, KIND, ("device", "text", "offset"), ("offset",), **options)
        self.kept: bytes | None = None

    def take(self, *rows: tuple[str | None, str, int], now_s: float = 0) -> list[tuple[Any, ...]]:
        frame = pd.DataFrame([(*row, row[0]) for row in rows], columns=["device", "text", "offset", KEY])
        states = KeyStates(KIND, self.kept)
        now_us = int(now_s * SECOND)
        found = self.call.over(states, frame, now_us, now_us)
        self.kept = states.to_bytes()
        return [row for part in found for row in part.itertuples(index=False, name=None)]

    def states(self) -> KeyStates:
        return KeyStates(KIND, self.kept)


def test_each_key_has_its_state_and_its_rows_in_order() -> None:
    source = """
import pandas as pd

def count(key, rows, state):
    state.update({"count": (state.value or {"count": 0})["count"] + 1})
    return pd.DataFrame({"device": [key], "count": ["".join(rows.text)]})
"""
    bucket = Bucket(source)
    assert bucket.take(("b", "2", 2), ("a", "1", 1), ("b", "0", 0), (None, "3", 3)) == [
        ("b", "02"),
        ("a", "1"),
        (None, "3"),
    ]
    assert bucket.take(("a", "x", 4)) == [("a", "x")]
    counts = {key: bucket.states().get(key) for key in ("a", "b", None, "c")}
    assert [entry and (entry.value or {})["count"] for entry in counts.values()] == [2, 1, 1, None]


def test_rows_that_are_the_same_in_order_come_in_that_of_their_content() -> None:
    source = "import pandas as pd\ndef count(key, rows, state):\n"
    source += "    return pd.DataFrame({'device': [key], 'count': [''.join(rows.text)]})\n"
    rows: list[tuple[str | None, str, int]] = [("a", "2", 1), ("a", "1", 1), ("a", "0", 2)]
    assert Bucket(source).take(*rows) == Bucket(source).take(*rows[::-1]) == [("a", "120")]


def test_a_batch_that_is_repeated_gives_the_same_rows_and_state() -> None:
    bucket = Bucket(TIMED, timers="processingTime")
    bucket.take(("a", "x", 0), ("b", "x", 1))
    before = bucket.kept
    once = bucket.take(("b", "x", 3), ("c", "x", 2), now_s=10)
    after, bucket.kept = bucket.kept, before
    assert bucket.take(("c", "x", 2), ("b", "x", 3), now_s=10) == once == [("c", 1), ("b", 2), ("a", -1)]
    assert bucket.kept == after


def test_a_timer_runs_out_once_and_only_where_no_rows_moved_it() -> None:
    bucket = Bucket(TIMED, timers="processingTime")
    assert bucket.take(("a", "x", 0), ("b", "x", 1)) == [("a", 1), ("b", 1)]
    assert bucket.states().next_timer_us() == 10 * SECOND
    assert bucket.take(("a", "x", 2), now_s=9.5) == [("a", 2)]
    assert bucket.take(now_s=10) == [("b", -1)]
    assert bucket.take(now_s=19.4) == []
    assert bucket.take(now_s=19.5) == [("a", -2)]
    assert (len(bucket.states()), bucket.take(now_s=99)) == (0, [])


def test_a_state_that_is_not_updated_is_forgotten_after_its_time() -> None:
    bucket = Bucket(ttl_us=5 * SECOND)
    bucket.take(("a", "x", 0), ("b", "x", 1))
    assert bucket.take(("a", "x", 2), now_s=4) == [("a", 2)]
    assert bucket.take(("b", "x", 3), now_s=6) == [("b", 1)]
    assert bucket.take(("a", "x", 4), now_s=9) == [("a", 3)]
    bucket.take(now_s=99)
    assert len(bucket.states()) == 0


def test_states_keep_the_types_of_their_columns() -> None:
    bucket = Bucket()
    bucket.take(("a", "x", 0), now_s=1.5)
    entry = bucket.states().get("a")
    assert entry is not None
    assert entry.value == {"count": 1, "last": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("state.update({'count': 'many'})", "a state does not fit state.schema"),
        ("state.update({'total': 1})", "the state of a has 'total', and state.schema has count, last"),
    ],
)
def test_a_state_that_is_not_as_declared_is_refused(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Bucket(f"def count(key, rows, state):\n    {line}\n").take(("a", "x", 0))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("state.set_timer(state.now)", r"counting.py, line 2\): ValueError: the step has no timers"),
        ("return 3", "expected a pandas DataFrame, got int"),
        ("return rows", "its result has no column count"),
    ],
)
def test_what_goes_wrong_in_a_function_is_told(line: str, told: str) -> None:
    with pytest.raises(FunctionError, match=told):
        Bucket(f"def count(key, rows, state):\n    {line}\n").take(("a", "x", 0))


def test_a_timer_needs_a_time_zone() -> None:
    source = "def count(key, rows, state):\n    state.set_timer(state.now.replace(tzinfo=None))\n"
    with pytest.raises(FunctionError, match="expected a moment with a time zone"):
        Bucket(source, timers="eventTime").take(("a", "x", 0))


@pytest.mark.slow
def test_many_keys_are_kept() -> None:
    bucket = Bucket(TIMED, timers="processingTime")
    keys: list[tuple[str | None, str, int]] = [(f"d{number}", "x", number) for number in range(1_000)]
    assert len(bucket.take(*keys)) == 1_000
    assert bucket.take(("d7", "x", 9_000), now_s=1) == [("d7", 2)]
    assert len(bucket.states()) == 1_000
    assert bucket.states().next_timer_us() == timedelta(seconds=10) // timedelta(microseconds=1)
