"""What is made in a Keycloak for a space, in the words of its administration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enmasse.identity.keycloak import CLIENT

__all__ = ["CREDENTIALS", "OWNER", "SPACE", "UID", "client_form", "differs", "profile_form", "realm_form"]

OWNER, SPACE = "enmasse.owner", "enmasse.space"
"""Attributes of a realm: for whom it was made, and the uid of its space."""

UID, CREDENTIALS = "enmasse.uid", "enmasse.credentials"
"""Attributes of a user: the uid of its MessagingUser, and which password it has."""

TOKEN_S = 300
"""Until when a token is good: a connection ends with it. Keycloak's own default is one minute longer than useful."""


def realm_form(name: str, owner: str, space_uid: str) -> dict[str, Any]:
    """A realm."""
    return {
        "realm": name,
        "enabled": True,
        "accessTokenLifespan": TOKEN_S,
        # Whoever guesses is slowed down, wherever the guesses come from.
        "bruteForceProtected": True,
        "registrationAllowed": False,
        "attributes": {OWNER: owner, SPACE: space_uid},
    }


def client_form() -> dict[str, Any]:
    """The client that tokens are made out for: to whom they are meant, and the groups of the user."""
    return {
        "clientId": CLIENT,
        "name": "Messaging",
        "enabled": True,
        "publicClient": True,
        "directAccessGrantsEnabled": True,
        "standardFlowEnabled": False,
        "fullScopeAllowed": False,
        "protocolMappers": [
            _mapper("audience", "oidc-audience-mapper", {"included.client.audience": CLIENT}),
            _mapper("groups", "oidc-group-membership-mapper", {"claim.name": "groups", "full.path": "false"}),
            _mapper(
                "name",
                "oidc-usermodel-attribute-mapper",
                {"user.attribute": "username", "claim.name": "preferred_username", "jsonType.label": "String"},
            ),
        ],
    }


def _mapper(name: str, kind: str, config: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "protocol": "openid-connect",
        "protocolMapper": kind,
        "config": {**config, "access.token.claim": "true"},
    }


def profile_form() -> dict[str, Any]:
    """What a user has to say of itself: a device has neither a first name nor a mail address."""
    permissions = {"view": ["admin", "user"], "edit": ["admin"]}
    return {
        "attributes": [
            {"name": "username", "validations": {"length": {"min": 1, "max": 255}}, "permissions": permissions},
            {"name": "email", "validations": {"email": {}}, "permissions": permissions},
        ],
        "unmanagedAttributePolicy": "ADMIN_EDIT",
    }


def differs(wanted: Any, found: Any) -> bool:
    """Whether something lacks anything of what is wanted; what it has beside that is its own."""
    if isinstance(wanted, Mapping):
        return not isinstance(found, Mapping) or any(differs(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return True
        return any(all(differs(item, other) for other in found) for item in wanted)
    return bool(wanted != found)
