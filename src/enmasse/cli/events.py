"""``enmasse events``: what has happened to objects of late."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient, parse_kind
from enmasse.cli.columns import age, present
from enmasse.cli.options import DEFAULT_DATA, AllNamespaces, Data, Namespace, StructuredChoice, StructuredOutput
from enmasse.cli.output import Writer, make_table, write_structured

__all__ = ["events"]

_COLUMNS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE")


def events(
    about: Annotated[
        str | None, typer.Argument(metavar="[KIND/NAME]", help="Only of this object, such as address/shop.orders.")
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    warnings: Annotated[bool, typer.Option("--warnings", help="Only what needs somebody to look at it.")] = False,
    output: StructuredChoice = StructuredOutput.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Show what has happened to objects, what came last at the end."""
    writer = Writer()
    place = None if all_namespaces else namespace or "default"
    wanted = None if about is None else _parse(about)
    with ApiClient.find(data, warn=writer.warn) as api:
        found = api.select(parse_kind("events"), place)
    found = [
        item
        for item in found
        if (wanted is None or _object(item) == wanted) and (not warnings or item["type"] == "Warning")
    ]
    found.sort(key=lambda item: str(item.get("lastTimestamp", "")))
    if output is not StructuredOutput.TABLE:
        write_structured(writer.out, output.value, {"apiVersion": "v1", "kind": "List", "items": found})
        return
    if not found:
        writer.note("There are no events" + (f" in namespace {place}." if place else "."))
        return
    now = present()
    rows = [
        [
            age(item.get("lastTimestamp", ""), now),
            item["type"],
            item["reason"],
            "/".join(_object(item)),
            str(item.get("count", 1)),
            item.get("message", ""),
        ]
        for item in found
    ]
    writer.out.print(make_table(_COLUMNS, rows))


def _parse(about: str) -> tuple[str, str]:
    kind, slash, name = about.partition("/")
    if not slash:
        raise typer.BadParameter(f"expected KIND/NAME such as address/shop.orders, got '{about}'")
    return parse_kind(kind).singular, name


def _object(item: dict[str, Any]) -> tuple[str, str]:
    involved = item["involvedObject"]
    return str(involved["kind"]).lower(), str(involved["name"])
