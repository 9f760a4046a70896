"""Charts of a table in a terminal: lines over time or a number, bars for names. Pure.

Rules:
1. A first column of times or numbers makes lines, any other one bars.
2. Lines are one for each column of numbers, or, where there is a column of names, one for each name.
3. What is not shown is said below the chart.

Answers to queries: as a table, JSON, CSV or a chart; a file of Parquet comes as it is.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from enmasse.cli.errors import UsageError
from enmasse.cli.output import make_table, write_structured
from enmasse.iot.bulk import spreadsheet_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.output import Writer

_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "red", "blue")
_HEIGHT: Final = 16  # lines: fits a terminal of 24 with a prompt, and 64 steps can be told apart
_MAX_BARS: Final = 40
_BRAILLE: Final = 0x2800
_DOTS: Final = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # by row and column within a character
_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_TIMES: Final = ("timestamp", "date")


class ChartError(ValueError):
    """A table has nothing that could be drawn; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class _Line:
    name: str
    points: tuple[tuple[float, float], ...]


def chart(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], width: int) -> Iterator[Text]:
    """Yield the lines of a chart.

    Args:
        columns: name and type, as Spark calls it, of each.
        rows: a value for each column.
        width: the width of the terminal, in characters.

    Raises:
        ChartError: there are no rows, or no numbers to draw.
    """
    if not rows:
        raise ChartError("there are no rows to draw")
    first = columns[0][1].lower()
    numbers = [index for index, (_, kind) in enumerate(columns) if index and kind.lower().startswith(_NUMBERS)]
    if not numbers:
        raise ChartError("a chart needs a column of times, numbers or names first, and one of numbers after it")
    if not first.startswith((*_TIMES, *_NUMBERS)):
        yield from _bars(columns, rows, numbers, width)
        return
    names = [index for index, (_, kind) in enumerate(columns) if index and kind.lower() == "string"]
    lines = _lines_of(columns, rows, numbers, names[0] if names else None)
    if not lines:
        raise ChartError("there are no rows with both values to draw")
    yield from _plot(lines, width, is_time=first.startswith(_TIMES))


def _bars(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], numbers: Sequence[int], width: int
) -> Iterator[Text]:
    index = numbers[0]
    shown = [(str(row[0]), number) for row in rows[:_MAX_BARS] if (number := _number(row[index])) is not None]
    if not shown:
        raise ChartError(f"column {columns[index][0]} holds no numbers")
    names = min(max(len(name) for name, _ in shown), max(8, width // 3))
    figures = max(len(_short(number)) for _, number in shown)
    room = max(10, width - names - figures - 3)
    most = max(abs(number) for _, number in shown) or 1.0
    yield Text(f"{columns[index][0]} by {columns[0][0]}", style="bold")
    for name, number in shown:
        line = Text(f"{_cut(name, names):<{names}} ")
        line.append(_bar(abs(number) / most * room), style=_COLOURS[number < 0])
        line.append(f" {_short(number)}")
        yield line
    if len(rows) > _MAX_BARS:
        yield Text(f"{len(rows) - _MAX_BARS} more rows are not shown", style="dim")


def _bar(length: float) -> str:
    whole, eighths = divmod(round(length * 8), 8)
    return "█" * whole + ("▏▎▍▌▋▊▉"[eighths - 1] if eighths else "")


def _lines_of(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Any]], numbers: Sequence[int], by: int | None
) -> list[_Line]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        x = _number(row[0])
        if x is None:
            continue
        for index in numbers[:1] if by is not None else numbers:
            if (y := _number(row[index])) is not None:
                name = str(row[by]) if by is not None else columns[index][0]
                found.setdefault(name, []).append((x, y))
    return [_Line(name, tuple(sorted(points))) for name, points in found.items()]


