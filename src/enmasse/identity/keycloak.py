"""How a space and its users look in a Keycloak: names that both the node and whoever fills it agree on."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from urllib.parse import quote_plus, unquote_plus

from enmasse.identity.permissions import MANAGE, RECV, SEND, VIEW, Grant

__all__ = [
    "CLIENT",
    "PASSWORD_ALGORITHM",
    "PASSWORD_ITERATIONS",
    "grant_of_group",
    "group_of",
    "hashed_password",
    "realm_name",
]

CLIENT = "messaging"
"""The client of each realm for which tokens are made out."""

PASSWORD_ALGORITHM = "pbkdf2-sha512"  # noqa: S105  the name of an algorithm
"""One of Keycloak's own. It hashes the password in its present way at the user's first login."""

PASSWORD_ITERATIONS = 210_000
"""What Keycloak does for this algorithm."""

MAX_REALM_CHARACTERS = 200
"""Keycloak's column holds 255."""

_WHOLE_SPACE = {"monitor": VIEW, "manage": MANAGE}
"""Group to operation; the others carry an address in their names."""

_FOREIGN = re.compile(r"[^a-zA-Z0-9._-]")


def realm_name(namespace: str, space: str) -> str:
    """The name of a space's realm: another one for every space, readable, and good for a URL."""
    name = f"{namespace}-{space}"
    cleaned = _FOREIGN.sub("-", name)[:MAX_REALM_CHARACTERS]
    # a-b/c and a/b-c are not the same space.
    mark = hashlib.sha256(f"{namespace}/{space}".encode()).hexdigest()[:8]
    return cleaned if "-" not in namespace and "-" not in space and cleaned == name else f"{cleaned}-{mark}"


def hashed_password(password: str, salt: bytes, iterations: int) -> dict[str, object]:
    """What Keycloak is given in place of a password: the credential's ``secretData`` and ``credentialData``.

    Args:
        password: any text.
        salt: fresh random bytes.
        iterations: how slow it is to guess; ``PASSWORD_ITERATIONS`` take some 100 ms.
    """
    value = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, iterations, 64)
    return {
        "secretData": {"value": b64encode(value).decode(), "salt": b64encode(salt).decode()},
        "credentialData": {"hashIterations": iterations, "algorithm": PASSWORD_ALGORITHM},
    }


def group_of(operation: str, address: str = "") -> str:
    """The name of the group whose members may do one thing.

    Args:
        operation: send, recv, view or manage.
        address: a pattern, for send and recv.
    """
    for group, meant in _WHOLE_SPACE.items():
        if operation == meant:
            return group
    return f"{operation}_{quote_plus(address)}"


def grant_of_group(group: str) -> Grant | None:
    """What the members of a group may do; nothing if its name says nothing of that."""
    if group in _WHOLE_SPACE:
        return Grant((_WHOLE_SPACE[group],))
    operation, _, address = group.partition("_")
    return Grant((operation,), (unquote_plus(address),)) if operation in (SEND, RECV) and address else None
