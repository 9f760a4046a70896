"""Writing objects in the form that ``-o`` asks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.columns import columns_of, present, row_of, values_at
from enmasse.cli.errors import UsageError
from enmasse.cli.options import Output
from enmasse.cli.output import make_table, write_structured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.output import Writer
    from enmasse.model.schema.kinds import Kind


Document = dict[str, Any]
Columns = tuple[tuple[str, str], ...]
"""Headings, and the paths of what stands below them."""
Form = Output | Columns

FormChoice = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="table|wide|yaml|json|name|custom-columns=HEAD:PATH,...",
        help="Form of the output.",
    ),
]

_CUSTOM = "custom-columns"
_NONE = "<none>"  # as kubectl shows a field that is not there
_GONE = {"status": {"phase": "Deleted"}}
_GAP = 3  # columns of a terminal between two of a table


def parse_form(text: str) -> Form:
    """Return the form that ``-o`` names.

    Raises:
        UsageError: listing the forms that there are.
    """
    name, _, columns = text.partition("=")
    if name == _CUSTOM:
        pairs = [column.partition(":") for column in columns.split(",") if column]
        if not pairs or any(not (head and path) for head, _, path in pairs):
            raise UsageError(
                "expected -o custom-columns=HEAD:PATH,..., such as NAME:.metadata.name,PHASE:.status.phase"
            )
        for _, _, path in pairs:
            values_at({}, path)
        return tuple((head, path) for head, _, path in pairs)
    try:
        return Output(text)
    except ValueError:
        raise UsageError(
            f"there is no form '{text}'; there are {', '.join(Output)} and {_CUSTOM}=HEAD:PATH,..."
        ) from None


class ObjectWriter:
    """Writes lists of objects, and their changes, in one form.

    Args:
        writer: the output.
        form: the form of them.
        with_kind: name the kind with each object, as there are several.
        with_namespace: name the namespace with each object.
    """

    def __init__(self, writer: Writer, form: Form, *, with_kind: bool, with_namespace: bool) -> None:
        self._writer = writer
        self._form = form
        self._with_kind = with_kind
        self._with_namespace = with_namespace
        self._widths: list[int] = []

    def write(self, kinds: Sequence[Kind], items: Sequence[Document], *, single: bool) -> None:
        """Write all objects; ``single`` is one object that was asked for, and no list."""
        form = self._form
        if isinstance(form, Output) and form not in (Output.TABLE, Output.WIDE):
            _write_plain(self._writer, form, items, single=single)
            return
        groups = [(kind, [item for item in items if item["kind"] == kind.name]) for kind in kinds]
        if not isinstance(form, Output):
            groups = [(kinds[0], list(items))]
        is_first = True
        for kind, some in groups:
            if some:
                if not is_first:
                    self._writer.say("")
                self._writer.out.print(make_table(self._heads(kind), [self._row(kind, item) for item in some]))
                is_first = False

    def write_changes(self, kind: Kind, changes: Sequence[tuple[str, Document]]) -> None:
        """Write objects that have changed, a row for each, in columns that only grow."""
        form = self._form
        if isinstance(form, Output) and form not in (Output.TABLE, Output.WIDE):
            for _, item in changes:
                _write_plain(self._writer, form, [item], single=True)
            return
        rows = [self._row(kind, item | _GONE if what == "DELETED" else item) for what, item in changes]
        if not self._widths and changes:
            rows.insert(0, self._heads(kind))
            self._widths = [0] * len(rows[0])
        for row in rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        for row in rows:
            cells = [cell.ljust(width + _GAP) for cell, width in zip(row, self._widths, strict=True)]
            self._writer.say_line("".join(cells).rstrip())

    def _heads(self, kind: Kind) -> list[str]:
        if isinstance(self._form, Output):
            return columns_of(kind, wide=self._form == Output.WIDE, with_namespace=self._with_namespace)
        return [head for head, _ in self._form]

    def _row(self, kind: Kind, item: Document) -> list[str]:
        if not isinstance(self._form, Output):
            return [",".join(map(_cell, values_at(item, path))) or _NONE for _, path in self._form]
        wide = self._form == Output.WIDE
        row = row_of(kind, item, present(), wide=wide, with_namespace=self._with_namespace)
        if self._with_kind:
            row[self._with_namespace] = f"{kind.singular}/{row[self._with_namespace]}"
        return row


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def object_label(item: Document) -> str:
    """Return kind and name as one word that ``get`` and ``delete`` understand in scripts."""
    return f"{item['kind'].lower()}/{item['metadata']['name']}"


def write_objects(
    writer: Writer, form: Output, kind: Kind, items: Sequence[Document], *, with_namespace: bool
) -> None:
    """Write a list of objects of one kind."""
    if form in (Output.TABLE, Output.WIDE):
        wide, now = form == Output.WIDE, present()
        rows = [row_of(kind, item, now, wide=wide, with_namespace=with_namespace) for item in items]
        columns = columns_of(kind, wide=wide, with_namespace=with_namespace)
        writer.out.print(make_table(columns, rows))
    else:
        _write_plain(writer, form, items, single=False)


def write_results(writer: Writer, form: Output, results: Sequence[tuple[Document, str]]) -> None:
    """Write the results of changes: a sentence for each object, or the objects themselves."""
    if form in (Output.TABLE, Output.WIDE):
        for item, what in results:
            writer.say(f"{object_label(item)} {what}")
    else:
        _write_plain(writer, form, [item for item, _ in results], single=len(results) == 1)


def _write_plain(writer: Writer, form: Output, items: Sequence[Document], *, single: bool) -> None:
    if form == Output.NAME:
        for item in items:
            writer.say(object_label(item))
        return
    shown = [_without_managers(item) for item in items]
    whole = shown[0] if single else {"apiVersion": "v1", "kind": "List", "items": shown}
    write_structured(writer, form.value, whole)


def _without_managers(item: Document) -> Document:
    """Return an object without its managed fields, which are long and of no use to people."""
    return item | {"metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}
