"""What a user may do: operations on address patterns. What nothing allows is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["ADDRESS_OPERATIONS", "ALL", "OPERATIONS", "RECV", "SEND", "Grant", "MatcherOf", "Permissions"]

SEND, RECV, VIEW, MANAGE, ALL = "send", "recv", "view", "manage", "all"

OPERATIONS = (SEND, RECV, VIEW, MANAGE, ALL)

ADDRESS_OPERATIONS = frozenset({SEND, RECV, ALL})
"""Those that mean nothing without addresses; the others are about the whole space."""

MatcherOf = Callable[[str], Callable[[str], bool]]
"""From a pattern's text to whether an address lies within it."""


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
    """

    __slots__ = ("_matchers", "_operations", "grants")

    def __init__(self, grants: Sequence[Grant], matcher_of: MatcherOf) -> None:
        self.grants = tuple(grants)
        self._operations = frozenset(operation for grant in grants for operation in grant.operations)
        self._matchers = {
            operation: tuple(
                matcher_of(pattern)
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
