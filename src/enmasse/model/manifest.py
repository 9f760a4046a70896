"""From the text of a file to the resources that it declares, all of them or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from enmasse.model.documents import read_documents
from enmasse.model.errors import InvalidResourceError, ManifestError, Problem
from enmasse.model.kinds import KINDS, decode, kind_of
from enmasse.model.schema import describe_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.model.resource import Resource

__all__ = ["in_order", "load_manifest"]


def load_manifest(text: str, source: str) -> list[Resource]:
    """Return the resources of a YAML or JSON text; a ``List`` stands for its items.

    Args:
        text: the whole file; several YAML documents are divided by ``---``.
        source: the file's name, for messages.

    Raises:
        ManifestError: naming file, document and path of everything that is
            wrong in the first document that is wrong.
    """
    resources: list[Resource] = []
    for number, document in enumerate(read_documents(text, source), start=1):
        if document is None:
            continue  # nothing but comments between two `---`
        for path, item in _items(document, source, number):
            try:
                resources.append(decode(item))
            except InvalidResourceError as error:
                raise ManifestError(source, number, _below(path, error.problems)) from None
    return resources


def in_order(resources: Iterable[Resource]) -> list[Resource]:
    """Return resources in the order in which they are best applied: spaces before addresses."""
    rank = {kind.name: index for index, kind in enumerate(KINDS)}
    return sorted(resources, key=lambda resource: rank[kind_of(resource).name])


def _items(document: Any, source: str, number: int) -> list[tuple[str, Any]]:
    """Return the objects of a document with their paths in it."""
    if not isinstance(document, dict) or not _is_list(document.get("kind")):
        return [("", document)]
    items = document.get("items")
    if not isinstance(items, list):
        problem = Problem("items", f"expected a list, got {describe_value(items)}")
        raise ManifestError(source, number, [problem])
    return [(f"items[{index}]", item) for index, item in enumerate(items)]


def _is_list(kind: Any) -> bool:
    return kind == "List" or kind in {f"{known.name}List" for known in KINDS}


def _below(path: str, problems: Iterable[Problem]) -> list[Problem]:
    if not path:
        return list(problems)
    return [Problem(f"{path}.{item.path}" if item.path else path, item.message) for item in problems]
