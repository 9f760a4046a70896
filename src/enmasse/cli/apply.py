"""``enmasse apply``: make what is declared in files be so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import is_ready
from enmasse.cli.errors import ApiError, UnreachableError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.objects import write_results
from enmasse.cli.options import DEFAULT_DATA, Data, Files, Namespace, Output, OutputChoice
from enmasse.cli.output import Writer
from enmasse.cli.wait import wait_for_all
from enmasse.model.columns import columns_of
from enmasse.model.kinds import kind_named

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["apply"]

_ASKED = "DryRun"  # the reason why nothing is ready after a dry run


def apply(
    files: Files,
    namespace: Namespace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, but change nothing.")] = False,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, metavar="SECONDS", help="Wait so long until all of them are ready; 0: do not."),
    ] = 0.0,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create or change objects as files declare them.

    With --dry-run it tells of each object whether it would fit and what its
    space would use then, or what it would wait for.

    Everything in all files is checked, first here and then by the API, before
    anything is changed. An object's spec becomes what the file says; fields
    that the file leaves out return to their defaults.
    """
    writer = Writer()
    documents = [resource.to_dict() for resource in read_manifests(files, namespace)]
    with ApiClient.find(data, warn=writer.warn) as api:
        try:
            results = api.apply_all(documents, dry_run=True)
        except ApiError as error:
            raise ApiError(error.status, f"{error}; nothing was changed") from None
    if not dry_run:
        # The warnings have been written by now.
        with ApiClient.find(data, warn=lambda _warning: None) as api:
            results = api.apply_all(documents)
    write_results(writer, output, [(item, what + (_preview(item) if dry_run else "")) for item, what in results])
    if wait and not dry_run:
        _wait([item for item, _ in results], wait, data)


def _wait(items: list[dict[str, Any]], seconds: float, data: Path) -> None:
    awaited = []
    for item in items:
        kind = kind_named(item["kind"])
        # Of others nothing ever says that they are ready.
        if kind is not None and any(column.path == ".status.phase" for column in columns_of(kind.name)):
            awaited.append((kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    with ApiClient.find(data, warn=lambda _warning: None) as api:
        late = wait_for_all(
            awaited, lambda one: api.get(*one), lambda item: item is not None and is_ready(item), seconds
        )
    if late:
        raise UnreachableError(f"after {seconds:g} s not ready: {', '.join(late)}")


def _preview(item: dict[str, Any]) -> str:
    """Return what the answer to a dry run tells beyond that the object would be taken."""
    status = item.get("status") or {}
    found = [one for one in status.get("conditions", ()) if one.get("reason") not in (_ASKED, "Admitted")]
    told = [one["message"] for one in found if one.get("message")]
    return f" (dry run{': ' if told else ''}{'; '.join(dict.fromkeys(told))})"
