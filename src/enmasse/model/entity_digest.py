"""The digest of an entity's attributes: how control and a node see that they mean the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["entity_digest"]

_LETTERS = 16
_OWN = frozenset({"log", "home"})  # which log an address has is the node's affair; who moved it knows where


def entity_digest(attributes: Mapping[str, Any]) -> str:
    """Return the same few letters for the same attributes, whatever their order.

    Attributes that are None count as left out; those that only a node knows do not count.
    """
    told = {key: value for key, value in attributes.items() if value is not None and key not in _OWN}
    text = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_LETTERS]
