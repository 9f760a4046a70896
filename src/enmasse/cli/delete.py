"""``enmasse delete``: take back what was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient, parse_kind
from enmasse.cli.connections import close_session
from enmasse.cli.errors import ApiError, NotFoundError, UsageError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.objects import object_label
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.spaces import only_space
from enmasse.model.kinds import KINDS, kind_of

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document

__all__ = ["delete"]


def delete(
    kind_name: Annotated[str | None, typer.Argument(metavar="[KIND]", help="Kind of the objects.")] = None,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="The objects.")] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--filename", "-f", metavar="FILE|DIR|-", help="Delete what these files declare."),
    ] = None,
    namespace: Namespace = None,
    space: Space = None,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="It is no error when it does not exist.")
    ] = False,
    data: Data = DEFAULT_DATA,
) -> None:
    """Delete objects. A space takes its addresses with it, an address its messages.

    A connection is closed; its client may come again.
    """
    writer = Writer()
    if bool(files) == bool(kind_name):
        raise UsageError("name either KIND and NAME, or files with -f")
    if kind_name and not names:
        raise UsageError(f"which {kind_name}? name at least one")
    with ApiClient.find(data, warn=writer.warn) as api:
        if kind_name in ("connection", "connections"):
            place = namespace or "default"
            for name in names or []:
                close_session(api, place, space or only_space(api, place), name)
                writer.say(f"connection/{name} closed")
            return
        for place, kind_, name in _targets(files or [], kind_name, names or [], namespace):
            kind = next(kind for kind in KINDS if kind.name == kind_)
            try:
                item: Document = api.get(kind, place, name) if files else api.resolve(kind, place, name, space)
                api.delete(kind, place, item["metadata"]["name"])
            except (NotFoundError, ApiError) as error:
                gone = isinstance(error, NotFoundError) or error.status == 404
                # Of a file, the space may have taken its addresses with it already.
                if not gone or not (ignore_not_found or files):
                    raise
                writer.note(f"{kind.singular}/{name} does not exist")
            else:
                writer.say(f"{object_label(item)} deleted")


def _targets(
    files: list[str], kind_name: str | None, names: list[str], namespace: str | None
) -> list[tuple[str, str, str]]:
    """Return namespace, kind and name of everything to delete, what refers to others first."""
    if kind_name:
        kind = parse_kind(kind_name)
        return [(namespace or kind.default_namespace, kind.name, name) for name in names]
    resources = reversed(read_manifests(files, namespace))
    return [(item.metadata.namespace, kind_of(item).name, item.metadata.name) for item in resources]
