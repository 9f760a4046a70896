"""The grammar of permissions' patterns, as a node's users have them."""

from __future__ import annotations

from collections.abc import Callable

from enmasse.messaging.patterns import covers, parse_permission

__all__ = ["matcher_of"]


def matcher_of(text: str, user: str = "") -> Callable[[str], bool]:
    """Whether an address, or everything that a pattern stands for, lies within the pattern of a user's permission."""
    pattern = parse_permission(text, user)
    # What begins so belongs to the node itself: who may go there is another question.
    return lambda name: not name.startswith("$") and covers(pattern, name)
