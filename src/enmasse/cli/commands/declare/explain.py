"""``enmasse explain``: what the fields of a kind mean.

`enmasse kube`: what a Kubernetes cluster needs to know of us.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from enmasse.cli.api_client import parse_kind
from enmasse.cli.errors import NotFoundError
from enmasse.cli.output import Writer
from enmasse.model.crd import crds, file_name
from enmasse.model.schema.openapi import kind_schema

if TYPE_CHECKING:
    from enmasse.model.schema.openapi import Schema

_WIDTH = 100


def explain(
    path: Annotated[
        str, typer.Argument(metavar="KIND[.FIELD...]", help="Such as address, or address.spec.messageTtl.")
    ],
    recursive: Annotated[
        bool, typer.Option("--recursive", help="The names of all fields below, without texts.")
    ] = False,
) -> None:
    """Show what the fields of a kind mean. Nothing needs to be running for it."""
    writer = Writer()
    kind_name, *fields = path.split(".")
    kind = parse_kind(kind_name)
    schema = kind_schema(kind, kind.version)
    for index, field in enumerate(fields):
        below = _inside(schema).get("properties", {})
        if field not in below:
            where = ".".join((kind_name, *fields[:index]))
            there = f"there are {', '.join(below)}" if below else "it has no fields"
            raise NotFoundError(f"{where} has no field '{field}'; {there}")
        schema = below[field]
    writer.say(f"KIND:     {kind.name}\nVERSION:  {kind.api_version}")
    if fields:
        writer.say(f"FIELD:    {fields[-1]} <{_type_of(schema)}>")
    text = schema.get("description", "")
    if text:
        writer.say("\nDESCRIPTION:\n" + textwrap.indent(textwrap.fill(text, _WIDTH), "  "))
    for line in _choices(schema):
        writer.say(f"  {line}")
    if _inside(schema).get("properties"):
        writer.say("\nFIELDS:")
        _say_fields(writer, schema, "  ", recursive)


def _say_fields(writer: Writer, schema: Schema, indent: str, recursive: bool) -> None:
    inside = _inside(schema)
    for name, field in inside.get("properties", {}).items():
        needed = " -required-" if name in inside.get("required", ()) else ""
        writer.say(f"{indent}{name} <{_type_of(field)}>{needed}")
        if recursive:
            _say_fields(writer, field, indent + "  ", recursive)
            continue
        text = " ".join((field.get("description", ""), *_choices(field))).strip()
        if text:
            writer.say(textwrap.indent(textwrap.fill(text, _WIDTH), indent + "  "))


def _inside(schema: Schema) -> Schema:
    """Return the schema of what a list holds, or the schema itself."""
    while "items" in schema:
        schema = schema["items"]
    return schema


def _type_of(schema: Schema) -> str:
    if "items" in schema:
        return f"[]{_type_of(schema['items'])}"
    if isinstance(more := schema.get("additionalProperties"), dict):
        return f"map[string]{_type_of(more)}"
    return {"object": "Object"}.get(kind := str(schema.get("type", "any")), kind)


def _choices(schema: Schema) -> list[str]:
    return [f"One of {', '.join(str(item) for item in schema['enum'])}."] if "enum" in schema else []


kube = typer.Typer(no_args_is_help=True, help="Write what a Kubernetes cluster needs to know of EnMasse.")

_CRD_HEAD = "# Made from the classes by `enmasse kube crds --to deploy/crds`.\n"
_YAML_WIDTH = 120


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
    return _CRD_HEAD + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=_YAML_WIDTH, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes what occurs twice twice: a definition has no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True
