"""The grammar of patterns of addresses, as permissions of a node's users and connectors have them."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.messaging.patterns import MAX_WORDS, USER, covers, parse_permission
from enmasse.model.schema.names import is_own


def matcher_of(text: str, user: str = "") -> Callable[[str], bool]:
    """Return a function that tests if an address, or all that a pattern covers, is within a permission's pattern."""
    pattern = parse_permission(text, user)
    if not text.startswith("$") or text.startswith(USER):
        return lambda name: not name.startswith("$") and name.count("/") < MAX_WORDS and covers(pattern, name)
    # Only a pattern that begins so stands for names with a dollar sign; the node's own have rules of their own.
    return lambda name: (
        name.startswith("$") and not is_own(name) and name.count("/") < MAX_WORDS and covers(pattern, name)
    )


def reach_of(text: str) -> Callable[[str], bool]:
    """Return a function that tests if an address of another container is within a connector's pattern."""
    pattern = parse_permission(text, "")
    # Addresses with a dollar sign are the other container's own: only a pattern that begins so stands for any.
    is_own = text.startswith("$")
    return lambda name: name.startswith("$") == is_own and name.count("/") < MAX_WORDS and covers(pattern, name)
