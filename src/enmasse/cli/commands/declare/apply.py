"""``enmasse apply``: make what is declared in files be so.

``enmasse import``: the two files of 2016 as objects of today.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.columns import is_ready
from enmasse.cli.commands.declare.wait import wait_for_all
from enmasse.cli.errors import ApiError, NotFoundError, UnreachableError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.objects import write_results
from enmasse.cli.options import DEFAULT_DATA, Data, Files, Namespace, Output, OutputChoice
from enmasse.cli.output import Writer, write_structured
from enmasse.model.kinds.addresses import GROUP
from enmasse.model.kinds.two_files import from_two_files
from enmasse.model.schema.errors import ManifestError, Problem
from enmasse.model.schema.kinds import kind_named
from enmasse.model.schema.manifest import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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

    With --dry-run it reports for each object whether it would fit and what its
    space would use then, or what it would wait for.

    Everything in all files is checked, first here and then by the API, before
    anything is changed. An object's spec becomes what the file says; fields
    that the file leaves out return to their defaults.
    """
    writer = Writer()
    documents = [resource.to_dict() for resource in read_manifests(files, namespace)]
    # The check comes before anything is there: it would warn of what another object of the files is about to bring.
    with ApiClient.find(data, warn=writer.warn if dry_run else lambda _warning: None) as api:
        present = api.find_present(documents)
        try:
            results = api.apply_all(documents, present, dry_run=True, brief=not dry_run)
        except ApiError as error:
            raise ApiError(error.status, f"{error}; nothing was changed") from None
    if not dry_run:
        with ApiClient.find(data, warn=writer.warn) as api:
            results = api.apply_all(documents, present)
    write_results(writer, output, [(item, what + (_preview(item) if dry_run else "")) for item, what in results])
    if wait and not dry_run:
        wait_until_ready([item for item, _ in results], wait, data)


def wait_until_ready(items: Iterable[dict[str, Any]], seconds: float, data: Path) -> None:
    """Wait until objects are ready, as far as their kinds say that they are.

    Raises:
        UnreachableError: some are not in time.
    """
    awaited = []
    for item in items:
        kind = kind_named(item["kind"])
        # Of others nothing ever says that they are ready.
        if kind is not None and any(column.path == ".status.phase" for column in kind.columns):
            awaited.append((kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    with ApiClient.find(data, warn=lambda _warning: None) as api:
        late = wait_for_all(
            awaited, lambda one: api.get(*one), lambda item: item is not None and is_ready(item), seconds
        )
    if late:
        raise UnreachableError(f"after {seconds:g} s not everything is ready: {', '.join(late)}")


def _preview(item: dict[str, Any]) -> str:
    """Return the messages in the answer to a dry run, as the end of its sentence."""
    status = item.get("status") or {}
    found = [one for one in status.get("conditions", ()) if one.get("reason") not in (_ASKED, "Admitted")]
    messages = [one["message"] for one in found if one.get("message")]
    return f" (dry run{': ' if messages else ''}{'; '.join(dict.fromkeys(messages))})"


def import_files(
    addresses: Annotated[Path, typer.Argument(metavar="ADDRESSES", help="The developer's file, in JSON.")],
    space: Annotated[str, typer.Option("--space", "-s", metavar="NAME", help="The space that they get.")],
    flavors: Annotated[
        Path | None, typer.Option("--flavors", metavar="FILE", help="The operator's file, in JSON.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply what the files mean, instead of writing it as YAML.")
    ] = False,
    namespace: Namespace = None,
    data: Data = DEFAULT_DATA,
) -> None:
    """Turn a file of addresses, with its file of flavors, into a space, its plans and its addresses."""
    writer = Writer()
    resources = from_two_files(
        _read(addresses),
        None if flavors is None else _read(flavors),
        space=space,
        namespace=namespace or "default",
        sources=(str(addresses), str(flavors or "the flavors")),
    )
    documents = [resource.to_dict() for resource in resources]
    for document in documents:
        if group := document["metadata"].get("annotations", {}).get(GROUP):
            writer.warn(f"{document['spec']['address']}: group '{group}' is kept as an annotation, without effect")
    if apply:
        with ApiClient.find(data, warn=writer.warn) as api:
            write_results(writer, Output.TABLE, api.apply_all(documents, api.find_present(documents)))
        return
    write_structured(writer, "yaml", {"apiVersion": "v1", "kind": "List", "items": documents})


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise ManifestError(str(path), None, [Problem("", f"larger than {MAX_BYTES >> 20} MiB")])
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ManifestError(str(path), None, [Problem("", f"no JSON: {error}")]) from None
