"""Reading manifests from files, directories and standard input: all of them, or an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.model.schema.errors import ManifestError, Problem
from enmasse.model.schema.kinds import kind_of
from enmasse.model.schema.manifest import MAX_BYTES, in_order, load_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enmasse.model.schema.resource import Resource


_SUFFIXES = {".yaml", ".yml", ".json"}


def read_manifests(places: Sequence[str], namespace: str | None) -> list[Resource]:
    """Return all resources of all places, in the order in which they are best applied.

    The same object may stand in several files if it is the same in all of them.

    Args:
        places: files, directories, or ``-`` for standard input.
        namespace: for objects that name none; an object may not name another.

    Raises:
        NotFoundError: when a place does not exist.
        ManifestError: with everything that is wrong in any of them.
    """
    found: dict[tuple[str, str], tuple[Resource, str]] = {}
    wrong: list[ManifestError] = []
    for source, text in _texts(places):
        try:
            resources = load_manifest(text, source)
        except ManifestError as error:
            wrong.append(error)
            continue
        for loaded in resources:
            resource = _placed(loaded, namespace, source)
            key = (resource.kind, resource.key)
            if key in found and found[key][0] != resource:
                problem = Problem(
                    "", f"{resource.kind} {resource.metadata.name} is declared otherwise in {found[key][1]}"
                )
                raise ManifestError(source, None, [problem])
            found.setdefault(key, (resource, source))
    if wrong:
        raise ManifestError.joined(wrong)
    if not found:
        raise UsageError(f"there are no resources in {', '.join(places)}")
    return in_order(resource for resource, _ in found.values())


def _texts(places: Sequence[str]) -> list[tuple[str, str]]:
    texts = []
    for place in places:
        if place == "-":
            texts.append(("standard input", _decode(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")))
            continue
        path = Path(place)
        if path.is_dir():
            files = sorted(item for item in path.iterdir() if item.suffix in _SUFFIXES)
            if not files:
                raise NotFoundError(f"there is no {', '.join(sorted(_SUFFIXES))} file in directory {place}")
        else:
            files = [path]
        texts += [(str(item), _read(item)) for item in files]
    return texts


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _decode(file.read(MAX_BYTES + 1), str(path))
    except OSError as error:
        raise NotFoundError(f"{path} cannot be read: {error.strerror}") from None


def _decode(raw: bytes, source: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError(source, None, [Problem("", f"not UTF-8: {error}")]) from None


def _placed(resource: Resource, namespace: str | None, source: str) -> Resource:
    named = resource.metadata.namespace
    if named and namespace and named != namespace:
        problem = Problem("metadata.namespace", f"'{named}' contradicts --namespace {namespace}")
        raise ManifestError(source, None, [problem])
    kind = kind_of(resource)
    place = (named or namespace or kind.default_namespace) if kind.scope == "Namespaced" else ""
    metadata = resource.metadata.model_copy(update={"namespace": place})
    return resource.model_copy(update={"metadata": metadata})