def _plot(lines: Sequence[_Line], width: int, *, is_time: bool) -> Iterator[Text]:
    shown = lines[: len(_COLOURS)]
    xs = [x for line in shown for x, _ in line.points]
    ys = [y for line in shown for _, y in line.points]
    low, high = min(ys), max(ys)
    if low == high:
        low, high = low - 1, high + 1
    labels = [_short(high), _short((low + high) / 2), _short(low)]
    margin = max(map(len, labels))
    canvas = _Canvas(max(20, width - margin - 2), _HEIGHT, (min(xs), max(xs)), (low, high))
    for number, line in enumerate(shown):
        canvas.draw(line.points, number)
    at = {0: labels[0], _HEIGHT // 2: labels[1], _HEIGHT - 1: labels[2]}
    for row in range(_HEIGHT):
        text = Text(f"{at.get(row, ''):>{margin}} ┤" if row in at else f"{'':>{margin}} │")
        yield text.append_text(canvas.row(row))
    ends = [_moment(x) if is_time else _short(x) for x in (min(xs), max(xs))]
    gap = max(1, canvas.width - len(ends[0]) - len(ends[1]))
    yield Text(f"{'':>{margin}}  {ends[0]}{' ' * gap}{ends[1]}", style="dim")
    legend = Text(f"{'':>{margin}}  ")
    for number, line in enumerate(shown):
        legend.append(f"■ {_cut(line.name, 24)}  ", style=_COLOURS[number])
    yield legend
    if len(lines) > len(shown):
        yield Text(f"{len(lines) - len(shown)} more lines are not shown", style="dim")


class _Canvas:
    """Dots of Braille: two by four in each character."""

    def __init__(self, width: int, height: int, xs: tuple[float, float], ys: tuple[float, float]) -> None:
        self.width, self._height = width, height
        self._xs, self._ys = xs, ys
        self._cells: dict[tuple[int, int], tuple[int, int]] = {}  # dots and the line drawn last

    def draw(self, points: Sequence[tuple[float, float]], number: int) -> None:
        places = [self._place(*point) for point in points]
        for (x1, y1), (x2, y2) in zip(places, places[1:] or places, strict=False):
            steps = max(abs(x2 - x1), abs(y2 - y1), 1)
            for step in range(steps + 1):
                self._dot(round(x1 + (x2 - x1) * step / steps), round(y1 + (y2 - y1) * step / steps), number)

    def row(self, row: int) -> Text:
        text = Text()
        for column in range(self.width):
            dots, number = self._cells.get((row, column), (0, 0))
            text.append(chr(_BRAILLE + dots) if dots else " ", style=_COLOURS[number] if dots else "")
        return text

    def _place(self, x: float, y: float) -> tuple[int, int]:
        across, up = self._xs[1] - self._xs[0] or 1.0, self._ys[1] - self._ys[0]
        column = (x - self._xs[0]) / across * (self.width * 2 - 1)
        row = (self._ys[1] - y) / up * (self._height * 4 - 1)
        return round(column), round(row)

    def _dot(self, x: int, y: int, number: int) -> None:
        cell = (y // 4, x // 2)
        dots, _ = self._cells.get(cell, (0, 0))
        self._cells[cell] = (dots | _DOTS[y % 4][x % 2], number)


def _number(value: Any) -> float | None:
    """Return a value as a number: a moment in seconds since 1970, None where it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value) if "-" in value[1:] else None
            value = float(value) if moment is None else moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
        except ValueError:
            return None
    elif isinstance(value, date):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _short(number: float) -> str:
    if number == int(number) and abs(number) < 1e9:
        return f"{int(number):,}"
    return f"{number:,.2f}" if 0.01 <= abs(number) < 1e9 else f"{number:.3g}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


Document = dict[str, Any]


class AnswerForm(StrEnum):
    """The forms in which an answer is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    CHART = "chart"
    PARQUET = "parquet"


def write_file(content: bytes) -> None:
    """Write a file to standard output.

    Raises:
        UsageError: standard output is a terminal.
    """
    if sys.stdout.isatty():
        raise UsageError(
            "a file of Parquet is nothing to read on a terminal: write it to a file, with > NAME.parquet"
        )
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


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
            write_structured(writer, "json", [dict(zip(names, row, strict=True)) for row in rows])
        case AnswerForm.CSV:
            _write_csv(writer, columns, rows)
        case AnswerForm.CHART:
            kinds = [(column["name"], str(column["type"])) for column in columns]
            try:
                for line in chart(kinds, rows, min(writer.out.width, 120)):
                    writer.out.print(line, no_wrap=True, overflow="crop")
            except ChartError as error:
                raise UsageError(f"this answer cannot be drawn: {error}; leave --output out for a table") from None
        case AnswerForm.TABLE:
            writer.out.print(make_table(names, [[_cell(v) for v in row] for row in rows]))
            writer.note(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}")
        case AnswerForm.PARQUET:
            raise AssertionError("it comes as a file: see write_file")
    for warning in answer.get("warnings") or ():
        writer.warn(warning)
    if answer.get("truncated"):
        writer.warn(f"there are more than {len(rows):,} rows: ask for more with --limit, or for less with WHERE")


_NUMERIC = re.compile(r"(tinyint|smallint|int|integer|bigint|long|float|real|double|decimal)\b", re.IGNORECASE)
"""The types of columns whose values are numbers also where they come as text, as decimals do."""


def _write_csv(writer: Writer, columns: Sequence[Document], rows: Sequence[Sequence[Any]]) -> None:
    are_numbers = [_NUMERIC.match(str(column["type"])) is not None for column in columns]
    lines = [[spreadsheet_text(column["name"]) for column in columns]]
    lines += [[_csv_cell(value, number) for value, number in zip(row, are_numbers, strict=True)] for row in rows]
    writer.say("\n".join(map(_csv_line, lines)))


def _csv_line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    # Letters of the line end are quoted: a carriage return in a cell begins no line for anybody.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def _csv_cell(value: Any, is_number: bool) -> str:
    if isinstance(value, str):
        return value if is_number else spreadsheet_text(value)
    return "" if value is None else _cell(value)


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
