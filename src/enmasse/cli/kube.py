"""`enmasse kube`: what a Kubernetes cluster needs to know of us."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from enmasse.cli.errors import NotFoundError
from enmasse.cli.output import Writer
from enmasse.model.crd import crds, file_name

__all__ = ["kube", "written_crd"]

kube = typer.Typer(no_args_is_help=True, help="Write what a Kubernetes cluster needs to know of EnMasse.")

_HEAD = "# Made from the classes by `enmasse kube crds --to deploy/crds`.\n"
_WIDTH = 120


@kube.callback()
def _kube() -> None:
    """Keep the commands below their own name, as long as there is only one."""


@kube.command("crds")
def crds_command(
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write a file for each kind there, instead of all to the output."),
    ] = None,
) -> None:
    """Write the CustomResourceDefinitions of all kinds: `enmasse kube crds | kubectl apply -f -`."""
    writer = Writer()
    found = crds()
    if to is None:
        writer.out.file.write("---\n".join(written_crd(definition) for definition in found))
        return
    try:
        to.mkdir(parents=True, exist_ok=True)
        for definition in found:
            (to / file_name(definition)).write_text(written_crd(definition), encoding="utf-8")
    except OSError as error:
        raise NotFoundError(f"{to} cannot be written: {error.strerror}") from None
    writer.say(f"{len(found)} definitions written to {to}")


def written_crd(definition: dict[str, object]) -> str:
    """Return a definition as YAML, with a line on where it comes from."""
    return _HEAD + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice twice: a definition has no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True
