"""Options that several commands have, in one wording."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from enmasse.cli.node_options import written
from enmasse.model.schema.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable


DEFAULT_DATA = Path(".enmasse")


class Output(StrEnum):
    """The forms in which objects are written."""

    TABLE = "table"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"
    NAME = "name"


class StructuredOutput(StrEnum):
    """The forms in which results are written that are no objects."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


class LogFormatChoice(StrEnum):
    """The forms in which lines of a log are written."""

    TEXT = "text"
    JSON = "json"


def complete_kinds(incomplete: str) -> list[str]:
    """Return the names of kinds that begin so."""
    names = [name for kind in KINDS for name in (kind.plural, *kind.short_names)]
    return [name for name in names if name.startswith(incomplete)]


def complete_types(incomplete: str) -> list[str]:
    """Return the address types that begin so."""
    from enmasse.model.kinds.address_settings import ADDRESS_TYPES  # noqa: PLC0415  a shell asks; no command waits for it

    return [name for name in ADDRESS_TYPES if name.startswith(incomplete)]


Data = Annotated[
    Path,
    typer.Option(
        "--data",
        envvar="ENMASSE_DATA",
        metavar="DIR",
        help="Data directory of the installation.",
        file_okay=False,
        readable=False,  # the command itself reports what is wrong, in one sentence
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
User = Annotated[
    str | None,
    typer.Option(
        "--user",
        "-u",
        metavar="NAME",
        help="Who you are, else ENMASSE_USER; the password is ENMASSE_PASSWORD, or is asked for.",
    ),
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


def arguments_of(command: Callable[..., None], **given: Any) -> tuple[str, ...]:
    """Return options as a command takes them on its command line; what has no value is left out.

    Args:
        command: its parameters are declared with ``typer.Option``.
        given: some of them, by name; paths become absolute.
    """
    hints = get_type_hints(command, include_extras=True)
    found: list[str] = []
    for name, value in given.items():
        option = next(item for item in hints[name].__metadata__ if isinstance(item, OptionInfo))
        # In an annotation the first of typer's arguments, else the default, is a declaration as well.
        flag = next(word for word in (option.default, *(option.param_decls or ())) if str(word).startswith("--"))
        found += written(str(flag), value)
    return tuple(found)
