"""Many devices at once: lines of JSON, or of CSV, with which they are read and written.

A line of JSON is a device with its ``id`` and perhaps its ``credentials``. CSV has a head that names its columns, of
``id``, ``enabled`` and ``via``; several gateways are divided by spaces. An id that a spreadsheet would compute is
written with an apostrophe before it, and read without.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from enmasse.iot.documents import RegistryError
from enmasse.model.schema.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from enmasse.iot.documents import Document

MAX_LINES: Final = 1_000
"""That one request imports: one transaction, during which others wait."""

COLUMNS: Final = ("id", "enabled", "via")
_TRUTH: Final = {"true": True, "false": False}

Existing = Literal["fail", "replace", "skip"]
"""The fate of a line whose device is there already."""


@dataclass(slots=True)
class Line:
    """One line of an import: a device, or why there is none."""

    number: int
    device: Document = field(default_factory=dict)
    problem: RegistryError | None = None

    def refuse(self, error: RegistryError) -> None:
        """Leave the line out, for a reason."""
        self.problem = self.problem or error

    def failure(self) -> Document:
        """Return what is answered of a line that was left out."""
        assert self.problem is not None
        identity = self.device.get("id")
        named = {"id": identity} if isinstance(identity, str) else {}
        return {"line": self.number} | named | {"code": self.problem.code, "error": str(self.problem)}


@dataclass(slots=True)
class Imported:
    """The outcome of an import."""

    created: int = 0
    updated: int = 0
    skipped: int = 0
    failed: list[Document] = field(default_factory=list)

    def to_dict(self) -> Document:
        """Return the JSON form."""
        return {"created": self.created, "updated": self.updated, "skipped": self.skipped, "failed": self.failed}


def read_json_lines(text: str) -> list[Line]:
    """Return the lines of a body; empty ones are left out.

    Raises:
        RegistryError: 413 when there are too many.
    """
    found = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    _expect_few(found)
    return [_json_line(number, line) for number, line in found]


def _json_line(number: int, text: str) -> Line:
    line = Line(number)
    try:
        device = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        line.refuse(RegistryError(400, "the line is no JSON"))
    except RegistryError as error:
        line.refuse(error)
    else:
        if isinstance(device, dict):
            line.device = device
        else:
            line.refuse(RegistryError(400, f"expected a map, got {describe_value(device)}"))
    return line


def _once(pairs: list[tuple[str, Any]]) -> Document:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise RegistryError(400, "a key occurs twice in one map")
    return found


def read_csv(text: str) -> list[Line]:
    """Return the lines of a body in CSV.

    Raises:
        RegistryError: 400 when it has no head, or unknown columns; 413 when there are too many lines.
    """
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise RegistryError(400, f"the body is no CSV: {error}") from None
    head = rows.pop(0)[1] if rows else []
    if "id" not in head or not set(COLUMNS).issuperset(head) or len(set(head)) < len(head):
        expected = f"expected a first line with names of columns, of {', '.join(COLUMNS)}"
        raise RegistryError(400, f"{expected}; got {describe_value(','.join(head))}")
    _expect_few(rows)
    return [_csv_line(number, dict(zip(head, row, strict=False)), len(row) == len(head)) for number, row in rows]


def _csv_line(number: int, row: dict[str, str], is_whole: bool) -> Line:
    line = Line(number, {"id": _text_of_cell(row.get("id", ""))})
    if not is_whole:
        line.refuse(RegistryError(400, "the line has another number of columns than the first"))
    if enabled := row.get("enabled", "").strip().lower():
        if enabled in _TRUTH:
            line.device["enabled"] = _TRUTH[enabled]
        else:
            line.refuse(RegistryError(400, f"enabled: expected true or false, got {describe_value(enabled)}"))
    if via := _text_of_cell(row.get("via", "")).split():
        line.device["via"] = via
    return line


def _expect_few(lines: Sequence[object]) -> None:
    if len(lines) > MAX_LINES:
        raise RegistryError(413, f"{len(lines)} lines: at most {MAX_LINES} are imported by one request")


FORMULA: Final = re.compile(r"[=+\-@\t\r\n]")
"""The beginning of a text that spreadsheets take for a formula, or read over and then do."""


def spreadsheet_text(text: str) -> str:
    """Return a text as a cell of CSV that a spreadsheet shows and does not compute; numbers are no texts."""
    return f"'{text}" if FORMULA.match(text) else text


def _text_of_cell(cell: str) -> str:
    """Return the text that ``spreadsheet_text`` has made a cell of."""
    return cell[1:] if cell[:1] == "'" and FORMULA.match(cell, 1) else cell


def write_json_lines(devices: Iterable[Document]) -> bytes:
    """Return devices as lines of JSON."""
    return b"".join(json.dumps(item, separators=(",", ":")).encode() + b"\n" for item in devices)


def write_csv(devices: Iterable[Document], *, with_head: bool) -> bytes:
    """Return devices as lines of CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if with_head:
        writer.writerow(COLUMNS)
    for item in devices:
        enabled, via = str(item.get("enabled", True)).lower(), " ".join(item.get("via", ()))
        writer.writerow([spreadsheet_text(item["id"]), enabled, spreadsheet_text(via)])
    return text.getvalue().encode()
