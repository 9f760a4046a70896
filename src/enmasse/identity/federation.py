"""From whom a provider vouches for to a user of a space, and to what that one may do there.

Rules:
1. A MessagingUser of the same name decides alone: whoever takes a right away from it takes it away at once.
2. Where there is none, the groups and scopes of the token count, as far as the settings say so.
3. Whoever has no right at all stays out.
"""

from __future__ import annotations

from enmasse.errors import EnmasseError
from enmasse.identity.keycloak import grant_of_group
from enmasse.identity.oidc import Identity
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.identity.permissions import Grant, MatcherOf, Permissions
from enmasse.identity.users import User

__all__ = ["claimed_grants", "federated_user"]


def claimed_grants(identity: Identity, settings: OidcSettings) -> tuple[Grant, ...]:
    """What the groups and scopes of a token grant."""
    found = [
        item.grant
        for item in settings.grants
        if item.value in (identity.groups if item.claim == "group" else identity.scopes)
    ]
    if settings.group_grants:
        found += [grant for grant in map(grant_of_group, identity.groups) if grant is not None]
    return tuple(found)


def federated_user(
    space: str, identity: Identity, listed: User | None, settings: OidcSettings, matcher_of: MatcherOf
) -> User | None:
    """The user of a space that somebody is there; nothing if it may do nothing.

    Args:
        space: ``<namespace>/<space>``.
        identity: whom the provider vouches for.
        listed: the MessagingUser of this name, if there is one.
        settings: what the token's groups and scopes mean.
        matcher_of: understands patterns of addresses.
    """
    if listed is not None:
        return User(identity.username, space, listed.permissions, identity=identity, is_listed=True)
    grants = [grant for grant in claimed_grants(identity, settings) if _is_understood(grant, matcher_of)]
    if not grants:
        return None
    permissions = Permissions(grants, matcher_of, identity.username)
    return User(identity.username, space, permissions, identity=identity)


def _is_understood(grant: Grant, matcher_of: MatcherOf) -> bool:
    """Whether its patterns are some: groups may be called as people like."""
    try:
        for pattern in grant.addresses:
            matcher_of(pattern, "")
    except (EnmasseError, ValueError):
        return False
    return True
