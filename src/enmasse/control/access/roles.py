"""The built-in roles of every installation, and the bindings that all authenticated users have.

They cannot be changed: a new version of EnMasse may know more resources, and then its roles do too.
"""

from __future__ import annotations

from typing import Final

from enmasse.identity.rbac import AUTHENTICATED, PIPELINE_HOST, Binding, Role, Rule
from enmasse.model.schema import kinds
from enmasse.model.schema.subresources import (
    BUILTINS,
    CHECK,
    CONNECTOR_TEST,
    MESSAGES,
    MOVE,
    NODES,
    OVERVIEW,
    PURGE,
    QUERY,
    RECEIVE,
    REPLAY,
    ROWS_OF_SPACES,
    TABLES,
)

_READ: Final = ("get", "list", "watch")
_WRITE: Final = (*_READ, "create", "update", "patch", "delete", "deletecollection")

_MESSAGING: Final = kinds.ADDRESS.group
_ADMIN: Final = kinds.ADDRESS_PLAN.group
_USERS: Final = kinds.MESSAGING_USER.group
_RBAC: Final = kinds.ROLE_BINDING.group

SCHEMAS: Final = f"{kinds.ADDRESS_SPACE.plural}/schemas"
"""The resource of a space's schemas in the registry."""

DEVICE_REGISTRY: Final = kinds.IOT_PROJECT.group
"""The group of projects, and of what the device registry has."""

_PLATFORM: Final = tuple(kind.plural for kind in kinds.KINDS if kind.group == _ADMIN)
_SCHEMA_RULE: Final = Rule(_READ, (_MESSAGING,), (kinds.ADDRESS_SPACE_SCHEMA.plural,))


def _below_spaces(verb: str) -> tuple[str, ...]:
    """Return what lies below spaces and can be read or deleted."""
    kind = kinds.ADDRESS_SPACE
    found = [f"{kind.plural}/{below.resource}" for below in kind.subresources if verb in below.verbs]
    return tuple(dict.fromkeys(found))  # what lies below connections needs the right to these


_VIEW_RULES: Final = (
    Rule(
        _READ,
        (_MESSAGING,),
        (
            kinds.ADDRESS_SPACE.plural,
            f"{kinds.ADDRESS_SPACE.plural}/status",
            *_below_spaces("get"),
            SCHEMAS,
            kinds.ADDRESS.plural,
            f"{kinds.ADDRESS.plural}/status",
            kinds.PIPELINE.plural,
            f"{kinds.PIPELINE.plural}/status",
            f"{kinds.PIPELINE.plural}/log",
            f"{kinds.PIPELINE.plural}/ui",
            kinds.WEBHOOK.plural,
            f"{kinds.WEBHOOK.plural}/status",
        ),
    ),
    Rule(_READ, (_USERS,), (kinds.MESSAGING_USER.plural, f"{kinds.MESSAGING_USER.plural}/status")),
    # A question, although it has a body.
    Rule(CHECK.verbs, (_USERS,), (f"{kinds.MESSAGING_USER.plural}/{CHECK.name}",)),
    Rule(
        _READ,
        ("",),
        (
            kinds.CONFIG_MAP.plural,
            kinds.SERVICE.plural,
            kinds.EVENT.plural,
            kinds.RESOURCE_QUOTA.plural,
            f"{kinds.RESOURCE_QUOTA.plural}/status",
        ),
    ),
    # What is secret is not shown of credentials, but who may come in with which name is not for everyone.
    Rule(
        _READ,
        (DEVICE_REGISTRY,),
        (
            kinds.IOT_PROJECT.plural,
            f"{kinds.IOT_PROJECT.plural}/status",
            f"{kinds.IOT_PROJECT.plural}/rows",
            "tenants",
            "devices",
        ),
    ),
    # Its own namespace, which a role bound there counts for.
    Rule(("get",), ("",), (kinds.NAMESPACE.plural,)),
)

_OF_DEVICES: Final = ("tenants", "devices", "credentials", "commands")

SERVICE_ADMIN: Final = Role(
    "enmasse.io:service-admin",
    (
        Rule(_WRITE, (_ADMIN,), _PLATFORM),
        Rule((*_READ, "update", "patch"), (_ADMIN,), tuple(f"{name}/status" for name in _PLATFORM)),
        _SCHEMA_RULE,
        *_VIEW_RULES,
        Rule(_WRITE, ("",), (kinds.NAMESPACE.plural, kinds.RESOURCE_QUOTA.plural)),
        Rule(_READ, (_RBAC,), (kinds.CLUSTER_ROLE.plural, kinds.CLUSTER_ROLE_BINDING.plural)),
        Rule(_WRITE, (_RBAC,), (kinds.ROLE_BINDING.plural,)),
        # Whose authorities and aliases are whose is told by who lets tenants in.
        Rule(("create",), (DEVICE_REGISTRY,), ("tenants/vouch", "tenants/alias")),
        # Tenants' secrets and messages stay closed to the service admin, who nevertheless lets tenants in.
        Rule(
            ("bind",),
            (_RBAC,),
            (kinds.CLUSTER_ROLE.plural,),
            ("enmasse.io:tenant-edit", "enmasse.io:tenant-view", "enmasse.io:schema-reader", "enmasse.io:schema"),
        ),
        Rule(_READ, (_MESSAGING,), (NODES.resource,)),
        Rule(("get",), paths=("/metrics", "/readyz/details")),
    ),
)
"""Owns plans, infrastructure configurations and authentication services, and lets tenants in."""

