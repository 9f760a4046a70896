"""Users of identity providers: their permissions in a space, and the names of realms and groups in Keycloak.

Rules:
1. The permissions of a MessagingUser of the same name replace those of the token: a revoked permission ends at once.
2. Without a MessagingUser, the groups and scopes of the token grant what the settings map them to.
3. A user without any permission is refused.

The node and the realm controller derive the same names from a space and its permissions.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from urllib.parse import quote_plus, unquote_plus

from enmasse.errors import EnmasseError
from enmasse.identity.oidc import Identity
from enmasse.identity.oidc_settings import OidcSettings
from enmasse.identity.permissions import MANAGE, RECV, SEND, VIEW, Grant, MatcherOf, Permissions
from enmasse.identity.users import User


def claimed_grants(identity: Identity, settings: OidcSettings) -> tuple[Grant, ...]:
    """Return the grants of a token's groups and scopes."""
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
    """Return the user of a space for an identity of a provider; None if it has no permission there.

    Args:
        space: ``<namespace>/<space>``.
        identity: the identity as the provider states it.
        listed: the MessagingUser of this name, if there is one.
        settings: map groups and scopes to permissions.
        matcher_of: compiles patterns of addresses.
    """
    if listed is not None:
        # A provider of others may give the name to somebody else, and has a permanent id for each.
        uid = listed.uid if settings.has_our_users else ""
        return User(
            identity.username,
            space,
            listed.permissions,
            identity=identity,
            is_listed=True,
            uid=uid,
            client_ids=listed.client_ids,
        )
    grants = [grant for grant in claimed_grants(identity, settings) if _is_understood(grant, matcher_of)]
    if not grants:
        return None
    permissions = Permissions(grants, matcher_of, identity.username)
    return User(identity.username, space, permissions, identity=identity)


def _is_understood(grant: Grant, matcher_of: MatcherOf) -> bool:
    # A group can have any name, so its pattern may be invalid.
    try:
        for pattern in grant.addresses:
            matcher_of(pattern, "")
    except (EnmasseError, ValueError):
        return False
    return True


CLIENT = "messaging"
"""The client of each realm that tokens are issued for."""

PASSWORD_ALGORITHM = "pbkdf2-sha512"  # noqa: S105  the name of an algorithm
"""One of Keycloak's own. It hashes the password in its present way at the user's first login."""

PASSWORD_ITERATIONS = 210_000
"""Keycloak's default for this algorithm."""

MAX_REALM_CHARACTERS = 200
"""Keycloak's column holds 255."""

_WHOLE_SPACE = {"monitor": VIEW, "manage": MANAGE}
"""Group to operation; names of other groups contain an address."""

_FOREIGN = re.compile(r"[^a-zA-Z0-9._-]")


def realm_name(namespace: str, space: str) -> str:
    """Return the name of a space's realm: unique for each space, readable, and safe in a URL."""
    name = f"{namespace}-{space}"
    cleaned = _FOREIGN.sub("-", name)[:MAX_REALM_CHARACTERS]
    # a-b/c and a/b-c are not the same space.
    mark = hashlib.sha256(f"{namespace}/{space}".encode()).hexdigest()[:8]
    return cleaned if "-" not in namespace and "-" not in space and cleaned == name else f"{cleaned}-{mark}"


def hashed_password(password: str, salt: bytes, iterations: int) -> dict[str, object]:
    """Return a credential for Keycloak in place of a password: its ``secretData`` and ``credentialData``.

    Args:
        password: any text.
        salt: fresh random bytes.
        iterations: the cost of one guess; ``PASSWORD_ITERATIONS`` take some 100 ms.
    """
    value = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations, 64)
    return {
        "secretData": {"value": b64encode(value).decode(), "salt": b64encode(salt).decode()},
        "credentialData": {"hashIterations": iterations, "algorithm": PASSWORD_ALGORITHM},
    }


def group_of(operation: str, address: str = "") -> str:
    """Return the name of the group whose members have one permission.

    Args:
        operation: send, recv, view or manage.
        address: a pattern, for send and recv.
    """
    for group, meant in _WHOLE_SPACE.items():
        if operation == meant:
            return group
    return f"{operation}_{quote_plus(address)}"


def grant_of_group(group: str) -> Grant | None:
    """Return the grant of a group's members; None if its name does not encode one."""
    if group in _WHOLE_SPACE:
        return Grant((_WHOLE_SPACE[group],))
    operation, _, address = group.partition("_")
    return Grant((operation,), (unquote_plus(address),)) if operation in (SEND, RECV) and address else None
