"""What a user may do: operations on address patterns. What nothing allows is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = [
    "ADDRESS_OPERATIONS",
    "ALL",
    "MANAGE",
    "OPERATIONS",
    "RECV",
    "SEND",
    "VIEW",
    "Grant",
    "MatcherOf",
    "Permissions",
    "pattern_problem",
]

SEND, RECV, VIEW, MANAGE, ALL = "send", "recv", "view", "manage", "all"

OPERATIONS = (SEND, RECV, VIEW, MANAGE, ALL)

ADDRESS_OPERATIONS = frozenset({SEND, RECV, ALL})
"""Those that mean nothing without addresses; the others are about the whole space."""

MatcherOf = Callable[[str, str], Callable[[str], bool]]
"""From a pattern's text and its user's name to whether an address lies within it."""


MAX_PATTERN_LENGTH = 1_024

_USER = "${username}"
_WILDCARDS = frozenset({"*", "#"})


def pattern_problem(text: str) -> str | None:
    """What is wrong with a pattern of addresses, or nothing."""
    if len(text) > MAX_PATTERN_LENGTH:
        return f"a pattern has at most {MAX_PATTERN_LENGTH} characters"
    words = text.split("/")
    whole = [word for word in words[:-1] if word not in _WILDCARDS]
    if words[-1] not in _WILDCARDS:
        whole.append(words[-1].removesuffix("*"))
        if words[-1].endswith("*") and _USER in words[-1]:
            return f"in {text!r} a wildcard follows the user's name, and would reach all names that begin with it"
    if any("*" in word or "#" in word for word in whole):
        return (
            f"in {text!r} a wildcard is part of a word; '*' stands for one whole word between slashes, '#' for any "
            "number of them, as in 'orders/#', and only at the very end '*' stands for all that begins so, "
            "as in 'order*'"
        )
    return None


@dataclass(frozen=True, slots=True)
class Grant:
    """Some operations on some addresses.

    Attributes:
        operations: of ``OPERATIONS``.
        addresses: patterns; of no meaning for ``view`` and ``manage``.
    """

    operations: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class Permissions:
    """All that a user was granted.

    Args:
        grants: what is allowed.
        matcher_of: understands the patterns.
        user: the name of the user who has them, for patterns that ask for it.
    """

    __slots__ = ("_matchers", "_operations", "grants")

    def __init__(self, grants: Sequence[Grant], matcher_of: MatcherOf, user: str = "") -> None:
        self.grants = tuple(grants)
        self._operations = frozenset(operation for grant in grants for operation in grant.operations)
        self._matchers = {
            operation: tuple(
                matcher_of(pattern, user)
                for grant in grants
                if operation in grant.operations or ALL in grant.operations
                for pattern in grant.addresses
            )
            for operation in (SEND, RECV)
        }

    def allow(self, operation: str, address: str) -> bool:
        """Whether ``SEND`` or ``RECV`` is granted on an address, or on everything that a pattern stands for."""
        return any(is_within(address) for is_within in self._matchers[operation])

    def allow_any(self, operation: str) -> bool:
        """Whether an operation is granted on anything at all."""
        return operation in self._operations or ALL in self._operations
