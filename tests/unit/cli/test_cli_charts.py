"""Charts in a terminal: what is drawn of which table, and what cannot be."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from enmasse.cli.charts import AnswerForm, ChartError, chart, write_answer
from enmasse.cli.output import Writer

TIME, NAME, NUMBER = ("at", "timestamp"), ("device", "string"), ("mean", "double")


def drawn(columns: list[tuple[str, str]], rows: list[list[Any]], width: int = 60) -> list[str]:
    return [line.plain for line in chart(columns, rows, width)]


def test_names_and_numbers_are_bars_in_proportion() -> None:
    found = drawn([NAME, ("count", "bigint")], [["boiler-1", 100], ["boiler-2", 50], ["x", 0], ["y", None]])
    assert found[0] == "count by device"
    bars = {line.split()[0]: line.count("█") for line in found[1:]}
    assert bars["boiler-1"] == 2 * bars["boiler-2"] == 46
    assert bars["x"] == 0
    assert "y" not in bars
    assert found[1].endswith("█ 100")


def test_a_bar_is_as_exact_as_an_eighth_of_a_character() -> None:
    found = drawn([NAME, NUMBER], [["a", 80.0], ["b", 1.0]], width=24)
    assert found[2].startswith("b ▎"), found


def test_numbers_below_nothing_have_bars_too() -> None:
    assert drawn([NAME, NUMBER], [["a", -3.5]])[1].endswith("█ -3.50")


def test_times_and_numbers_are_a_line_with_ends_and_a_legend() -> None:
    rows = [[f"2026-01-31T12:00:{second:02}+00:00", second * 1.5] for second in range(60)]
    found = drawn([TIME, NUMBER], rows)
    assert len(found) == 18
    assert found[0].startswith("88.50 ┤")
    assert found[15].startswith("    0 ┤")
    assert found[16].split() == ["2026-01-31", "12:00:00", "2026-01-31", "12:00:59"]
    assert found[17].split() == ["■", "mean"]
    # It rises from the lower left corner to the upper right one.
    body = [line[7:] for line in found[:16]]
    assert "\u2800" < body[15][0] <= "\u28ff"
    assert "\u2800" < body[0][-1] <= "\u28ff"
    assert body[0][0] == body[15][-1] == " "


def test_a_column_of_names_makes_a_line_for_each() -> None:
    rows = [[second, name, second + len(name)] for second in range(5) for name in ("a", "bb")]
    found = drawn([("second", "int"), NAME, ("value", "int")], rows)
    assert found[-1].split() == ["■", "a", "■", "bb"]


def test_several_columns_of_numbers_make_a_line_each() -> None:
    rows = [["2026-01-31", 1, 5], ["2026-02-01", 2, 4]]
    assert drawn([("day", "date"), ("low", "int"), ("high", "int")], rows)[-1].split() == ["■", "low", "■", "high"]


def test_what_is_too_much_is_said() -> None:
    assert drawn([NAME, NUMBER], [[f"d{number}", 1.0] for number in range(50)])[-1] == "10 more rows are not shown"
    rows = [[second, f"d{number}", 1.0] for second in range(3) for number in range(9)]
    assert drawn([("second", "int"), NAME, NUMBER], rows)[-1] == "3 more lines are not shown"


def test_values_that_are_none_or_no_number_are_left_out() -> None:
    rows: list[list[Any]] = [["2026-01-31T12:00:00", 1.0], [None, 2.0], ["2026-01-31T12:00:01", float("nan")]]
    assert len(drawn([TIME, NUMBER], rows)) == 18
    assert len(drawn([TIME, NUMBER], [["2026-01-31 12:00:00.5", "3.25"]])) == 18


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ([NAME, NUMBER], [], "there are no rows"),
        ([NAME, ("place", "string")], [["a", "b"]], "a chart needs a column of times, numbers or names first"),
        ([NAME, NUMBER], [["a", None]], "column mean holds no numbers"),
        ([TIME, NUMBER], [[None, 1.0]], "there are no rows with both values"),
        ([NUMBER], [[1.0]], "a chart needs"),
    ],
)
def test_what_cannot_be_drawn_is_said(columns: list[tuple[str, str]], rows: list[list[Any]], message: str) -> None:
    with pytest.raises(ChartError, match=message):
        drawn(columns, rows)


def test_texts_of_csv_are_no_formulas_and_numbers_stay_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "plain", "'quoted", "1=1", "a\r=1", None]
    kinds = ["tinyint", "INT", "bigint", "double", "decimal(3,1)", "float"]
    numbers = [-1, -2, -3, -4.5, "-5.5", "-inf"]
    columns = [{"name": "=head", "type": "string"}, *({"name": kind, "type": kind} for kind in kinds)]
    columns.append({"name": "more", "type": "struct<a:string>"})
    answer = {"columns": columns, "rows": [[text, *numbers, {"a": "=1"}] for text in texts]}
    write_answer(Writer(), AnswerForm.CSV, answer)
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert head == ["'=head", *kinds, "more"]
    guarded = ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "'\r=1", "'\n=1", "plain", "'quoted", "1=1", "a\r=1", ""]
    assert [row[0] for row in rows] == guarded
    assert all(row[1:] == ["-1", "-2", "-3", "-4.5", "-5.5", "-inf", '{"a": "=1"}'] for row in rows)
