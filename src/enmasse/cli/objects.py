"""Writing objects in the form that ``-o`` asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.cli.columns import columns_of, present, row_of
from enmasse.cli.options import Output
from enmasse.cli.output import make_table, write_structured
from enmasse.model.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.output import Writer
    from enmasse.model.kinds import Kind

__all__ = ["object_label", "write_object", "write_objects", "write_results"]

Document = dict[str, Any]


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
    """Write what became of objects: a sentence each, or the objects themselves."""
    if form in (Output.TABLE, Output.WIDE):
        for item, what in results:
            writer.say(f"{object_label(item)} {what}")
    else:
        _write_plain(writer, form, [item for item, _ in results], single=len(results) == 1)


def write_object(writer: Writer, form: Output, item: Document, *, with_namespace: bool) -> None:
    """Write one object."""
    if form in (Output.TABLE, Output.WIDE):
        kind = next(kind for kind in KINDS if kind.name == item["kind"])
        write_objects(writer, form, kind, [item], with_namespace=with_namespace)
    else:
        _write_plain(writer, form, [item], single=True)


def _write_plain(writer: Writer, form: Output, items: Sequence[Document], *, single: bool) -> None:
    if form == Output.NAME:
        for item in items:
            writer.say(object_label(item))
        return
    shown = [_without_managers(item) for item in items]
    whole = shown[0] if single else {"apiVersion": "v1", "kind": "List", "items": shown}
    write_structured(writer.out, form.value, whole)


def _without_managers(item: Document) -> Document:
    """Return an object as people want to read it: who has set which field is long, and no matter of theirs."""
    return item | {"metadata": {key: value for key, value in item["metadata"].items() if key != "managedFields"}}
