"""Roles and bindings: rights on the API, in the words of Kubernetes' role based access control."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from enmasse.model.schema.conditions import Unapplied
from enmasse.model.schema.errors import Problem
from enmasse.model.schema.resource import Data
from enmasse.model.schema.schema import Model, describe_value

if TYPE_CHECKING:
    from collections.abc import Iterator


_GROUP = "rbac.authorization.k8s.io"
_MAX_NAME = 253


class PolicyRule(Model):
    """Verbs on resources."""

    verbs: tuple[str, ...] = Field(strict=False)
    """`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`; `*` is every one."""
    api_groups: tuple[str, ...] = Field(default=(), strict=False)
    """The groups of the resources; empty text is the core group, `*` every one."""
    resources: tuple[str, ...] = Field(default=(), strict=False)
    """Collections, as `addresses`, or parts of their objects, as `addresses/status`; `*` is every one."""
    resource_names: tuple[str, ...] = Field(default=(), strict=False)
    """Only objects of these names."""
    non_resource_urls: tuple[str, ...] = Field(default=(), strict=False, alias="nonResourceURLs")
    """Paths that are no resources, as `/metrics`."""


class RoleReference(Model):
    """The role that is given."""

    api_group: Literal["rbac.authorization.k8s.io"] = "rbac.authorization.k8s.io"
    kind: Literal["ClusterRole"] = "ClusterRole"
    name: str


class Subject(Model):
    """A user, group or service account that gets a role."""

    kind: Literal["User", "Group", "ServiceAccount"]
    name: str
    api_group: str | None = None
    namespace: str | None = None
    """Of a ServiceAccount."""


class _Named(Data):
    def name_problem(self, name: str) -> str | None:
        """Return what is wrong with a name: these may hold colons and capitals."""
        if len(name) <= _MAX_NAME and name not in (".", "..") and not set("/% ").intersection(name):
            return None
        return (
            f"expected a name without '/', '%' and blanks, at most {_MAX_NAME} characters, got {describe_value(name)}"
        )


class ClusterRole(_Named):
    """A named set of rights; there are only those that are built in, and writing them anew changes nothing."""

    is_namespaced: ClassVar[bool] = False

    api_version: Literal["rbac.authorization.k8s.io/v1"] = "rbac.authorization.k8s.io/v1"
    kind: Literal["ClusterRole"] = "ClusterRole"
    rules: tuple[PolicyRule, ...] = Field(default=(), strict=False)

    def unapplied(self) -> Iterator[Unapplied]:
        """Yield the rules: roles are built in."""
        yield Unapplied("rules", f"roles are built in, and {self.metadata.name} stays as it is")


class _Binding(_Named):
    role_ref: RoleReference
    """Fixed: a binding to another role is another binding."""
    subjects: tuple[Subject, ...] = Field(default=(), strict=False)

    def spec_problems(self) -> Iterator[Problem]:
        """Yield what is wrong beyond the types of single fields."""
        for index, subject in enumerate(self.subjects):
            if subject.kind == "ServiceAccount" and not subject.namespace:
                yield Problem(f"subjects[{index}].namespace", "required for a ServiceAccount")
            if subject.kind != "ServiceAccount" and subject.api_group not in (None, _GROUP):
                yield Problem(
                    f"subjects[{index}].apiGroup", f"expected {_GROUP}, got {describe_value(subject.api_group)}"
                )


class ClusterRoleBinding(_Binding):
    """Gives a role everywhere."""

    is_namespaced: ClassVar[bool] = False

    api_version: Literal["rbac.authorization.k8s.io/v1"] = "rbac.authorization.k8s.io/v1"
    kind: Literal["ClusterRoleBinding"] = "ClusterRoleBinding"


class RoleBinding(_Binding):
    """Gives a role in one namespace."""

    api_version: Literal["rbac.authorization.k8s.io/v1"] = "rbac.authorization.k8s.io/v1"
    kind: Literal["RoleBinding"] = "RoleBinding"
