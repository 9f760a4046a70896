"""``enmasse delete``: take back what was declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.connections import close_session, end_session
from enmasse.cli.errors import ApiError, NotFoundError, UsageError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.objects import object_label
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Space
from enmasse.cli.output import Writer
from enmasse.cli.targets import complete_targets, find_certain, find_space, parse_targets
from enmasse.model.schema.kinds import kind_of

if TYPE_CHECKING:
    from enmasse.cli.api_client import Document
    from enmasse.model.schema.kinds import Kind


def delete(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND NAME...] | [KIND/NAME...]", help="The objects.", autocompletion=complete_targets
        ),
    ] = None,
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

    A connection is closed; its client may come again. A session of MQTT ends with all that waits for its client.
    """
    writer = Writer()
    if bool(files) == bool(targets):
        raise UsageError("name either KIND and NAME, or files with -f")
    words = targets or []
    if len(words) == 1 and "/" not in words[0]:
        raise UsageError(f"which {words[0]}? name at least one")
    with ApiClient.find(data, warn=writer.warn) as api:
        if words and words[0].partition("/")[0] in ("connection", "connections"):
            place = namespace or "default"
            for name in words[1:] if "/" not in words[0] else [word.partition("/")[2] for word in words]:
                close_session(api, place, find_space(api, place, space), name)
                writer.say(f"connection/{name} closed")
            return
        if words and words[0].partition("/")[0] in ("session", "sessions"):
            place = namespace or "default"
            for name in words[1:] if "/" not in words[0] else [word.partition("/")[2] for word in words]:
                end_session(api, place, find_space(api, place, space), name)
                writer.say(f"session/{name} ended")
            return
        for place, kind, name in _targets(files or [], words, namespace):
            try:
                item: Document = (
                    api.get(kind, place, name) if files else find_certain(api, kind, place, name, space, is_only=True)
                )
                api.delete(kind, place, item["metadata"]["name"])
            except (NotFoundError, ApiError) as error:
                gone = isinstance(error, NotFoundError) or error.status == 404
                # Of a file, the space may have taken its addresses with it already.
                if not gone or not (ignore_not_found or files):
                    raise
                writer.note(f"{kind.singular}/{name} does not exist")
            else:
                writer.say(f"{object_label(item)} deleted")


def _targets(files: list[str], words: list[str], namespace: str | None) -> list[tuple[str, Kind, str]]:
    """Return namespace, kind and name of everything to delete, what refers to others first."""
    if words:
        wanted = [(target.kind, target.name) for target in parse_targets(words)]
        return [(namespace or kind.default_namespace, kind, name) for kind, name in wanted if name is not None]
    resources = reversed(read_manifests(files, namespace))
    return [(item.metadata.namespace, kind_of(item), item.metadata.name) for item in resources]
