"""``enmasse import``: the two files of 2016 as objects of today."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import NotFoundError
from enmasse.cli.objects import write_results
from enmasse.cli.options import DEFAULT_DATA, Data, Namespace, Output
from enmasse.cli.output import Writer, write_structured
from enmasse.model.documents import MAX_BYTES
from enmasse.model.errors import ManifestError, Problem
from enmasse.model.two_files import GROUP, from_two_files

__all__ = ["import_files"]


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
            write_results(writer, Output.TABLE, api.apply_all(documents))
        return
    write_structured(writer.out, "yaml", {"apiVersion": "v1", "kind": "List", "items": documents})


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
