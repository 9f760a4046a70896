"""What the lists of each kind are for those who merge and apply: keyed, sets, or one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enmasse.model.kinds import kind_named
from enmasse.model.openapi import list_keys

if TYPE_CHECKING:
    from enmasse.control.field_sets import ListType

__all__ = ["list_type_of"]


def list_type_of(kind: str) -> ListType:
    """Return what tells of the lists of a kind."""
    known = kind_named(kind)
    assert known is not None
    return list_keys(known)
