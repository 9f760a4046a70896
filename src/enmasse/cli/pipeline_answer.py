"""Answers to queries: as a table, JSON, CSV or a chart."""

from __future__ import annotations

import csv
import io
import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from enmasse.cli.charts import ChartError, chart
from enmasse.cli.errors import UsageError
from enmasse.cli.output import make_table, write_structured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.output import Writer

__all__ = ["AnswerForm", "write_answer"]

Document = dict[str, Any]


class AnswerForm(StrEnum):
    """How an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    CHART = "chart"


def write_answer(writer: Writer, form: AnswerForm, answer: Document) -> None:
    """Write an answer.

    Raises:
        UsageError: it cannot be drawn as a chart.
    """
    columns: list[Document] = answer["columns"]
    rows: list[list[Any]] = answer["rows"]
    names = [column["name"] for column in columns]
    match form:
        case AnswerForm.JSON:
            write_structured(writer.out, "json", [dict(zip(names, row, strict=True)) for row in rows])
        case AnswerForm.CSV:
            _write_csv(writer, names, rows)
        case AnswerForm.CHART:
            kinds = [(column["name"], str(column["type"])) for column in columns]
            try:
                for line in chart(kinds, rows, min(writer.out.width, 120)):
                    writer.out.print(line, no_wrap=True, overflow="crop")
            except ChartError as error:
                raise UsageError(f"this answer cannot be drawn: {error}; leave --output out for a table") from None
        case AnswerForm.TABLE:
            writer.out.print(make_table([escape(name) for name in names], [[_cell(v) for v in row] for row in rows]))
            writer.note(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}")
    if answer.get("truncated"):
        writer.warn(f"there are more than {len(rows):,} rows: ask for more with --limit, or for less with WHERE")


def _write_csv(writer: Writer, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(names)
    table.writerows([["" if value is None else _cell(value) for value in row] for row in rows])
    writer.out.print(text.getvalue(), end="", markup=False, soft_wrap=True)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
