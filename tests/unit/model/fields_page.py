"""Writes ``docs/reference/fields.md``: run ``python -m tests.unit.model.fields_page``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from enmasse.model.schema.kinds import KINDS, Kind
from enmasse.model.schema.objects import class_of
from enmasse.model.schema.openapi import kind_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "fields.md"

_HEAD = """\
# Fields of the resources

Every kind and every field, made from the classes by `python -m tests.unit.model.fields_page`; a test sees to it
that it is fresh. What the kinds mean together, and what a status says, is in [resources](resources.md).
`kubectl explain` tells the same.

`[]` is a list, `{}` a map with names of your own. What is fixed cannot change in an object's life.
*Required* fields are so where the part they belong to is given.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for kind in KINDS for line in _section(kind))])


def _section(kind: Kind) -> Iterator[str]:
    schema = kind_schema(kind, kind.version)
    yield f"## {kind.name}\n"
    yield f"{schema['description'].partition(chr(10))[0]}\n"
    names = ", ".join(f"`{name}`" for name in (kind.plural, *kind.short_names))
    place = "in namespaces" if kind.scope == "Namespaced" else "of the whole installation"
    versions = " and ".join(f"`{version}`" for version in kind.api_versions)
    read_only = "; only the service writes it" if kind.is_read_only else ""
    yield f"{versions}; {names}; {place}{read_only}.\n"
    yield "| field | | |"
    yield "|---|---|---|"
    for name, part in schema["properties"].items():
        if name in ("apiVersion", "kind", "metadata"):
            continue
        for path, field, is_required in _fields(part, name, name in schema["required"]):
            fixed = ["fixed"] if path.removeprefix("spec.") in class_of(kind).immutable else []
            facts = "; ".join([*_facts(field), *(["*required*"] if is_required else []), *fixed])
            text = " ".join(field.get("description", "").split()).replace("|", "\\|")
            yield f"| `{path}` | {facts} | {text} |"
    yield ""


def _fields(part: dict[str, Any], path: str, is_required: bool) -> Iterator[tuple[str, dict[str, Any], bool]]:
    is_top = path in ("spec", "status")
    if not is_top:
        yield path, part, is_required
    inner, suffix = part, ""
    while inner.get("type") == "array" or isinstance(inner.get("additionalProperties"), dict):
        suffix += "[]" if inner["type"] == "array" else "{}"
        inner = inner["items"] if inner["type"] == "array" else inner["additionalProperties"]
    for name, field in inner.get("properties", {}).items():
        yield from _fields(field, f"{path}{suffix}.{name}", name in inner.get("required", ()))


def _facts(field: dict[str, Any]) -> Iterator[str]:
    inner = field
    while "items" in inner:
        inner = inner["items"]
    if "enum" in inner:
        yield ", ".join(f"`{value}`" for value in inner["enum"])
    elif inner.get("x-kubernetes-int-or-string"):
        yield "number or text"
    elif isinstance(inner.get("additionalProperties"), dict):
        yield "map"
    elif "properties" not in inner:
        names = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
        yield names.get(inner["type"], "map of anything")
    if "x-kubernetes-list-map-keys" in field:
        yield f"told apart by {', '.join(f'`{key}`' for key in field['x-kubernetes-list-map-keys'])}"
    bounds = [f"at least {field['minimum']:,}"] if "minimum" in field else []
    if field.get("maximum", 1 << 62) < 1 << 62:
        bounds.append(f"at most {field['maximum']:,}")
    yield from bounds
    if "default" in field:
        shown = str(field["default"]).lower() if isinstance(field["default"], bool) else field["default"]
        yield f"default `{shown}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
