"""``enmasse apply``: make what is declared in files be so."""

from __future__ import annotations

from typing import Annotated

import typer

from enmasse.cli.api_client import ApiClient
from enmasse.cli.errors import ApiError
from enmasse.cli.manifests import read_manifests
from enmasse.cli.objects import write_results
from enmasse.cli.options import DEFAULT_DATA, Data, Files, Namespace, Output, OutputChoice
from enmasse.cli.output import Writer

__all__ = ["apply"]


def apply(
    files: Files,
    namespace: Namespace = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, but change nothing.")] = False,
    output: OutputChoice = Output.TABLE,
    data: Data = DEFAULT_DATA,
) -> None:
    """Create or change objects as files declare them.

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
    write_results(writer, output, [(item, f"{what} (dry run)" if dry_run else what) for item, what in results])
