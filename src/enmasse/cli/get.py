"""``enmasse get``: what is declared, and how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient, parse_kind
from enmasse.cli.connections import CONNECTED, sessions_of, write_sessions
from enmasse.cli.objects import write_object, write_objects
from enmasse.cli.options import (
    DEFAULT_DATA,
    AllNamespaces,
    Data,
    KindName,
    Labels,
    Namespace,
    Output,
    OutputChoice,
    Space,
)
from enmasse.cli.output import Writer
from enmasse.cli.spaces import only_space
from enmasse.model.resource import SpaceMember

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["get"]


def get(
    kind_name: KindName,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    space: Space = None,
    labels: Labels = "",
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """List the objects of a kind, or show one; `connections` and `links` list who is connected."""
    writer = Writer()
    if kind_name.lower() in CONNECTED:
        _get_connected(writer, kind_name.lower(), namespace or "default", space, output, data)
        return
    kind = parse_kind(kind_name)
    place = namespace or kind.default_namespace
    with ApiClient.find(data, warn=writer.warn) as api:
        if name is not None:
            item = api.resolve(kind, place, name, space)
            write_object(writer, output, item, with_namespace=False)
            return
        items = api.select(kind, None if all_namespaces else place, labels)
    if space is not None and issubclass(kind.model, SpaceMember):
        items = [item for item in items if item["metadata"]["name"].startswith(f"{space}.")]
    if not items and output in (Output.TABLE, Output.WIDE):
        where = "" if all_namespaces else f" in namespace {place}"
        writer.note(f"There are no {kind.plural}{where}.")
        return
    write_objects(writer, output, kind, items, with_namespace=all_namespaces)


def _get_connected(writer: Writer, what: str, namespace: str, space: str | None, output: Output, data: Path) -> None:
    with ApiClient.find(data, warn=writer.warn) as api:
        items = sessions_of(api, what, namespace, space or only_space(api, namespace))
    write_sessions(writer, output, what, items)
