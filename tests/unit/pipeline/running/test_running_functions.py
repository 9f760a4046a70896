from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from enmasse.pipeline.errors import FunctionError, PlanError
from enmasse.pipeline.running.steps.functions import FunctionCall, check_function


def call(
    source: str, *, timeout_s: float = 30.0, columns: tuple[str, ...] = ("x",), **parameters: Any
) -> FunctionCall:
    return FunctionCall("scoring", "score", {"scoring": source}, columns, timeout_s, parameters)


def results(function: FunctionCall, *frames: pd.DataFrame) -> list[pd.DataFrame]:
    return list(function.over(iter(frames)))


def frame() -> pd.DataFrame:
    return pd.DataFrame({"x": [1, 2]})


def test_a_function_gets_each_batch_and_its_parameters() -> None:
    found = results(call("def score(rows, by):\n    return rows.assign(y=rows.x * by)\n", by=3), frame(), frame())
    assert [list(part.x) for part in found] == [[1, 2], [1, 2]]
    assert [list(part.columns) for part in found] == [["x"], ["x"]]


def test_modules_of_one_pipeline_import_each_other_and_no_other_pipelines() -> None:
    source = "import rules\nfrom rules import ADD as add\n\ndef score(rows):\n    return rows + rules.ADD + add\n"
    for add in (1, 5):
        function = FunctionCall("scoring", "score", {"scoring": source, "rules": f"ADD = {add}"}, ("x",), 30.0)
        assert list(results(function, frame())[0].x) == [1 + 2 * add, 2 + 2 * add]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def score(rows):\n    return rows.y\n", r"scoring:score \(scoring.py, line 2\): AttributeError"),
        ("def score(rows):\n    raise SystemExit(3)\n", r"line 2\): SystemExit"),
        ("import no_such_thing\ndef score(rows): pass\n", r"line 1\): the module 'no_such_thing' is not installed"),
        ("1 / 0\ndef score(rows): pass\n", r"line 1\): ZeroDivisionError"),
        ("def score(rows):\n    return 3\n", "expected a pandas DataFrame, got int"),
        ("def score(rows):\n    return rows.rename(columns={'x': 'z'})\n", "no column x, which the step's schema"),
    ],
)
def test_what_goes_wrong_is_told_with_its_place(source: str, told: str) -> None:
    with pytest.raises(FunctionError, match=told):
        results(call(source), frame())


def test_a_function_that_never_returns_is_interrupted() -> None:
    source = (
        "def score(rows):\n    while True:\n        try:\n            while True: pass\n"
        "        except Exception: pass\n"
    )
    with pytest.raises(FunctionError, match=r"\(scoring.py, line \d\): took longer than 0.2 s"):
        results(call(source, timeout_s=0.2), frame())


def test_time_between_batches_is_not_the_functions() -> None:
    def slow() -> Iterator[pd.DataFrame]:
        for _ in range(3):
            sum(range(3_000_000))
            yield frame()

    assert len(list(call("def score(rows):\n    return rows\n", timeout_s=1000).over(slow()))) == 3


def test_a_function_is_found_by_reading_alone() -> None:
    modules = {
        "scoring": "1 / 0\ndef score(rows): return rows\n",
        "broken": "def (",
        "other": "from scoring import score",
    }
    assert check_function("place", "scoring:score", modules) == ("scoring", "score")
    assert check_function("place", "other:score", modules) == ("other", "score")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("score", "expected module:function"),
        ("os.path:join", "expected module:function"),
        ("gone:score", r"no module 'gone' \(it has broken, scoring\); add gone.py"),
        ("scoring:nothing", "scoring.py defines no function 'nothing'"),
        ("broken:score", "broken.py, line 1"),
    ],
)
def test_a_function_that_is_not_there_is_told_with_the_place(name: str, told: str) -> None:
    with pytest.raises(PlanError, match=f"spec.steps.*{told}"):
        check_function("spec.steps[0].function", name, {"scoring": "def score(rows): pass", "broken": "def ("})


def test_without_code_it_is_said() -> None:
    with pytest.raises(PlanError, match="there is none"):
        check_function("p", "a:b", {})
