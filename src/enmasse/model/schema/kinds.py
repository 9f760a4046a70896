"""The kinds of resources: their names in YAML, in paths and on the command line, and the columns of their lists.

The classes are in ``kinds/``: most commands need names alone, and start sooner without them.

Rules for the columns, which are the printer columns of tables and of CRDs:
1. A column is a path into the object, in the small part of JSONPath that CRDs allow: names and ``[0]``.
2. Columns of priority 0 are always shown, those of priority 1 where there is room (``-o wide``).
3. Every kind ends with its age.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from enmasse.model.schema.names import PLAN_NAMESPACE
from enmasse.model.schema.subresources import (
    CHECK,
    CONNECTIONS,
    CONNECTOR_TEST,
    LINKS,
    MESSAGES,
    MOVE,
    PURGE,
    QUERY,
    RECEIVE,
    REPLAY,
    RETAINED,
    ROWS,
    SERIES,
    SESSIONS,
    TABLES,
    TRACE,
    WILLS,
    Subresource,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from enmasse.model.schema.resource import Resource

PLANS_WITH_MQTT: Final = {
    f"standard-{size}-with-mqtt": f"standard-{size}" for size in ("small", "medium", "unlimited")
}
"""Plans of EnMasse 1.0 for spaces that speak MQTT, as every space does, and those that they mean."""

DEFAULT_SPACE_PLANS: Final = {"standard": "standard-small", "brokered": "brokered-single-broker"}
"""The plans of spaces that name none, by their types."""

_PART = re.compile(r"\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\[(?P<index>[0-9]+)\]")


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column.

    Attributes:
        name: its heading.
        path: the place of the value, as in ``.status.messages[0]``; empty: it is computed.
        description: a sentence on its content.
        type: the type of the value; a ``date`` is shown as the time since then.
        priority: 0, or 1 for what only wide tables show.
        empty: the text of our own command line where there is no value.
    """

    name: str
    path: str
    description: str
    type: Literal["string", "integer", "number", "boolean", "date"] = "string"
    priority: int = 0
    empty: str = "-"


AGE: Final = Column("Age", ".metadata.creationTimestamp", "How long ago it was created.", "date")


def quota_used(document: Mapping[str, Any], *, of_limits: bool = False) -> str:
    """Return the usage and the bounds of a ResourceQuota, as Kubernetes shows them.

    Args:
        document: the quota.
        of_limits: show the bounds named ``limits.*`` alone, instead of all others.
    """
    status = document.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    names = [name for name in sorted(hard) if name.startswith("limits.") is of_limits]
    return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)


def value_at(document: Mapping[str, Any], path: str) -> Any:
    """Return the value at a column's path in an object, or None where there is none."""
    value: Any = document
    for part in _PART.finditer(path):
        name, index = part["name"], part["index"]
        if name is not None:
            value = value.get(name) if isinstance(value, dict) else None
        else:
            value = value[int(index)] if isinstance(value, list) and len(value) > int(index) else None
    return value


