"""Options that several commands have, in one wording."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from enmasse.model.addresses import ADDRESS_TYPES
from enmasse.model.kinds import KINDS

__all__ = [
    "DEFAULT_DATA",
    "AllNamespaces",
    "Data",
    "Files",
    "KindName",
    "Labels",
    "LogFormat",
    "LogFormatChoice",
    "MessageSelector",
    "Namespace",
    "Output",
    "OutputChoice",
    "Properties",
    "Space",
    "StructuredChoice",
    "StructuredOutput",
    "complete_kinds",
    "complete_types",
]

DEFAULT_DATA = Path(".enmasse")


class Output(StrEnum):
    """How objects are written."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


class StructuredOutput(StrEnum):
    """How anything that is no object is written."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


class LogFormatChoice(StrEnum):
    """How lines of a log are written."""

    TEXT = "text"
    JSON = "json"


def complete_kinds(incomplete: str) -> list[str]:
    """Return the names of kinds that begin so."""
    names = [name for kind in KINDS for name in (kind.plural, *kind.short_names)]
    return [name for name in names if name.startswith(incomplete)]


def complete_types(incomplete: str) -> list[str]:
    """Return the address types that begin so."""
    return [name for name in ADDRESS_TYPES if name.startswith(incomplete)]


Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="ENMASSE_DATA",
        metavar="DIR",
        help="Data directory of the installation.",
        file_okay=False,
        readable=False,  # whoever uses it says in one sentence what is wrong
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", metavar="NS", help="Namespace; plans are in 'enmasse-infra', all else 'default'."
    ),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In every namespace.")]
Space = Annotated[
    str | None,
    typer.Option("--space", "-s", metavar="NAME", help="Address space; may be left out if there is only one."),
]
Labels = Annotated[str, typer.Option("--selector", "-l", metavar="LABELS", help="Only objects with these labels.")]
MessageSelector = Annotated[
    str | None,
    typer.Option("--selector", metavar="EXPRESSION", help="Only messages such as \"colour = 'red' AND size > 3\"."),
]
OutputChoice = Annotated[Output, typer.Option("--output", "-o", help="Form of the output.")]
StructuredChoice = Annotated[StructuredOutput, typer.Option("--output", "-o", help="Form of the output.")]
LogFormat = Annotated[LogFormatChoice, typer.Option("--log-format", help="How each line of the log is written.")]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        "-p",
        metavar="KEY=TEXT|KEY:=JSON",
        help="Application property: a text, a number or true or false.",
    ),
]
Files = Annotated[
    list[str],
    typer.Option(
        "--filename", "-f", metavar="FILE|DIR|-", help="YAML or JSON; a directory's files; - for standard input."
    ),
]
KindName = Annotated[
    str,
    typer.Argument(metavar="KIND", help="spaces, addresses, plans or spaceplans.", autocompletion=complete_kinds),
]
