"""Permissions of a user: operations on address patterns. An operation that no grant allows is refused."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

SEND, RECV, VIEW, MANAGE, ALL = "send", "recv", "view", "manage", "all"

OPERATIONS = (SEND, RECV, VIEW, MANAGE, ALL)

ADDRESS_OPERATIONS = frozenset({SEND, RECV, ALL})
"""Operations on addresses; the others apply to the whole space."""

MatcherOf = Callable[..., Callable[[str], bool]]
"""Compiles a pattern for a user's name, and for a ``client``'s where it is asked for; the result tests whether an
address matches."""


MAX_PATTERN_LENGTH = 1_024

_VARIABLES = ("${username}", "%u", "%c")

_CLIENT = "%c"
_WILDCARDS = frozenset({"*", "+", "#"})


def pattern_problem(text: str) -> str | None:
    """Return why a pattern of addresses is invalid, or None."""
    if len(text) > MAX_PATTERN_LENGTH:
        return f"a pattern has at most {MAX_PATTERN_LENGTH} characters"
    words = text.split("/")
    whole = [word for word in words[:-1] if word not in _WILDCARDS]
    if words[-1] not in _WILDCARDS:
        whole.append(words[-1].removesuffix("*"))
        if words[-1].endswith("*") and any(name in words[-1] for name in _VARIABLES):
            return f"in {text!r} a wildcard follows a name, and would reach all names that begin with it"
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
        addresses: patterns; ignored for ``view`` and ``manage``.
    """

    operations: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class Permissions:
    """All grants of a user.

    Args:
        grants: the allowed operations.
        matcher_of: compiles the patterns.
        user: the name of the user, for patterns that contain it.
    """

    __slots__ = ("_matcher_of", "_matchers", "_names_client", "_operations", "_user", "grants")

    def __init__(self, grants: Sequence[Grant], matcher_of: MatcherOf, user: str = "") -> None:
        self.grants = tuple(grants)
        self._matcher_of = matcher_of
        self._user = user
        self._names_client = any(_CLIENT in pattern for grant in grants for pattern in grant.addresses)
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

    def of_client(self, client: str) -> Permissions:
        """Return the permissions as they are for a client, of whose name for itself some patterns may be."""
        if not self._names_client or not client:
            return self
        return Permissions(self.grants, partial(self._matcher_of, client=client), self._user)

    def allow(self, operation: str, address: str) -> bool:
        """Return whether ``SEND`` or ``RECV`` is granted on an address, or on everything that a pattern matches."""
        return any(is_within(address) for is_within in self._matchers[operation])

    def patterns(self, operation: str) -> Iterator[str]:
        """Iterate over the patterns of addresses on which ``SEND`` or ``RECV`` is granted."""
        for grant in self.grants:
            if operation in grant.operations or ALL in grant.operations:
                yield from grant.addresses

    def cover(self, operation: str, address: str, connectors: Container[str]) -> bool:
        """Return ``allow`` of a space's own addresses; of others, whether patterns that name the connector cover it.

        Patterns for everything were given for what is the space's own.

        Args:
            operation: ``SEND`` or ``RECV``.
            address: the address.
            connectors: the first words of addresses that lead to other containers.
        """
        first = address.partition("/")[0]
        if first not in connectors:
            return self.allow(operation, address)
        return any(
            pattern.partition("/")[0] == first and self._matcher_of(pattern, self._user)(address)
            for grant in self.grants
            if operation in grant.operations or ALL in grant.operations
            for pattern in grant.addresses
        )

    def name(self, connector: str) -> bool:
        """Return whether anything is granted that names a connector, by the first word of a pattern."""
        return any(
            pattern.partition("/")[0] == connector
            for grant in self.grants
            if not ADDRESS_OPERATIONS.isdisjoint(grant.operations)
            for pattern in grant.addresses
        )

    def allow_any(self, operation: str) -> bool:
        """Return whether an operation is granted on any address."""
        return operation in self._operations or ALL in self._operations
