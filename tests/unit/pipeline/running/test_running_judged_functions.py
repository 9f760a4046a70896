"""Functions of Python that raise for some rows: which rows those are, and what the others have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from enmasse.pipeline.errors import FunctionError
from enmasse.pipeline.running.steps.functions import FunctionCall
from enmasse.pipeline.running.steps.judged_functions import JudgedCall, _over_rows, by_halves
from enmasse.pipeline.running.steps.sql_functions import over_rows

SOURCE = """
def twice(rows):
    rows["n"] = rows["n"] * 2
    if (rows["n"] % 14 == 0).any():
        raise ValueError("a seven")
    return rows

def ends(rows):
    raise SystemExit("enough")

def hangs(rows):
    while True:
        pass

def shown(value):
    return repr(value)

def nothing(rows):
    return None
"""


def call_of(function: str, timeout_s: float = 60) -> FunctionCall:
    return FunctionCall("own", function, {"own": SOURCE}, ("n",), timeout_s)


def frame(count: int) -> pd.DataFrame:
    return pd.DataFrame({"n": range(1, count + 1), "_offset": range(count), "_key": "k"})


@pytest.mark.parametrize("count", [0, 1, 6, 7, 14, 50])
def test_rows_that_a_function_raises_for_are_found_and_the_others_keep_their_order(count: int) -> None:
    call = call_of("twice")
    function = call.load()
    rows = frame(count)
    found = by_halves(call, rows, function)
    good = [int(n) for _, result, error in found if error is None for n in result["n"]]
    assert good == [2 * n for n in range(1, count + 1) if n % 7]
    bad = [(int(part["n"].iloc[0]), error) for part, _, error in found if error is not None]
    assert bad == [(n, "function own:twice (own.py, line 5): ValueError: a seven") for n in range(7, count + 1, 7)]
    assert list(rows["n"]) == list(range(1, count + 1))  # it changes what it is given


def test_a_function_that_ends_its_process_fails_for_its_rows() -> None:
    call = call_of("ends")
    assert [error for _, _, error in by_halves(call, frame(3), call.load())] == [
        "function own:ends (own.py, line 9): SystemExit: enough"
    ] * 3


def test_what_belongs_to_no_row_is_raised() -> None:
    call = call_of("hangs", timeout_s=0.2)
    with pytest.raises(FunctionError, match=r"took longer than 0.2 s"):
        by_halves(call, frame(1), call.load())
    judged = JudgedCall(call_of("nothing"), {"n": pa.int64()}, {})
    with pytest.raises(FunctionError, match="expected a pandas DataFrame, got NoneType"):
        list(judged.over(iter([frame(1)])))


def test_a_row_that_fails_is_a_letter_with_what_it_was() -> None:
    kinds = {"n": pa.int64(), "at": pa.timestamp("us", "UTC"), "_offset": pa.int64(), "_key": pa.string()}
    rows = frame(7)
    rows.insert(1, "at", pd.Timestamp("2026-01-31T12:00:00"))
    # A NULL among whole numbers is why pandas has them as others.
    rows["n"] = rows["n"].astype(float)
    judged = JudgedCall(call_of("twice"), kinds, {"relation": "doubled"})
    given: list[dict[str, Any]] = [row for part in judged.over(iter([rows])) for row in part.to_dict("records")]
    assert [row["n"] for row in given] == [2, 4, 6, 8, 10, 12, None]
    assert given[-1]["__enmasse_letter"] == {
        "value": '{"n":7,"at":"2026-01-31T12:00:00+00:00"}',
        "properties": {
            "reason": "function own:twice (own.py, line 5): ValueError: a seven",
            "relation": "doubled",
            "offset": "6",
        },
        "key": "k",
    }


FAR = pa.array([1_795_856_400_000_000, 1_795_856_400_000_000_000, -62_135_596_800_000_001, None])
EACH = pa.array([0, 1, 2, 3, 4], pa.int32())


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()], ids=str)
@pytest.mark.parametrize(
    "nested",
    [
        lambda values: values,
        lambda values: pa.StructArray.from_arrays([values], ["x"]),
        lambda values: pa.ListArray.from_arrays(EACH, values),
        lambda values: pa.MapArray.from_arrays(EACH, pa.array(["k"] * 4), values),
    ],
    ids=["top", "struct", "array", "map"],
)
def test_a_function_of_rows_is_not_called_with_moments_that_python_does_not_hold(
    kind: pa.DataType, nested: Callable[[pa.Array], pa.Array]
) -> None:
    days = pa.array([20_785, 2_932_897, -719_163, None], pa.int32())
    column = nested(days.cast(kind) if kind == pa.date32() else FAR.cast(kind))
    found = _over_rows(call_of("shown"), pa.string())(column)
    values, errors = (found.field(name).to_pylist() for name in ("value", "error"))
    assert values == [repr(column.slice(0, 1).to_pylist()[0]), None, None, repr(column.slice(3, 1).to_pylist()[0])]
    assert [error is None for error in errors] == [True, False, False, True]
    assert "beyond the years 1 to 9999" in errors[1]
    assert "+" in errors[1]
    with pytest.raises(FunctionError, match=r"own:shown: got a moment beyond the years 1 to 9999"):
        over_rows(call_of("shown"), pa.string())(column)
