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
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enmasse.cli.api_client import ApiClient, parse_kind
from enmasse.cli.errors import ApiError, NotFoundError, UsageError
from enmasse.cli.options import DEFAULT_DATA, complete_kinds
from enmasse.errors import EnmasseError
from enmasse.model.schema.kinds import ADDRESS, ADDRESS_SPACE, PIPELINE
from enmasse.model.schema.names import by_claim, space_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.cli.api_client import Document
    from enmasse.model.schema.kinds import Kind


_FORBIDDEN = 403  # HTTP


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
    items = [item for item in items if is_in(item, space)]
    called = kind.called
    names = [item["metadata"]["name"] for item in items]
    names += [str(item["spec"][called]) for item in items if called and called in item["spec"]]
    return sorted({name for name in names if name.startswith(begin)})


def find_space(api: ApiClient, namespace: str, named: str | None) -> str:
    """Return the name of the space that is meant: the one that is named, else the only one of the namespace.

    Raises:
        NotFoundError: when it is not there, or none is.
        UsageError: when none is named, and there are several.
    """
    if named is not None and is_there(api, namespace, named):
        return named
    names: list[str] = [item["metadata"]["name"] for item in api.select(ADDRESS_SPACE, namespace)]
    if named is not None:
        raise NotFoundError(f"there is no address space '{named}' in namespace {namespace}; {_instead(named, names)}")
    if not names:
        raise NotFoundError(
            f"there is no address space in namespace {namespace} yet: create one with `enmasse create space NAME`"
        )
    if len(names) > 1:
        raise UsageError(f"there are several address spaces, name one with --space: {', '.join(names)}")
    return names[0]


def is_there(api: ApiClient, namespace: str, space: str) -> bool:
    """Return whether a space is there, as far as who asks may see it: what is then done tells more."""
    try:
        return api.find_object(ADDRESS_SPACE, namespace, space) is not None
    except ApiError as error:
        if error.status != _FORBIDDEN:
            raise
        return True


def _instead(named: str, names: Sequence[str]) -> str:
    if close := get_close_matches(named, names, n=1):
        return f"did you mean {close[0]}?"
    return f"there are {', '.join(sorted(names)[:10])}" if names else "create it with `enmasse create space NAME`"


def find_certain(
    api: ApiClient, kind: Kind, namespace: str, name: str, space: str | None, *, is_only: bool = False
) -> Document:
    """Return the object that something is done to for good, as ``find`` does: none is chosen among several spaces.

    Raises:
        NotFoundError: when it is not there, or the space is not.
        UsageError: when there are several spaces and none is named, by an option or in the name of the object, or
            when the space has several of these.
    """
    if space is None and kind.is_in_space and api.find_object(kind, namespace, name) is None:
        space = find_space(api, namespace, None)
    return find(api, kind, namespace, name, space, is_only=is_only)


def find(
    api: ApiClient, kind: Kind, namespace: str, name: str, space: str | None = None, *, is_only: bool = False
) -> Document:
    """Return the object that a user means: by its name, an address or a user also by what it is called.

    Of several declarations of one address in one space that is meant which is served, unless ``is_only``.

    Raises:
        NotFoundError: when it is not there, or the space is not.
        UsageError: when there are several.
    """
    if not kind.is_in_space:
        space = None
    if (exact := api.find_object(kind, namespace, name)) is not None and is_in(exact, space):
        return exact
    items = [item for item in api.select(kind, namespace) if is_in(item, space)]
    called = kind.called
    found = [item for item in items if called and item["spec"].get(called) == name]
    found = found or [item for item in items if space is not None and item["metadata"]["name"] == f"{space}.{name}"]
    spaces = {space_of(item["metadata"]["name"]) for item in found}
    if len(found) == 1 or (len(spaces) == 1 and kind is ADDRESS and not is_only):
        return by_claim(found)[0]
    names = ", ".join(item["metadata"]["name"] for item in found or items[:10])
    if len(spaces) == 1:
        raise UsageError(f"{called} {name} is declared several times: give one of {names}")
    if found:
        raise UsageError(f"{called} {name} exists in several spaces: name one with --space, or give one of {names}")
    if space is not None:
        find_space(api, namespace, space)
    where = f"namespace {namespace}" if space is None else f"space {space} of namespace {namespace}"
    there = f"there are {names}" if names else "there is none at all"
    raise NotFoundError(f"there is no {kind.name} '{name}' in {where}; {there}")


def is_in(item: Document, space: str | None) -> bool:
    """Return whether an object is of a space, by its name; None is every space."""
    return space is None or bool(item["metadata"]["name"].startswith(f"{space}."))


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
    items = [item for item in api.select(kind, place) if is_in(item, space)]
    found = [item for item in items if item["metadata"]["name"].partition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(item["metadata"]["name"] for item in (found or items)[:10])
    if found:
        raise UsageError(f"pipeline {name} exists in several spaces: name one with --space, or give one of {names}")
    if space is not None:
        find_space(api, place, space)
    there = f"there are {names}" if names else "there is none at all"
    raise NotFoundError(f"there is no pipeline '{name}' in namespace {place}; {there}")
