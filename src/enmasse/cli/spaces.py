"""The space that is meant where none is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.cli.errors import NotFoundError, UsageError
from enmasse.model.kinds import kind_named

if TYPE_CHECKING:
    from enmasse.cli.api_client import ApiClient

__all__ = ["only_space"]


def only_space(api: ApiClient, namespace: str) -> str:
    """Return the name of the only space of a namespace.

    Raises:
        NotFoundError: when there is none.
        UsageError: when there are several.
    """
    kind = kind_named("space")
    assert kind is not None
    names: list[str] = [item["metadata"]["name"] for item in api.select(kind, namespace)]
    if not names:
        raise NotFoundError(
            f"there is no address space in namespace {namespace} yet: create one with `enmasse create space NAME`"
        )
    if len(names) > 1:
        raise UsageError(f"there are several address spaces, name one with --space: {', '.join(names)}")
    return names[0]
