"""The roles that every installation has, and what everybody may do who has proved who they are.

Nobody changes them: a new version of EnMasse may know more resources, and then its roles do too.
"""

from __future__ import annotations

from typing import Final

from enmasse.identity.rbac import Binding, Role, Rule
from enmasse.identity.requester import AUTHENTICATED, PIPELINE_HOST

__all__ = [
    "BUILT_IN_BINDINGS",
    "ROLES",
    "SCHEMA_READER",
    "SERVICE_ADMIN",
    "TENANT_EDIT",
    "TENANT_VIEW",
]

_READ: Final = ("get", "list", "watch")
_WRITE: Final = (*_READ, "create", "update", "patch", "delete", "deletecollection")

_MESSAGING: Final = "enmasse.io"
_ADMIN: Final = "admin.enmasse.io"
_USERS: Final = "user.enmasse.io"
_RBAC: Final = "rbac.authorization.k8s.io"

_PLATFORM: Final = (
    "addressspaceplans",
    "addressplans",
    "standardinfraconfigs",
    "brokeredinfraconfigs",
    "authenticationservices",
    "consoleservices",
)
_SCHEMA_RULE: Final = Rule(_READ, (_MESSAGING,), ("addressspaceschemas",))

_VIEW_RULES: Final = (
    Rule(
        _READ,
        (_MESSAGING,),
        (
            "addressspaces",
            "addressspaces/status",
            "addressspaces/connections",
            "addressspaces/links",
            "addresses",
            "addresses/status",
            "pipelines",
            "pipelines/status",
            "pipelines/log",
        ),
    ),
    Rule(_READ, (_USERS,), ("messagingusers", "messagingusers/status")),
    Rule(_READ, ("",), ("configmaps", "services", "events")),
    # Its own namespace, which a role bound there counts for.
    Rule(("get",), ("",), ("namespaces",)),
)

SERVICE_ADMIN: Final = Role(
    "enmasse.io:service-admin",
    (
        Rule(_WRITE, (_ADMIN,), _PLATFORM),
        Rule((*_READ, "update", "patch"), (_ADMIN,), tuple(f"{name}/status" for name in _PLATFORM)),
        _SCHEMA_RULE,
        *_VIEW_RULES,
        Rule(_WRITE, ("",), ("namespaces",)),
        Rule(_READ, (_RBAC,), ("clusterroles", "clusterrolebindings")),
        Rule(_WRITE, (_RBAC,), ("rolebindings",)),
        # Tenants' secrets and messages stay closed to the service admin, who nevertheless lets tenants in.
        Rule(
            ("bind",),
            (_RBAC,),
            ("clusterroles",),
            ("enmasse.io:tenant-edit", "enmasse.io:tenant-view", "enmasse.io:schema-reader"),
        ),
        Rule(("get",), paths=("/metrics", "/readyz/details")),
    ),
)
"""Owns plans, infrastructure configurations and authentication services, and lets tenants in."""

TENANT_EDIT: Final = Role(
    "enmasse.io:tenant-edit",
    (
        *_VIEW_RULES,
        Rule(_WRITE, (_MESSAGING,), ("addressspaces", "addresses", "pipelines")),
        Rule(("delete",), (_MESSAGING,), ("addressspaces/connections",)),
        Rule(("create",), (_MESSAGING,), ("addresses/purge", "addresses/move", "addresses/replay")),
        # A query reads messages, which who only looks may not.
        Rule(("create",), (_MESSAGING,), ("addressspaces/query",)),
        Rule(_WRITE, (_USERS,), ("messagingusers",)),
        Rule(_WRITE, ("",), ("configmaps", "secrets", "services")),
    ),
)
"""Has spaces, addresses, users and secrets in a namespace."""

TENANT_VIEW: Final = Role("enmasse.io:tenant-view", _VIEW_RULES)
"""Sees what tenants have in a namespace, without their secrets."""

SCHEMA_READER: Final = Role("enmasse.io:schema-reader", (_SCHEMA_RULE,))
"""Sees which types and plans there are."""

_EVERYBODY: Final = Role(
    "system:basic-user",
    (
        Rule(
            ("get",),
            paths=(
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/openapi",
                "/openapi/*",
                "/version",
                "/version/",
                "/whoami",
            ),
        ),
        Rule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
        Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
        # Tokens and the password of one's own; the routes look whose they are.
        Rule(("update",), ("access.enmasse.io",), ("accounts/password",)),
        Rule(("get", "list", "create", "delete"), ("access.enmasse.io",), ("tokens",)),
        # A broker's requests name namespaces in their bodies; what they do is looked at then.
        Rule(("get", "put", "patch", "delete"), paths=("/osbapi/v2/*",)),
    ),
)

_PIPELINE_HOST: Final = Role(
    "system:pipeline-host",
    (
        Rule(_READ, (_MESSAGING,), ("pipelines", "addressspaces", "addresses")),
        Rule(("patch",), (_MESSAGING,), ("pipelines", "pipelines/status")),
        Rule(_READ, ("",), ("secrets", "configmaps")),
        Rule(("get", "create", "patch"), ("",), ("events",)),
    ),
)
"""Of the process that runs pipelines: it reads what they name, and says how they are."""

ROLES: Final = {
    role.name: role for role in (SERVICE_ADMIN, TENANT_EDIT, TENANT_VIEW, SCHEMA_READER, _EVERYBODY, _PIPELINE_HOST)
}

BUILT_IN_BINDINGS: Final = (
    *(Binding(role.name, groups=frozenset({AUTHENTICATED})) for role in (_EVERYBODY, SCHEMA_READER)),
    Binding(_PIPELINE_HOST.name, users=frozenset({PIPELINE_HOST.name})),
)
"""What everybody has who has proved who they are, and what processes of ours have."""