Scope = Literal["Namespaced", "Cluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of resources.

    Attributes:
        name: the name as ``kind:`` has it.
        group: the API group; empty for the core group of Kubernetes.
        versions: the versions of the group, in which it is served; it is kept in the first. All have the same fields.
        plural: the collection's name in paths.
        short_names: the names that the command line takes as well.
        default_namespace: the namespace where none is named; empty for kinds without namespace.
        is_read_only: only the service itself writes it.
        is_in_space: each belongs to a space, with whose name its own begins.
        is_judged: controllers write its status, as they do for every kind of ours that is not read-only.
        subresources: the subresources of each object beside its status.
        called: the field of the spec by which people call one, rather than by its name; empty: there is none.
        columns: the columns of lists beside the name and the age, for ``kubectl`` and in CRDs.
        table: the columns of our own command line instead, the age included; empty: the same.
    """

    name: str
    group: str
    versions: tuple[str, ...]
    plural: str
    short_names: tuple[str, ...] = ()
    default_namespace: str = "default"
    is_read_only: bool = False
    is_in_space: bool = False
    is_judged: bool = False
    subresources: tuple[Subresource, ...] = ()
    called: str = ""
    columns: tuple[Column, ...] = ()
    table: tuple[Column, ...] = ()

    @property
    def version(self) -> str:
        """The version in which it is kept."""
        return self.versions[0]

    @property
    def api_version(self) -> str:
        """Group and version in which it is kept, as ``apiVersion:`` has it."""
        return self.api_version_of(self.version)

    @property
    def api_versions(self) -> tuple[str, ...]:
        """Everything that ``apiVersion:`` may say, the one in which it is kept first."""
        return tuple(self.api_version_of(version) for version in self.versions)

    @property
    def scope(self) -> Scope:
        """``Namespaced``, or ``Cluster`` for a kind of the whole installation."""
        return "Namespaced" if self.default_namespace else "Cluster"

    @property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.name.lower()

    @property
    def is_ours(self) -> bool:
        """True for a kind of EnMasse, not one of Kubernetes."""
        return self.group.endswith("enmasse.io")

    @property
    def has_status(self) -> bool:
        """True if the kind has a status, which controllers write."""
        return self.is_judged or (self.is_ours and not self.is_read_only)

    @property
    def printer_columns(self) -> tuple[Column, ...]:
        """All columns of its lists but the name."""
        return (*self.columns, AGE)

    def api_version_of(self, version: str) -> str:
        """Return group and one version, as ``apiVersion:`` has it."""
        return f"{self.group}/{version}" if self.group else version

    def base_path(self, version: str | None = None) -> str:
        """Return the path of a version of the group, as ``/apis/enmasse.io/v1beta1`` or ``/api/v1``."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version_of(version or self.version)}"


_ADMIN, _ENMASSE, _USER, _RBAC = "admin.enmasse.io", "enmasse.io", "user.enmasse.io", "rbac.authorization.k8s.io"
_IOT = "iot.enmasse.io"
_FORMER = "v1alpha1"
"""The version before EnMasse 1.0's, of the same form."""

_TYPE = Column("Type", ".spec.type", "The type.")
_PLAN = Column("Plan", ".spec.plan", "The plan that was asked for.")
_READY = Column("Ready", ".status.isReady", "Whether it can be used.", "boolean")
_PHASE = Column("Phase", ".status.phase", "How far it has come.")
_STATUS = Column("Status", ".status.messages[0]", "What it waits for.", priority=1)
_PLAN_TYPES = Column("Type", ".spec.addressType", "The type of addresses it is for.")
_SPACE_TYPES = Column("Type", ".spec.addressSpaceType", "The type of spaces it is for.")
_ADDRESS = Column("Address", ".spec.address", "What applications call it.")
_DESCRIPTION = Column("Description", ".spec.shortDescription", "What it is for.", priority=1)
_VERSION = Column("Version", ".spec.version", "The version it was made for.")

# Columns of our own command line, which computes those without a path: see ``cli/columns``.
_HAS_PLAN = Column("Plan", "", "The plan in effect.")
_IS_READY = Column("Ready", "", "Whether it is ready in its present generation.")
_PHASE_SO_FAR = Column("Phase", ".status.phase", "How far it has come.", empty="Pending")
_MESSAGE = Column("Message", "", "Why it is not ready, or what of it does not work.", priority=1)

KINDS: tuple[Kind, ...] = (
    Kind(
        name="Namespace", group="", versions=("v1",), plural="namespaces", short_names=("ns",), default_namespace=""
    ),
    Kind(
        name="ResourceQuota",
        group="",
        versions=("v1",),
        plural="resourcequotas",
        short_names=("quota",),
        is_judged=True,
        table=(Column("Used", "", "What is used, and what there may be."), AGE),
    ),
    Kind(name="ConfigMap", group="", versions=("v1",), plural="configmaps", short_names=("cm",)),
    Kind(name="Secret", group="", versions=("v1",), plural="secrets"),
    Kind(name="Service", group="", versions=("v1",), plural="services", short_names=("svc",)),
    Kind(name="Event", group="", versions=("v1",), plural="events", short_names=("ev",)),
    Kind(
        name="ClusterRole",
        group=_RBAC,
        versions=("v1",),
        plural="clusterroles",
        default_namespace="",
    ),
    Kind(
        name="ClusterRoleBinding", group=_RBAC, versions=("v1",), plural="clusterrolebindings", default_namespace=""
    ),
    Kind(name="RoleBinding", group=_RBAC, versions=("v1",), plural="rolebindings"),
    Kind(
        name="AuthenticationService",
        group=_ADMIN,
        versions=("v1beta1",),
        plural="authenticationservices",
        short_names=("authsvc",),
        columns=(_TYPE, _PHASE, _STATUS),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        name="StandardInfraConfig",
        group=_ADMIN,
        versions=("v1beta1",),
        plural="standardinfraconfigs",
        short_names=("sinfra",),
        columns=(_VERSION,),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        name="BrokeredInfraConfig",
        group=_ADMIN,
        versions=("v1beta1",),
        plural="brokeredinfraconfigs",
        short_names=("binfra",),
        columns=(_VERSION,),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        name="AddressPlan",
        group=_ADMIN,
        versions=("v1beta2", "v1beta1"),
        plural="addressplans",
        short_names=("plan", "plans", "aplan", "aplans"),
        columns=(_PLAN_TYPES, _READY, _DESCRIPTION),
        table=(
            _PLAN_TYPES,
            Column("Partitions", ".spec.partitions", "Of a stream.", empty="1"),
            _IS_READY,
            AGE,
            _MESSAGE,
        ),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        name="AddressSpacePlan",
        group=_ADMIN,
        versions=("v1beta2", "v1beta1"),
        plural="addressspaceplans",
        short_names=("splan", "splans", "spaceplan", "spaceplans"),
        columns=(_SPACE_TYPES, _READY, _DESCRIPTION),
        table=(_SPACE_TYPES, Column("Plans", "", "How many address plans it offers."), _IS_READY, AGE, _MESSAGE),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        name="ConsoleService",
        group=_ADMIN,
        versions=("v1beta1",),
        plural="consoleservices",
        short_names=("console",),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        name="MessagingNode",
        group=_ADMIN,
        versions=("v1beta1",),
        plural="messagingnodes",
        short_names=("mnode", "mnodes"),
        default_namespace="",
        columns=(
            _READY,
            _PHASE,
            Column("Cordoned", ".spec.unschedulable", "Whether no new space is placed on it.", "boolean"),
            Column("Spaces", ".status.spaces", "How many spaces are at home on it.", "integer"),
            _STATUS,
        ),
    ),
    Kind(
        name="AddressSpaceSchema",
        group=_ENMASSE,
        versions=("v1beta1", _FORMER),
        plural="addressspaceschemas",
        default_namespace="",
        is_read_only=True,
    ),
    Kind(
        name="AddressSpace",
        group=_ENMASSE,
        versions=("v1beta1", _FORMER),
        plural="addressspaces",
        short_names=("space", "spaces"),
        subresources=(
            CONNECTIONS,
            LINKS,
            SESSIONS,
            WILLS,
            RETAINED,
            ROWS,
            SERIES,
            TRACE,
            QUERY,
            TABLES,
            CONNECTOR_TEST,
        ),
        columns=(
            _TYPE,
            _PLAN,
            _READY,
            _PHASE,
            _STATUS,
            Column("Host", ".status.endpointStatuses[0].serviceHost", "Where it is reached.", priority=1),
            Column("Home", ".status.home", "The node that has its addresses.", priority=1),
        ),
        table=(
            _TYPE,
            _HAS_PLAN,
            _IS_READY,
            _PHASE_SO_FAR,
            AGE,
            Column("Home", ".status.home", "The node that has its addresses.", priority=1),
            _MESSAGE,
        ),
    ),
    Kind(
        name="Address",
        group=_ENMASSE,
        versions=("v1beta1", _FORMER),
        plural="addresses",
        short_names=("addr",),
        is_in_space=True,
        subresources=(PURGE, MOVE, REPLAY, MESSAGES, RECEIVE),
        called="address",
        columns=(
            _ADDRESS,
            _TYPE,
            _PLAN,
            _READY,
            _PHASE,
            _STATUS,
            Column("Broker", ".status.brokerStatuses[0].brokerId", "What stores its messages.", priority=1),
        ),
        table=(
            _ADDRESS,
            _TYPE,
            _HAS_PLAN,
            _IS_READY,
            _PHASE_SO_FAR,
            AGE,
            Column("Topic", ".spec.topic", "Of a subscription.", priority=1),
            Column("Partitions", ".status.planStatus.partitions", "Of a stream.", priority=1),
            _MESSAGE,
        ),
    ),
    Kind(
        name="MessagingUser",
        group=_USER,
        versions=("v1beta1", _FORMER),
        plural="messagingusers",
        short_names=("muser", "musers"),
        is_in_space=True,
        called="username",
        subresources=(CHECK,),
        columns=(
            Column("Username", ".spec.username", "The name that the user logs in with."),
            Column("Type", ".spec.authentication.type", "How the user proves to be who it is."),
            _PHASE,
            _STATUS,
        ),
    ),
    Kind(
        name="Pipeline",
        group=_ENMASSE,
        versions=("v1beta1",),
        plural="pipelines",
        short_names=("pl", "pipe", "pipes"),
        is_in_space=True,
        subresources=(
            Subresource("log", ("get",), answer="text", query=("follow", "tail")),
            Subresource("ui", ("get",), answer="text"),
        ),
        columns=(
            _READY,
            _PHASE,
            Column("Rows", ".status.rows", "How many rows it has read since it was started.", "integer"),
            Column("Rate", ".status.rate", "How many rows it reads a second.", "number"),
            Column("Lag", ".status.lag", "How many rows are there and not read yet.", "integer"),
            _STATUS,
            Column("Builtin", ".spec.builtin.name", "The built-in pipeline that it is.", priority=1),
            Column("Trigger", ".spec.trigger", "How often it looks for new rows.", priority=1),
        ),
    ),
    Kind(
        name="Webhook",
        group=_ENMASSE,
        versions=("v1beta1",),
        plural="webhooks",
        short_names=("hook", "hooks"),
        is_in_space=True,
        columns=(
            _ADDRESS,
            Column("URL", ".spec.url", "Where messages are posted to."),
            _READY,
            _PHASE,
            Column("Delivered", ".status.delivered", "Messages that were taken.", "integer"),
            Column("Failed", ".status.failed", "Requests without success.", "integer"),
            _STATUS,
        ),
    ),
    Kind(
        name="IoTProject",
        group=_IOT,
        versions=("v1alpha1",),
        plural="iotprojects",
        short_names=("iot",),
        columns=(
            Column("Tenant", ".status.tenant", "The tenant of its devices."),
            _READY,
            _PHASE,
            _STATUS,
        ),
    ),
)
"""In the order to apply them: objects that others refer to come first."""

(
    NAMESPACE, RESOURCE_QUOTA, CONFIG_MAP, SECRET, SERVICE, EVENT,
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING,
    AUTHENTICATION_SERVICE, STANDARD_INFRA_CONFIG, BROKERED_INFRA_CONFIG, ADDRESS_PLAN, ADDRESS_SPACE_PLAN,
    CONSOLE_SERVICE, MESSAGING_NODE, ADDRESS_SPACE_SCHEMA, ADDRESS_SPACE, ADDRESS, MESSAGING_USER, PIPELINE,
    WEBHOOK, IOT_PROJECT,
) = KINDS  # fmt: skip

IN_SPACES = tuple(kind for kind in reversed(KINDS) if kind.is_in_space)
"""Kinds whose objects belong to a space and are deleted with it: readers and writers before what they use."""

WRITTEN_IN_LISTS = (ADDRESS,)
"""Kinds of which one request writes several objects: there are many of them, and no write of one needs slow work."""

MAX_IN_LIST = 50
"""Objects that one request writes at most: it takes a tenth of a second, in which the API does nothing else."""

_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_ANY_NAME = {name: kind for kind in KINDS for name in (kind.singular, kind.plural, *kind.short_names)}


def kind_of(resource: Resource) -> Kind:
    """Return the kind of an object."""
    return _BY_NAME[resource.kind]


def kind_named(name: str) -> Kind | None:
    """Return the kind with this name, plural or short name, in any case of letters."""
    return _BY_ANY_NAME.get(name.lower())