TENANT_EDIT: Final = Role(
    "enmasse.io:tenant-edit",
    (
        *_VIEW_RULES,
        Rule(
            _WRITE,
            (_MESSAGING,),
            (kinds.ADDRESS_SPACE.plural, kinds.ADDRESS.plural, kinds.PIPELINE.plural, kinds.WEBHOOK.plural),
        ),
        Rule(("delete",), (_MESSAGING,), _below_spaces("delete")),
        Rule(("create", "update", "delete"), (_MESSAGING,), (SCHEMAS,)),
        Rule(
            ("create",),
            (_MESSAGING,),
            tuple(f"{kinds.ADDRESS.plural}/{below.name}" for below in (PURGE, MOVE, REPLAY, RECEIVE)),
        ),
        # A test shows what a connector's secrets are for.
        Rule(CONNECTOR_TEST.verbs, (_MESSAGING,), (f"{kinds.ADDRESS_SPACE.plural}/{CONNECTOR_TEST.resource}",)),
        # What messages say is for those alone who may change what they are in.
        Rule(MESSAGES.verbs, (_MESSAGING,), (f"{kinds.ADDRESS.plural}/{MESSAGES.name}",)),
        # A query reads messages, which a viewer may not.
        Rule(QUERY.verbs, (_MESSAGING,), (f"{kinds.ADDRESS_SPACE.plural}/{QUERY.name}",)),
        # Below its name a table is compacted, or restored, and a model imported, or rolled back.
        Rule(
            ("create",),
            (_MESSAGING,),
            tuple(f"{kinds.ADDRESS_SPACE.plural}/{one}" for one in (TABLES.name, "models")),
        ),
        Rule(_WRITE, (_USERS,), (kinds.MESSAGING_USER.plural,)),
        Rule(_WRITE, (DEVICE_REGISTRY,), (kinds.IOT_PROJECT.plural, *_OF_DEVICES)),
        Rule(_WRITE, ("",), (kinds.CONFIG_MAP.plural, kinds.SECRET.plural, kinds.SERVICE.plural)),
    ),
)
"""Has spaces, addresses, users and secrets in a namespace."""

TENANT_VIEW: Final = Role("enmasse.io:tenant-view", _VIEW_RULES)
"""Sees what tenants have in a namespace, without their secrets."""

SCHEMA_READER: Final = Role("enmasse.io:schema-reader", (_SCHEMA_RULE,))
"""Sees which types and plans there are."""

SCHEMA: Final = Role("enmasse.io:schema", (_SCHEMA_RULE,))
"""The same, by the name that EnMasse 1.0 has for it."""

METRICS_READER: Final = Role("enmasse.io:metrics-reader", (Rule(("get",), paths=("/metrics",)),))
"""Reads the metrics and nothing else, as Prometheus does."""

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
        # These show of each namespace what one may list there.
        Rule(_READ, (_MESSAGING,), (ROWS_OF_SPACES.resource, OVERVIEW.resource)),
        # What can be declared is no secret.
        Rule(_READ, (_MESSAGING,), (BUILTINS.resource,)),
        Rule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
        Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
        # Tokens and the password of one's own; the routes check the owner.
        Rule(("update",), ("access.enmasse.io",), ("accounts/password",)),
        Rule(("get", "list", "create", "delete"), ("access.enmasse.io",), ("tokens",)),
        Rule(("list", "delete", "deletecollection"), ("access.enmasse.io",), ("sessions",)),
        # A broker's requests name namespaces in their bodies; their rights are checked then.
        Rule(("get", "put", "patch", "delete"), paths=("/osbapi/v2/*",)),
        # Of the device registry likewise: who may not know of a tenant is told that there is none.
        Rule(("get", "post", "put", "delete"), paths=("/registry/v1/*",)),
        # And of the schema registry.
        Rule(("get", "post", "put", "delete"), paths=("/schemas/v1/*",)),
    ),
)

_PIPELINE_HOST: Final = Role(
    "system:pipeline-host",
    (
        Rule(_READ, (_MESSAGING,), (kinds.PIPELINE.plural, kinds.ADDRESS_SPACE.plural, kinds.ADDRESS.plural)),
        Rule(("get",), (_MESSAGING,), (SCHEMAS,)),
        Rule(("list",), (DEVICE_REGISTRY,), ("devices",)),
        Rule(("patch",), (_MESSAGING,), (kinds.PIPELINE.plural, f"{kinds.PIPELINE.plural}/status")),
        Rule(
            _READ,
            ("",),
            (kinds.SECRET.plural, kinds.CONFIG_MAP.plural, kinds.NAMESPACE.plural, kinds.RESOURCE_QUOTA.plural),
        ),
        Rule(("patch",), ("",), (f"{kinds.RESOURCE_QUOTA.plural}/status",)),
        Rule(("get", "create", "patch"), ("",), (kinds.EVENT.plural,)),
    ),
)
"""The role of the process that runs pipelines: it reads what they name, and writes their statuses."""

ROLES: Final = {
    role.name: role
    for role in (
        SERVICE_ADMIN,
        TENANT_EDIT,
        TENANT_VIEW,
        SCHEMA_READER,
        SCHEMA,
        METRICS_READER,
        _EVERYBODY,
        _PIPELINE_HOST,
    )
}

BUILT_IN_BINDINGS: Final = (
    *(Binding(role.name, groups=frozenset({AUTHENTICATED})) for role in (_EVERYBODY, SCHEMA_READER)),
    Binding(_PIPELINE_HOST.name, users=frozenset({PIPELINE_HOST.name})),
)
"""The bindings of all authenticated users, and those of our own processes."""
