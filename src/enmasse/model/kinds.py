"""The kinds of resources: how each is named in YAML, in paths and on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from enmasse.model.addresses import Address
from enmasse.model.authentication import AuthenticationService
from enmasse.model.console import ConsoleService
from enmasse.model.core import ConfigMap, Event, Namespace, Secret, Service
from enmasse.model.errors import InvalidResourceError, Problem
from enmasse.model.former import in_present_form
from enmasse.model.infra import BrokeredInfraConfig, StandardInfraConfig
from enmasse.model.pipelines import Pipeline
from enmasse.model.plans import PLAN_NAMESPACE, AddressPlan, AddressSpacePlan
from enmasse.model.rbac import ClusterRole, ClusterRoleBinding, RoleBinding
from enmasse.model.schema import describe_value, explain, without_nulls
from enmasse.model.space_schema import AddressSpaceSchema
from enmasse.model.spaces import AddressSpace
from enmasse.model.users import MessagingUser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from enmasse.model.resource import Resource

__all__ = ["KINDS", "Kind", "Scope", "decode", "kind_named", "kind_of", "restore"]

Scope = Literal["Namespaced", "Cluster"]

_FOREIGN_METADATA = ("managedFields", "selfLink")  # other servers write them into exported YAML


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of resources.

    Attributes:
        model: the class that holds one.
        group: the API group; empty for the core group of Kubernetes.
        versions: of the group, in which it is served; it is kept in the first. All have the same fields.
        plural: the collection's name in paths.
        short_names: what the command line takes as well.
        default_namespace: where one lies when nothing else is said; empty for what lies in none.
        is_read_only: whether only the service itself writes it.
    """

    model: type[Resource]
    group: str
    versions: tuple[str, ...]
    plural: str
    short_names: tuple[str, ...] = ()
    default_namespace: str = "default"
    is_read_only: bool = False

    @property
    def name(self) -> str:
        """As ``kind:`` has it."""
        return str(self.model.model_fields["kind"].default)

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
        """Whether it lies in a namespace, or is of the whole installation."""
        return "Namespaced" if self.model.is_namespaced else "Cluster"

    @property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.name.lower()

    @property
    def is_ours(self) -> bool:
        """Whether it is a kind of EnMasse, not one of Kubernetes."""
        return self.group.endswith("enmasse.io")

    def api_version_of(self, version: str) -> str:
        """Return group and one version, as ``apiVersion:`` has it."""
        return f"{self.group}/{version}" if self.group else version

    def base_path(self, version: str | None = None) -> str:
        """Return the path of a version of the group, as ``/apis/enmasse.io/v1beta1`` or ``/api/v1``."""
        return f"/{'apis' if self.group else 'api'}/{self.api_version_of(version or self.version)}"


_ADMIN, _ENMASSE, _USER, _RBAC = "admin.enmasse.io", "enmasse.io", "user.enmasse.io", "rbac.authorization.k8s.io"

