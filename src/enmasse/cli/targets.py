"""The objects that a command line names: ``KIND NAME...``, ``KIND/NAME...`` or kinds alone.

Rules:
1. ``queues,users`` are several kinds, of which all objects are meant; names cannot follow.
2. ``KIND/NAME`` names one object; where the first word is of that form, all are.
3. ``KIND NAME...`` names objects of one kind.

The space that is meant where none is named.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient, parse_kind
from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.cli.options import DEFAULT_DATA, complete_kinds
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import ADDRESS_SPACE, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.api_client import Document
    from enmasse.model.schema.kinds import Kind


@dataclass(frozen=True, slots=True)
class Target:
    """A kind, and the name of one object of it; no name stands for all of them."""

    kind: Kind
    name: str | None = None


def parse_targets(words: Sequence[str]) -> list[Target]:
    """Return what the words of a command line name.

    Raises:
        UsageError: when a kind does not exist, or the words do not fit together.
    """
    if "/" in words[0]:
        return [_parse_pair(word) for word in words]
    kinds = [parse_kind(name) for name in words[0].split(",") if name]
    if not kinds:
        raise UsageError("name a kind, such as addresses")
    names = words[1:]
    if len(kinds) > 1 and names:
        raise UsageError(f"names cannot follow several kinds; write them as {kinds[0].singular}/{names[0]}")
    return [Target(kinds[0], name) for name in names] or [Target(kind) for kind in kinds]


def _parse_pair(word: str) -> Target:
    # The name of an address may have slashes of its own.
    kind, separator, name = word.partition("/")
    if not (kind and separator and name):
        raise UsageError(
            f"expected KIND/NAME, such as address/shop.orders, got '{word}'; the other words are of that form"
        )
    return Target(parse_kind(kind), name)


def complete_targets(context: typer.Context, incomplete: str) -> list[str]:
    """Return the completions: kinds, or names of a kind's objects; none where the API does not answer."""
    words: list[str] = [word for word in context.params.get("targets") or () if word]
    if words and "/" not in words[0]:
        return _names(context, words[0], incomplete)
    kind, separator, begin = incomplete.partition("/")
    if separator:
        return [f"{kind}/{name}" for name in _names(context, kind, begin)]
    before, comma, begin = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_kinds(begin)]


def _names(context: typer.Context, kind_name: str, begin: str) -> list[str]:
    namespace, space = context.params.get("namespace"), context.params.get("space")
    data = Path(context.params.get("data") or os.environ.get("ENMASSE_DATA") or DEFAULT_DATA)
    try:
        kind = parse_kind(kind_name)
        with ApiClient.find(data, warn=lambda _warning: None) as api:
            items = api.select(kind, namespace or kind.default_namespace)
    except EnmasseError:
        return []
    if space:
        items = [item for item in items if item["metadata"]["name"].startswith(f"{space}.")]
    called = kind.called
    names = [item["metadata"]["name"] for item in items]
    names += [str(item["spec"][called]) for item in items if called and called in item["spec"]]
    return sorted({name for name in names if name.startswith(begin)})


def only_space(api: ApiClient, namespace: str) -> str:
    """Return the name of the only space of a namespace.

    Raises:
        NotFoundError: when there is none.
        UsageError: when there are several.
    """
    kind = ADDRESS_SPACE
    names: list[str] = [item["metadata"]["name"] for item in api.select(kind, namespace)]
    if not names:
        raise NotFoundError(
            f"there is no address space in namespace {namespace} yet: create one with `enmasse create space NAME`"
        )
    if len(names) > 1:
        raise UsageError(f"there are several address spaces, name one with --space: {', '.join(names)}")
    return names[0]


PipelineName = Annotated[str, typer.Argument(metavar="NAME", help="Of the pipeline, with or without its space.")]


def find_pipeline(api: ApiClient, name: str, space: str | None, namespace: str | None) -> Document:
    """Return the pipeline that a user means.

    Raises:
        NotFoundError: there is none.
        UsageError: there are several.
    """
    kind = PIPELINE
    place = namespace or kind.default_namespace
    if "." in name and (exact := api.find_object(kind, place, name)) is not None:
        return exact
    items = api.select(kind, place)
    ours = [item for item in items if space is None or item["metadata"]["name"].startswith(f"{space}.")]
    found = [item for item in ours if item["metadata"]["name"].partition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(item["metadata"]["name"] for item in (found or items)[:10])
    if found:
        raise UsageError(f"pipeline {name} exists in several spaces: name one with --space, or give one of {names}")
    there = f"there are {names}" if names else "there is none at all"
    raise NotFoundError(f"there is no pipeline '{name}' in namespace {place}; {there}")
