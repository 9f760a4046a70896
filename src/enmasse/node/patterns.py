"""The grammar of permissions' patterns, as a node's users have them."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.messaging.patterns import MAX_WORDS, covers, parse_permission


def matcher_of(text: str, user: str = "") -> Callable[[str], bool]:
    """Return a function that tests if an address, or all that a pattern covers, is within a permission's pattern."""
    pattern = parse_permission(text, user)
    # Addresses with a dollar sign are the node's own, with rules of their own; no address has more words.
    return lambda name: not name.startswith("$") and name.count("/") < MAX_WORDS and covers(pattern, name)