KINDS: tuple[Kind, ...] = (
    Kind(model=Namespace, group="", versions=("v1",), plural="namespaces", short_names=("ns",), default_namespace=""),
    Kind(model=ConfigMap, group="", versions=("v1",), plural="configmaps", short_names=("cm",)),
    Kind(model=Secret, group="", versions=("v1",), plural="secrets"),
    Kind(model=Service, group="", versions=("v1",), plural="services", short_names=("svc",)),
    Kind(model=Event, group="", versions=("v1",), plural="events", short_names=("ev",)),
    Kind(
        model=ClusterRole,
        group=_RBAC,
        versions=("v1",),
        plural="clusterroles",
        default_namespace="",
        is_read_only=True,
    ),
    Kind(model=ClusterRoleBinding, group=_RBAC, versions=("v1",), plural="clusterrolebindings", default_namespace=""),
    Kind(model=RoleBinding, group=_RBAC, versions=("v1",), plural="rolebindings"),
    Kind(
        model=AuthenticationService,
        group=_ADMIN,
        versions=("v1beta1",),
        plural="authenticationservices",
        short_names=("authsvc",),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        model=StandardInfraConfig,
        group=_ADMIN,
        versions=("v1beta1",),
        plural="standardinfraconfigs",
        short_names=("sinfra",),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        model=BrokeredInfraConfig,
        group=_ADMIN,
        versions=("v1beta1",),
        plural="brokeredinfraconfigs",
        short_names=("binfra",),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        model=AddressPlan,
        group=_ADMIN,
        versions=("v1beta2", "v1beta1"),
        plural="addressplans",
        short_names=("plan", "plans", "aplan", "aplans"),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        model=AddressSpacePlan,
        group=_ADMIN,
        versions=("v1beta2", "v1beta1"),
        plural="addressspaceplans",
        short_names=("splan", "splans", "spaceplan", "spaceplans"),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        model=ConsoleService,
        group=_ADMIN,
        versions=("v1beta1",),
        plural="consoleservices",
        short_names=("console",),
        default_namespace=PLAN_NAMESPACE,
    ),
    Kind(
        model=AddressSpaceSchema,
        group=_ENMASSE,
        versions=("v1beta1",),
        plural="addressspaceschemas",
        default_namespace="",
        is_read_only=True,
    ),
    Kind(
        model=AddressSpace,
        group=_ENMASSE,
        versions=("v1beta1",),
        plural="addressspaces",
        short_names=("space", "spaces"),
    ),
    Kind(model=Address, group=_ENMASSE, versions=("v1beta1",), plural="addresses", short_names=("addr",)),
    Kind(
        model=MessagingUser,
        group=_USER,
        versions=("v1beta1",),
        plural="messagingusers",
        short_names=("muser", "musers"),
    ),
    Kind(
        model=Pipeline,
        group=_ENMASSE,
        versions=("v1beta1",),
        plural="pipelines",
        short_names=("pl", "pipe", "pipes"),
    ),
)
"""In the order in which they are best applied: what is referred to comes first."""

_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_ANY_NAME = {name: kind for kind in KINDS for name in (kind.singular, kind.plural, *kind.short_names)}


def kind_of(resource: Resource) -> Kind:
    """Return the kind of an object."""
    return _BY_NAME[resource.kind]


def kind_named(name: str) -> Kind | None:
    """Return the kind with this name, plural or short name, in any case of letters."""
    return _BY_ANY_NAME.get(name.lower())


def decode(document: Any) -> Resource:
    """Turn a document, as YAML or JSON gives it, into a valid object.

    What a user says about ``status`` is left out: controllers write it.

    Raises:
        InvalidResourceError: with every problem that was found.
    """
    if not isinstance(document, dict):
        problem = Problem(
            "", f"expected a map with apiVersion, kind, metadata and spec, got {describe_value(document)}"
        )
        raise InvalidResourceError("the document", [problem])
    document = without_nulls(document)
    kind = _kind_of_document(document)
    document.pop("status", None)
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        document["metadata"] = {key: metadata[key] for key in metadata if key not in _FOREIGN_METADATA}
    subject = _subject(kind.name, metadata)
    document = in_present_form(document | {"apiVersion": kind.api_version})
    if "spec" in document and kind.model.model_fields["spec"].exclude:
        raise InvalidResourceError(subject, [Problem("spec", f"unknown field: a {kind.name} has no spec")])
    try:
        resource = kind.model.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise InvalidResourceError(subject, explain(error, kind.model)) from None
    if problems := list(resource.problems()):
        raise InvalidResourceError(subject, problems)
    return resource.settled()


def _kind_of_document(document: dict[str, Any]) -> Kind:
    name, version = document.get("kind"), document.get("apiVersion")
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is None:
        problem = Problem("kind", _wrong_kind(name, _BY_NAME))
        raise InvalidResourceError("the document", [problem])
    if version not in kind.api_versions:
        expected = " or ".join(kind.api_versions)
        message = f"expected {expected} for kind {kind.name}, got {describe_value(version)}"
        raise InvalidResourceError(_subject(kind.name, document.get("metadata")), [Problem("apiVersion", message)])
    return kind


def _wrong_kind(found: Any, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(found, names, n=1) if isinstance(found, str) else []
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"expected one of {', '.join(names)}, got {describe_value(found)}{hint}"


def _subject(kind: str, metadata: Any) -> str:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind} {name}" if isinstance(name, str) and name else kind


def restore(document: dict[str, Any]) -> Resource:
    """Turn the stored form of an object, status included, back into the object.

    Who has set which fields is left out: only the store's writers ask, and they ask the stored form.
    """
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    return _BY_NAME[document["kind"]].model.model_validate(document | {"metadata": metadata})
